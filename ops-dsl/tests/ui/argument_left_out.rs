//! A decomposition or a gradient that leaves out an argument would call its operator with the default.
use fulgurite_ops_macros::operator;

#[operator]
pub mod scale {
    fn scale(input: Tensor, #[default(1.0)] factor: f64, #[default(0.0)] offset: f64) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        input * 1.0
    }

    fn grad(input: Tensor, _offset: f64) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (scale(input), move |d_out| Grads { input: d_out })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])).factor(2.0));
    }
}

fn main() {}
