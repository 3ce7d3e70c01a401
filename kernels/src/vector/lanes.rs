//! Formulas written once for every instruction set: numbers of a vector register, and a loop over slices. An element's
//! bits depend neither on its place in a slice nor on the instruction set.

/// Adding and subtracting this rounds to the nearest integer, which is then in the low bits of the sum: 1.5·2²³.
pub(crate) const ROUNDER: f32 = 12_582_912.0;

/// Numbers of the `N` pieces that a function is cut into, one for each piece: 8 or 16.
#[repr(C, align(64))]
pub(crate) struct Table<const N: usize>(pub(crate) [f32; N]);

/// As many f32 numbers as a register of an instruction set holds. A value of such a type exists only in functions that
/// are compiled for the instruction set, and called where the machine has it.
pub(crate) trait Lanes: Copy {
    /// Numbers in a register.
    const COUNT: usize;
    /// Where each number belongs: true or false.
    type Mask: Copy;
    /// A number of a piece for each number.
    type Piece: Copy;

    /// The same number everywhere.
    fn splat(number: f32) -> Self;
    /// Reads the numbers at `from`.
    ///
    /// # Safety
    /// There are [`Lanes::COUNT`] numbers, and the machine has the instruction set.
    unsafe fn load(from: *const f32) -> Self;
    /// Writes the numbers to `to`.
    ///
    /// # Safety
    /// There is room for [`Lanes::COUNT`] numbers.
    unsafe fn store(self, to: *mut f32);
    /// Sum.
    fn add(self, other: Self) -> Self;
    /// Difference.
    fn sub(self, other: Self) -> Self;
    /// Product.
    fn mul(self, other: Self) -> Self;
    /// `self · factor + summand`, rounded once, whatever the instruction set.
    fn fused(self, factor: Self, summand: Self) -> Self;
    /// `self · factor + summand` as [`super::multiply_add`].
    fn multiply_add(self, factor: Self, summand: Self) -> Self;
    /// Magnitude.
    fn abs(self) -> Self;
    /// A number that is not negative, with the sign of another.
    fn with_sign(self, of: Self) -> Self;
    /// The lesser of a number and `bound`; a NaN is kept.
    fn at_most(self, bound: f32) -> Self;
    /// The greater of a number and `bound`; a NaN is kept.
    fn at_least(self, bound: f32) -> Self;
    /// Where a number is less than `bound`.
    fn below(self, bound: f32) -> Self::Mask;
    /// `there` where the mask is true, `elsewhere` otherwise.
    fn select(mask: Self::Mask, there: Self, elsewhere: Self) -> Self;
    /// Four bits of each number, from bit `SHIFT` on.
    fn piece<const SHIFT: u32>(self) -> Self::Piece;
    /// The numbers of pieces. Of eight pieces the lower three bits count.
    fn lookup<const N: usize>(table: &Table<N>, piece: Self::Piece) -> Self;
    /// Of integers to which [`ROUNDER`] was added: two factors whose product is two to their power.
    fn powers_of_two(self) -> [Self; 2];
}

/// eˣ. See [`super::exponential::exp`].
#[inline(always)]
pub(crate) fn exp<L: Lanes>(x: L) -> L {
    let of = L::splat;
    let x = x.at_most(89.0).at_least(-104.0);
    let shifted = x.multiply_add(of(std::f32::consts::LOG2_E), of(ROUNDER));
    let n = shifted.sub(of(ROUNDER));
    let r = n.multiply_add(of(-0.693_359_4), x);
    let r = n.multiply_add(of(2.121_944_4e-4), r);
    let mut p = of(1.987_569_1e-4);
    p = p.multiply_add(r, of(1.398_199_9e-3));
    p = p.multiply_add(r, of(8.333_452e-3));
    p = p.multiply_add(r, of(4.166_579_6e-2));
    p = p.multiply_add(r, of(1.666_666_5e-1));
    p = p.multiply_add(r, of(5.000_000_1e-1));
    p = p.multiply_add(r.mul(r), r).add(of(1.0));
    let [half, rest] = shifted.powers_of_two();
    p.mul(half).mul(rest)
}

/// A function of `N` numbers, elementwise.
pub(crate) trait Formula<const N: usize> {
    /// The formula, for each lane.
    fn of<L: Lanes>(&self, operands: [L; N]) -> L;
}

/// Writes the formula of the elements of `operands` to `out`, which are equally long, by one instruction set, which the
/// machine has.
#[inline(always)]
pub(super) fn slices<L: Lanes, F: Formula<N>, const N: usize>(formula: &F, operands: [&[f32]; N], out: &mut [f32]) {
    let length = out.len();
    let operands = operands.map(|operand| operand[..length].as_ptr());
    let whole = length - length % L::COUNT;
    for i in (0..whole).step_by(L::COUNT) {
        let mut numbers = [L::splat(0.0); N];
        // A loop and no `array::map`: see `x86`.
        for k in 0..N {
            // SAFETY: a whole register of each slice is left from `i` on.
            numbers[k] = unsafe { L::load(operands[k].add(i)) };
        }
        // SAFETY: as above.
        unsafe { formula.of(numbers).store(out.as_mut_ptr().add(i)) };
    }
    if whole < length {
        let rest = length - whole;
        let mut padded = [[0f32; 16]; N];
        for (padded, operand) in padded.iter_mut().zip(operands) {
            // SAFETY: the rest of the operand is shorter than a register.
            unsafe { std::ptr::copy_nonoverlapping(operand.add(whole), padded.as_mut_ptr(), rest) };
        }
        let mut results = [0f32; 16];
        let mut numbers = [L::splat(0.0); N];
        for k in 0..N {
            // SAFETY: 16 numbers are a register of every instruction set.
            numbers[k] = unsafe { L::load(padded[k].as_ptr()) };
        }
        // SAFETY: as above.
        unsafe { formula.of(numbers).store(results.as_mut_ptr()) };
        out[whole..].copy_from_slice(&results[..rest]);
    }
}

/// One number. `FMA` says whether fused multiply-add is an instruction.
#[derive(Clone, Copy)]
pub(crate) struct Portable<const FMA: bool>(pub(crate) f32);

impl<const FMA: bool> Lanes for Portable<FMA> {
    const COUNT: usize = 1;
    type Mask = bool;
    type Piece = usize;

    #[inline(always)]
    fn splat(number: f32) -> Self {
        Portable(number)
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: promised by the caller.
        Portable(unsafe { from.read() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: promised by the caller.
        unsafe { to.write(self.0) };
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Portable(self.0 + other.0)
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Portable(self.0 - other.0)
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Portable(self.0 * other.0)
    }
    #[inline(always)]
    fn fused(self, factor: Self, summand: Self) -> Self {
        Portable(if FMA { self.0.mul_add(factor.0, summand.0) } else { rounded_once(self.0, factor.0, summand.0) })
    }
    #[inline(always)]
    fn multiply_add(self, factor: Self, summand: Self) -> Self {
        Portable(super::multiply_add::<FMA>(self.0, factor.0, summand.0))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Portable(self.0.abs())
    }
    #[inline(always)]
    fn with_sign(self, of: Self) -> Self {
        Portable(self.0.copysign(of.0))
    }
    #[inline(always)]
    fn at_most(self, bound: f32) -> Self {
        Portable(if self.0 > bound { bound } else { self.0 })
    }
    #[inline(always)]
    fn at_least(self, bound: f32) -> Self {
        Portable(if self.0 < bound { bound } else { self.0 })
    }
    #[inline(always)]
    fn below(self, bound: f32) -> bool {
        self.0 < bound
    }
    #[inline(always)]
    fn select(mask: bool, there: Self, elsewhere: Self) -> Self {
        if mask { there } else { elsewhere }
    }
    #[inline(always)]
    fn piece<const SHIFT: u32>(self) -> usize {
        (self.0.to_bits() >> SHIFT) as usize & 15
    }
    #[inline(always)]
    fn lookup<const N: usize>(table: &Table<N>, piece: usize) -> Self {
        Portable(table.0[piece % N])
    }
    #[inline(always)]
    fn powers_of_two(self) -> [Self; 2] {
        let exponent = (self.0.to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32);
        let half = exponent >> 1;
        let power = |n: i32| Portable(f32::from_bits((n.wrapping_add(127) as u32) << 23));
        [power(half), power(exponent.wrapping_sub(half))]
    }
}

/// `a·b + c` rounded once, without an instruction for it: the product is exact in f64, and the sum is rounded to odd
/// there (Boldo & Melquiond, 2008), whose rounding to f32 is that of the exact sum.
#[inline(always)]
fn rounded_once(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let of_c = sum - product;
    let error = (product - (sum - of_c)) + (c - of_c);
    let bits = sum.to_bits();
    let odd = if (error > 0.0) == (sum > 0.0) { bits | 1 } else { bits.wrapping_sub(u64::from(bits & 1 == 0)) };
    // Not where the error is NaN either, that of an infinite sum.
    f64::from_bits(if error.abs() > 0.0 { odd } else { bits }) as f32
}
