//! Powers and remainders of floating-point numbers and integers, and other functions without vectors.

use crate::scalar::ScalarOp;

/// `base` to the power `exponent`, modulo 2⁶⁴. A negative exponent gives what PyTorch's integers give: 1 for the base
/// 1, ±1 for the base -1, and 0 for all others.
#[inline]
pub(crate) fn integer_power(base: i64, exponent: i64) -> i64 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut result, mut square, mut rest) = (1i64, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    result
}

/// Remainder with the sign of the divisor; 0 for a division by zero.
#[inline]
pub(crate) fn integer_remainder(a: i64, b: i64) -> i64 {
    let remainder = a.checked_rem(b).unwrap_or(0);
    if remainder != 0 && (remainder < 0) != (b < 0) { remainder + b } else { remainder }
}

/// An operation on integers alone. A shift by a negative number or by 64 and more leaves nothing, to the right copies
/// of the sign.
#[inline]
pub(crate) fn of_integers(op: ScalarOp, a: i64, b: i64) -> i64 {
    match op {
        ScalarOp::BitAnd => a & b,
        ScalarOp::BitOr => a | b,
        ScalarOp::BitXor => a ^ b,
        ScalarOp::ShiftLeft if (0..64).contains(&b) => a << b,
        ScalarOp::ShiftLeft => 0,
        ScalarOp::ShiftRight => a >> if (0..64).contains(&b) { b } else { 63 },
        ScalarOp::Gcd => greatest_common_divisor(a, b),
        _ => unreachable!("{op:?} is no operation on integers alone"),
    }
}

/// The greatest common divisor, by Euclid's algorithm; of zeros 0. That of the smallest integer and itself or 0 is 2⁶³,
/// which wraps.
#[inline]
fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}

macro_rules! floating {
    ($($name:ident $type:ty;)*) => {$(
        /// Remainder with the sign of the divisor, NaN for a division by zero.
        #[inline(always)]
        pub(crate) fn $name(a: $type, b: $type) -> $type {
            let remainder = a % b;
            if remainder != 0.0 && (remainder < 0.0) != (b < 0.0) { remainder + b } else { remainder }
        }
    )*};
}
floating! { remainder_f32 f32; remainder_f64 f64; }
