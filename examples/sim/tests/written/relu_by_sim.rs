use fulgurite::prelude::*;

use super::sim;

#[implementation(of = relu, by = sim)]
mod relu_by_sim {
    // PLACEHOLDER: accept the calls that it can run, and refuse the others with a reason. Arguments are taken by name.
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "input is {}, takes f32", input.dtype());
        Ok(())
    }

    // PLACEHOLDER: the device work: fills, copies, and library calls (`plan.library`) with payloads of the
    // kind `sim`. (An underscore marks an unused argument.)
    fn plan(_plan: &mut Plan, _input: &DeviceTensor, _out: &DeviceTensor) -> Result<()> {
        todo!("{}: write the device work at PLACEHOLDER", file!())
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
