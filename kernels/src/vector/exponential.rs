//! The exponential in f32.

use super::lanes::{self, Portable};

/// eˣ: x = n·ln 2 + r, a polynomial of r (coefficients of Cephes' `expf`), and a scaling by 2ⁿ in two steps, so that
/// results down to the smallest subnormal and up to infinity come out right.
#[inline(always)]
pub(crate) fn exp<const FMA: bool>(x: f32) -> f32 {
    lanes::exp(Portable::<FMA>(x)).0
}
