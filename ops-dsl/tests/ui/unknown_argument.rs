//! A rule takes an argument that the signature lacks.
use fulgurite_ops_macros::operator;

#[operator(prim, no_grad = "a test")]
pub mod norm {
    fn norm(input: Tensor, weight: Tensor, eps: f64) -> Tensor;

    fn meta(input: &TensorMeta, wieght: &TensorMeta) -> Result<TensorMeta> {
        let _ = wieght;
        Ok(input.clone())
    }

    fn reference(input: &ArrayD<f64>, gamma: &ArrayD<f64>) -> ArrayD<f64> {
        input * gamma
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4]), s.normal([4]), 1e-5));
    }
}

fn main() {
    let _ = norm;
}
