//! A prim and a kernel symbol of floating-point tensors that say nothing about gradients.
use fulgurite_ops_macros::{executor, operator};

#[operator(prim)]
pub mod exp {
    fn exp(input: Tensor<Floating>) -> Tensor;

    fn scalar(input: Expr) -> Expr {
        input.exp()
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL)
    }
}

#[operator(executor = fast, no_grad = "")]
pub mod row {
    fn row(index: Tensor<Integer>, weight: Option<Tensor<Floating>>) -> Tensor;

    fn meta(index: &TensorMeta) -> Result<TensorMeta> {
        Ok(index.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.integers(0, 3, [2]), None));
    }
}

/// Kernels.
#[executor(device = "cpu")]
pub mod fast {}

fn main() {}
