//! What depends on the order of elements.

use fulgurite::rules::fulgurite_kernels::order;
use fulgurite_ops_macros::implementation;

use super::cpu;

#[implementation(of = crate::prims::argmax, by = cpu, strided)]
mod argmax_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, dim: usize, out: &mut TensorMut) -> Result<()> {
        order::argmax(input, dim, out.reborrow());
        Ok(())
    }
}

#[implementation(of = crate::prims::cumsum, by = cpu, strided)]
mod cumsum_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, dim: usize, out: &mut TensorMut) -> Result<()> {
        order::cumsum(input, dim, out.reborrow());
        Ok(())
    }
}

#[implementation(of = crate::prims::topk, by = cpu, strided)]
mod topk_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, dim: usize, largest: bool, out0: &mut TensorMut, out1: &mut TensorMut) -> Result<()> {
        order::topk(input, dim, largest, out0.reborrow(), out1.reborrow());
        Ok(())
    }
}
