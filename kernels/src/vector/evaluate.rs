//! Formulas of slices by the widest registers that the machine has.

use super::lanes::{Formula, Portable, slices};
#[cfg(target_arch = "x86_64")]
use super::level::{Level, level};

/// Writes the formula of the elements of `operands` to `out`. All are equally long.
pub(crate) fn evaluate<F: Formula<N>, const N: usize>(formula: &F, operands: [&[f32]; N], out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    match level() {
        // SAFETY: the level says that the machine has these instructions.
        Level::Avx512 => unsafe { super::x86::avx512(formula, operands, out) },
        // SAFETY: as above.
        Level::Avx2 => unsafe { super::x86::avx2(formula, operands, out) },
        Level::Baseline => slices::<Portable<false>, F, N>(formula, operands, out),
    }
    #[cfg(not(target_arch = "x86_64"))]
    slices::<Portable<{ cfg!(target_arch = "aarch64") }>, F, N>(formula, operands, out);
}
