use fulgurite_ops_macros::operator;

use super::arrays::along;
use super::promotion::{accumulating, cast, position};
use crate::prims;

/// Sums of the elements up to and including each along `dim`. Integers and booleans are summed as i64, f16 and bf16 in
/// f32.
#[operator(torch = "cumsum", autocast = full)]
pub mod cumsum {
    fn cumsum(input: Tensor, dim: i64, #[default(None)] dtype: Option<DType>) -> Tensor;

    fn requires(input: &TensorMeta, dim: i64, dtype: Option<DType>) -> Result<()> {
        normalize_dim(dim, input.rank())?;
        require!(dtype != Some(DType::Bool), SumType, "a sum has no dtype bool");
        Ok(())
    }

    fn decomposition(input: Tensor, dim: i64, dtype: Option<DType>) -> Tensor {
        let dtype = result(input.dtype(), dtype);
        if input.rank() == 0 {
            return cast(input, dtype);
        }
        cast(prims::cumsum(accumulating(cast(input, dtype)), position(dim, input.rank())), dtype)
    }

    fn result(input: DType, dtype: Option<DType>) -> DType {
        dtype.unwrap_or(if input.is_floating() { input } else { DType::I64 })
    }

    fn reference(input: &ArrayD<f64>, dim: i64) -> ArrayD<f64> {
        along(input, dim, |row| {
            let sums = row.iter().scan(0.0, |sum, x| {
                *sum += x;
                Some(*sum)
            });
            sums.collect()
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 5]), 0));
        s.case(with(s.normal([3, 1, 70]), -1));
        s.case(with(s.normal([]), 0));
        s.case(with(s.normal([0, 3]), 0));
        s.case(with(s.normal([3]), 0).dtype(DType::F32));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(SumType, with(e.normal([2]), 0).dtype(DType::Bool), "no dtype bool");
    }
}
