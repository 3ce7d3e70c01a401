//! What depends on the order of elements.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::kernels::order;

use super::cpu;

#[implementation(of = fulgurite_ops::prims::argmax, by = cpu, strided)]
mod argmax_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, dim: usize, out: &mut TensorMut) -> Result<()> {
        order::argmax(input, dim, out.reborrow());
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::cumsum, by = cpu, strided)]
mod cumsum_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, dim: usize, out: &mut TensorMut) -> Result<()> {
        order::cumsum(input, dim, out.reborrow());
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::topk, by = cpu, strided)]
mod topk_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, dim: usize, largest: bool, values: &mut TensorMut, indices: &mut TensorMut) -> Result<()> {
        order::topk(input, dim, largest, values.reborrow(), indices.reborrow());
        Ok(())
    }
}
