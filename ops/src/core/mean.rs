use fulgurite_ops_macros::operator;

use super::arrays::{linear, reduce};
use super::parts;
use super::promotion::{accumulating, cast, checked_dims, keep_dims, reduced_dims, reduced_shape};
use crate::prims;

/// The arithmetic mean along `dim` (all dimensions if absent or empty) of the elements in `dtype`, that of `input` if
/// absent; accumulated in f32 for f16 and bf16; NaN of no elements.
#[operator(torch = "mean", complex)]
pub mod mean {
    fn mean(
        input: Tensor,
        #[default(None)] dim: Option<Vec<i64>>,
        #[default(false)] keepdim: bool,
        #[default(None)] dtype: Option<DType>,
    ) -> Tensor;

    fn meta(input: &TensorMeta, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>) -> Result<TensorMeta> {
        let dims = checked_dims("dim", dim, input, Code::Dims)?;
        let dtype = dtype.unwrap_or(input.dtype());
        require!(
            dtype.is_differentiable() && dtype.is_complex() >= input.dtype().is_complex(),
            MeanType,
            "a mean of {} is a floating-point or complex number, not {dtype}; give another dtype",
            input.dtype()
        );
        Ok(TensorMeta::new(reduced_shape(input.shape(), &dims, keepdim), dtype, input.device()))
    }

    fn decomposition(input: Tensor, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>) -> Tensor {
        let (shape, input) = (input.shape(), cast(input, dtype.unwrap_or(input.dtype())));
        let dims = reduced_dims(dim, input.rank()).unwrap_or_default();
        if dims.is_empty() {
            return input;
        }
        let count: usize = dims.iter().map(|dim| shape[*dim]).product();
        let total = parts::sum(accumulating(input), &dims);
        let mean = parts::each(total, |total| prims::div(total, count as f64));
        keep_dims(cast(mean, input.dtype()), &shape, &dims, keepdim)
    }

    fn reference(input: &ReferenceTensor, dim: Option<&[i64]>, keepdim: bool) -> ReferenceTensor {
        linear(input, |a| reduce(a, dim, keepdim, |row| row.iter().sum::<f64>() / row.len() as f64))
    }

    fn samples(s: &mut Samples) {
        if !s.dtype().is_differentiable() {
            s.case(with(s.of(s.dtype(), [4, 8])).dim(vec![1]).dtype(DType::F32));
            return;
        }
        s.case(with(s.normal([4, 8])));
        s.case(with(s.normal([])));
        s.case(with(s.normal([3])).dim(vec![0]));
        s.case(with(s.normal([3, 5, 7])).dim(vec![-1]).keepdim(true));
        s.case(with(s.normal([3, 5, 7])).dim(vec![2, 0]));
        s.case(with(s.normal([0, 3])).dim(vec![1]));
        s.case(with(s.normal([0, 3])).dim(vec![0])).forward_only("the mean of nothing is NaN");
        s.case(with(s.normal([5, 513])).dim(vec![1]));
        let dtype = if s.dtype().is_complex() { DType::C128 } else { DType::F64 };
        s.case(with(s.normal([3, 5])).dim(vec![0]).dtype(dtype));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(MeanType, with(e.of(DType::I64, [2])), "not i64");
        e.case(Dims, with(e.normal([2, 3])).dim(vec![2]), "distinct dimensions of a tensor of rank 2");
        e.case(Dims, with(e.normal([1; 65])).dim(vec![0]), "expected at most 64 where some are named");
    }
}
