//! Parameters to tune that have no values, or wrong ones, and rules that have none.
use fulgurite_ops_macros::{executor, implementation, operator};

/// Kernels.
#[executor(device = "cuda")]
pub mod fast {}

#[operator(prim, no_grad = "a test")]
pub mod scale {
    fn scale(input: Tensor<Floating>) -> Tensor;

    fn scalar(input: Expr) -> Expr {
        input + input
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL)
    }
}

#[implementation(of = scale, by = fast)]
mod without_a_form {
    fn checker() -> Claim {
        Ok(())
    }

    #[tune(BLOCK = 128)]
    fn plan(_plan: &mut Plan, _input: &DeviceTensor, BLOCK: usize, _out: &DeviceTensor) -> Result<()> {
        let _ = BLOCK;
        Ok(())
    }
}

#[implementation(of = scale, by = fast)]
mod without_values {
    fn checker() -> Claim {
        Ok(())
    }

    #[tune(BLOCK in [])]
    fn plan(_plan: &mut Plan, _input: &DeviceTensor, BLOCK: usize, _out: &DeviceTensor) -> Result<()> {
        let _ = BLOCK;
        Ok(())
    }
}

#[implementation(of = scale, by = fast)]
mod with_a_value_twice {
    fn checker() -> Claim {
        Ok(())
    }

    #[tune(BLOCK in [128, 256, 128])]
    fn plan(_plan: &mut Plan, _input: &DeviceTensor, BLOCK: usize, _out: &DeviceTensor) -> Result<()> {
        let _ = BLOCK;
        Ok(())
    }
}

#[implementation(of = scale, by = fast)]
mod with_a_fraction {
    fn checker() -> Claim {
        Ok(())
    }

    #[tune(BLOCK in [128, 2.5])]
    fn plan(_plan: &mut Plan, _input: &DeviceTensor, BLOCK: usize, _out: &DeviceTensor) -> Result<()> {
        let _ = BLOCK;
        Ok(())
    }
}

#[implementation(of = scale, by = fast)]
mod of_another_parameter {
    fn checker() -> Claim {
        Ok(())
    }

    #[tune(ROWS in [1, 2])]
    fn plan(_plan: &mut Plan, _input: &DeviceTensor, _out: &DeviceTensor) -> Result<()> {
        Ok(())
    }
}

#[implementation(of = scale, by = fast)]
mod of_a_checker {
    #[tune(BLOCK in [128, 256])]
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(_plan: &mut Plan, _input: &DeviceTensor, _out: &DeviceTensor) -> Result<()> {
        Ok(())
    }
}

#[implementation(of = scale, by = fast)]
mod of_an_execution {
    fn checker() -> Claim {
        Ok(())
    }

    #[tune(BLOCK in [128, 256])]
    fn execution(input: Tensor) -> Tensor {
        input
    }
}

#[operator(executor = fast, no_grad = "a test")]
pub mod scaled_symbol {
    fn scaled_symbol(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    #[tune(BLOCK in [128, 256])]
    fn plan(_plan: &mut Plan, _input: &DeviceTensor, BLOCK: usize, _out: &DeviceTensor) -> Result<()> {
        let _ = BLOCK;
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL)
    }
}

fn main() {}
