//! A misspelt name of a function of PyTorch.
use fulgurite_ops_macros::operator;

#[operator(prim, no_grad = "a test", torch = "nn.functional.gelo")]
pub mod copy {
    fn copy(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

fn main() {}
