use fulgurite_ops_macros::operator;

use super::parts::{each, is_complex};
use super::promotion::constant_like;

/// `input`, of which what is computed has no gradient: derivatives see a constant.
#[operator(torch = "Tensor.detach", complex, waive(d_out = "derivatives take the result for a constant"))]
pub mod detach {
    fn detach(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor) -> Tensor {
        if is_complex(input) { each(input, detach) } else { input }
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (detach(input), move |_d_out: Tensor| Grads { input: constant_like(input, 0.0) })
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        input.clone()
    }

    fn samples(s: &mut Samples) {
        if s.dtype().is_complex() {
            s.case(with(s.normal([3]))).forward_only("zero by definition").gradients([&[0.0; 6]]);
            return;
        }
        s.case(with(s.normal([3]))).forward_only("zero by definition").gradients([&[0.0; 3]]);
        s.case(with(s.normal([]))).forward_only("zero by definition").gradients([&[0.0]]);
        s.case(with(s.normal([2, 0]))).forward_only("zero by definition").gradients([&[]]);
    }
}
