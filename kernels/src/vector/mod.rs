//! Mathematics over slices, written so that the compiler vectorizes it.
//!
//! The f32 functions are branch-free polynomials: every body is compiled three times (baseline, AVX2 + FMA, AVX-512)
//! and the best version that the machine has is chosen at run time. They are within about two units in the last place
//! of the true value (`erf` and `tanh` within 0.8), and exact at the special values. Formulas over `lanes` are
//! written for a register of any instruction set, where tables are looked up in registers. The f64 functions are those
//! of the platform and of the crate `libm`.

// Coefficients are given to as many digits as determine their bits.
#![allow(clippy::excessive_precision)]

pub(crate) mod evaluate;
pub(crate) mod exponential;
pub(crate) mod lanes;
pub(crate) mod level;
pub(crate) mod logarithm;
pub(crate) mod pieces;
pub(crate) mod power;
mod tables;
pub(crate) mod trigonometric;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

pub(crate) use level::{multiply_add, multiversion};

macro_rules! slice_functions {
    ($($(#[$doc:meta])* $name:ident($x:ident) = $value:expr;)*) => {$(
        multiversion! {
            $(#[$doc])*
            ///
            /// `out` and `input` are equally long.
            pub fn $name[FMA](input: &[f32], out: &mut [f32]) {
                let length = out.len();
                let input = &input[..length];
                for i in 0..length {
                    let $x = input[i];
                    out[i] = $value;
                }
            }
        }
    )*};
}

slice_functions! {
    /// eˣ.
    exp(x) = exponential::exp::<FMA>(x);
    /// eˣ - 1.
    expm1(x) = exponential::expm1::<FMA>(x);
    /// Natural logarithm.
    log(x) = logarithm::log::<FMA>(x);
    /// Natural logarithm of 1 + x.
    log1p(x) = logarithm::log1p::<FMA>(x);
}

/// Hyperbolic tangent. `out` and `input` are equally long.
pub fn tanh(input: &[f32], out: &mut [f32]) {
    evaluate::evaluate(&pieces::HyperbolicTangent, [input], out);
}

/// Error function. `out` and `input` are equally long.
pub fn erf(input: &[f32], out: &mut [f32]) {
    evaluate::evaluate(&pieces::ErrorFunction, [input], out);
}

/// Sine. `out` and `input` are equally long.
pub fn sin(input: &[f32], out: &mut [f32]) {
    trigonometric::sine_slice(input, out);
}

/// Cosine. `out` and `input` are equally long.
pub fn cos(input: &[f32], out: &mut [f32]) {
    trigonometric::cosine_slice(input, out);
}
