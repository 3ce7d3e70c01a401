//! Reading and adding at indices.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::Failure;
use fulgurite_runtime::kernels::elementwise::copy;
use fulgurite_runtime::kernels::indexing::{self, Combination, IndexOutOfRange};

use super::cpu;

/// The failure that names what was wrong.
fn out_of_range(error: IndexOutOfRange, dim: usize) -> Failure {
    let IndexOutOfRange { index, size, .. } = error;
    Failure::new(
        "IndexOutOfRange",
        format!("index holds {index}, which is out of range for dimension {dim} of size {size}"),
    )
}

#[implementation(of = fulgurite_ops::prims::gather, by = cpu, strided)]
mod gather_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, dim: usize, index: TensorRef, out: &mut TensorMut) -> Result<()> {
        indexing::gather(input, dim, index, out.reborrow()).map_err(|error| out_of_range(error, dim))
    }
}

#[implementation(of = fulgurite_ops::prims::index_select, by = cpu, strided)]
mod index_select_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, dim: usize, index: TensorRef, out: &mut TensorMut) -> Result<()> {
        indexing::index_select(input, dim, index, out.reborrow()).map_err(|error| out_of_range(error, dim))
    }
}

#[implementation(of = fulgurite_ops::prims::scatter_add, by = cpu, strided)]
mod scatter_add_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, dim: usize, index: TensorRef, src: TensorRef, out: &mut TensorMut) -> Result<()> {
        copy(input, out.reborrow());
        indexing::scatter_add(out.reborrow(), dim, index, src).map_err(|error| out_of_range(error, dim))
    }
}

#[implementation(of = fulgurite_ops::prims::index_add, by = cpu, strided)]
mod index_add_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, dim: usize, index: TensorRef, src: TensorRef, out: &mut TensorMut) -> Result<()> {
        copy(input, out.reborrow());
        indexing::index_add(out.reborrow(), dim, index, src).map_err(|error| out_of_range(error, dim))
    }
}

#[implementation(of = fulgurite_ops::prims::scatter, by = cpu, strided, in_place(input))]
mod scatter_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, dim: usize, index: TensorRef, src: TensorRef, out: &mut TensorMut) -> Result<()> {
        // Over its own input the other elements are there already.
        if !input.is_overlapped() {
            copy(input, out.reborrow());
        }
        indexing::scatter(out.reborrow(), dim, index, src).map_err(|error| out_of_range(error, dim))
    }
}

macro_rules! combinations {
    ($($module:ident: $of:ident, $combination:ident;)*) => {$(
        #[implementation(of = fulgurite_ops::prims::$of, by = cpu, strided)]
        mod $module {
            fn checker() -> Claim {
                Ok(())
            }

            fn cpu(input: TensorRef, dim: usize, index: TensorRef, src: TensorRef, out: &mut TensorMut) -> Result<()> {
                copy(input, out.reborrow());
                indexing::scatter_combine(out.reborrow(), Combination::$combination, dim, index, src)
                    .map_err(|error| out_of_range(error, dim))
            }
        }
    )*};
}

combinations! {
    scatter_prod_by_cpu: scatter_prod, Product;
    scatter_amax_by_cpu: scatter_amax, Largest;
    scatter_amin_by_cpu: scatter_amin, Smallest;
}
