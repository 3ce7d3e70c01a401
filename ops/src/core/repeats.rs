//! Elements repeated, and elements shifted and turned around.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::Tensor;

use super::arrays::rearranged;
use super::parts;
use super::promotion::{named_dims, position};
use super::{atleast_1d, flatten, piece, read_as, transpose};
use crate::prims;

// Declares repetitions of a whole tensor: as often as the argument says along each dimension, counted from the last.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor, $counts: Vec<usize>) -> Tensor;

        fn requires(input: &TensorMeta, $counts: &[usize]) -> Result<()> {
            require!(
                $fits($counts.len(), input.rank()),
                Counts,
                "{} is {:?}, expected a number for each dimension of input, of shape {:?}",
                stringify!($counts),
                $counts,
                input.shape()
            );
            Ok(())
        }

        fn decomposition(input: Tensor, $counts: &[usize]) -> Tensor {
            repeated(input, $counts)
        }

        fn reference(input: &ReferenceTensor, $counts: &[usize]) -> ReferenceTensor {
            let rank = input.shape().len().max($counts.len());
            let padded = |values: &[usize]| [vec![1; rank - values.len()], values.to_vec()].concat();
            let (own, counts) = (padded(input.shape()), padded($counts));
            let shape: Vec<usize> = own.iter().zip(&counts).map(|(extent, count)| extent * count).collect();
            rearranged(input, &shape, 0.0, |at| {
                Some((rank - input.shape().len()..rank).map(|i| at[i] % own[i]).collect())
            })
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([2, 3]), [2, 2]));
            s.case(with(s.normal([2, 3]), [3, 1, 2]));
            s.case(with(s.normal([2, 3]), [1, 1]));
            s.case(with(s.normal([2]), [0]));
            s.case(with(s.normal([]), [2]));
            $more
        }

        fn errors(e: &mut ErrorSamples) {
            $errors
        }
    }

    table($name, $torch, $counts, $fits, $more, $errors) {
        /// `input` repeated along each dimension as `repeats` says, which may have more dimensions than `input`.
        repeat, "Tensor.repeat", repeats, covers,
            {},
            { e.case(Counts, with(e.normal([2, 3]), [2]), "a number for each dimension"); };
        /// `input` repeated along each dimension as `dims` says; dimensions that are missing in front count as one.
        tile, "tile", dims, few,
            { s.case(with(s.normal([2, 3]), [2])); },
            { e.case(Counts, with(e.normal([1]), [1; 65]), "a number for each dimension"); };
    }
}

/// Each element `repeats` times, one after another, along `dim`; of the flattened tensor if `dim` is absent.
#[operator(torch = "repeat_interleave")]
pub mod repeat_interleave {
    fn repeat_interleave(input: Tensor, repeats: usize, #[default(None)] dim: Option<i64>) -> Tensor;

    fn requires(input: &TensorMeta, dim: Option<i64>) -> Result<()> {
        dim.map(|dim| normalize_dim(dim, input.rank())).transpose()?;
        Ok(())
    }

    fn decomposition(input: Tensor, repeats: usize, dim: Option<i64>) -> Tensor {
        let (input, dim) = match dim {
            Some(dim) => (atleast_1d(input), position(dim, input.rank())),
            None => (flatten(input), 0),
        };
        if repeats == 1 {
            return input;
        }
        let mut shape = input.shape().to_vec();
        let dims: Vec<usize> = (0..shape.len() + 1).filter(|i| *i != dim + 1).collect();
        shape.insert(dim + 1, repeats);
        let spread = prims::broadcast_in_dim(input, &shape, dims);
        shape.remove(dim + 1);
        shape[dim] = shape[dim].saturating_mul(repeats);
        prims::reshape(spread, shape)
    }

    fn reference(input: &ReferenceTensor, repeats: usize, dim: Option<i64>) -> ReferenceTensor {
        let mut shape = input.shape().to_vec();
        let Some(dim) = dim.filter(|_| !shape.is_empty()) else {
            let count: usize = shape.iter().product();
            return rearranged(input, &[count * repeats], 0.0, |at| {
                let mut rest = at[0] / repeats;
                let mut from = vec![0; shape.len()];
                for (place, extent) in from.iter_mut().zip(&shape).rev() {
                    (*place, rest) = (rest % extent, rest / extent);
                }
                Some(from)
            });
        };
        let dim = dim.rem_euclid(shape.len() as i64) as usize;
        shape[dim] *= repeats;
        rearranged(input, &shape, 0.0, |at| {
            let mut from = at.to_vec();
            from[dim] /= repeats;
            Some(from)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3]), 2));
        s.case(with(s.normal([2, 3]), 3).dim(-1));
        s.case(with(s.normal([3, 3]), 2).dim(0));
        s.case(with(s.normal([]), 2));
        s.case(with(s.normal([3]), 1).dim(0));
        s.case(with(s.normal([3]), 0).dim(0));
    }
}

/// Elements shifted by `shifts` places along `dims`; those that leave the end enter at the beginning. Without `dims`
/// the flattened tensor is shifted, and its shape kept.
#[operator(torch = "roll", complex)]
pub mod roll {
    fn roll(input: Tensor, shifts: Vec<i64>, #[default(vec![])] dims: Vec<i64>) -> Tensor;

    fn requires(input: &TensorMeta, shifts: &[i64], dims: &[i64]) -> Result<()> {
        let expected = dims.len().max(1);
        require!(
            shifts.len() == expected,
            Shifts,
            "shifts is {shifts:?} and dims {dims:?}, expected a shift for each dimension, one without dims"
        );
        for dim in dims {
            normalize_dim(*dim, input.rank())?;
        }
        require!(dims.is_empty() || input.rank() > 0, Rank, "input has no dimensions, and dims is {dims:?}");
        Ok(())
    }

    fn decomposition(input: Tensor, shifts: &[i64], dims: &[i64]) -> Tensor {
        if dims.is_empty() {
            return read_as(shifted(flatten(input), 0, shifts[0]), &input.shape());
        }
        let rank = input.rank();
        dims.iter().zip(shifts).fold(input, |rolled, (dim, shift)| shifted(rolled, position(*dim, rank), *shift))
    }

    fn reference(input: &ReferenceTensor, shifts: &[i64], dims: &[i64]) -> ReferenceTensor {
        let shape = input.shape().to_vec();
        rearranged(input, &shape, 0.0, |at| {
            let mut from: Vec<i64> = at.iter().map(|at| *at as i64).collect();
            if dims.is_empty() {
                let count = shape.iter().product::<usize>() as i64;
                let flat = from.iter().zip(&shape).fold(0, |flat, (at, extent)| flat * *extent as i64 + at);
                let mut rest = (flat - shifts[0]).rem_euclid(count);
                for (place, extent) in from.iter_mut().zip(&shape).rev() {
                    (*place, rest) = (rest % *extent as i64, rest / *extent as i64);
                }
            }
            for (dim, shift) in dims.iter().zip(shifts) {
                let dim = dim.rem_euclid(shape.len() as i64) as usize;
                from[dim] = (from[dim] - shift).rem_euclid(shape[dim] as i64);
            }
            Some(from.into_iter().map(|at| at as usize).collect())
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), [5]));
        s.case(with(s.normal([3, 4]), [1, -6]).dims([0, 1]));
        s.case(with(s.normal([3, 4]), [1, 2]).dims([-1, 1]));
        s.case(with(s.normal([4]), [4]).dims([0]));
        s.case(with(s.normal([]), [2]));
        s.case(with(s.normal([0, 3]), [1]).dims([0]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Shifts, with(e.normal([2, 3]), [1, 2]), "one without dims");
        e.case(Shifts, with(e.normal([2, 3]), [1]).dims([0, 1]), "a shift for each dimension");
        e.case(Rank, with(e.normal([]), [1]).dims([0]), "input has no dimensions");
    }
}

/// The planes of the two dimensions `dims` turned by `k` quarters, from the first dimension towards the second.
#[operator(torch = "rot90")]
pub mod rot90 {
    fn rot90(input: Tensor, #[default(1)] k: i64, #[default(vec![0, 1])] dims: Vec<i64>) -> Tensor;

    fn requires(input: &TensorMeta, dims: &[i64]) -> Result<()> {
        let fits = dims.len() == 2 && named_dims(dims, input.rank()).is_some_and(|dims| dims.len() == 2);
        require!(fits, Dims, "dims is {dims:?}, expected two dimensions of a tensor of rank {}", input.rank());
        Ok(())
    }

    fn decomposition(input: Tensor, k: i64, dims: &[i64]) -> Tensor {
        let [first, second] = [dims[0], dims[1]].map(|dim| position(dim, input.rank()));
        match k.rem_euclid(4) {
            0 => input,
            1 => transpose(prims::flip(input, [second]), first as i64, second as i64),
            2 => prims::flip(input, [first, second]),
            _ => prims::flip(transpose(input, first as i64, second as i64), [second]),
        }
    }

    fn reference(input: &ReferenceTensor, k: i64, dims: &[i64]) -> ReferenceTensor {
        let rank = input.shape().len() as i64;
        let [first, second] = [dims[0], dims[1]].map(|dim| dim.rem_euclid(rank) as usize);
        let mut turned = input.clone();
        for _ in 0..k.rem_euclid(4) {
            let mut shape = turned.shape().to_vec();
            shape.swap(first, second);
            turned = rearranged(&turned, &shape, 0.0, |at| {
                let mut from = at.to_vec();
                (from[first], from[second]) = (at[second], shape[first] - 1 - at[first]);
                Some(from)
            });
        }
        turned
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3])));
        s.case(with(s.normal([2, 3])).k(-1));
        s.case(with(s.normal([2, 3, 4])).k(2).dims([-1, 0]));
        s.case(with(s.normal([2, 2])).k(5).dims([1, 0]));
        s.case(with(s.normal([2, 0])).k(4));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([2, 3])).dims([0]), "expected two dimensions");
        e.case(Dims, with(e.normal([2, 3])).dims([1, -1]), "expected two dimensions");
        e.case(Dims, with(e.normal([2])), "of a tensor of rank 1");
    }
}

/// Whether there is a number for each dimension.
fn covers(counts: usize, rank: usize) -> bool {
    counts >= rank
}

/// Whether the result has no more dimensions than PyTorch names.
fn few(counts: usize, _rank: usize) -> bool {
    counts <= super::promotion::MOST_NAMED
}

/// `input` as often along each dimension as `counts` says; the shorter of both is filled up by ones in front.
#[track_caller]
fn repeated(input: Tensor, counts: &[usize]) -> Tensor {
    let own = input.shape();
    let rank = own.len().max(counts.len());
    let padded = |values: &[usize]| [vec![1; rank - values.len()], values.to_vec()].concat();
    let (extents, counts) = (padded(&own), padded(counts));
    let shape: Vec<usize> = extents.iter().zip(&counts).map(|(extent, count)| extent.saturating_mul(*count)).collect();
    if counts.iter().all(|count| *count == 1) {
        return read_as(input, &shape);
    }
    let apart: Vec<usize> = counts.iter().zip(&extents).flat_map(|(count, extent)| [*count, *extent]).collect();
    let dims: Vec<usize> = (rank - own.len()..rank).map(|i| 2 * i + 1).collect();
    read_as(prims::broadcast_in_dim(input, apart, dims), &shape)
}

/// Elements `shift` places later along `dim`.
#[track_caller]
fn shifted(input: Tensor, dim: usize, shift: i64) -> Tensor {
    let extent = input.shape()[dim];
    let first = if extent == 0 { 0 } else { (extent - shift.rem_euclid(extent as i64) as usize) % extent };
    if first == 0 {
        return input;
    }
    parts::cat([piece(input, dim, first, extent - first), piece(input, dim, 0, first)], dim)
}
