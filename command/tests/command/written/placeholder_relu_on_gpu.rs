use fulgurite::prelude::*;

use super::placeholder_gpu;

#[implementation(of = relu, by = placeholder_gpu)]
mod placeholder_relu_on_gpu {
    // PLACEHOLDER: accept the calls that it can run, and refuse the others with a reason. Arguments are taken by name.
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "input is {}, takes f32", input.dtype());
        Ok(())
    }

    // PLACEHOLDER: the launch of the kernel in placeholder_relu_on_gpu.cu: its name, its grid, and its
    // arguments in the order of its parameters. Use `execution` instead to call kernel symbols.
    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        let count = out.meta.len();
        if count == 0 {
            return Ok(());
        }
        plan.source(source_files!["placeholder_relu_on_gpu.cu"]);
        let shape = LaunchShape::linear(count.div_ceil(256) as u32, 256);
        plan.launch("placeholder_relu_on_gpu", shape, binds![input, out, count])
    }

    // PLACEHOLDER: the results by kernels of this executor, and the gradients of the operands from the cotangents of
    // the results. Without the rule the gradient is the operator's own, or that of its decomposition: remove it if
    // that calls what this executor runs.
    fn grad(arguments: Arguments) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let results = relu::call(arguments);
        (results, move |d_out: Tensor| -> Grads {
            todo!("{}: write `Grads {{ input }}` from {d_out:?} at PLACEHOLDER", file!())
        })
    }
}
