//! What measuring the ways of a library has in common: operands, runs, and which of them count.

use super::error::Result;
use super::stream::Stream;
use fulgurite_kernels::DType;
use fulgurite_kernels::launch::DeviceAddress;

/// What has fewer multiplications is left to the heuristics: what there is to win is less than what measuring costs.
pub(super) const SMALLEST: usize = 5_000_000;
/// Runs of each algorithm, the median of which counts.
pub(super) const RUNS: usize = 9;
/// After so many runs, algorithms that took more than [`CLOSE`] times as long as the fastest are left out.
pub(super) const FIRST_RUNS: usize = 2;
const CLOSE: f32 = 1.15;
/// What is written between runs, so that operands come from memory as they do in a training step: more than the L2
/// cache.
pub(super) const FLUSH_BYTES: usize = 128 << 20;
/// Random bytes that operands are filled with, again and again: an odd number of 16-byte words, so that rows differ.
const RANDOM_BYTES: usize = (1 << 20) + 16;

/// Numbers between -1 and 1, the same each time.
pub(super) fn random_bytes(dtype: DType) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = move || {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let count = RANDOM_BYTES / dtype.size();
    let mut bytes = Vec::with_capacity(RANDOM_BYTES);
    for _ in 0..count {
        let value = next();
        match dtype {
            DType::F64 => bytes.extend(value.to_le_bytes()),
            DType::BF16 => bytes.extend(half::bf16::from_f32(value as f32).to_le_bytes()),
            DType::F16 => bytes.extend(half::f16::from_f32(value as f32).to_le_bytes()),
            // Both formats of 8 bits: without their highest bit of the exponent no pattern is infinite or not a number.
            DType::U8 => bytes.push((value.to_bits() >> 44) as u8 & 0xBF),
            // `Problem::check` lets no other pass.
            _ => bytes.extend((value as f32).to_le_bytes()),
        }
    }
    bytes
}

/// Fills so many bytes with random numbers between -1 and 1. (Sums of products of zeros take less power, and finish
/// sooner.)
///
/// # Safety
/// The bytes must be allocated, and used by no work that is not ordered with the stream. What they have is lost.
pub(super) unsafe fn fill(stream: &Stream, dtype: DType, to: DeviceAddress, bytes: usize) -> Result<()> {
    let block = random_bytes(dtype);
    let first = block.len().min(bytes);
    // SAFETY: the range is the caller's, and the block is waited for before it is gone.
    unsafe { stream.copy_to_device(to, &block[..first]) }?;
    stream.synchronize()?;
    let mut filled = first;
    while filled < bytes {
        let more = filled.min(bytes - filled);
        // SAFETY: both are parts of the range, and the second begins where the first, no longer one ends.
        unsafe { stream.copy_on_device(to.offset(filled), to, more) }?;
        filled += more;
    }
    Ok(())
}

/// The median of some times; infinite for none.
pub(super) fn median(times: &[f32]) -> f32 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f32::total_cmp);
    sorted.get(times.len() / 2).copied().unwrap_or(f32::INFINITY)
}

/// Leaves out what is clearly slower than the fastest, by the least time of each.
pub(super) fn keep_close<T>(running: &mut Vec<(T, Vec<f32>)>) {
    let least = |times: &[f32]| times.iter().copied().fold(f32::INFINITY, f32::min);
    let fastest = running.iter().map(|(_, times)| least(times)).fold(f32::INFINITY, f32::min);
    running.retain(|(_, times)| least(times) <= fastest * CLOSE);
}

/// The file of a record.
pub(super) fn file_name(subject: &str) -> String {
    format!("{}.txt", blake3::hash(subject.as_bytes()).to_hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_clearly_slower_leaves_and_the_median_decides() {
        let mut running = vec![("steady", vec![1.0, 1.1]), ("late", vec![9.0, 1.14]), ("slow", vec![1.2, 1.3])];
        keep_close(&mut running);
        assert_eq!(running.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["steady", "late"]);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[3.0, 1.0]), 3.0);
        assert_eq!(median(&[]), f32::INFINITY);
        keep_close::<()>(&mut Vec::new());
    }

    #[test]
    fn operands_are_random_numbers_between_minus_one_and_one() {
        let numbers = |dtype: DType| -> Vec<f64> {
            let bytes = random_bytes(dtype);
            assert_eq!(bytes.len(), RANDOM_BYTES);
            bytes
                .chunks_exact(dtype.size())
                .map(|number| match dtype {
                    DType::BF16 => half::bf16::from_le_bytes([number[0], number[1]]).to_f64(),
                    DType::F16 => half::f16::from_le_bytes([number[0], number[1]]).to_f64(),
                    DType::F32 => f64::from(f32::from_le_bytes([number[0], number[1], number[2], number[3]])),
                    _ => f64::from_le_bytes(std::array::from_fn(|i| number[i])),
                })
                .collect()
        };
        for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16] {
            let values = numbers(dtype);
            assert!(values.iter().all(|value| (-1.0..=1.0).contains(value)));
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let square = values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64;
            assert!(mean.abs() < 0.01 && (square - 1.0 / 3.0).abs() < 0.01, "{dtype}: {mean} {square}");
        }
    }
}
