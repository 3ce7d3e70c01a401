//! The error function and the hyperbolic tangent in f32 by polynomials of 8 and of 16 pieces, whose coefficients are
//! looked up in registers. Within 0.8 units in the last place; odd, exact at the infinities and where the result is ±1.
//!
//! Eight numbers are a register of AVX2, sixteen are two, and a choice between them: eight pieces with one coefficient
//! more take two thirds of the time there.

use super::lanes::{Formula, Lanes, Table};
use super::tables::{ERF, TANH};

/// How a magnitude is mapped to its piece: four bits, from bit `SHIFT` on, of `scale · t + shift`.
struct Cut {
    /// From here on the result is that of this number, which is 1.
    end: f32,
    scale: f32,
    shift: f32,
    /// A number of the first piece, to which lesser ones are raised before they are mapped.
    low: f32,
    /// What the end of the first piece is mapped to.
    second: f32,
}

/// Pieces are mapped to [8, 16), one to a unit.
const ERF_CUT: Cut = Cut { end: 3.95, scale: 2.201_258, shift: 7.283_019, low: 0.326_168_57, second: 9.0 };

/// Pieces are mapped to [1/2, 8), four to an octave.
const TANH_CUT: Cut = Cut { end: 9.1, scale: 0.862_141_8, shift: 0.150_822_01, low: 0.477_5, second: 0.625 };

#[inline(always)]
fn by_pieces<L: Lanes, const SHIFT: u32, const N: usize, const COUNT: usize>(
    x: L,
    cut: &Cut,
    tables: &[Table<N>; COUNT],
) -> L {
    let t = x.abs().at_most(cut.end);
    let mapped = t.at_least(cut.low).fused(L::splat(cut.scale), L::splat(cut.shift));
    let (piece, is_first) = (mapped.piece::<SHIFT>(), mapped.below(cut.second));
    let [centres, values, coefficients @ .., last] = tables.as_slice() else { unreachable!("a table of coefficients") };
    let d = t.sub(L::lookup(centres, piece));
    let variable = L::select(is_first, d.mul(d), d);
    let mut p = L::lookup(last, piece);
    for table in coefficients.iter().rev() {
        p = p.fused(variable, L::lookup(table, piece));
    }
    let start = L::select(is_first, d, L::lookup(values, piece));
    p.fused(d, start).with_sign(x)
}

/// erf x.
#[inline(always)]
pub(crate) fn erf<L: Lanes>(x: L) -> L {
    by_pieces::<L, 20, 8, 8>(x, &ERF_CUT, &ERF)
}

/// tanh x.
#[inline(always)]
pub(crate) fn tanh<L: Lanes>(x: L) -> L {
    by_pieces::<L, 21, 16, 8>(x, &TANH_CUT, &TANH)
}

pub(super) struct ErrorFunction;

impl Formula<1> for ErrorFunction {
    #[inline(always)]
    fn of<L: Lanes>(&self, [x]: [L; 1]) -> L {
        erf(x)
    }
}

pub(super) struct HyperbolicTangent;

impl Formula<1> for HyperbolicTangent {
    #[inline(always)]
    fn of<L: Lanes>(&self, [x]: [L; 1]) -> L {
        tanh(x)
    }
}
