use fulgurite_ops_macros::operator;

use super::{exact_log_softmax, total_along};
use crate::core::arrays::{along, log_softmax_row};
use crate::core::promotion::{accumulating, cast};
use crate::prims;

/// `x - max - log Σ e^(x - max)` along `dim`, computed in f32 for f16 and bf16. `input` is converted to `dtype` first
/// if it is given.
#[operator(torch = "log_softmax", autocast = full)]
pub mod log_softmax {
    fn log_softmax(input: Tensor, dim: i64, #[default(None)] dtype: Option<DType>) -> Tensor;

    fn requires(input: &TensorMeta, dim: i64, dtype: Option<DType>) -> Result<()> {
        normalize_dim(dim, input.rank())?;
        let dtype = dtype.unwrap_or(input.dtype());
        require!(
            dtype.is_floating(),
            ResultType,
            "the result would be {dtype}, expected a floating-point dtype: give `dtype` for an input of another type"
        );
        Ok(())
    }

    fn decomposition(input: Tensor, dim: i64, dtype: Option<DType>) -> Tensor {
        let dtype = dtype.unwrap_or(input.dtype());
        cast(exact_log_softmax(accumulating(cast(input, dtype)), dim), dtype)
    }

    fn grad(input: Tensor, dim: i64, dtype: Option<DType>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = with(input, dim).dtype(dtype).call();
        (out, move |d_out: Tensor| {
            let given = input.dtype();
            let (log_p, d) = (accumulating(out), accumulating(d_out));
            let d_input = prims::sub(d, prims::mul(prims::exp(log_p), total_along(d, dim)));
            Grads { input: cast(cast(d_input, out.dtype()), given) }
        })
    }

    fn reference(input: &ArrayD<f64>, dim: i64) -> ArrayD<f64> {
        along(input, dim, log_softmax_row)
    }

    fn samples(s: &mut Samples) {
        if !s.dtype().is_floating() {
            s.case(with(s.uniform(0.0, 2.0, [3, 4]), 1).dtype(DType::F32));
            return;
        }
        s.case(with(s.normal([4, 8]), -1));
        s.case(with(s.normal([3, 5, 7]), 1));
        s.case(with(s.normal([]), 0));
        s.case(with(s.normal([0, 3]), 1));
        s.case(with(s.normal([3, 0]), 1));
        s.case(with(s.normal([3, 515]), -1));
        s.case(with(s.normal([3, 4]), 0).dtype(DType::F64));
        s.case(with(s.values([4], [30.0, -30.0, 1e4, 9.9e3]), 0));
        let masked = [f64::NEG_INFINITY, 0.5, f64::NEG_INFINITY, 2.0];
        s.case(with(s.values([2, 4], masked), 1)).forward_only("infinities have no differences");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(ResultType, with(e.normal([2]), 0).dtype(DType::I64), "the result would be i64");
        e.case(ResultType, with(e.of(DType::I64, [2]), 0), "give `dtype` for an input of another type");
    }
}
