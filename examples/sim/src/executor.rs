//! The executor, and the elementwise operators that it runs by itself.

use fulgurite::prelude::*;
use fulgurite::rules::Claim;

use crate::kernels::{binary, unary};

/// Runs on the simulated accelerator.
#[executor(device = "sim", priority = 10, version = "1.1")]
pub mod sim {
    /// How many elements a kernel of geglu takes.
    #[option]
    pub static BLOCK: usize = 256;
}

/// Kernels are written for floating-point numbers.
pub(crate) fn takes(input: &TensorMeta) -> Claim {
    fulgurite::refuse_unless!(input.dtype().is_floating(), "has kernels of floating-point numbers, input is {input}");
    Ok(())
}

/// Declares elementwise kernels: the operator, the implementation's name, the function.
macro_rules! unary_kernels {
    ($($of:ident, $name:ident, $f:expr;)*) => {$(
        #[implementation(of = fulgurite::ops::prims::$of, by = sim, in_place)]
        mod $name {
            fn checker(input: &TensorMeta) -> Claim {
                super::takes(input)
            }

            fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
                super::unary(plan, stringify!($of), $f, input, out);
                Ok(())
            }
        }
    )*};
}

unary_kernels! {
    abs, abs_by_sim, f64::abs;
    cos, cos_by_sim, f64::cos;
    exp, exp_by_sim, f64::exp;
    floor, floor_by_sim, f64::floor;
    log, log_by_sim, f64::ln;
    neg, neg_by_sim, |x| -x;
    reciprocal, reciprocal_by_sim, f64::recip;
    rsqrt, rsqrt_by_sim, |x| 1.0 / x.sqrt();
    sin, sin_by_sim, f64::sin;
    sqrt, sqrt_by_sim, f64::sqrt;
    tanh, tanh_by_sim, f64::tanh;
}

/// As [`unary_kernels!`], of two operands, of which one may be a number: in f32 beside tensors of 16 bits where the
/// operator says so of the operand (`accumulates`).
macro_rules! binary_kernels {
    ($($of:ident, $name:ident, $f:expr, $accumulates:expr;)*) => {$(
        #[implementation(of = fulgurite::ops::prims::$of, by = sim, in_place)]
        mod $name {
            fn checker(input: &Operand<TensorMeta>, other: &Operand<TensorMeta>) -> Claim {
                [input, other].into_iter().filter_map(Operand::tensor).try_for_each(super::takes)
            }

            fn plan(
                plan: &mut Plan,
                input: &Operand<DeviceTensor>,
                other: &Operand<DeviceTensor>,
                out: &DeviceTensor,
            ) -> Result<()> {
                super::binary(plan, stringify!($of), ($f, $accumulates), [input, other], out);
                Ok(())
            }
        }
    )*};
}

binary_kernels! {
    add, add_by_sim, |x, y| x + y, [false, false];
    div, div_by_sim, |x, y| x / y, [false, true];
    mul, mul_by_sim, |x, y| x * y, [true, true];
}
