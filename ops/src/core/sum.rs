use fulgurite_ops_macros::operator;

use super::arrays::{linear, reduce};
use super::parts;
use super::promotion::{accumulating, cast, checked_dims, keep_dims, reduced_dims, reduced_shape};

/// The sum of the elements along `dim` (all dimensions if absent or empty). Integers and booleans are summed as i64;
/// f16 and bf16 are accumulated in f32.
#[operator(torch = "sum", autocast = full, complex)]
pub mod sum {
    fn sum(
        input: Tensor,
        #[default(None)] dim: Option<Vec<i64>>,
        #[default(false)] keepdim: bool,
        #[default(None)] dtype: Option<DType>,
    ) -> Tensor;

    fn meta(input: &TensorMeta, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>) -> Result<TensorMeta> {
        let dims = checked_dims("dim", dim, input, Code::Dims)?;
        let dtype = result(input.dtype(), dtype);
        require!(dtype != DType::Bool, SumType, "a sum has no dtype bool");
        require!(
            dtype.is_complex() || !input.dtype().is_complex(),
            RealSum,
            "a sum of {} has no dtype {dtype}; sum `real(input)`",
            input.dtype()
        );
        Ok(TensorMeta::new(reduced_shape(input.shape(), &dims, keepdim), dtype, input.device()))
    }

    fn decomposition(input: Tensor, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>) -> Tensor {
        let dtype = result(input.dtype(), dtype);
        let dims = reduced_dims(dim, input.rank()).unwrap_or_default();
        let wide = accumulating(cast(input, dtype));
        let summed = if dims.is_empty() { wide } else { parts::sum(wide, &dims) };
        keep_dims(cast(summed, dtype), &input.shape(), &dims, keepdim)
    }

    fn result(input: DType, dtype: Option<DType>) -> DType {
        dtype.unwrap_or(if input.is_differentiable() { input } else { DType::I64 })
    }

    fn reference(input: &ReferenceTensor, dim: Option<&[i64]>, keepdim: bool) -> ReferenceTensor {
        linear(input, |a| reduce(a, dim, keepdim, |row| row.iter().sum::<f64>()))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
        s.case(with(s.normal([])));
        s.case(with(s.normal([3])).dim(vec![0]));
        s.case(with(s.normal([3, 5, 7])).dim(vec![-1]).keepdim(true));
        s.case(with(s.normal([3, 5, 7])).dim(vec![2, 0]));
        s.case(with(s.normal([0, 3])).dim(vec![0]));
        s.case(with(s.normal([0, 3])).dim(vec![1]).keepdim(true));
        s.case(with(s.normal([2, 3])).dim(vec![]));
        s.case(with(s.normal([5, 513])).dim(vec![1]));
        let dtype = if s.dtype().is_complex() { DType::C128 } else { DType::F32 };
        s.case(with(s.uniform(-3.0, 3.0, [2, 3])).dtype(dtype));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([2, 3])).dim(vec![2]), "distinct dimensions of a tensor of rank 2");
        e.case(Dims, with(e.normal([2, 3])).dim(vec![1, -1]), "distinct dimensions of a tensor of rank 2");
        e.case(Dims, with(e.normal([1; 65])).dim(vec![0]), "expected at most 64 where some are named");
        e.case(RealSum, with(e.of(DType::C64, [2])).dtype(DType::F32), "a sum of c64 has no dtype f32");
        e.case(SumType, with(e.normal([2])).dtype(DType::Bool), "no dtype bool");
    }
}
