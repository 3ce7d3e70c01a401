//! The error function and the hyperbolic tangent in f32 by polynomials of 16 pieces, whose coefficients are looked up
//! in registers: half as many instructions as polynomials of the whole range take. AVX-512 can; other machines compute
//! [`super::error_function`] and [`super::hyperbolic`].

use super::{error_function, hyperbolic, multiversion};

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident, $portable:ident($x:ident) = $value:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// `out` is not longer than `input`.
        pub(crate) fn $name(input: &[f32], factor: f32, out: &mut [f32]) {
            let input = &input[..out.len()];
            #[cfg(target_arch = "x86_64")]
            if super::level::level() == super::level::Level::Avx512 {
                // SAFETY: the level says that the machine has these instructions.
                return unsafe { avx512::$name(input, factor, out) };
            }
            $portable(input, factor, out);
        }

        multiversion! {
            pub(super) fn $portable[FMA](input: &[f32], factor: f32, out: &mut [f32]) {
                for (out, input) in out.iter_mut().zip(input) {
                    let $x = *input * factor;
                    *out = $value;
                }
            }
        }
    )*};
}

functions! {
    /// `erf(factor · x)`.
    erf, portable_erf(x) = error_function::erf::<FMA>(x);
    /// `tanh(factor · x)`.
    tanh, portable_tanh(x) = hyperbolic::tanh::<FMA>(x);
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use crate::vector::tables::{ERF, STEP, TANH, Table};

    /// Numbers in a vector.
    const LANES: usize = 16;

    /// Applies `of` to vectors of `factor · input`, the last of which may be short.
    macro_rules! map {
        ($input:ident, $factor:ident, $out:ident, $of:expr) => {{
            let factor = _mm512_set1_ps($factor);
            let mut parts = $out.chunks_exact_mut(LANES);
            let mut sources = $input.chunks_exact(LANES);
            for (out, source) in (&mut parts).zip(&mut sources) {
                // SAFETY: both have as many numbers as a vector.
                unsafe {
                    let x = _mm512_mul_ps(_mm512_loadu_ps(source.as_ptr()), factor);
                    _mm512_storeu_ps(out.as_mut_ptr(), $of(x));
                }
            }
            let (out, source) = (parts.into_remainder(), sources.remainder());
            let mask: __mmask16 = (1 << out.len()) - 1;
            // SAFETY: as many numbers as the mask has bits.
            unsafe {
                let x = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, source.as_ptr()), factor);
                _mm512_mask_storeu_ps(out.as_mut_ptr(), mask, $of(x));
            }
        }};
    }

    #[target_feature(enable = "avx512f")]
    fn loaded(table: &Table) -> __m512 {
        // SAFETY: a table has as many numbers as a vector.
        unsafe { _mm512_loadu_ps(table.as_ptr()) }
    }

    /// `±(at + d · polynomial(d))` with the coefficients of the piece and the sign of `x`; in the first piece `d` is
    /// added instead of the value where the piece begins.
    #[target_feature(enable = "avx512f,avx512dq")]
    fn evaluated<const COUNT: usize>(
        tables: &[__m512; COUNT],
        piece: __m512i,
        first: __mmask16,
        d: __m512,
        x: __m512,
    ) -> __m512 {
        let mut p = _mm512_permutexvar_ps(piece, tables[COUNT - 1]);
        for table in tables[1..COUNT - 1].iter().rev() {
            p = _mm512_fmadd_ps(p, d, _mm512_permutexvar_ps(piece, *table));
        }
        let start = _mm512_mask_permutexvar_ps(d, !first, piece, tables[0]);
        let value = _mm512_fmadd_ps(p, d, start);
        _mm512_or_ps(value, _mm512_and_ps(x, _mm512_set1_ps(-0.0)))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub(super) fn erf(input: &[f32], factor: f32, out: &mut [f32]) {
        /// Adding this rounds to the nearest integer, which then is in the low bits.
        const ROUNDER: f32 = 8_388_608.0;
        let tables = ERF.each_ref().map(|table| loaded(table));
        let of = |x: __m512| {
            // The result is ±1 from 4 on. A NaN is kept: it comes second.
            let magnitude = _mm512_min_ps(_mm512_set1_ps(4.0), _mm512_abs_ps(x));
            let rounder = _mm512_set1_ps(ROUNDER);
            let shifted = _mm512_fmadd_ps(magnitude, _mm512_set1_ps(1.0 / STEP), rounder);
            let number = _mm512_sub_ps(shifted, rounder);
            let d = _mm512_fnmadd_ps(number, _mm512_set1_ps(STEP), magnitude);
            let piece = _mm512_castps_si512(shifted);
            let first = _mm512_testn_epi32_mask(piece, _mm512_set1_epi32(LANES as i32 - 1));
            evaluated(&tables, piece, first, d, x)
        };
        map!(input, factor, out, of);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub(super) fn tanh(input: &[f32], factor: f32, out: &mut [f32]) {
        /// The bits of a number that say to which quarter of which octave it belongs begin here.
        const QUARTER: u32 = 21;
        let tables = TANH.each_ref().map(|table| loaded(table));
        let of = |x: __m512| {
            // The result is ±1 from 10 on. A NaN is kept: it comes second.
            let magnitude = _mm512_min_ps(_mm512_set1_ps(10.0), _mm512_abs_ps(x));
            let one = _mm512_set1_ps(1.0);
            let above = _mm512_castps_si512(_mm512_add_ps(magnitude, one));
            let start = _mm512_and_si512(above, _mm512_set1_epi32(-1 << QUARTER));
            let d = _mm512_sub_ps(magnitude, _mm512_sub_ps(_mm512_castsi512_ps(start), one));
            let first = _mm512_cmpeq_epi32_mask(start, _mm512_castps_si512(one));
            let piece = _mm512_srli_epi32::<QUARTER>(above);
            evaluated(&tables, piece, first, d, x)
        };
        map!(input, factor, out, of);
    }
}
