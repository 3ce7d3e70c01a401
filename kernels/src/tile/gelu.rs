//! GELU and its gradient in f32 as one instruction each: what is between their operations stays in registers. Each
//! operation is rounded by itself, as by one instruction after the other.

use crate::vector::evaluate::evaluate;
use crate::vector::lanes::{Formula, Lanes, exp};
use crate::vector::pieces;

/// What GELU weighs a number by, as s(x): the rest is the same for both forms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Sigmoid {
    /// `erf(x · scale)`.
    Erf { scale: f32 },
    /// `tanh((x + x³ · cube) · scale)`.
    Tanh { cube: f32, scale: f32 },
}

/// `(x · half) · (s(x) + one)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gelu {
    pub(crate) sigmoid: Sigmoid,
    pub(crate) half: f32,
    pub(crate) one: f32,
}

/// `d · ((s(x) + one) · half + slope)`, where the slope depends on the form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GeluBackward {
    pub(crate) sigmoid: Sigmoid,
    pub(crate) half: f32,
    pub(crate) one: f32,
    /// With the error function `(x · exp(x² · n₀)) · n₁`; with the hyperbolic tangent
    /// `((x · n₀) · (n₁ - s²)) · (x² · n₂ + n₃)`.
    pub(crate) slope: [f32; 4],
}

/// The two forms: s(x), and the slope of [`GeluBackward`].
trait Form {
    fn sigmoid<L: Lanes>(&self, x: L) -> L;
    fn slope<L: Lanes>(x: L, s: L, numbers: &[f32; 4]) -> L;
}

struct Erf {
    scale: f32,
}

impl Form for Erf {
    #[inline(always)]
    fn sigmoid<L: Lanes>(&self, x: L) -> L {
        pieces::erf(x.mul(L::splat(self.scale)))
    }

    #[inline(always)]
    fn slope<L: Lanes>(x: L, _s: L, numbers: &[f32; 4]) -> L {
        let (exponent, scale) = (L::splat(numbers[0]), L::splat(numbers[1]));
        x.mul(exp(x.mul(x).mul(exponent))).mul(scale)
    }
}

struct Tanh {
    cube: f32,
    scale: f32,
}

impl Form for Tanh {
    #[inline(always)]
    fn sigmoid<L: Lanes>(&self, x: L) -> L {
        let inner = x.add(x.mul(x).mul(x).mul(L::splat(self.cube)));
        pieces::tanh(inner.mul(L::splat(self.scale)))
    }

    #[inline(always)]
    fn slope<L: Lanes>(x: L, s: L, numbers: &[f32; 4]) -> L {
        let (half, one) = (L::splat(numbers[0]), L::splat(numbers[1]));
        let (square, constant) = (L::splat(numbers[2]), L::splat(numbers[3]));
        let inner = x.mul(x).mul(square).add(constant);
        x.mul(half).mul(one.sub(s.mul(s))).mul(inner)
    }
}

struct Forward<'a, F> {
    form: F,
    gelu: &'a Gelu,
}

impl<F: Form> Formula<1> for Forward<'_, F> {
    #[inline(always)]
    fn of<L: Lanes>(&self, [x]: [L; 1]) -> L {
        let s = self.form.sigmoid(x);
        x.mul(L::splat(self.gelu.half)).mul(s.add(L::splat(self.gelu.one)))
    }
}

struct Backward<'a, F> {
    form: F,
    gelu: &'a GeluBackward,
}

impl<F: Form> Formula<2> for Backward<'_, F> {
    #[inline(always)]
    fn of<L: Lanes>(&self, [d, x]: [L; 2]) -> L {
        let s = self.form.sigmoid(x);
        let value = s.add(L::splat(self.gelu.one)).mul(L::splat(self.gelu.half));
        d.mul(value.add(F::slope(x, s, &self.gelu.slope)))
    }
}

/// Writes GELU of `x` to `out`. Both are equally long.
pub(crate) fn gelu(gelu: &Gelu, x: &[f32], out: &mut [f32]) {
    match gelu.sigmoid {
        Sigmoid::Erf { scale } => evaluate(&Forward { form: Erf { scale }, gelu }, [x], out),
        Sigmoid::Tanh { cube, scale } => evaluate(&Forward { form: Tanh { cube, scale }, gelu }, [x], out),
    }
}

/// Writes the gradient of GELU at `x`, times `d`, to `out`. All are equally long.
pub(crate) fn gelu_backward(gelu: &GeluBackward, d: &[f32], x: &[f32], out: &mut [f32]) {
    match gelu.sigmoid {
        Sigmoid::Erf { scale } => evaluate(&Backward { form: Erf { scale }, gelu }, [d, x], out),
        Sigmoid::Tanh { cube, scale } => evaluate(&Backward { form: Tanh { cube, scale }, gelu }, [d, x], out),
    }
}
