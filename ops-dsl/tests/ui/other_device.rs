//! Kernels that their executor, which runs on another kind of device, would never run.
use fulgurite_ops_macros::{executor, implementation, operator};

/// Kernels for the GPU.
#[executor(device = "cuda")]
pub mod on_gpu {}

/// Kernels for the host.
#[executor(device = "cpu")]
pub mod on_host {}

#[operator(prim, no_grad = "a test")]
pub mod twice {
    fn twice(input: Tensor<Floating>) -> Tensor;

    fn scalar(input: Expr) -> Expr {
        input + input
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL)
    }
}

#[implementation(of = twice, by = on_gpu)]
mod twice_by_gpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(_input: TensorRef, _out: &mut TensorMut) -> Result<()> {
        Ok(())
    }
}

#[operator(executor = on_host, no_grad = "a test")]
pub mod thrice {
    fn thrice(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn plan(_plan: &mut Plan, _input: &DeviceTensor, _out: &DeviceTensor) -> Result<()> {
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL)
    }
}

fn main() {}
