//! Arguments without `.call()` where a tensor is expected: the type's name says what is missing.
use fulgurite_ops_macros::operator;

#[operator(prim, no_grad = "a test")]
pub mod scaled {
    fn scaled(input: Tensor<Floating>, #[default(1.0)] by: f64) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

fn given_back(input: fulgurite_runtime::Tensor) -> fulgurite_runtime::Tensor {
    scaled::with(input).by(2.0)
}

fn handed_on(input: fulgurite_runtime::Tensor) -> fulgurite_runtime::Tensor {
    scaled(scaled::with(input).by(2.0))
}

fn added(input: fulgurite_runtime::Tensor) -> fulgurite_runtime::Tensor {
    input + scaled::with(input).by(2.0)
}

fn main() {
    let _ = (given_back, handed_on, added);
    let _ = fulgurite_runtime::jit(|input: fulgurite_runtime::Tensor| scaled::with(input).by(2.0));
}
