//! All mistakes of a declaration are reported at once, and callers of the operator get no errors of their own.
use fulgurite_ops_macros::operator;

#[operator(skip(goldn, reason = "not stored"))]
pub mod norm {
    fn norm(input: Tensor<Floating>, dims: Vec<usize>, #[default(None)] weight: Option<Tensor>) -> Tensor;

    fn meta(inptu: &TensorMeta, dims: &[usize]) -> Result<TensorMeta> {
        require!(!dims.is_empty(), Dims, "dims is empty");
        Ok(inptu.clone())
    }

    fn decomposition(input: Tensor, weight: Option<Tensor>) -> Tensor {
        weight.map_or(input, |weight| input * weight)
    }
}

#[operator]
pub mod twice {
    fn twice(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        norm::with(input.norm([3]), [4]).weight(input).call()
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

fn gradient_of_norm(input: fulgurite_runtime::Tensor) -> norm::Grads {
    norm::Grads { input, weight: None }
}

fn main() {
    let _ = (gradient_of_norm, norm::Code::Dims.name());
}
