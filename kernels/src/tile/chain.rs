//! Two instructions on tiles at once: what is between them stays in registers.

use super::operand::{Argument, Operand};
use crate::scalar::ScalarOp;
use crate::vector::multiversion;

macro_rules! chain_loop {
    ($a:ident, $c:ident, $out:ident, |$x:ident, $y:ident| $value:expr) => {{
        let length = $out.len();
        let a = &$a[..length];
        match $c {
            Argument::Slice(c) => {
                let c = &c[..length];
                for i in 0..length {
                    let ($x, $y) = (a[i], c[i]);
                    $out[i] = $value;
                }
            }
            Argument::Scalar($y) => {
                for i in 0..length {
                    let $x = a[i];
                    $out[i] = $value;
                }
            }
        }
    }};
}

multiversion! {
    // Each operation is rounded by itself, as by two instructions.
    fn chain_f32[FMA](multiplies_first: bool, a: &[f32], b: f32, c: Argument<'_, f32>, out: &mut [f32]) {
        match multiplies_first {
            true => chain_loop!(a, c, out, |x, y| x * b + y),
            false => chain_loop!(a, c, out, |x, y| (x + b) * y),
        }
    }
}

/// Whether [`chain`] has `first` followed by `second`: a product and a sum, which commute.
pub(crate) fn is_chained(first: ScalarOp, second: ScalarOp) -> bool {
    matches!((first, second), (ScalarOp::Mul, ScalarOp::Add) | (ScalarOp::Add, ScalarOp::Mul))
}

/// `(a first b) second c` in f32, on `length` elements, where the other operation than `first` is `second` (see
/// [`is_chained`]).
///
/// # Safety
/// `a` and `out` hold `length` elements, `b` one, `c` what it says; `out` overlaps none of them.
pub(crate) unsafe fn chain(first: ScalarOp, a: *const u8, b: *const u8, c: Operand, out: *mut u8, length: usize) {
    use std::slice::{from_raw_parts, from_raw_parts_mut};
    // SAFETY: promised by the caller.
    unsafe {
        let out = from_raw_parts_mut(out.cast(), length);
        chain_f32(
            first == ScalarOp::Mul,
            from_raw_parts(a.cast(), length),
            b.cast::<f32>().read(),
            c.segment(0, length),
            out,
        );
    }
}
