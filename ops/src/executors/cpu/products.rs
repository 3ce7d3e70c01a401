//! Matrix products.

use fulgurite::rules::fulgurite_kernels::matmul::matmul;
use fulgurite_ops_macros::implementation;

use super::cpu;

#[implementation(of = crate::prims::matmul, by = cpu, strided)]
mod matmul_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, other: TensorRef, out: &mut TensorMut) -> Result<()> {
        matmul(input, other, out.reborrow(), false);
        Ok(())
    }
}
