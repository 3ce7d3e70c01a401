//! The numbers that the blocks of a GGUF file stand for.
//!
//! What a block holds is that of ggml's structures (ggml-common.h): integers of 2 to 8 bits, scales and offsets in f16
//! or, in blocks of 256, integers of 4, 6 or 8 bits that are multiplied by one f16. Products and sums are in f32.

use half::{bf16, f16};

use crate::gguf_file::GgufType;

fn half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// Scale and offset number `i` of eight, each of 6 bits, of the twelve bytes of Q4_K and Q5_K: the first four of each
/// are the lower bits of a byte, the others are put together from a half of one and the upper bits of another.
fn scale_and_offset(bytes: &[u8], i: usize) -> [u8; 2] {
    match i {
        0..4 => [bytes[i] & 63, bytes[i + 4] & 63],
        _ => [bytes[i + 4] & 15 | bytes[i - 4] >> 6 << 4, bytes[i + 4] >> 4 | bytes[i] >> 6 << 4],
    }
}

/// Scale number `i` of sixteen, of 6 bits, of the twelve bytes of Q3_K: the lower four bits are halves of the first
/// eight bytes, the upper two are in the last four.
fn scale_of_six_bits(bytes: &[u8], i: usize) -> i8 {
    let low = bytes[i % 8] >> (4 * (i / 8)) & 15;
    let high = bytes[8 + i % 4] >> (2 * (i / 4)) & 3;
    (low | high << 4) as i8 - 32
}

/// The scales and offsets of the eight groups of 32 of a block of Q4_K or Q5_K.
pub(crate) fn scales_and_offsets(block: &[u8]) -> [[f32; 2]; 8] {
    let [scale, offset] = [half(block), half(&block[2..])];
    std::array::from_fn(|i| {
        let [own, least] = scale_and_offset(&block[4..16], i).map(f32::from);
        [scale * own, -offset * least]
    })
}

/// Writes the numbers of a block, as many as its type has.
pub(crate) fn numbers(kind: GgufType, block: &[u8], to: &mut [f32]) {
    // A byte has a number of the first half in its lower bits, and one of the second half in its upper ones.
    let nibble = |halves: &[u8], i: usize| match i {
        0..16 => halves[i] & 15,
        _ => halves[i - 16] >> 4,
    };
    let fifth = |bits: &[u8], i: usize| (bits[i / 8] >> (i % 8) & 1) << 4;
    // Sixty-four numbers at a time are the lower halves of 32 bytes, and then the upper ones.
    let of_pairs = |bytes: &[u8], i: usize| bytes[i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2)) & 15;
    // A hundred and twenty-eight numbers at a time are the lowest two bits of 32 bytes, and then the next ones.
    let of_quarters = |bytes: &[u8], i: usize| bytes[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3;
    for (i, to) in to.iter_mut().enumerate() {
        *to = match kind {
            GgufType::F32 => f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
            GgufType::F16 => half(block),
            GgufType::Bf16 => bf16::from_le_bytes([block[0], block[1]]).to_f32(),
            GgufType::Q8_0 => f32::from(block[2 + i] as i8) * half(block),
            GgufType::Q4_0 => (f32::from(nibble(&block[2..], i)) - 8.0) * half(block),
            GgufType::Q4_1 => f32::from(nibble(&block[4..], i)) * half(block) + half(&block[2..]),
            GgufType::Q5_0 => {
                let code = nibble(&block[6..], i) | fifth(&block[2..6], i);
                (f32::from(code) - 16.0) * half(block)
            }
            GgufType::Q5_1 => {
                let code = nibble(&block[8..], i) | fifth(&block[4..8], i);
                f32::from(code) * half(block) + half(&block[2..])
            }
            GgufType::Q2K => {
                let own = block[i / 16];
                let (scale, offset) =
                    (half(&block[80..]) * f32::from(own & 15), half(&block[82..]) * f32::from(own >> 4));
                f32::from(of_quarters(&block[16..80], i)) * scale - offset
            }
            GgufType::Q3K => {
                let scale = half(&block[108..]) * f32::from(scale_of_six_bits(&block[96..108], i / 16));
                // The third bit says that 4 is not taken away.
                let third = block[i % 32] >> (i / 32) & 1;
                (f32::from(of_quarters(&block[32..96], i)) - if third == 1 { 0.0 } else { 4.0 }) * scale
            }
            GgufType::Q4K => {
                let [scale, offset] = scale_and_offset(&block[4..16], i / 32).map(f32::from);
                let code = f32::from(of_pairs(&block[16..144], i));
                code * (half(block) * scale) - half(&block[2..]) * offset
            }
            GgufType::Q5K => {
                let [scale, offset] = scale_and_offset(&block[4..16], i / 32).map(f32::from);
                let code = of_pairs(&block[48..176], i) | (block[16 + i % 32] >> (i / 32) & 1) << 4;
                f32::from(code) * (half(block) * scale) - half(&block[2..]) * offset
            }
            GgufType::Q6K => {
                let (part, place) = (i / 128, i % 128);
                // The lower halves of 64 bytes, and then the upper ones; two more bits in quarters of 32 bytes.
                let low = block[part * 64 + place % 64] >> (4 * (place / 64)) & 15;
                let high = block[128 + part * 32 + place % 32] >> (2 * (place / 32)) & 3;
                let scale = half(&block[208..]) * f32::from(block[192 + i / 16] as i8);
                (f32::from(low | high << 4) - 32.0) * scale
            }
        };
    }
}

/// Code number `i` of a block of Q4_K.
pub(crate) fn code_of_q4_k(block: &[u8], i: usize) -> u8 {
    block[16 + i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2)) & 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three blocks of bytes that run through all values, with figures of f16 at these places.
    fn blocks(kind: GgufType, figures: &[usize]) -> Vec<u8> {
        let (_, size) = kind.block();
        let mut bytes: Vec<u8> = (0..3 * size).map(|i| (i * 37 + 11) as u8).collect();
        for (number, block) in bytes.chunks_exact_mut(size).enumerate() {
            for (i, place) in figures.iter().enumerate() {
                let figure = f16::from_f32([0.25, 0.75, -0.5][(number + i) % 3]);
                block[*place..place + 2].copy_from_slice(&figure.to_le_bytes());
            }
        }
        bytes
    }

    /// Sums, sums with weights, and single numbers, of `gguf.quants.dequantize` (gguf 0.19.0) of the same bytes, which
    /// are exact.
    #[test]
    fn blocks_are_the_numbers_of_gguf() {
        #[rustfmt::skip]
        let expected: [(GgufType, &[usize], f64, f64, [f32; 6]); 10] = [
            (GgufType::Q4_0, &[0], -13.0, -201.25, [-0.75, 0.5, 0.0, 5.25, -3.0, -5.25]),
            (GgufType::Q4_1, &[0, 2], 137.5, 1165.5, [4.5, 1.75, 3.75, 1.75, 5.5, 7.0]),
            (GgufType::Q5_0, &[0], -8.0, 74.5, [2.25, -0.5, 0.25, 5.25, 9.0, 3.0]),
            (GgufType::Q5_1, &[0, 2], 226.5, 1929.25, [5.5, 6.75, 2.0, 19.75, 11.5, 21.25]),
            (GgufType::Q8_0, &[0], -360.0, -4152.5, [21.25, 30.5, -12.0, 47.25, 75.0, -52.5]),
            (GgufType::Q2K, &[80, 82], 568.0, 4999.0, [8.25, 0.0, -2.25, -1.25, -3.75, -2.75]),
            (GgufType::Q3K, &[108], -207.25, -1469.25, [20.25, -27.0, 16.0, -5.5, 11.0, 2.5]),
            (GgufType::Q4K, &[0, 2], 33492.0, 291293.5, [47.0, -38.25, 8.25, -13.0, -10.0, -5.0]),
            (GgufType::Q5K, &[0, 2], 24100.0, 196187.5, [171.0, -38.25, 8.25, 13.0, -16.0, 5.0]),
            (GgufType::Q6K, &[208], 44.0, 28232.5, [-357.75, 424.0, -24.0, 57.75, -168.0, -145.0]),
        ];
        for (kind, figures, sum, weighted, single) in expected {
            let (values, size) = kind.block();
            let mut found = vec![0.0f32; 3 * values];
            for (block, to) in blocks(kind, figures).chunks_exact(size).zip(found.chunks_exact_mut(values)) {
                numbers(kind, block, to);
            }
            let weight = |i: usize| ((i + 1) % 17 + 1) as f64;
            let total = |weight: &dyn Fn(usize) -> f64| -> f64 {
                found.iter().enumerate().map(|(i, x)| f64::from(*x) * weight(i)).sum()
            };
            assert_eq!([0, 1, 31, 32, 33, 63].map(|i| found[i]), single, "{kind:?}");
            assert_eq!((total(&|_| 1.0), total(&weight)), (sum, weighted), "{kind:?}");
        }
    }
}
