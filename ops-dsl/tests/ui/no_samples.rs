//! Operators of every kind without samples.
use fulgurite_ops_macros::{executor, operator};

#[operator(prim, no_grad = "a test")]
pub mod copy {
    fn copy(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }
}

#[operator]
pub mod twice {
    fn twice(input: Tensor) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        copy(copy(input))
    }
}

#[operator(executor = fast, no_grad = "a test")]
pub mod kernel {
    fn kernel(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }
}

/// Kernels.
#[executor(device = "cpu")]
pub mod fast {}

fn main() {}
