//! Dimensions that are added, joined, divided, or put in another order. No element changes.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::Tensor;

use super::arrays::{permuted, rearranged, remade, reshaped};
use super::parts;
use super::promotion::{broadcast, broadcast_shapes, position};
use super::{piece, resolved, transpose};

// Declares functions of the shape alone: the elements in their order in the shape that `$shape` computes.
operators! {
    #[operator(torch = $torch, complex)]
    pub mod $name {
        fn $name(input: Tensor) -> Tensor;

        fn decomposition(input: Tensor) -> Tensor {
            let shape = raised(&input.shape(), $least);
            read_as(input, &shape)
        }

        fn reference(input: &ReferenceTensor) -> ReferenceTensor {
            let least: usize = $least;
            let mut shape = input.shape().to_vec();
            if shape.len() < least.min(2) {
                shape.insert(0, 1);
            }
            while shape.len() < least {
                shape.push(1);
            }
            remade(input, |a| reshaped(a, &shape), |a| reshaped(a, &shape))
        }

        fn samples(s: &mut Samples) {
            for shape in [&[][..], &[5], &[3, 4], &[2, 3, 2], &[0, 3]] {
                s.case(with(s.normal(shape)));
            }
        }
    }

    table($name, $torch, $least) {
        /// At least one dimension: a tensor without dimensions becomes one of one element.
        atleast_1d, "atleast_1d", 1;
        /// At least two dimensions: a vector becomes one row.
        atleast_2d, "atleast_2d", 2;
        /// At least three dimensions: a vector of n becomes `[1, n, 1]`, a matrix `[m, n, 1]`.
        atleast_3d, "atleast_3d", 3;
    }
}

/// The dimensions `start_dim` to `end_dim`, both included, as one. A tensor without dimensions gets one.
#[operator(torch = "flatten", complex)]
pub mod flatten {
    fn flatten(input: Tensor, #[default(0)] start_dim: i64, #[default(-1)] end_dim: i64) -> Tensor;

    fn requires(input: &TensorMeta, start_dim: i64, end_dim: i64) -> Result<()> {
        let (first, last) = (normalize_dim(start_dim, input.rank())?, normalize_dim(end_dim, input.rank())?);
        require!(first <= last, Order, "start_dim is {start_dim}, expected one that is not after end_dim, {end_dim}");
        Ok(())
    }

    fn decomposition(input: Tensor, start_dim: i64, end_dim: i64) -> Tensor {
        let shape = input.shape().to_vec();
        if shape.is_empty() {
            return parts::reshape(input, [1]);
        }
        let (first, last) = (position(start_dim, shape.len()), position(end_dim, shape.len()));
        let joined = shape[first..=last].iter().product();
        read_as(input, &[&shape[..first], &[joined], &shape[last + 1..]].concat())
    }

    fn reference(input: &ReferenceTensor, start_dim: i64, end_dim: i64) -> ReferenceTensor {
        let mut shape = input.shape().to_vec();
        shape.resize(shape.len().max(1), 1);
        let rank = shape.len() as i64;
        for _ in start_dim.rem_euclid(rank)..end_dim.rem_euclid(rank) {
            let first = start_dim.rem_euclid(rank) as usize;
            shape[first] *= shape.remove(first + 1);
        }
        remade(input, |a| reshaped(a, &shape), |a| reshaped(a, &shape))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 4])));
        s.case(with(s.normal([2, 3, 4])).start_dim(1));
        s.case(with(s.normal([2, 3, 4])).end_dim(-2));
        s.case(with(s.normal([])));
        s.case(with(s.normal([0, 3])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Order, with(e.normal([2, 3])).start_dim(1).end_dim(0), "start_dim is 1");
    }
}

/// Dimension `dim` as several of the extents `sizes`; one of them may be -1 and is then computed from the others.
#[operator(torch = "unflatten", complex)]
pub mod unflatten {
    fn unflatten(input: Tensor, dim: i64, sizes: Vec<i64>) -> Tensor;

    fn requires(input: &TensorMeta, dim: i64, sizes: &[i64]) -> Result<()> {
        require!(input.rank() > 0, Rank, "input has no dimensions, expected at least one");
        let dim = normalize_dim(dim, input.rank())?;
        require!(
            !sizes.is_empty() && resolved(&[input.shape()[dim]], sizes).is_some(),
            Sizes,
            "sizes is {sizes:?}, expected extents whose product is {}, that of dimension {dim}",
            input.shape()[dim]
        );
        Ok(())
    }

    fn decomposition(input: Tensor, dim: i64, sizes: &[i64]) -> Tensor {
        let shape = input.shape().to_vec();
        let dim = position(dim, shape.len());
        let parts = resolved(&[shape[dim]], sizes).unwrap_or_default();
        read_as(input, &[&shape[..dim], &parts, &shape[dim + 1..]].concat())
    }

    fn reference(input: &ReferenceTensor, dim: i64, sizes: &[i64]) -> ReferenceTensor {
        let mut shape = input.shape().to_vec();
        let dim = dim.rem_euclid(shape.len() as i64) as usize;
        let known: i64 = sizes.iter().filter(|size| **size >= 0).product();
        let open = shape[dim] as i64 / known.max(1);
        shape.splice(dim..=dim, sizes.iter().map(|size| if *size < 0 { open } else { *size } as usize));
        remade(input, |a| reshaped(a, &shape), |a| reshaped(a, &shape))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 12]), 1, [3, 4]));
        s.case(with(s.normal([6, 6]), -2, [-1, 2]));
        s.case(with(s.normal([6, 6]), 1, [3, 2]));
        s.case(with(s.normal([0, 4]), 1, [2, -1]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([]), 0, [1]), "input has no dimensions");
        e.case(Sizes, with(e.normal([2, 3]), 1, [2, 2]), "expected extents whose product is 3");
        e.case(Sizes, with(e.normal([2, 3]), 1, []), "sizes is []");
    }
}

// Declares exchanges of two dimensions under PyTorch's other names.
operators! {
    #[operator(torch = $torch, complex)]
    pub mod $name {
        fn $name(input: Tensor, $first: i64, $second: i64) -> Tensor;

        fn requires(input: &TensorMeta, $first: i64, $second: i64) -> Result<()> {
            normalize_dim($first, input.rank())?;
            normalize_dim($second, input.rank())?;
            Ok(())
        }

        fn decomposition(input: Tensor, $first: i64, $second: i64) -> Tensor {
            transpose(input, $first, $second)
        }

        fn reference(input: &ReferenceTensor, $first: i64, $second: i64) -> ReferenceTensor {
            let rank = input.shape().len();
            let mut shape = input.shape().to_vec();
            let dims = [$first, $second].map(|dim| dim.rem_euclid(rank.max(1) as i64) as usize);
            if rank > 0 {
                shape.swap(dims[0], dims[1]);
            }
            rearranged(input, &shape, 0.0, |at| {
                let mut from = at.to_vec();
                if rank > 0 {
                    from.swap(dims[0], dims[1]);
                }
                Some(from)
            })
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([2, 3, 4]), 0, -1));
            s.case(with(s.normal([2, 3]), 1, 0));
            s.case(with(s.normal([]), 0, -1));
        }
    }

    table($name, $torch, $first, $second) {
        /// Two dimensions exchanged.
        swapaxes, "swapaxes", axis0, axis1;
        /// Two dimensions exchanged.
        swapdims, "swapdims", dim0, dim1;
    }
}

/// A matrix transposed; a vector or a number as it is.
#[operator(torch = "t", complex)]
pub mod t {
    fn t(input: Tensor) -> Tensor;

    fn requires(input: &TensorMeta) -> Result<()> {
        require!(input.rank() <= 2, Rank, "input has shape {:?}, expected two dimensions at most", input.shape());
        Ok(())
    }

    fn decomposition(input: Tensor) -> Tensor {
        if input.rank() == 2 { parts::permute(input, [1, 0]) } else { input }
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        let order: Vec<usize> = (0..input.shape().len()).rev().collect();
        remade(input, |a| permuted(a, &order), |a| permuted(a, &order))
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[5], &[3, 4], &[0, 3]] {
            s.case(with(s.normal(shape)));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([2, 3, 4])), "input has shape [2, 3, 4]");
    }
}

/// The last two dimensions exchanged; of real numbers this is the adjoint.
#[operator(torch = "Tensor.adjoint")]
pub mod matrix_transpose {
    fn matrix_transpose(input: Tensor) -> Tensor;

    fn requires(input: &TensorMeta) -> Result<()> {
        require!(input.rank() >= 2, Rank, "input has shape {:?}, expected at least two dimensions", input.shape());
        Ok(())
    }

    fn decomposition(input: Tensor) -> Tensor {
        transpose(input, -1, -2)
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        let mut order: Vec<usize> = (0..input.shape().len()).collect();
        let last = order.pop().into_iter();
        order.splice(order.len() - 1..order.len() - 1, last);
        remade(input, |a| permuted(a, &order), |a| permuted(a, &order))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4])));
        s.case(with(s.normal([2, 3, 4])));
        s.case(with(s.normal([2, 0, 3])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "at least two dimensions");
    }
}

/// The dimensions `source` at the positions `destination`; the others keep their order.
#[operator(torch = "movedim", complex)]
pub mod movedim {
    fn movedim(input: Tensor, source: Vec<i64>, destination: Vec<i64>) -> Tensor;

    fn requires(input: &TensorMeta, source: &[i64], destination: &[i64]) -> Result<()> {
        require!(
            source.len() == destination.len(),
            Lengths,
            "source is {source:?} and destination {destination:?}, expected as many dimensions in both"
        );
        for (name, dims) in [("source", source), ("destination", destination)] {
            require!(
                super::distinct(dims, input.rank()),
                Dims,
                "{name} is {dims:?}, expected distinct dimensions of a tensor of rank {}",
                input.rank()
            );
        }
        Ok(())
    }

    fn decomposition(input: Tensor, source: &[i64], destination: &[i64]) -> Tensor {
        let rank = input.rank();
        let at = |dims: &[i64]| dims.iter().map(|dim| position(*dim, rank)).collect::<Vec<_>>();
        let (from, to) = (at(source), at(destination));
        let mut rest = (0..rank).filter(|dim| !from.contains(dim));
        let place = |dim: usize| to.iter().position(|to| *to == dim).map(|i| from[i]);
        let order: Vec<usize> = (0..rank).filter_map(|dim| place(dim).or_else(|| rest.next())).collect();
        if order.is_sorted() { input } else { parts::permute(input, order) }
    }

    fn reference(input: &ReferenceTensor, source: &[i64], destination: &[i64]) -> ReferenceTensor {
        let rank = input.shape().len();
        let mut pairs: Vec<(usize, usize)> = std::iter::zip(destination, source)
            .map(|(to, from)| {
                let place = |dim: i64| dim.rem_euclid(rank.max(1) as i64) as usize;
                (place(*to), place(*from))
            })
            .filter(|_| rank > 0)
            .collect();
        pairs.sort_unstable();
        let mut order: Vec<usize> = (0..rank).filter(|dim| pairs.iter().all(|(_, from)| from != dim)).collect();
        pairs.iter().for_each(|(to, from)| order.insert(*to, *from));
        remade(input, |a| permuted(a, &order), |a| permuted(a, &order))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 4]), [0], [2]));
        s.case(with(s.normal([2, 3, 4, 2]), [3, 1], [0, -1]));
        s.case(with(s.normal([2, 3]), [1], [1]));
        s.case(with(s.normal([]), [], []));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Lengths, with(e.normal([2, 3]), [0, 1], [0]), "expected as many dimensions in both");
        e.case(Dims, with(e.normal([2, 3]), [0, -2], [0, 1]), "source is [0, -2]");
        e.case(Dims, with(e.normal([2, 3]), [0], [2]), "destination is [2]");
    }
}

/// The slices along dimension `dim`, each without it.
#[operator(torch = "unbind", complex)]
pub mod unbind {
    fn unbind(input: Tensor, #[default(0)] dim: i64) -> Vec<Tensor>;

    fn requires(input: &TensorMeta, dim: i64) -> Result<()> {
        require!(input.rank() > 0, Rank, "input has no dimensions, expected at least one");
        normalize_dim(dim, input.rank())?;
        Ok(())
    }

    fn decomposition(input: Tensor, dim: i64) -> Vec<Tensor> {
        let dim = position(dim, input.rank());
        (0..input.shape()[dim]).map(|i| slice_at(input, dim, i)).collect()
    }

    fn reference(input: &ReferenceTensor, dim: i64) -> Vec<ReferenceTensor> {
        let dim = dim.rem_euclid(input.shape().len() as i64) as usize;
        (0..input.shape()[dim]).map(|i| super::slice_of(input, dim, i)).collect()
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4])));
        s.case(with(s.normal([2, 3, 4])).dim(-2));
        s.case(with(s.normal([1])));
        s.case(with(s.normal([2, 0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([])), "input has no dimensions");
    }
}

/// The slice at position `index` of dimension `dim`, without it; a negative position counts from the end.
#[operator(torch = "select", complex)]
pub mod select {
    fn select(input: Tensor, dim: i64, index: i64) -> Tensor;

    fn requires(input: &TensorMeta, dim: i64, index: i64) -> Result<()> {
        require!(input.rank() > 0, Rank, "input has no dimensions, expected at least one");
        let dim = normalize_dim(dim, input.rank())?;
        let extent = input.shape()[dim] as i64;
        require!(
            (-extent..extent).contains(&index),
            Position,
            "index is {index}, expected a position in dimension {dim} of extent {extent}"
        );
        Ok(())
    }

    fn decomposition(input: Tensor, dim: i64, index: i64) -> Tensor {
        let dim = position(dim, input.rank());
        let extent = input.shape()[dim] as i64;
        slice_at(input, dim, index.rem_euclid(extent) as usize)
    }

    fn reference(input: &ReferenceTensor, dim: i64, index: i64) -> ReferenceTensor {
        let dim = dim.rem_euclid(input.shape().len() as i64) as usize;
        let index = if index < 0 { index + input.shape()[dim] as i64 } else { index };
        super::slice_of(input, dim, index as usize)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), 0, 1));
        s.case(with(s.normal([2, 3, 4]), -1, -2));
        s.case(with(s.normal([4, 4]), 1, 3));
        s.case(with(s.normal([1]), 0, 0));
        s.case(with(s.normal([2, 0]), 0, -1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([]), 0, 0), "input has no dimensions");
        e.case(Position, with(e.normal([2, 3]), 1, 3), "in dimension 1 of extent 3");
        e.case(Position, with(e.normal([2, 3]), 0, -3), "index is -3");
    }
}

// Declares what takes shape, or type, from another tensor.
operators! {
    #[operator(torch = $torch, waive(other = "its elements are not read"))]
    pub mod $name {
        fn $name(input: Tensor, other: Tensor) -> Tensor;

        fn requires(input: &TensorMeta, other: &TensorMeta) -> Result<()> {
            require!(
                $fits(input.shape(), other.shape()),
                Shapes,
                "input has shape {:?}, which does not become {:?}, that of other",
                input.shape(),
                other.shape()
            );
            Ok(())
        }

        fn decomposition(input: Tensor, other: Tensor) -> Tensor {
            $make(input, &other.shape())
        }

        fn reference(input: &ReferenceTensor, other: &ReferenceTensor) -> ReferenceTensor {
            let shape = other.shape();
            remade(input, |a| $reference(a, shape), |a| $reference(a, shape))
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal($from), s.normal($to)));
            s.case(with(s.normal([1]), s.normal([1, 1])));
            s.case(with(s.normal([3]), s.of(DType::I64, [3])));
            s.case(with(s.normal([0]), s.normal([2, 0])));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Shapes, with(e.normal([2, 3]), e.normal([4])), "does not become [4]");
        }
    }

    table($name, $torch, $fits, $make, $reference, $from, $to) {
        /// `input` repeated to the shape of `other`.
        expand_as, "Tensor.expand_as", broadcasts, broadcast, crate::core::arrays::spread, [3, 1], [2, 3, 4];
        /// The elements of `input` in their order in the shape of `other`.
        view_as, "Tensor.view_as", as_many, read_as, reshaped, [2, 6], [3, 4];
        /// The elements of `input` in their order in the shape of `other`.
        reshape_as, "Tensor.reshape_as", as_many, read_as, reshaped, [4, 3], [2, 6];
    }
}

/// `shape` with ones up to `least` dimensions: in front of a vector, and one behind for the third.
fn raised(shape: &[usize], least: usize) -> Vec<usize> {
    match (shape, least) {
        ([], _) => vec![1; least],
        ([n], 2) => vec![1, *n],
        ([n], 3) => vec![1, *n, 1],
        ([m, n], 3) => vec![*m, *n, 1],
        _ => shape.to_vec(),
    }
}

fn broadcasts(from: &[usize], to: &[usize]) -> bool {
    broadcast_shapes(&[from, to]).as_deref() == Some(to)
}

fn as_many(from: &[usize], to: &[usize]) -> bool {
    from.iter().product::<usize>() == to.iter().product::<usize>()
}

/// Whether `dims` are distinct dimensions of a tensor of `rank`.
fn distinct(dims: &[i64], rank: usize) -> bool {
    super::promotion::named_dims(dims, rank).is_some()
}

/// The elements in their order in `shape`; the tensor itself if that is its shape.
#[track_caller]
pub(crate) fn read_as(input: Tensor, shape: &[usize]) -> Tensor {
    if *input.shape() == *shape { input } else { parts::reshape(input, shape) }
}

/// The slice at `index` of dimension `dim`, without it.
#[track_caller]
pub(crate) fn slice_at(input: Tensor, dim: usize, index: usize) -> Tensor {
    let mut shape = input.shape().to_vec();
    shape.remove(dim);
    parts::reshape(piece(input, dim, index, 1), shape)
}

/// For references: the slice at `index` of dimension `dim`.
fn slice_of(
    input: &fulgurite_runtime::reference::ReferenceTensor,
    dim: usize,
    index: usize,
) -> fulgurite_runtime::reference::ReferenceTensor {
    let mut shape = input.shape().to_vec();
    shape.remove(dim);
    rearranged(input, &shape, 0.0, |at| Some([&at[..dim], &[index], &at[dim..]].concat()))
}
