use fulgurite_ops_macros::operator;

use super::promotion::number;
use crate::prims;

/// The numbers from `start` up to, not including, `end` in steps of `step`; i64 if all three are integers, otherwise
/// f32, unless `dtype` says otherwise.
#[operator(torch = "arange")]
pub mod arange {
    fn arange(
        start: Scalar,
        end: Scalar,
        #[default(1i64)] step: Scalar,
        #[default(None)] dtype: Option<DType>,
        #[default("cpu")] device: String,
    ) -> Tensor;

    fn meta(start: Scalar, end: Scalar, step: Scalar, dtype: Option<DType>, device: &str) -> Result<TensorMeta> {
        let parsed = device.parse::<Device>();
        require!(parsed.is_ok(), UnknownDevice, "'{device}' is not a device, expected 'cpu', 'cuda:0', ...");
        let (first, last, by) = (start.to_f64(), end.to_f64(), step.to_f64());
        require!(by != 0.0 && by.is_finite(), Step, "step is {by}, expected a finite number other than zero");
        require!(
            first.is_finite() && last.is_finite() && (last - first) * by.signum() >= 0.0,
            Bounds,
            "steps of {by} do not lead from {first} to {last}"
        );
        Ok(TensorMeta::new(
            [length(start, end, step)],
            element_type(start, end, step, dtype),
            parsed.unwrap_or(Device::CPU),
        ))
    }

    fn decomposition(start: Scalar, end: Scalar, step: Scalar, dtype: Option<DType>, device: &str) -> Tensor {
        let dtype = element_type(start, end, step, dtype);
        prims::iota(length(start, end, step), number(start, dtype), number(step, dtype), dtype, device)
    }

    fn length(start: Scalar, end: Scalar, step: Scalar) -> usize {
        ((end.to_f64() - start.to_f64()) / step.to_f64()).ceil() as usize
    }

    fn element_type(start: Scalar, end: Scalar, step: Scalar, dtype: Option<DType>) -> DType {
        let floating = [start, end, step].iter().any(|scalar| matches!(scalar, Scalar::Float(_)));
        dtype.unwrap_or(if floating { DType::F32 } else { DType::I64 })
    }

    fn reference(start: Scalar, end: Scalar, step: Scalar) -> ArrayD<f64> {
        let mut values = Vec::new();
        while (start.to_f64() + values.len() as f64 * step.to_f64()) * step.to_f64().signum()
            < end.to_f64() * step.to_f64().signum()
        {
            values.push(start.to_f64() + values.len() as f64 * step.to_f64());
        }
        super::super::arrays::array(&[values.len()], values)
    }

    fn samples(s: &mut Samples) {
        s.case(with(0i64, 7i64));
        s.case(with(3i64, 3i64));
        s.case(with(10i64, -3i64).step(-4i64));
        s.case(with(0.0, 1.0).step(0.25));
        if s.dtype() != DType::Bool {
            s.case(with(1i64, 6i64).step(2i64).dtype(s.dtype()));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(UnknownDevice, with(0i64, 2i64).device("?"), "'?' is not a device");
        e.case(Step, with(0i64, 2i64).step(0i64), "step is 0");
        e.case(Step, with(0.0, 2.0).step(f64::INFINITY), "step is inf");
        e.case(Bounds, with(2i64, 0i64), "do not lead from 2 to 0");
        e.case(Bounds, with(0.0, f64::INFINITY), "do not lead from 0 to inf");
        e.case(Bounds, with(f64::NEG_INFINITY, 0.0), "do not lead from -inf to 0");
    }
}
