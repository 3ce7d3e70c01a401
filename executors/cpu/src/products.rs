//! Matrix products.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::kernels::elementwise::copy;
use fulgurite_runtime::kernels::matmul::matmul;

use super::cpu;

#[implementation(of = fulgurite_ops::prims::matmul, by = cpu, strided)]
mod matmul_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, other: TensorRef, out: &mut TensorMut) -> Result<()> {
        matmul(input, other, out.reborrow(), false);
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::nn::accumulate_weight_gradient, by = cpu, in_place(total))]
mod accumulate_weight_gradient_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(total: TensorRef, grad_output: TensorRef, input: TensorRef, out: &mut TensorMut) -> Result<()> {
        copy(total, out.reborrow());
        let [rows, outputs] = [grad_output.shape()[0], grad_output.shape()[1]];
        let (shape, strides) = ([outputs, rows], [1, outputs as isize]);
        // SAFETY: the same elements of a contiguous matrix, column by column.
        let columns = unsafe { TensorRef::new(grad_output.dtype(), &shape, &strides, grad_output.as_ptr()) };
        matmul(columns, input, out.reborrow(), true);
        Ok(())
    }
}
