//! Registers of AVX2 and of AVX-512 for [`Lanes`].
//!
//! No closure here is passed to a function such as `array::map`. That function is not compiled for the instruction set:
//! the compiler makes neither the closure a part of it, nor the function a part of its caller. Each instruction is then
//! a call, and a loop takes more than ten times as long.

use std::arch::x86_64::*;

use super::lanes::{Formula, Lanes, ROUNDER, Table, slices};

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn avx512<F: Formula<N>, const N: usize>(formula: &F, operands: [&[f32]; N], out: &mut [f32]) {
    slices::<Avx512, F, N>(formula, operands, out);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn avx2<F: Formula<N>, const N: usize>(formula: &F, operands: [&[f32]; N], out: &mut [f32]) {
    slices::<Avx2, F, N>(formula, operands, out);
}

/// Sixteen numbers.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

impl Lanes for Avx512 {
    const COUNT: usize = 16;
    type Mask = __mmask16;
    type Piece = __m512i;

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: promised by the caller.
        Avx512(unsafe { _mm512_loadu_ps(from) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: promised by the caller.
        unsafe { _mm512_storeu_ps(to, self.0) };
    }
    #[inline(always)]
    fn splat(number: f32) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx512(_mm512_set1_ps(number)) }
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx512(_mm512_add_ps(self.0, other.0)) }
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx512(_mm512_sub_ps(self.0, other.0)) }
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx512(_mm512_mul_ps(self.0, other.0)) }
    }
    #[inline(always)]
    fn fused(self, factor: Self, summand: Self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx512(_mm512_fmadd_ps(self.0, factor.0, summand.0)) }
    }
    #[inline(always)]
    fn multiply_add(self, factor: Self, summand: Self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx512(_mm512_fmadd_ps(self.0, factor.0, summand.0)) }
    }
    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx512(_mm512_abs_ps(self.0)) }
    }
    #[inline(always)]
    fn with_sign(self, of: Self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx512(_mm512_or_ps(self.0, _mm512_and_ps(of.0, _mm512_set1_ps(-0.0)))) }
    }
    #[inline(always)]
    fn at_most(self, bound: f32) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx512(_mm512_min_ps(_mm512_set1_ps(bound), self.0)) }
    }
    #[inline(always)]
    fn at_least(self, bound: f32) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx512(_mm512_max_ps(_mm512_set1_ps(bound), self.0)) }
    }
    #[inline(always)]
    fn below(self, bound: f32) -> __mmask16 {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, _mm512_set1_ps(bound)) }
    }
    #[inline(always)]
    fn select(mask: __mmask16, there: Self, elsewhere: Self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx512(_mm512_mask_blend_ps(mask, elsewhere.0, there.0)) }
    }
    #[inline(always)]
    fn piece<const SHIFT: u32>(self) -> __m512i {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { _mm512_srli_epi32::<SHIFT>(_mm512_castps_si512(self.0)) }
    }
    #[inline(always)]
    fn lookup<const N: usize>(table: &Table<N>, piece: __m512i) -> Self {
        const { assert!(N == 8 || N == 16) };
        // SAFETY: the machine has the instructions of a register of this type; a table is one, or half of one, which is
        // there twice: whatever the fourth bit of a piece is.
        unsafe {
            let numbers = match N {
                8 => _mm512_broadcast_f32x8(_mm256_load_ps(table.0.as_ptr())),
                _ => _mm512_load_ps(table.0.as_ptr()),
            };
            Avx512(_mm512_permutexvar_ps(piece, numbers))
        }
    }
    #[inline(always)]
    fn powers_of_two(self) -> [Self; 2] {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe {
            let rounder = _mm512_castps_si512(_mm512_set1_ps(ROUNDER));
            let exponent = _mm512_sub_epi32(_mm512_castps_si512(self.0), rounder);
            let half = _mm512_srai_epi32::<1>(exponent);
            let bias = _mm512_set1_epi32(127);
            let (first, second) = (_mm512_add_epi32(half, bias), _mm512_sub_epi32(exponent, half));
            let second = _mm512_add_epi32(second, bias);
            [
                Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(first))),
                Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(second))),
            ]
        }
    }
}

/// Eight numbers.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256);

impl Lanes for Avx2 {
    const COUNT: usize = 8;
    type Mask = __m256;
    type Piece = __m256i;

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: promised by the caller.
        Avx2(unsafe { _mm256_loadu_ps(from) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: promised by the caller.
        unsafe { _mm256_storeu_ps(to, self.0) };
    }
    #[inline(always)]
    fn splat(number: f32) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx2(_mm256_set1_ps(number)) }
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx2(_mm256_add_ps(self.0, other.0)) }
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx2(_mm256_sub_ps(self.0, other.0)) }
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx2(_mm256_mul_ps(self.0, other.0)) }
    }
    #[inline(always)]
    fn fused(self, factor: Self, summand: Self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx2(_mm256_fmadd_ps(self.0, factor.0, summand.0)) }
    }
    #[inline(always)]
    fn multiply_add(self, factor: Self, summand: Self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx2(_mm256_fmadd_ps(self.0, factor.0, summand.0)) }
    }
    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx2(_mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0)) }
    }
    #[inline(always)]
    fn with_sign(self, of: Self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx2(_mm256_or_ps(self.0, _mm256_and_ps(of.0, _mm256_set1_ps(-0.0)))) }
    }
    #[inline(always)]
    fn at_most(self, bound: f32) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx2(_mm256_min_ps(_mm256_set1_ps(bound), self.0)) }
    }
    #[inline(always)]
    fn at_least(self, bound: f32) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx2(_mm256_max_ps(_mm256_set1_ps(bound), self.0)) }
    }
    #[inline(always)]
    fn below(self, bound: f32) -> __m256 {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, _mm256_set1_ps(bound)) }
    }
    #[inline(always)]
    fn select(mask: __m256, there: Self, elsewhere: Self) -> Self {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { Avx2(_mm256_blendv_ps(elsewhere.0, there.0, mask)) }
    }
    #[inline(always)]
    fn piece<const SHIFT: u32>(self) -> __m256i {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe { _mm256_srl_epi32(_mm256_castps_si256(self.0), _mm_cvtsi32_si128(SHIFT as i32)) }
    }
    #[inline(always)]
    fn lookup<const N: usize>(table: &Table<N>, piece: __m256i) -> Self {
        const { assert!(N == 8 || N == 16) };
        // SAFETY: the machine has the instructions of a register of this type; a table is one register or two.
        unsafe {
            let lower = _mm256_permutevar8x32_ps(_mm256_load_ps(table.0.as_ptr()), piece);
            if N == 8 {
                return Avx2(lower);
            }
            let upper = _mm256_permutevar8x32_ps(_mm256_load_ps(table.0.as_ptr().add(8)), piece);
            // The fourth bit of the piece says which half of the table, where the instruction expects the sign.
            let is_upper = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(piece));
            Avx2(_mm256_blendv_ps(lower, upper, is_upper))
        }
    }
    #[inline(always)]
    fn powers_of_two(self) -> [Self; 2] {
        // SAFETY: the machine has the instructions of a register of this type.
        unsafe {
            let rounder = _mm256_castps_si256(_mm256_set1_ps(ROUNDER));
            let exponent = _mm256_sub_epi32(_mm256_castps_si256(self.0), rounder);
            let half = _mm256_srai_epi32::<1>(exponent);
            let bias = _mm256_set1_epi32(127);
            let (first, second) = (_mm256_add_epi32(half, bias), _mm256_sub_epi32(exponent, half));
            let second = _mm256_add_epi32(second, bias);
            [
                Avx2(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(first))),
                Avx2(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(second))),
            ]
        }
    }
}
