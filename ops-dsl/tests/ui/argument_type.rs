//! A rule takes an argument as a type that it cannot have.
use fulgurite_ops_macros::operator;

#[operator(prim, no_grad = "a test")]
pub mod copy {
    fn copy(input: Tensor, eps: f64) -> Tensor;

    fn meta(input: &TensorMeta, eps: f32) -> Result<TensorMeta> {
        let _ = eps;
        Ok(input.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4]), 1.0));
    }
}

fn main() {}
