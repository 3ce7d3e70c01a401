//! Reductions over some dimensions, which the result lacks.

use fulgurite_ops_macros::{operator, operators};

use super::checks::dimensions;
use super::support::{others, without};
use crate::prims::*;

/// The sum over the dimensions `dims`, which the result lacks; `input` itself if there are none. bf16 and f16 are
/// accumulated in f32; integers give i64 and wrap. An empty sum is 0.
#[operator(prim, torch = "sum", overload = Sum, autocast = full, elements = sum)]
pub mod sum {
    fn sum(input: Tensor<Number>, dims: Vec<usize>) -> Tensor;

    fn meta(input: &TensorMeta, dims: &[usize]) -> Result<TensorMeta> {
        dimensions(dims, input, [Code::DimensionRange, Code::DimensionRepeated])?;
        let dtype = if input.dtype().is_integer() { DType::I64 } else { input.dtype() };
        Ok(input.with_shape(without(input.shape(), dims)).with_dtype(dtype))
    }

    fn flops(input: &TensorMeta) -> u64 {
        input.len() as u64
    }

    fn grad(input: Tensor, dims: &[usize]) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let kept = others(input.rank(), dims);
        (sum(input, dims), move |d_out: Tensor| Grads { input: broadcast_in_dim(d_out, input.shape(), kept) })
    }

    fn reference(input: &ReferenceTensor, dims: &[usize]) -> ReferenceTensor {
        if input.dtype().is_floating() {
            reduced(input.floats(), dims, |values| values.iter().fold(0.0, |sum, value| sum + value)).into()
        } else {
            reduced(input.integers(), dims, |values| values.iter().fold(0i64, |sum, value| sum.wrapping_add(*value)))
                .into()
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([]), []));
        s.case(with(s.normal([7]), [0]));
        s.case(with(s.normal([7]), []));
        s.case(with(s.normal([4, 6]), [0]));
        s.case(with(s.normal([4, 6]), [1]));
        s.case(with(s.normal([4, 6]), [1, 0]));
        s.case(with(s.normal([3, 1, 5]), [0, 2]));
        s.case(with(s.normal([2, 3, 4, 5]), [1]));
        s.case(with(s.normal([0, 3]), [0]));
        s.case(with(s.normal([3, 0]), [0]));
        s.case(with(s.normal([5, 1030]), [1]));
        s.case(with(s.normal([1030, 5]), [0]));
        s.case(with(s.normal([67, 65]), [0, 1]));
        // Columns side by side: not a whole number of blocks, in several parts, reduced over several dimensions, in
        // several pieces.
        s.case(with(s.normal([70, 33]), [0]));
        s.case(with(s.normal([3, 64, 40]), [1]));
        s.case(with(s.normal([3, 4, 50, 40]), [0, 2]));
        s.case(with(s.normal([1100, 40]), [0]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(DimensionRange, with(e.normal([2, 3]), [2]), "dims is [2]");
        e.case(DimensionRepeated, with(e.normal([2, 3]), [1, 1]), "dims is [1, 1]");
    }
}

/// The product over the dimensions `dims`, which the result lacks; `input` itself if there are none. bf16 and f16 are
/// multiplied in f32; integers give i64 and wrap. An empty product is 1. The gradient of an element is the product of
/// the others, also where elements are zero, and so is that of the gradient.
#[operator(prim, torch = "prod", autocast = full)]
pub mod prod {
    fn prod(input: Tensor<Number>, dims: Vec<usize>) -> Tensor;

    fn meta(input: &TensorMeta, dims: &[usize]) -> Result<TensorMeta> {
        dimensions(dims, input, [Code::DimensionRange, Code::DimensionRepeated])?;
        let dtype = if input.dtype().is_integer() { DType::I64 } else { input.dtype() };
        Ok(input.with_shape(without(input.shape(), dims)).with_dtype(dtype))
    }

    fn flops(input: &TensorMeta) -> u64 {
        input.len() as u64
    }

    fn grad(input: Tensor, dims: Vec<usize>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = prod(input, &dims);
        (out, move |d_out: Tensor| {
            let (shape, kept) = (input.shape(), others(input.rank(), &dims));
            let spread = |reduced: Tensor| broadcast_in_dim(reduced, &*shape, &kept);
            let is_zero = eq(input, 0.0);
            // The product of what is not zero, and how many zeros there are beside it.
            let nonzero = spread(prod(select(is_zero, 1.0, input), &dims));
            let zeros = spread(sum(convert_element_type(is_zero, DType::I64), &dims));
            // Terms that are zero, and whose derivatives are not: the other zero of two, and the only one.
            let zero = select(is_zero, input, 0.0);
            let total = spread(sum(zero, &dims));
            let of_zero = select(le(zeros, 1), nonzero, mul(sub(total, zero), nonzero));
            let of_zero = select(le(zeros, 2), of_zero, 0.0);
            let others = div(nonzero, select(is_zero, 1.0, input));
            let of_other = select(eq(zeros, 0), others, select(eq(zeros, 1), mul(total, others), 0.0));
            Grads { input: mul(spread(d_out), select(is_zero, of_zero, of_other)) }
        })
    }

    fn reference(input: &ReferenceTensor, dims: &[usize]) -> ReferenceTensor {
        if input.dtype().is_floating() {
            reduced(input.floats(), dims, |values| values.iter().product::<f64>()).into()
        } else {
            reduced(input.integers(), dims, |values| values.iter().fold(1i64, |all, value| all.wrapping_mul(*value)))
                .into()
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([]), []));
        s.case(with(s.normal([7]), [0]));
        s.case(with(s.normal([7]), []));
        s.case(with(s.normal([4, 6]), [0]));
        s.case(with(s.normal([4, 6]), [1, 0]));
        s.case(with(s.normal([2, 3, 4, 5]), [1]));
        s.case(with(s.normal([0, 3]), [0]));
        s.case(with(s.normal([3, 0]), [0]));
        let zeros = s.values([3, 4], [2.0, 0.0, 3.0, 1.0, 0.0, 2.0, 0.0, 1.0, 2.0, 1.0, 3.0, 1.0]);
        s.case(with(zeros, [1]));
        // Near one, so that long products stay in range: by a block, by a thread each, side by side, in pieces.
        for (shape, dims) in [(&[5, 1030][..], 1), (&[1030, 5], 0), (&[70, 33], 0), (&[1100, 40], 0)] {
            s.case(with(s.uniform(0.97, 1.03, shape), [dims])).forward_only("long");
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(DimensionRange, with(e.normal([2, 3]), [2]), "dims is [2]");
        e.case(DimensionRepeated, with(e.normal([2, 3]), [1, 1]), "dims is [1, 1]");
    }
}

// Declares the largest and the smallest element: the better of two elements, in f64 and in i64.
operators! {
    #[operator(prim, exact, torch = $torch, elements = $elements)]
    pub mod $name {
        fn $name(input: Tensor<Number>, dims: Vec<usize>) -> Tensor;

        fn meta(input: &TensorMeta, dims: &[usize]) -> Result<TensorMeta> {
            dimensions(dims, input, [Code::DimensionRange, Code::DimensionRepeated])?;
            require!(
                dims.iter().all(|dim| input.shape()[*dim] > 0),
                EmptyReduction,
                "input has shape {:?}: one of the dimensions {dims:?} is empty",
                input.shape()
            );
            Ok(input.with_shape(without(input.shape(), dims)))
        }

        fn flops(input: &TensorMeta) -> u64 {
            input.len() as u64
        }

        fn grad(input: Tensor, dims: Vec<usize>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            let (out, kept) = ($name(input, &dims), others(input.rank(), &dims));
            (out, move |d_out: Tensor| {
                let best = eq(input, broadcast_in_dim(out, input.shape(), &kept));
                let best = convert_element_type(best, input.dtype());
                let each = div(d_out, sum(best, dims));
                Grads { input: mul(best, broadcast_in_dim(each, input.shape(), kept)) }
            })
        }

        fn reference(input: &ReferenceTensor, dims: &[usize]) -> ReferenceTensor {
            if input.dtype().is_floating() {
                let better = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { $better };
                let best = |values: &[f64]| values.iter().copied().reduce(better).unwrap_or(f64::NAN);
                reduced(input.floats(), dims, best).into()
            } else {
                let better = |a: i64, b: i64| $better;
                let best = |values: &[i64]| values.iter().copied().reduce(better).unwrap_or(0);
                reduced(input.integers(), dims, best).into()
            }
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([]), []));
            s.case(with(s.normal([7]), [0]));
            s.case(with(s.normal([7]), []));
            s.case(with(s.normal([4, 6]), [0]));
            s.case(with(s.normal([4, 6]), [1]));
            s.case(with(s.normal([4, 6]), [1, 0]));
            s.case(with(s.normal([3, 1, 5]), [0, 2]));
            s.case(with(s.normal([2, 3, 4, 5]), [1]));
            s.case(with(s.normal([0, 3]), [1]));
            s.case(with(s.normal([5, 1030]), [1]));
            s.case(with(s.normal([1030, 5]), [0]));
            s.case(with(s.normal([67, 65]), [0, 1]));
            let ties = s.values([2, 4], [1.0, 3.0, 3.0, 1.0]);
            s.case(with(ties, [1])).forward_only("ties");
            if s.dtype().is_floating() {
                let special = s.values([2, 3], [1.0, f64::INFINITY, f64::NAN, f64::NEG_INFINITY, -1.0]);
                s.case(with(special, [1])).forward_only("special values");
                // Columns side by side, in one piece and in several.
                s.case(with(s.normal([70, 33]), [0]));
                s.case(with(s.normal([1100, 40]), [0]));
            }
            s.case(with(s.normal([2, 1]), [1]));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(DimensionRange, with(e.normal([2, 3]), [2]), "dims is [2]");
            e.case(DimensionRepeated, with(e.normal([2, 3]), [1, 1]), "dims is [1, 1]");
            e.case(EmptyReduction, with(e.normal([0, 3]), [0]), "input has shape [0, 3]");
        }
    }

    table($name, $torch, $elements, $better) {
        /// The largest element over the dimensions `dims`, which the result lacks; NaN if one is NaN. The gradient is
        /// shared evenly by equal largest elements.
        amax, "amax", max, a.max(b);
        /// The smallest element over the dimensions `dims`, which the result lacks; NaN if one is NaN. The gradient is
        /// shared evenly by equal smallest elements.
        amin, "amin", min, a.min(b);
    }
}

/// For references: `input` with what `reduce` makes of the elements of each part over `dims`.
fn reduced<T: Copy>(input: &ndarray::ArrayD<T>, dims: &[usize], reduce: impl Fn(&[T]) -> T) -> ndarray::ArrayD<T> {
    use ndarray::Dimension;
    let kept = others(input.ndim(), dims);
    let shape = without(input.shape(), dims);
    let mut parts: ndarray::ArrayD<Vec<T>> = ndarray::ArrayD::from_elem(shape, Vec::new());
    for (index, value) in input.indexed_iter() {
        let target: Vec<usize> = kept.iter().map(|dim| index.slice()[*dim]).collect();
        parts[target.as_slice()].push(*value);
    }
    parts.mapv(|values| reduce(&values))
}
