//! Modules and files that there are not, by names that are nearly those of others.
use fulgurite_ops_macros::{executor, implementation, operator};

/// Kernels for the GPU.
#[executor(device = "cuda")]
pub mod graphics {}

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

#[implementation(of = twcie, by = grafics)]
mod twice_by_graphics {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, _input: &DeviceTensor, _out: &DeviceTensor) -> Result<()> {
        plan.source(source_files!["missing.cu"]);
        Ok(())
    }
}

#[operator(executor = graphic, no_grad = "a test")]
pub mod thrice {
    fn thrice(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL)
    }
}

fn main() {}
