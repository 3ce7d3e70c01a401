use fulgurite::prelude::*;

use super::{plain, squareplus};

#[implementation(of = squareplus, by = plain)]
mod squareplus_by_plain {
    // PLACEHOLDER: accept the calls that it can run, and refuse the others with a reason. Arguments are taken by name.
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "input is {}, takes f32", input.dtype());
        Ok(())
    }

    // PLACEHOLDER: the kernel, with the arguments that it needs (an underscore marks an unused one). Use
    // `execution` instead to call kernel symbols.
    fn cpu(_input: TensorRef, _out: &mut TensorMut) -> Result<()> {
        todo!("{}: write the kernel at PLACEHOLDER", file!())
    }

    // PLACEHOLDER: the results by kernels of this executor, and the gradients of the operands from the cotangents of
    // the results. Without the rule the gradient is the operator's own, or that of its decomposition: remove it if
    // that calls what this executor runs.
    fn grad(arguments: Arguments) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let results = squareplus::call(arguments);
        (results, move |d_out: Tensor| -> Grads {
            todo!("{}: write `Grads {{ input }}` from {d_out:?} at PLACEHOLDER", file!())
        })
    }
}
