//! Reductions of what differs from zero.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::Tensor;

use super::arrays::reduce;
use super::promotion::{cast, checked_dims, keep_dims, reduced_dims, reduced_shape};
use crate::prims;

// Declares quantifiers: booleans, but u8 of u8, as in PyTorch. Of no elements `all` holds and `any` does not.
operators! {
    #[operator(torch = $torch, no_grad = "a boolean has no gradient")]
    pub mod $name {
        fn $name(
            input: Tensor,
            #[default(None)] dim: Option<Vec<i64>>,
            #[default(false)] keepdim: bool,
        ) -> Tensor;

        fn meta(input: &TensorMeta, dim: Option<&[i64]>, keepdim: bool) -> Result<TensorMeta> {
            let dims = checked_dims("dim", dim, input, Code::Dims)?;
            let dtype = if input.dtype() == DType::U8 { DType::U8 } else { DType::Bool };
            Ok(input.with_shape(reduced_shape(input.shape(), &dims, keepdim)).with_dtype(dtype))
        }

        fn decomposition(input: Tensor, dim: Option<&[i64]>, keepdim: bool) -> Tensor {
            let dims = reduced_dims(dim, input.rank()).unwrap_or_default();
            let counted = count($counts(input), &dims);
            let holds = prims::$holds(counted, 0);
            let dtype = if input.dtype() == DType::U8 { DType::U8 } else { DType::Bool };
            keep_dims(cast(holds, dtype), &input.shape(), &dims, keepdim)
        }

        fn reference(input: &ReferenceTensor, dim: Option<&[i64]>, keepdim: bool) -> ReferenceTensor {
            let holds = reduce(input.floats(), dim, keepdim, |row| row.iter().$reference(|x| *x != 0.0));
            match input.dtype() {
                DType::U8 => ReferenceTensor::from_integers(DType::U8, holds.mapv(i64::from)),
                _ => holds.into(),
            }
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.values([3, 4], [1.0, 0.0, 3.0, 2.0, 1.0])).dim(vec![1]));
            s.case(with(s.values([3, 4], [0.0, 0.0, 0.0, 2.0])).dim(vec![-1, 0]).keepdim(true));
            s.case(with(s.normal([2, 3])));
            s.case(with(s.values([], [0.0])));
            s.case(with(s.normal([2, 0])).dim(vec![1]));
            s.case(with(s.normal([0, 3])));
            if s.dtype().is_floating() {
                s.case(with(s.values([2, 2], [f64::NAN, 0.0, 0.5, -0.5])).dim(vec![0]));
            }
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Dims, with(e.normal([2, 3])).dim(vec![2]), "distinct dimensions of a tensor of rank 2");
        }
    }

    table($name, $torch, $counts, $holds, $reference) {
        /// Whether all elements along `dim` (all dimensions if absent or empty) differ from zero. NaN does.
        all, "all", prims::logical_not, eq, all;
        /// Whether an element along `dim` (all dimensions if absent or empty) differs from zero. NaN does.
        any, "any", truth, ne, any;
    }
}

/// How many elements along `dim` (all dimensions if absent or empty) differ from zero, as i64.
#[operator(torch = "count_nonzero", no_grad = "a number of elements has no gradient")]
pub mod count_nonzero {
    fn count_nonzero(input: Tensor, #[default(None)] dim: Option<Vec<i64>>) -> Tensor;

    fn meta(input: &TensorMeta, dim: Option<&[i64]>) -> Result<TensorMeta> {
        let dims = checked_dims("dim", dim, input, Code::Dims)?;
        Ok(input.with_shape(reduced_shape(input.shape(), &dims, false)).with_dtype(DType::I64))
    }

    fn decomposition(input: Tensor, dim: Option<&[i64]>) -> Tensor {
        count(truth(input), &reduced_dims(dim, input.rank()).unwrap_or_default())
    }

    fn reference(input: &ArrayD<f64>, dim: Option<&[i64]>) -> ArrayD<i64> {
        reduce(input, dim, false, |row| row.iter().filter(|x| **x != 0.0).count() as i64)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.values([3, 4], [1.0, 0.0, 3.0, 2.0, 1.0])).dim(vec![1]));
        s.case(with(s.values([3, 4], [1.0, 0.0, 3.0, 2.0, 1.0])));
        s.case(with(s.values([], [0.0])));
        s.case(with(s.normal([0, 3])).dim(vec![0]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([2, 3])).dim(vec![1, 1]), "distinct dimensions of a tensor of rank 2");
    }
}

/// Whether elements differ from zero.
#[track_caller]
pub(crate) fn truth(input: Tensor) -> Tensor {
    if input.dtype() == fulgurite_runtime::DType::Bool { input } else { prims::ne(input, 0) }
}

/// How many of `holds` hold along `dims`, as i64.
#[track_caller]
pub(crate) fn count(holds: Tensor, dims: &[usize]) -> Tensor {
    let ones = cast(holds, fulgurite_runtime::DType::I64);
    if dims.is_empty() { ones } else { prims::sum(ones, dims) }
}
