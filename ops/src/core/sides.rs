//! Tensors taken apart, turned and flattened by the names that PyTorch has for a dimension.

use fulgurite_ops_macros::{operator, operators};

use super::arrays::{rearranged, remade, reshaped, spread};
use super::promotion::{accumulating, broadcast, broadcast_shapes, cast, sum_to};
use super::{Sections, cut, diag_embed, flatten, read_as, tensor_split};
use crate::prims;

// Declares sections along a dimension: equal ones, or those between positions.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor, indices_or_sections: Sections) -> Vec<Tensor>;

        fn requires(input: &TensorMeta, indices_or_sections: &Sections) -> Result<()> {
            let shape = input.shape();
            require!(input.rank() >= $least, Rank, "input has shape {shape:?}, expected at least {}", $text);
            let extent = shape[$dim(shape.len())] as i64;
            if let Sections::Count(count) = indices_or_sections {
                // Of an empty dimension any number of sections is one of equal ones.
                let most = if extent == 0 { super::MOST_EMPTY } else { extent };
                require!(
                    (1..=most).contains(count) && extent % count == 0,
                    SectionCount,
                    "indices_or_sections is {count}, expected a number of equal sections of {extent} elements"
                );
            }
            Ok(())
        }

        fn decomposition(input: Tensor, indices_or_sections: Sections) -> Vec<Tensor> {
            let dim = $dim(input.rank()) as i64;
            tensor_split::with(input, indices_or_sections).dim(dim).call()
        }

        fn reference(input: &ReferenceTensor, indices_or_sections: &Sections) -> Vec<ReferenceTensor> {
            let dim = $dim(input.shape().len());
            let extent = input.shape()[dim];
            let sizes: Vec<usize> = match indices_or_sections {
                Sections::Count(count) => vec![extent / *count as usize; *count as usize],
                Sections::At(positions) => {
                    let mut bounds: Vec<usize> = positions.iter().map(|at| (*at as usize).min(extent)).collect();
                    bounds.push(extent);
                    bounds.iter().scan(0, |from, to| Some(to - std::mem::replace(from, *to))).collect()
                }
            };
            cut(input, &sizes, dim)
        }

        fn samples(s: &mut Samples) {
            let shapes: [&[usize]; 3] = $shapes;
            s.case(with(s.normal(shapes[0]), Sections::Count(2)));
            s.case(with(s.normal(shapes[1]), Sections::At(vec![1, 3])));
            s.case(with(s.normal(shapes[2]), Sections::Count(3)));
            s.case(with(s.normal(shapes[1]), Sections::Count(1)));
        }

        fn errors(e: &mut ErrorSamples) {
            let shapes: [&[usize]; 3] = $shapes;
            let few: &[usize] = $few;
            e.case(Rank, with(e.normal(few), Sections::Count(1)), "expected at least");
            e.case(SectionCount, with(e.normal(shapes[0]), Sections::Count(3)), "indices_or_sections is 3, expected");
            e.case(SectionCount, with(e.normal(shapes[0]), Sections::Count(0)), "indices_or_sections is 0, expected");
        }
    }

    table($name, $torch, $least, $text, $dim, $shapes, $few) {
        /// Sections along the second dimension, of a vector along its one: as many equal ones as a number says, or
        /// those between the positions of a list, as [`mod@tensor_split`] has them.
        hsplit, "hsplit", 1, "one dimension", second_or_only, [&[3, 4], &[5], &[2, 0]], &[];
        /// Sections along the first dimension of matrices: see [`mod@hsplit`].
        vsplit, "vsplit", 2, "two dimensions", first, [&[4, 3], &[5, 2], &[0, 2]], &[4];
        /// Sections along the third dimension: see [`mod@hsplit`].
        dsplit, "dsplit", 3, "three dimensions", third, [&[1, 2, 4], &[2, 1, 5], &[1, 2, 0]], &[4, 4];
    }
}

/// The second dimension, or the one of a vector.
fn second_or_only(rank: usize) -> usize {
    usize::from(rank > 1)
}

fn first(_: usize) -> usize {
    0
}

fn third(_: usize) -> usize {
    2
}

/// The most sections of an empty dimension, which nothing else bounds.
const MOST_EMPTY: i64 = 1 << 16;

// Declares the reverse order of one dimension.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor) -> Tensor;

        fn requires(input: &TensorMeta) -> Result<()> {
            let shape = input.shape();
            require!(input.rank() > $dim, Rank, "input has shape {shape:?}, expected at least {}", $text);
            Ok(())
        }

        fn decomposition(input: Tensor) -> Tensor {
            prims::flip(input, [$dim])
        }

        fn reference(input: &ReferenceTensor) -> ReferenceTensor {
            rearranged(input, input.shape(), 0.0, |at| {
                let mut from = at.to_vec();
                from[$dim] = input.shape()[$dim] - 1 - from[$dim];
                Some(from)
            })
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([3, 4])));
            s.case(with(s.normal([2, 3, 2])));
            s.case(with(s.normal([0, 3])));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Rank, with(e.normal([5; $dim])), "expected at least");
        }
    }

    table($name, $torch, $dim, $text) {
        /// The columns, or what else the second dimension has, in reverse order.
        fliplr, "fliplr", 1, "two dimensions";
        /// The rows, or what else the first dimension has, in reverse order.
        flipud, "flipud", 0, "one dimension";
    }
}

// Declares tensors with the elements of another in their order.
operators! {
    #[operator(torch = $torch, complex)]
    pub mod $name {
        fn $name(input: Tensor) -> Tensor;

        fn decomposition(input: Tensor) -> Tensor {
            $value
        }

        fn reference(input: &ReferenceTensor) -> ReferenceTensor {
            let shape: Vec<usize> = $shape;
            remade(input, |a| reshaped(a, &shape), |a| reshaped(a, &shape))
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([2, 3, 2])));
            s.case(with(s.normal([])));
            s.case(with(s.normal([0, 3])));
        }
    }

    table($name, $torch, $value, $shape) {
        /// All elements in one dimension, in row-major order.
        ravel, "ravel", flatten(input), vec![input.shape().iter().product()];
        /// The tensor itself: values do not change here, so nobody can tell a copy from it.
        clone, "clone", input, input.shape().to_vec();
    }
}

/// The matrix whose diagonal `offset` has all elements of `input`, in row-major order; its other elements are zero.
#[operator(torch = "diagflat")]
pub mod diagflat {
    fn diagflat(input: Tensor, #[default(0)] offset: i64) -> Tensor;

    fn requires(input: &TensorMeta, offset: i64) -> Result<()> {
        let count: usize = input.shape().iter().product();
        let extent = (count as i64).saturating_add(offset.saturating_abs());
        require!(
            extent <= super::MOST_ROWS,
            Extent,
            "offset is {offset} and input has {count} elements, expected at most {} rows",
            super::MOST_ROWS
        );
        Ok(())
    }

    fn decomposition(input: Tensor, offset: i64) -> Tensor {
        diag_embed::with(flatten(input)).offset(offset).call()
    }

    fn reference(input: &ReferenceTensor, offset: i64) -> ReferenceTensor {
        let count: usize = input.shape().iter().product();
        let line = remade(input, |a| reshaped(a, &[count]), |a| reshaped(a, &[count]));
        let extent = count + offset.unsigned_abs() as usize;
        rearranged(&line, &[extent, extent], 0.0, |at| {
            let (row, column) = (at[0] as i64, at[1] as i64);
            (column - row == offset).then(|| vec![row.min(column) as usize])
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 2])));
        s.case(with(s.normal([3])).offset(1));
        s.case(with(s.normal([])).offset(-2));
        s.case(with(s.normal([0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Extent, with(e.normal([2])).offset(i64::MIN), "expected at most 16777216 rows");
    }
}

/// The most rows of a matrix that is made of its diagonal.
const MOST_ROWS: i64 = 1 << 24;

/// The tensors repeated to the shape that all of them broadcast to.
#[operator(torch = "broadcast_tensors")]
pub mod broadcast_tensors {
    fn broadcast_tensors(tensors: Vec<Tensor>) -> Vec<Tensor>;

    fn requires(tensors: &[TensorMeta]) -> Result<()> {
        require!(!tensors.is_empty(), NoTensors, "tensors is empty, expected at least one");
        let shapes: Vec<&[usize]> = tensors.iter().map(TensorMeta::shape).collect();
        require!(broadcast_shapes(&shapes).is_some(), Broadcast, "shapes {shapes:?} do not broadcast");
        Ok(())
    }

    fn decomposition(tensors: &[Tensor]) -> Vec<Tensor> {
        let shapes: Vec<_> = tensors.iter().map(|tensor| tensor.shape().to_vec()).collect();
        let shape = broadcast_shapes(&shapes.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap_or_default();
        tensors.iter().map(|tensor| broadcast(*tensor, &shape)).collect()
    }

    fn reference(tensors: &[ReferenceTensor]) -> Vec<ReferenceTensor> {
        let rank = tensors.iter().map(|tensor| tensor.shape().len()).max().unwrap_or(0);
        let mut shape = vec![1; rank];
        for own in tensors.iter().map(ReferenceTensor::shape) {
            for (extent, all) in own.iter().rev().zip(shape.iter_mut().rev()).filter(|(extent, _)| **extent != 1) {
                *all = *extent;
            }
        }
        tensors.iter().map(|tensor| remade(tensor, |a| spread(a, &shape), |a| spread(a, &shape))).collect()
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([3, 1]), s.normal([4]), s.of(DType::F32, [])]));
        s.case(with([s.normal([2])]));
        s.case(with([s.normal([0, 1]), s.normal([1, 3])]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensors, with([]), "tensors is empty");
        e.case(Broadcast, with([e.normal([2]), e.normal([3])]), "shapes [[2], [3]] do not broadcast");
    }
}

/// The sum over the dimensions that `input` has been repeated along to get its shape from `size`. Integers and booleans
/// are summed as i64, where anything is, and where `size` is empty; f16 and bf16 are accumulated in f32.
#[operator(torch = "Tensor.sum_to_size")]
pub mod sum_to_size {
    fn sum_to_size(input: Tensor, size: Vec<usize>) -> Tensor;

    fn requires(input: &TensorMeta, size: &[usize]) -> Result<()> {
        let shape = input.shape();
        require!(
            broadcast_shapes(&[size, shape]).as_deref() == Some(shape),
            Size,
            "size is {size:?}, which does not broadcast to {shape:?}, the shape of input"
        );
        Ok(())
    }

    fn decomposition(input: Tensor, size: &[usize]) -> Tensor {
        if *input.shape() == *size && !size.is_empty() {
            return input;
        }
        let dtype = if input.dtype().is_floating() { input.dtype() } else { DType::I64 };
        cast(read_as(sum_to(accumulating(cast(input, dtype)), size), size), dtype)
    }

    fn reference(input: &ReferenceTensor, size: &[usize]) -> ReferenceTensor {
        let shape = input.shape();
        let first = shape.len() - size.len();
        let mut sums = ArrayD::<f64>::zeros(IxDyn(size));
        for (at, x) in input.floats().indexed_iter() {
            let to: Vec<usize> =
                size.iter().enumerate().map(|(i, extent)| if *extent == 1 { 0 } else { at[first + i] }).collect();
            sums[&to[..]] += x;
        }
        let dtype = input.dtype();
        match dtype.is_floating() {
            true => ReferenceTensor::from_floats(dtype, sums),
            false => {
                let dtype = if shape == size && !size.is_empty() { dtype } else { DType::I64 };
                ReferenceTensor::from_integers(dtype, sums.mapv(|x| x as i64))
            }
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 4]), [3, 1]));
        s.case(with(s.normal([2, 3]), [2, 3]));
        s.case(with(s.normal([1, 3]), [3]));
        s.case(with(s.normal([4]), []));
        s.case(with(s.normal([0, 2]), [1, 2]));
        s.case(with(s.normal([]), []));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Size, with(e.normal([2, 3]), [2]), "size is [2], which does not broadcast to [2, 3]");
        e.case(Size, with(e.normal([2, 3]), [1, 2, 3]), "size is [1, 2, 3]");
    }
}
