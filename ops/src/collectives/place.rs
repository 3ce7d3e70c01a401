use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::Scalar;
use fulgurite_runtime::mesh::Axis;
use fulgurite_runtime::ranks;

use super::{all_to_all, among};
use crate::prims;

/// The place of this rank along `axis`, i64[] on `device`: 0 for the first one. All ranks run one program, which is
/// therefore told it by the others: each gives the rank at a place that place.
#[operator(effects(collective), overload = Place, no_grad = "it has no tensor arguments")]
pub mod place {
    fn place(axis: String, device: String) -> Tensor;

    fn requires(axis: &str, device: &str) -> Result<()> {
        among::extent(axis, Code::Axis)?;
        require!(
            device.parse::<Device>().is_ok(),
            DeviceName,
            "device is '{device}', expected 'cpu', 'cuda', 'cuda:1', ..."
        );
        Ok(())
    }

    fn decomposition(axis: &str, device: &str) -> Tensor {
        let places = prims::iota(among::ranks_of(axis), Scalar::Int(0), Scalar::Int(1), DType::I64, device.to_owned());
        let own = all_to_all(places, axis, 0, 0);
        prims::reshape(prims::slice(own, [0], [1], [1]), [])
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
