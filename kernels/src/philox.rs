//! Random numbers by counter (Philox4x32-10; Salmon et al., 2011), and constant and evenly spaced numbers.

use crate::dtype::DType;
use crate::parallel::{Shared, for_ranges};
use crate::tile::store::{store, store_one};
use crate::tile::{Class, Operand, convert};
use crate::vector::multiversion;
use crate::view::TensorMut;
use crate::walk::Walk;

/// Four random words for a counter and a key: ten rounds of Philox4x32.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let first = u64::from(counter[0]) * 0xD251_1F53;
        let second = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

/// The words of block `block` of the stream `offset` of `seed`.
fn words(seed: u64, offset: u64, block: u64) -> [u32; 4] {
    philox(
        [block as u32, (block >> 32) as u32, offset as u32, (offset >> 32) as u32],
        [seed as u32, (seed >> 32) as u32],
    )
}

/// Blocks computed side by side.
const LANES: usize = 16;

multiversion! {
    /// The words of `LANES` blocks from `first` on: the same as [`words`], one block in each lane.
    fn many_words[FMA](seed: u64, offset: u64, first: u64, out: &mut [[u32; LANES]; 4]) {
        let [mut a, mut b, mut c, mut d] = [[0u32; LANES], [0; LANES], [offset as u32; LANES], [(offset >> 32) as u32; LANES]];
        for lane in 0..LANES {
            let block = first.wrapping_add(lane as u64);
            (a[lane], b[lane]) = (block as u32, (block >> 32) as u32);
        }
        let (mut key, mut other_key) = (seed as u32, (seed >> 32) as u32);
        for _ in 0..10 {
            for lane in 0..LANES {
                let left = u64::from(a[lane]) * 0xD251_1F53;
                let right = u64::from(c[lane]) * 0xCD9E_8D57;
                a[lane] = (right >> 32) as u32 ^ b[lane] ^ key;
                b[lane] = right as u32;
                c[lane] = (left >> 32) as u32 ^ d[lane] ^ other_key;
                d[lane] = left as u32;
            }
            key = key.wrapping_add(0x9E37_79B9);
            other_key = other_key.wrapping_add(0xBB67_AE85);
        }
        *out = [a, b, c, d];
    }
}

/// Elements of a tile.
const TILE: usize = 1024;

/// Fills `target` tile by tile: `fill` gets the row-major position of the first element and a tile of the target's
/// class.
fn generate(target: &mut TensorMut<'_>, fill: impl Fn(usize, &mut [u64; TILE], usize) + Sync) {
    if target.is_empty() {
        return;
    }
    let (dtype, elements) = (target.dtype(), target.len());
    let mut outer = Walk::new(target.shape().iter().copied().zip(target.strides().iter().map(|&stride| [stride])));
    let (length, [stride]) = outer.pop();
    let pieces = length.div_ceil(TILE);
    let address = Shared::new(target.as_mut_ptr());
    for_ranges(outer.len() * pieces, elements, |range| {
        let mut tile = [0u64; TILE];
        for unit in range {
            let (row, first) = (unit / pieces, unit % pieces * TILE);
            let count = TILE.min(length - first);
            fill(row * length + first, &mut tile, count);
            let offset = (outer.offsets(row)[0] + first as isize * stride) * dtype.size() as isize;
            // SAFETY: elements of the target, which this unit alone writes; the tile holds `count` of its class.
            unsafe { store(dtype, tile.as_ptr().cast(), address.get().offset(offset), stride, count) };
        }
    });
}

/// The random numbers of a generator from a position on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The key of the numbers.
    pub seed: u64,
    /// The stream of the numbers.
    pub offset: u64,
    /// The position of the first one.
    pub first: u64,
}

impl Numbers {
    /// The first numbers of a stream.
    pub fn new(seed: u64, offset: u64) -> Numbers {
        Numbers { seed, offset, first: 0 }
    }

    /// The numbers of a tensor of `count` elements by a generator: its seed and its offset; and, if the tensor is a
    /// part of a larger one, the sum of the offset and the number of the part. `None` if it holds something else.
    pub fn of(generator: &[i64], count: usize) -> Option<Numbers> {
        match *generator {
            [seed, offset] => Some(Numbers::new(seed as u64, offset as u64)),
            [seed, offset, mark] => {
                let first = (mark.wrapping_sub(offset) as u64).wrapping_mul(count as u64);
                Some(Numbers { seed: seed as u64, offset: offset as u64, first })
            }
            _ => None,
        }
    }

    /// Those from the n-th one on.
    pub fn from(self, n: usize) -> Numbers {
        Numbers { first: self.first.wrapping_add(n as u64), ..self }
    }
}

/// Numbers of `[0, 1)`: those that [`uniform`] makes in f32.
pub(crate) fn units(of: Numbers, numbers: &mut [f32]) {
    let Numbers { seed, offset, first } = of;
    let count = numbers.len();
    let mut words = [[0; LANES]; 4];
    let mut index = 0;
    while index < count {
        let position = first.wrapping_add(index as u64);
        many_words(seed, offset, position / (4 * LANES) as u64 * LANES as u64, &mut words);
        // To the end of the group, or of the numbers.
        let start = (position % (4 * LANES) as u64) as usize;
        let length = (4 * LANES - start).min(count - index);
        for (step, value) in numbers[index..index + length].iter_mut().enumerate() {
            let place = start + step;
            *value = (words[place % 4][place / 4] >> 8) as f32 * (1.0 / 16_777_216.0);
        }
        index += length;
    }
}

/// How a number of `[low, high)` is made from one of `[0, 1)`: `(start + unit · range) · scale`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The number that 0 becomes, divided by `scale`.
    pub start: f64,
    /// How far it goes.
    pub range: f64,
    /// 1; or 2, where the span is beyond the largest number of the type that it is computed in. Then both others are
    /// halves, and doubling the sum is exact.
    pub scale: f64,
}

impl Span {
    /// The span of numbers of `dtype`, which are computed in f64 if it is that, otherwise in f32. The bounds are finite
    /// there.
    pub fn new(dtype: DType, low: f64, high: f64) -> Span {
        let largest = if dtype == DType::F64 { DType::F64 } else { DType::F32 }.largest();
        if high - low <= largest {
            return Span { start: low, range: high - low, scale: 1.0 };
        }
        Span { start: 0.5 * low, range: 0.5 * high - 0.5 * low, scale: 2.0 }
    }
}

/// Uniform random numbers in `[low, high)`.
///
/// The number at position `i`, which is the row-major position of the element and the first position of `of`, is made
/// from word `i % 4` of the block `i / 4` of stream `offset` of `seed` (24 bits of it); in f64, from words `2·(i % 2)`
/// and the next of block `i / 2` (53 bits). So the numbers depend on nothing else: not on strides, nor on the number of
/// threads. Results that would round up to `high` are the value below it. Bounds that the type holds may be as far
/// apart as they like (see [`Span`]).
pub fn uniform(mut target: TensorMut<'_>, of: Numbers, low: f64, high: f64) {
    let dtype = target.dtype();
    let below = largest_below(dtype, low, high);
    let Span { start: low, range, scale } = Span::new(dtype, low, high);
    generate(&mut target, |first, tile, count| {
        if dtype == DType::F64 {
            for (index, value) in tile[..count].iter_mut().enumerate() {
                let position = of.from(first + index).first;
                let words = words(of.seed, of.offset, position / 2);
                let pair = (position % 2 * 2) as usize;
                let bits = (u64::from(words[pair]) << 21) ^ (u64::from(words[pair + 1]) >> 11);
                let unit = bits as f64 * (1.0 / (1u64 << 53) as f64);
                *value = ((low + unit * range) * scale).min(below).to_bits();
            }
            return;
        }
        let mut numbers = [0f32; TILE];
        let (low, range, scale, below) = (low as f32, range as f32, scale as f32, below as f32);
        units(of.from(first), &mut numbers[..count]);
        for value in &mut numbers[..count] {
            *value = ((low + *value * range) * scale).min(below);
        }
        // SAFETY: both tiles hold `count` elements of their class.
        unsafe {
            let source = Operand::Tile(numbers.as_ptr().cast());
            convert::cast(Class::F32, Class::of(dtype), source, tile.as_mut_ptr().cast(), 1, count);
        }
    });
}

/// The largest value of `dtype` below `high`, so that rounding never reaches it; `low` where there is none between.
pub fn largest_below(dtype: DType, low: f64, high: f64) -> f64 {
    let below = match dtype {
        DType::F16 => {
            let nearest = half::f16::from_f32(high as f32);
            if nearest.to_f64() < high {
                nearest.to_f64()
            } else {
                previous(nearest.to_bits(), 0x8000, |bits| half::f16::from_bits(bits).to_f64())
            }
        }
        DType::BF16 => {
            let nearest = half::bf16::from_f32(high as f32);
            if nearest.to_f64() < high {
                nearest.to_f64()
            } else {
                previous(nearest.to_bits(), 0x8000, |bits| half::bf16::from_bits(bits).to_f64())
            }
        }
        DType::F64 => high.next_down(),
        _ => {
            let nearest = high as f32;
            f64::from(if f64::from(nearest) < high { nearest } else { nearest.next_down() })
        }
    };
    below.max(low)
}

/// The next value below that of `bits`, of a 16-bit format with this sign bit.
fn previous(bits: u16, sign: u16, value: impl Fn(u16) -> f64) -> f64 {
    if bits & !sign == 0 {
        value(sign | 1)
    } else if bits & sign == 0 {
        value(bits - 1)
    } else {
        value(bits + 1)
    }
}

/// Writes `value`, converted, to every element.
pub fn fill(mut target: TensorMut<'_>, value: f64) {
    let class = Class::of(target.dtype());
    let mut one = 0u64;
    // SAFETY: eight bytes hold an element of any class.
    unsafe { store_one(Class::F64, std::ptr::from_ref(&value).cast(), class.dtype(), (&raw mut one).cast()) };
    generate(&mut target, |_, tile, count| {
        // SAFETY: as above; the tile has room for `count` elements.
        unsafe {
            convert::cast(class, class, Operand::Scalar((&raw const one).cast()), tile.as_mut_ptr().cast(), 1, count)
        };
    });
}

/// `start + i · step` for the row-major position `i`, computed in f64 and converted.
pub fn iota(mut target: TensorMut<'_>, start: f64, step: f64) {
    let class = Class::of(target.dtype());
    generate(&mut target, |first, tile, count| {
        let mut numbers = [0f64; TILE];
        for (index, number) in numbers[..count].iter_mut().enumerate() {
            *number = start + (first + index) as f64 * step;
        }
        let source = Operand::Tile(numbers.as_ptr().cast());
        // SAFETY: both tiles hold `count` elements of their class.
        unsafe { convert::cast(Class::F64, class, source, tile.as_mut_ptr().cast(), 1, count) };
    });
}

/// `start + i · step` for the row-major position `i`, computed in i64 (which wraps) and converted.
pub fn iota_integer(mut target: TensorMut<'_>, start: i64, step: i64) {
    let class = Class::of(target.dtype());
    generate(&mut target, |first, tile, count| {
        let mut numbers = [0i64; TILE];
        for (index, number) in numbers[..count].iter_mut().enumerate() {
            *number = start.wrapping_add(((first + index) as i64).wrapping_mul(step));
        }
        let source = Operand::Tile(numbers.as_ptr().cast());
        // SAFETY: both tiles hold `count` elements of their class.
        unsafe { convert::cast(Class::I64, class, source, tile.as_mut_ptr().cast(), 1, count) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Element;

    #[test]
    fn the_known_answers_of_random123() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn elements_are_made_from_the_words_of_their_blocks() {
        let mut numbers = [0f32; 200];
        let (seed, offset) = (0x1234_5678_9abc_def0, 3 << 32 | 7);
        uniform(TensorMut::from_slice(&mut numbers, &[200], &[1]), Numbers::new(seed, offset), 0.0, 1.0);
        for (i, &number) in numbers.iter().enumerate() {
            let word = words(seed, offset, i as u64 / 4)[i % 4];
            assert_eq!(number, (word >> 8) as f32 / 16_777_216.0);
        }
    }

    fn parts_are_of<T: Element>() {
        let (generator, each) = ([0x1234_5678_9abc_def0, 3 << 32 | 7], 1501);
        let of_part = |part: i64| Numbers::of(&[generator[0], generator[1], generator[1] + part], each).unwrap();
        let mut whole = vec![T::from_f64(7.0); 5 * each];
        let all = Numbers::of(&generator, whole.len()).unwrap();
        uniform(TensorMut::from_slice(&mut whole, &[5 * each], &[1]), all, 0.0, 1.0);
        let mut numbers = vec![T::from_f64(7.0); each];
        for (part, expected) in whole.chunks(each).enumerate() {
            uniform(TensorMut::from_slice(&mut numbers, &[each], &[1]), of_part(part as i64), 0.0, 1.0);
            assert_eq!(numbers, expected, "part {part}");
        }
    }

    /// Parts of a tensor begin inside of blocks, and have the numbers of the whole.
    #[test]
    fn parts_have_the_numbers_of_the_whole() {
        parts_are_of::<f32>();
        parts_are_of::<f64>();
        assert_eq!(Numbers::of(&[1], 4), None);
        // Beyond 32 bits.
        let far = Numbers::of(&[1, 2, 3 + (1 << 33)], 10).unwrap();
        assert_eq!(far.first, (1 + (1 << 33)) * 10);
        let (mut number, word) = ([0f32], words(1, 2, far.first / 4)[(far.first % 4) as usize]);
        uniform(TensorMut::from_slice(&mut number, &[1], &[1]), far, 0.0, 1.0);
        assert_eq!(number[0], (word >> 8) as f32 / 16_777_216.0);
    }

    fn check<T: Element>(low: f64, high: f64) {
        let (shape, count) = ([300, 401], 300 * 401);
        let mut rows = vec![T::from_f64(7.0); count];
        let mut columns = rows.clone();
        uniform(TensorMut::from_slice(&mut rows, &shape, &[401, 1]), Numbers::new(5, 9), low, high);
        // SAFETY: a transposed view of the whole vector.
        let transposed = unsafe { TensorMut::new(T::DTYPE, &shape, &[1, 300], columns.as_mut_ptr().cast()) };
        uniform(transposed, Numbers::new(5, 9), low, high);
        let mut mean = 0.0;
        for i in 0..300 {
            for j in 0..401 {
                let value = rows[i * 401 + j];
                assert_eq!(value, columns[j * 300 + i]);
                let value = value.to_f64();
                assert!(low <= value && value < high, "{value} is in [{low}, {high})");
                mean += value / count as f64;
            }
        }
        assert!((mean - 0.5 * (low + high)).abs() < 0.01 * high - 0.01 * low);
    }

    #[test]
    fn uniform_numbers_stay_below_the_end_in_every_type() {
        check::<f32>(0.0, 1.0);
        check::<f64>(-2.0, 3.0);
        check::<half::f16>(0.0, 1.0);
        check::<half::bf16>(-1.0, 0.0);
    }

    #[test]
    fn bounds_further_apart_than_the_largest_number() {
        check::<f32>(-3e38, 3e38);
        check::<f64>(-1.7e308, 1.7e308);
        check::<half::bf16>(-3.3e38, 3.3e38);
        check::<half::f16>(-65_504.0, 65_504.0);
        check::<f32>(f64::from(-f32::MAX), 1e38);
    }

    #[test]
    fn constant_and_evenly_spaced_numbers() {
        let mut out = [half::bf16::ZERO; 6];
        // SAFETY: a transposed view of six elements.
        let view = unsafe { TensorMut::new(DType::BF16, &[2, 3], &[1, 2], out.as_mut_ptr().cast()) };
        iota(view, 1.0, 0.5);
        assert_eq!(out.map(half::bf16::to_f32), [1.0, 2.5, 1.5, 3.0, 2.0, 3.5]);
        fill(TensorMut::from_slice(&mut out, &[6], &[1]), 1.5);
        assert_eq!(out, [half::bf16::from_f32(1.5); 6]);
        let mut numbers = [0i64; 3];
        iota_integer(TensorMut::from_slice(&mut numbers, &[3], &[1]), i64::MAX - 1, 1);
        assert_eq!(numbers, [i64::MAX - 1, i64::MAX, i64::MIN]);
    }
}
