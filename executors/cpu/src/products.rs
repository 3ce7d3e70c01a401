//! Matrix products.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::rules::fulgurite_kernels::matmul::matmul;

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
