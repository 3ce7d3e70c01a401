//! Kernel symbols and implementations of several executors, of which one runs nothing.
use fulgurite_ops_macros::{executor, implementation, operator};

/// Kernels for the GPU.
#[executor(device = "cuda")]
pub mod on_gpu {}

/// Kernels for the host.
#[executor(device = "cpu")]
pub mod on_host {}

/// Other kernels for the host.
#[executor(device = "cpu")]
pub mod also_on_host {}

#[operator(executor = [on_host, on_gpu], no_grad = "a test")]
pub mod twice {
    fn twice(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn cpu(_input: TensorRef, _out: &mut TensorMut) -> Result<()> {
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL)
    }
}

#[operator(executor = [on_host, also_on_host], no_grad = "a test")]
pub mod thrice {
    fn thrice(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn cpu(_input: TensorRef, _out: &mut TensorMut) -> Result<()> {
        Ok(())
    }

    fn plan(_plan: &mut Plan, _input: &DeviceTensor, _out: &DeviceTensor) -> Result<()> {
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL)
    }
}

#[operator(prim, no_grad = "a test")]
pub mod fourfold {
    fn fourfold(input: Tensor<Floating>) -> Tensor;

    fn scalar(input: Expr) -> Expr {
        input + input + input + input
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL)
    }
}

#[implementation(of = fourfold, by = [on_host, on_gpu])]
mod fourfold_by_both {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(_plan: &mut Plan, _input: &DeviceTensor, _out: &DeviceTensor) -> Result<()> {
        Ok(())
    }
}

fn main() {}
