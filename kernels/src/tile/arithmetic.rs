//! Scalar instructions carried out on tiles.
//!
//! Every function takes `rows` rows of `width` contiguous elements. `out` overlaps no operand.

use super::Class;
use super::convert::{to_bf16, to_f16};
use super::operand::{Argument, Operand, for_segments};
use crate::dtype::DType;
use crate::scalar::ScalarOp;
use crate::vector::power::{integer_power, integer_remainder, of_integers, remainder_f32, remainder_f64};
use crate::vector::{self, multiversion};

macro_rules! unary_loop {
    ($input:ident, $out:ident, |$x:ident| $value:expr) => {{
        let length = $out.len();
        let input = &$input[..length];
        for i in 0..length {
            let $x = input[i];
            $out[i] = $value;
        }
    }};
}

macro_rules! binary_loop {
    ($a:ident, $b:ident, $out:ident, |$x:ident, $y:ident| $value:expr) => {{
        let length = $out.len();
        match ($a, $b) {
            (Argument::Slice(a), Argument::Slice(b)) => {
                let (a, b) = (&a[..length], &b[..length]);
                for i in 0..length {
                    let ($x, $y) = (a[i], b[i]);
                    $out[i] = $value;
                }
            }
            (Argument::Slice(a), Argument::Scalar($y)) => {
                let a = &a[..length];
                for i in 0..length {
                    let $x = a[i];
                    $out[i] = $value;
                }
            }
            (Argument::Scalar($x), Argument::Slice(b)) => {
                let b = &b[..length];
                for i in 0..length {
                    let $y = b[i];
                    $out[i] = $value;
                }
            }
            (Argument::Scalar($x), Argument::Scalar($y)) => $out.fill($value),
        }
    }};
}

macro_rules! sign {
    // As PyTorch: -1, 0 or 1, and 0 for NaN and both zeros.
    ($x:ident, $type:ty) => {
        (if $x > 0 as $type { 1 as $type } else { 0 as $type })
            - (if $x < 0 as $type { 1 as $type } else { 0 as $type })
    };
}

multiversion! {
    fn unary_f32[FMA](op: ScalarOp, x: &[f32], out: &mut [f32]) {
        match op {
            ScalarOp::Abs => unary_loop!(x, out, |x| x.abs()),
            ScalarOp::Neg => unary_loop!(x, out, |x| -x),
            ScalarOp::Exp => unary_loop!(x, out, |x| vector::exponential::exp::<FMA>(x)),
            ScalarOp::Expm1 => unary_loop!(x, out, |x| vector::exponential::expm1::<FMA>(x)),
            ScalarOp::Log => unary_loop!(x, out, |x| vector::logarithm::log::<FMA>(x)),
            ScalarOp::Log1p => unary_loop!(x, out, |x| vector::logarithm::log1p::<FMA>(x)),
            // Of the platform: scalar.
            ScalarOp::Log2 => unary_loop!(x, out, |x| x.log2()),
            ScalarOp::Log10 => unary_loop!(x, out, |x| x.log10()),
            ScalarOp::Sqrt => unary_loop!(x, out, |x| x.sqrt()),
            ScalarOp::Rsqrt => unary_loop!(x, out, |x| 1.0 / x.sqrt()),
            ScalarOp::Reciprocal => unary_loop!(x, out, |x| 1.0 / x),
            ScalarOp::Sin => vector::sin(x, out),
            ScalarOp::Cos => vector::cos(x, out),
            ScalarOp::Tanh => vector::tanh(x, out),
            ScalarOp::Erf => vector::erf(x, out),
            // Of the crate `libm`: scalar.
            ScalarOp::Erfc => unary_loop!(x, out, |x| libm::erfcf(x)),
            ScalarOp::Floor => unary_loop!(x, out, |x| x.floor()),
            ScalarOp::Round => unary_loop!(x, out, |x| x.round_ties_even()),
            ScalarOp::Sign => unary_loop!(x, out, |x| sign!(x, f32)),
            _ => unreachable!("{op:?} is no arithmetic of one operand"),
        }
    }
}

multiversion! {
    fn unary_f64[FMA](op: ScalarOp, x: &[f64], out: &mut [f64]) {
        match op {
            ScalarOp::Abs => unary_loop!(x, out, |x| x.abs()),
            ScalarOp::Neg => unary_loop!(x, out, |x| -x),
            ScalarOp::Exp => unary_loop!(x, out, |x| x.exp()),
            ScalarOp::Expm1 => unary_loop!(x, out, |x| x.exp_m1()),
            ScalarOp::Log => unary_loop!(x, out, |x| x.ln()),
            ScalarOp::Log1p => unary_loop!(x, out, |x| x.ln_1p()),
            ScalarOp::Log2 => unary_loop!(x, out, |x| x.log2()),
            ScalarOp::Log10 => unary_loop!(x, out, |x| x.log10()),
            ScalarOp::Sqrt => unary_loop!(x, out, |x| x.sqrt()),
            ScalarOp::Rsqrt => unary_loop!(x, out, |x| 1.0 / x.sqrt()),
            ScalarOp::Reciprocal => unary_loop!(x, out, |x| 1.0 / x),
            ScalarOp::Sin => unary_loop!(x, out, |x| x.sin()),
            ScalarOp::Cos => unary_loop!(x, out, |x| x.cos()),
            ScalarOp::Tanh => unary_loop!(x, out, |x| x.tanh()),
            ScalarOp::Erf => unary_loop!(x, out, |x| libm::erf(x)),
            ScalarOp::Erfc => unary_loop!(x, out, |x| libm::erfc(x)),
            ScalarOp::Floor => unary_loop!(x, out, |x| x.floor()),
            ScalarOp::Round => unary_loop!(x, out, |x| x.round_ties_even()),
            ScalarOp::Sign => unary_loop!(x, out, |x| sign!(x, f64)),
            _ => unreachable!("{op:?} is no arithmetic of one operand"),
        }
    }
}

multiversion! {
    fn unary_i64[FMA](op: ScalarOp, x: &[i64], out: &mut [i64]) {
        match op {
            ScalarOp::Abs => unary_loop!(x, out, |x| x.wrapping_abs()),
            ScalarOp::Neg => unary_loop!(x, out, |x| x.wrapping_neg()),
            ScalarOp::Floor | ScalarOp::Round => out.copy_from_slice(&x[..out.len()]),
            ScalarOp::Sign => unary_loop!(x, out, |x| x.signum()),
            _ => unreachable!("{op:?} is no integer arithmetic of one operand"),
        }
    }
}

macro_rules! binary_floating {
    ($name:ident, $type:ty, $remainder:ident) => {
        multiversion! {
            fn $name[FMA](op: ScalarOp, a: Argument<'_, $type>, b: Argument<'_, $type>, out: &mut [$type]) {
                match op {
                    ScalarOp::Add => binary_loop!(a, b, out, |x, y| x + y),
                    ScalarOp::Sub => binary_loop!(a, b, out, |x, y| x - y),
                    ScalarOp::Mul => binary_loop!(a, b, out, |x, y| x * y),
                    ScalarOp::Div => binary_loop!(a, b, out, |x, y| x / y),
                    // A NaN on the left fails the comparison and is kept; one on the right is asked for by name.
                    ScalarOp::Maximum => binary_loop!(a, b, out, |x, y| if y > x || y.is_nan() { y } else { x }),
                    ScalarOp::Minimum => binary_loop!(a, b, out, |x, y| if y < x || y.is_nan() { y } else { x }),
                    ScalarOp::Remainder => binary_loop!(a, b, out, |x, y| $remainder(x, y)),
                    // Of the platform: scalar.
                    ScalarOp::Atan2 => binary_loop!(a, b, out, |x, y| x.atan2(y)),
                    // Of numbers that have no class yet, which are integers.
                    op if op.is_of_integers() => {
                        binary_loop!(a, b, out, |x, y| of_integers(op, x as i64, y as i64) as $type);
                    }
                    ScalarOp::Pow => match b {
                        Argument::Scalar(2.0) => binary_loop!(a, b, out, |x, _y| x * x),
                        Argument::Scalar(3.0) => binary_loop!(a, b, out, |x, _y| x * x * x),
                        Argument::Scalar(-1.0) => binary_loop!(a, b, out, |x, _y| 1.0 / x),
                        Argument::Scalar(_) => binary_loop!(a, b, out, |x, y| x.powf(y)),
                        // The bits do not depend on whether the exponent is known to be the same for all elements.
                        Argument::Slice(_) => binary_loop!(a, b, out, |x, y| match y {
                            2.0 => x * x,
                            3.0 => x * x * x,
                            -1.0 => 1.0 / x,
                            _ => x.powf(y),
                        }),
                    },
                    _ => unreachable!("{op:?} is no arithmetic of two operands"),
                }
            }
        }
    };
}
binary_floating!(binary_f32, f32, remainder_f32);
binary_floating!(binary_f64, f64, remainder_f64);

macro_rules! binary_rounded {
    ($name:ident, $round:path) => {
        multiversion! {
            fn $name[FMA](op: ScalarOp, a: Argument<'_, f32>, b: Argument<'_, f32>, out: &mut [f32]) {
                match op {
                    ScalarOp::Add => binary_loop!(a, b, out, |x, y| $round(x + y)),
                    ScalarOp::Sub => binary_loop!(a, b, out, |x, y| $round(x - y)),
                    ScalarOp::Mul => binary_loop!(a, b, out, |x, y| $round(x * y)),
                    ScalarOp::Div => binary_loop!(a, b, out, |x, y| $round(x / y)),
                    _ => unreachable!("{op:?} is not rounded at once"),
                }
            }
        }
    };
}
binary_rounded!(binary_bf16, to_bf16);
binary_rounded!(binary_f16, to_f16);

/// Whether [`rounded`] has the instruction: the costly ones lose nothing by a step of its own for the rounding.
pub(crate) fn is_rounded_at_once(op: ScalarOp, dtype: DType) -> bool {
    matches!(op, ScalarOp::Add | ScalarOp::Sub | ScalarOp::Mul | ScalarOp::Div)
        && matches!(dtype, DType::BF16 | DType::F16)
}

multiversion! {
    fn binary_i64[FMA](op: ScalarOp, a: Argument<'_, i64>, b: Argument<'_, i64>, out: &mut [i64]) {
        match op {
            ScalarOp::Add => binary_loop!(a, b, out, |x, y| x.wrapping_add(y)),
            ScalarOp::Sub => binary_loop!(a, b, out, |x, y| x.wrapping_sub(y)),
            ScalarOp::Mul => binary_loop!(a, b, out, |x, y| x.wrapping_mul(y)),
            ScalarOp::Div => binary_loop!(a, b, out, |x, y| if y == 0 { 0 } else { x.wrapping_div(y) }),
            ScalarOp::Maximum => binary_loop!(a, b, out, |x, y| x.max(y)),
            ScalarOp::Minimum => binary_loop!(a, b, out, |x, y| x.min(y)),
            ScalarOp::Remainder => binary_loop!(a, b, out, |x, y| integer_remainder(x, y)),
            ScalarOp::Pow => binary_loop!(a, b, out, |x, y| integer_power(x, y)),
            ScalarOp::BitAnd => binary_loop!(a, b, out, |x, y| x & y),
            ScalarOp::BitOr => binary_loop!(a, b, out, |x, y| x | y),
            ScalarOp::BitXor => binary_loop!(a, b, out, |x, y| x ^ y),
            ScalarOp::ShiftLeft | ScalarOp::ShiftRight | ScalarOp::Gcd => {
                binary_loop!(a, b, out, |x, y| of_integers(op, x, y));
            }
            _ => unreachable!("{op:?} is no arithmetic of two operands"),
        }
    }
}

macro_rules! compare {
    ($name:ident, $type:ty) => {
        multiversion! {
            fn $name[FMA](op: ScalarOp, a: Argument<'_, $type>, b: Argument<'_, $type>, out: &mut [u8]) {
                match op {
                    ScalarOp::Eq => binary_loop!(a, b, out, |x, y| u8::from(x == y)),
                    ScalarOp::Ne => binary_loop!(a, b, out, |x, y| u8::from(x != y)),
                    ScalarOp::Lt => binary_loop!(a, b, out, |x, y| u8::from(x < y)),
                    ScalarOp::Le => binary_loop!(a, b, out, |x, y| u8::from(x <= y)),
                    ScalarOp::Gt => binary_loop!(a, b, out, |x, y| u8::from(x > y)),
                    ScalarOp::Ge => binary_loop!(a, b, out, |x, y| u8::from(x >= y)),
                    _ => unreachable!("{op:?} is no comparison"),
                }
            }
        }
    };
}
compare!(compare_f32, f32);
compare!(compare_f64, f64);
compare!(compare_i64, i64);

multiversion! {
    fn logical[FMA](op: ScalarOp, a: Argument<'_, u8>, b: Argument<'_, u8>, out: &mut [u8]) {
        match op {
            ScalarOp::And => binary_loop!(a, b, out, |x, y| u8::from(x != 0) & u8::from(y != 0)),
            ScalarOp::Or => binary_loop!(a, b, out, |x, y| u8::from((x | y) != 0)),
            _ => unreachable!("{op:?} is no logical operation"),
        }
    }
}

macro_rules! select {
    ($name:ident, $type:ty) => {
        multiversion! {
            fn $name[FMA](condition: &[u8], a: Argument<'_, $type>, b: Argument<'_, $type>, out: &mut [$type]) {
                let length = out.len();
                let condition = &condition[..length];
                match (a, b) {
                    (Argument::Slice(a), Argument::Slice(b)) => {
                        let (a, b) = (&a[..length], &b[..length]);
                        for i in 0..length {
                            let (x, y) = (a[i], b[i]);
                            out[i] = if condition[i] != 0 { x } else { y };
                        }
                    }
                    (Argument::Slice(a), Argument::Scalar(y)) => {
                        let a = &a[..length];
                        for i in 0..length {
                            let x = a[i];
                            out[i] = if condition[i] != 0 { x } else { y };
                        }
                    }
                    (Argument::Scalar(x), Argument::Slice(b)) => {
                        let b = &b[..length];
                        for i in 0..length {
                            let y = b[i];
                            out[i] = if condition[i] != 0 { x } else { y };
                        }
                    }
                    (Argument::Scalar(x), Argument::Scalar(y)) => {
                        for i in 0..length {
                            out[i] = if condition[i] != 0 { x } else { y };
                        }
                    }
                }
            }
        }
    };
}
select!(select_f32, f32);
select!(select_f64, f64);
select!(select_i64, i64);
select!(select_bool, u8);

multiversion! {
    fn not[FMA](x: &[u8], out: &mut [u8]) {
        unary_loop!(x, out, |x| u8::from(x == 0))
    }
}
macro_rules! is_negative {
    ($name:ident, $type:ty, |$x:ident| $value:expr) => {
        multiversion! {
            fn $name[FMA](x: &[$type], out: &mut [u8]) {
                unary_loop!(x, out, |$x| u8::from($value))
            }
        }
    };
}
is_negative!(is_negative_f32, f32, |x| x.is_sign_negative());
is_negative!(is_negative_f64, f64, |x| x.is_sign_negative());
is_negative!(is_negative_i64, i64, |x| x < 0);
multiversion! {
    fn is_finite_f32[FMA](x: &[f32], out: &mut [u8]) {
        unary_loop!(x, out, |x| u8::from(x.is_finite()))
    }
}
multiversion! {
    fn is_finite_f64[FMA](x: &[f64], out: &mut [u8]) {
        unary_loop!(x, out, |x| u8::from(x.is_finite()))
    }
}

/// An instruction of one operand of `class` on `length` elements.
///
/// # Safety
/// `x` and `out` hold `length` elements (of `class`; `out` of booleans for predicates) and do not overlap.
pub(crate) unsafe fn unary(op: ScalarOp, class: Class, x: *const u8, out: *mut u8, length: usize) {
    use std::slice::{from_raw_parts, from_raw_parts_mut};
    // SAFETY: promised by the caller.
    unsafe {
        match (op, class) {
            (ScalarOp::Not, _) => not(from_raw_parts(x, length), from_raw_parts_mut(out, length)),
            (ScalarOp::IsNegative, Class::F64) => {
                is_negative_f64(from_raw_parts(x.cast(), length), from_raw_parts_mut(out, length));
            }
            (ScalarOp::IsNegative, Class::F32) => {
                is_negative_f32(from_raw_parts(x.cast(), length), from_raw_parts_mut(out, length));
            }
            (ScalarOp::IsNegative, _) => {
                is_negative_i64(from_raw_parts(x.cast(), length), from_raw_parts_mut(out, length));
            }
            (ScalarOp::IsFinite, Class::F64) => {
                is_finite_f64(from_raw_parts(x.cast(), length), from_raw_parts_mut(out, length));
            }
            (ScalarOp::IsFinite, _) => {
                is_finite_f32(from_raw_parts(x.cast(), length), from_raw_parts_mut(out, length));
            }
            (_, Class::F32) => {
                unary_f32(op, from_raw_parts(x.cast(), length), from_raw_parts_mut(out.cast(), length));
            }
            (_, Class::F64) => {
                unary_f64(op, from_raw_parts(x.cast(), length), from_raw_parts_mut(out.cast(), length));
            }
            (_, Class::I64) => {
                unary_i64(op, from_raw_parts(x.cast(), length), from_raw_parts_mut(out.cast(), length));
            }
            (_, Class::Bool) => unreachable!("arithmetic on booleans is carried out in i64"),
        }
    }
}

/// An instruction of two operands of `class`; comparisons and logical operations give booleans.
///
/// # Safety
/// The operands hold what `rows` and `width` ask of them, `out` holds `rows * width` elements and overlaps none of
/// them.
pub(crate) unsafe fn binary(
    op: ScalarOp,
    class: Class,
    a: Operand,
    b: Operand,
    out: *mut u8,
    rows: usize,
    width: usize,
) {
    use ScalarOp::*;
    macro_rules! segments {
        ($function:ident, $in:ty, $out:ty) => {
            for_segments!([a, b], rows, width, |index, length| {
                // SAFETY: promised by the caller.
                unsafe {
                    let out = std::slice::from_raw_parts_mut(out.cast::<$out>().add(index * length), length);
                    $function(op, a.segment::<$in>(index, length), b.segment::<$in>(index, length), out);
                }
            })
        };
    }
    match (op, class) {
        (And | Or, _) => segments!(logical, u8, u8),
        (Eq | Ne | Lt | Le | Gt | Ge, Class::F32) => segments!(compare_f32, f32, u8),
        (Eq | Ne | Lt | Le | Gt | Ge, Class::F64) => segments!(compare_f64, f64, u8),
        (Eq | Ne | Lt | Le | Gt | Ge, _) => segments!(compare_i64, i64, u8),
        (_, Class::F32) => segments!(binary_f32, f32, f32),
        (_, Class::F64) => segments!(binary_f64, f64, f64),
        (_, Class::I64) => segments!(binary_i64, i64, i64),
        (_, Class::Bool) => unreachable!("arithmetic on booleans is carried out in i64"),
    }
}

/// An instruction of two operands in f32, each result rounded to bf16 or f16 (see [`is_rounded_at_once`]).
///
/// # Safety
/// As [`binary`].
pub(crate) unsafe fn rounded(
    op: ScalarOp,
    dtype: DType,
    a: Operand,
    b: Operand,
    out: *mut u8,
    rows: usize,
    width: usize,
) {
    let function = if dtype == DType::BF16 { binary_bf16 } else { binary_f16 };
    for_segments!([a, b], rows, width, |index, length| {
        // SAFETY: promised by the caller.
        unsafe {
            let out = std::slice::from_raw_parts_mut(out.cast::<f32>().add(index * length), length);
            function(op, a.segment::<f32>(index, length), b.segment::<f32>(index, length), out);
        }
    })
}

/// Whether some element of an integer operand is zero.
///
/// # Safety
/// The operand holds what `rows` and `width` ask of it.
pub(crate) unsafe fn any_zero(operand: Operand, rows: usize, width: usize) -> bool {
    let mut found = false;
    for_segments!([operand], rows, width, |index, length| {
        // SAFETY: promised by the caller.
        found |= match unsafe { operand.segment::<i64>(index, length) } {
            Argument::Slice(values) => values.contains(&0),
            Argument::Scalar(value) => value == 0 && length > 0,
        };
    });
    found
}

/// `if condition { a } else { b }`; the condition has one value for each element.
///
/// # Safety
/// As [`binary`], and `condition` holds `rows * width` booleans.
pub(crate) unsafe fn select(
    class: Class,
    condition: *const u8,
    a: Operand,
    b: Operand,
    out: *mut u8,
    rows: usize,
    width: usize,
) {
    macro_rules! segments {
        ($function:ident, $type:ty) => {
            for_segments!([a, b], rows, width, |index, length| {
                // SAFETY: promised by the caller.
                unsafe {
                    let out = std::slice::from_raw_parts_mut(out.cast::<$type>().add(index * length), length);
                    let condition = std::slice::from_raw_parts(condition.add(index * length), length);
                    $function(condition, a.segment(index, length), b.segment(index, length), out);
                }
            })
        };
    }
    match class {
        Class::F32 => segments!(select_f32, f32),
        Class::F64 => segments!(select_f64, f64),
        Class::I64 => segments!(select_i64, i64),
        Class::Bool => segments!(select_bool, u8),
    }
}
