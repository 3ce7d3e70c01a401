//! Sums over paths.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::kernels::paths;

use super::cpu;

#[implementation(of = fulgurite_ops::prims::log_path_sums, by = cpu, strided)]
mod log_path_sums_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(emissions: TensorRef, skips: TensorRef, out: &mut TensorMut) -> Result<()> {
        paths::log_path_sums(emissions, skips, out.reborrow());
        Ok(())
    }
}
