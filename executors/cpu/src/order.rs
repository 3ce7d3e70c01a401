//! What depends on the order of elements.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::kernels::{order, search};

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

#[implementation(of = fulgurite_ops::prims::searchsorted, by = cpu, strided)]
mod searchsorted_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(sorted: TensorRef, values: TensorRef, right: bool, out: &mut TensorMut) -> Result<()> {
        search::searchsorted(sorted, values, right, out.reborrow());
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
