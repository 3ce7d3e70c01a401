//! A `Grads` that misses an input.
use fulgurite_ops_macros::operator;

#[operator(prim)]
pub mod scale {
    fn scale(input: Tensor, weight: Tensor) -> Tensor;

    fn scalar(input: Expr, weight: Expr) -> Expr {
        input * weight
    }

    fn grad(input: Tensor, weight: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (scale(input, weight), move |d_out| Grads { input: d_out * weight })
    }

    fn samples(s: &mut Samples) {
        s.elementwise_binary(Domain::ALL, Domain::ALL)
    }
}

fn main() {}
