//! Windows that overlap. Windows themselves are views.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::kernels::window_sums;

use super::cpu;

#[implementation(of = fulgurite_ops::prims::sum_of_windows, by = cpu, strided)]
mod sum_of_windows_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, steps: &[usize], dilations: &[usize], out: &mut TensorMut) -> Result<()> {
        window_sums::sum_of_windows(input, steps, dilations, out.reborrow());
        Ok(())
    }
}
