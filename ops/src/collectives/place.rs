use fulgurite_ops_macros::operator;
use fulgurite_runtime::mesh::Axis;
use fulgurite_runtime::ranks;

use super::among;

/// The place of this rank along `axis`, i64[] on `device`: 0 for the first one. Nothing is communicated.
#[operator(prim, exact, effects(place), overload = Place, no_grad = "it has no tensor arguments")]
pub mod place {
    fn place(axis: String, device: String) -> Tensor;

    fn meta(axis: &str, device: &str) -> Result<TensorMeta> {
        among::extent(axis, Code::Axis)?;
        let on = device.parse::<Device>();
        require!(on.is_ok(), DeviceName, "device is '{device}', expected 'cpu', 'cuda', 'cuda:1', ...");
        Ok(TensorMeta::new([], DType::I64, on.unwrap_or(Device::CPU)))
    }

    fn reference(axis: &str) -> Result<ReferenceTensor> {
        let axis: Axis = axis.parse().map_err(|message: String| Failure::new("Axis", message))?;
        let own = if axis.extent() == 1 { 0 } else { ranks::place(&axis)? };
        Ok(ArrayD::from_elem(IxDyn(&[]), own as i64).into())
    }

    fn samples(s: &mut Samples) {
        if s.dtype() == DType::I64 {
            s.case(with("data=1", "cpu"));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with("data", "cpu"), "'data' is not an axis of a mesh");
        e.case(DeviceName, with("data=1", ""), "device is ''");
    }
}
