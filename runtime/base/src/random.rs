//! Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011), the generator that PyTorch and JAX use on devices
//! too.
//!
//! A draw depends on (seed, stream, position) alone, so parameters, epochs and samples draw from streams of their own
//! and no one's numbers move when another draws more.

use fulgurite_kernels::philox::philox;

use crate::array::Array;
use crate::error::{Error, Result};

/// A sequence of random numbers: the Philox blocks of one seed (the key) and one stream (the upper half of the
/// counter).
#[derive(Debug, Clone)]
pub struct Stream {
    seed: u64,
    stream: u64,
    block: u64,
    spare: Option<u64>,
}

impl Stream {
    /// The stream numbered `stream` under `seed`, from its start.
    pub fn new(seed: u64, stream: u64) -> Self {
        Stream { seed, stream, block: 0, spare: None }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let halves = |value: u64| [value as u32, (value >> 32) as u32];
        let ([b0, b1], [s0, s1]) = (halves(self.block), halves(self.stream));
        let words = philox([b0, b1, s0, s1], halves(self.seed)).map(u64::from);
        self.block = self.block.wrapping_add(1);
        self.spare = Some(words[2] | words[3] << 32);
        words[0] | words[1] << 32
    }

    /// Uniform in [0, 1), a multiple of 2⁻⁵³.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * 2f64.powi(-53)
    }

    /// Uniform in `0..bound` without bias; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Lemire's method: the products whose low half falls into the uneven rest are drawn again.
        let uneven = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= uneven {
                return (product >> 64) as u64;
            }
        }
    }

    /// Two independent standard normal values (Box-Muller in f64).
    pub fn normal_pair(&mut self) -> [f64; 2] {
        // 1 - u is in (0, 1], so the logarithm is finite.
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * self.uniform()).sin_cos();
        [radius * cosine, radius * sine]
    }

    /// Fills `values` with standard normal values from the start of the stream, scaled by `deviation` and rounded once
    /// to f32. A pair takes one Philox block, so threads fill their parts independently and the values do not depend on
    /// how many there are.
    pub fn fill_normals(seed: u64, stream: u64, deviation: f64, values: &mut [f32]) {
        const SMALLEST_PART: usize = 1 << 16;
        let count = values.len();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let part = count.div_ceil(threads).next_multiple_of(2).max(SMALLEST_PART);
        std::thread::scope(|scope| {
            for (index, part_values) in values.chunks_mut(part).enumerate() {
                let first_block = (index * part / 2) as u64;
                let mut fill = move || {
                    let mut stream = Stream { seed, stream, block: first_block, spare: None };
                    for pair in part_values.chunks_mut(2) {
                        for (value, normal) in pair.iter_mut().zip(stream.normal_pair()) {
                            *value = (normal * deviation) as f32;
                        }
                    }
                };
                if count <= part {
                    fill();
                } else {
                    scope.spawn(fill);
                }
            }
        });
    }
}

/// Random arrays on the host, from one seed: the n-th array depends on the seed, on n, on its shape and distribution
/// alone.
///
/// ```
/// use fulgurite_base::random::Random;
///
/// let mut random = Random::new(7);
/// let weight = random.normal([64, 32], 0.02)?;
/// let tokens = random.integers([4, 16], 0, 256)?;
/// assert_eq!((weight.shape(), tokens.shape()), (&[64, 32][..], &[4, 16][..]));
/// # Ok::<(), fulgurite_base::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    /// The arrays of `seed`, from the first one.
    pub fn new(seed: u64) -> Random {
        Random { seed, drawn: 0 }
    }

    /// The number of the stream that the next array takes.
    fn next_stream(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn - 1
    }

    /// Normal values of mean 0 and this standard deviation, f32.
    ///
    /// # Errors
    /// If there is not as much memory, or `deviation` is negative or not finite.
    pub fn normal(&mut self, shape: impl AsRef<[usize]>, deviation: f64) -> Result<Array> {
        if !(deviation.is_finite() && deviation >= 0.0) {
            return Err(wrong("deviation", format!("is {deviation}, expected a finite number of at least 0")));
        }
        let (seed, stream) = (self.seed, self.next_stream());
        Array::written(shape, |values| Stream::fill_normals(seed, stream, deviation, values))
    }

    /// Values spread evenly over `low` to `high`, f32.
    ///
    /// # Errors
    /// If there is not as much memory, or `low` exceeds `high`, or one of them is not finite.
    pub fn uniform(&mut self, shape: impl AsRef<[usize]>, low: f64, high: f64) -> Result<Array> {
        if !(low.is_finite() && high.is_finite() && low <= high) {
            return Err(wrong("low, high", format!("are {low} and {high}, expected finite numbers in this order")));
        }
        let mut stream = Stream::new(self.seed, self.next_stream());
        Array::written(shape, |values: &mut [f32]| {
            values.iter_mut().for_each(|value| *value = (low + (high - low) * stream.uniform()) as f32);
        })
    }

    /// Integers from `low` up to, not including, `high`, all equally likely, i64.
    ///
    /// # Errors
    /// If there is not as much memory, or there is no integer in this range.
    pub fn integers(&mut self, shape: impl AsRef<[usize]>, low: i64, high: i64) -> Result<Array> {
        if low >= high {
            let message = format!("are {low} and {high}, with no integer from the first to before the other");
            return Err(wrong("low, high", message));
        }
        let (mut stream, count) = (Stream::new(self.seed, self.next_stream()), high.abs_diff(low));
        Array::written(shape, |values: &mut [i64]| {
            values.iter_mut().for_each(|value| *value = low.wrapping_add_unsigned(stream.below(count)));
        })
    }
}

fn wrong(argument: &str, message: String) -> Error {
    Error::Argument { argument: argument.into(), message }
}

/// The stream number of a name, so that adding a parameter moves no other parameter's numbers.
pub fn stream_of(name: &str) -> u64 {
    fingerprint(name.bytes().map(u64::from))
}

/// FNV-1a over 64-bit units: a fixed hash that checkpoints may store (the standard library's may change).
pub fn fingerprint(units: impl IntoIterator<Item = u64>) -> u64 {
    fingerprint_from(None, units)
}

/// As [`fingerprint`], of units that follow those which gave `before`.
pub fn fingerprint_from(before: Option<u64>, units: impl IntoIterator<Item = u64>) -> u64 {
    let start = before.unwrap_or(0xCBF2_9CE4_8422_2325);
    units.into_iter().fold(start, |hash, unit| (hash ^ unit).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normals_have_their_moments() {
        let mut values = vec![0.0; 100_001];
        Stream::fill_normals(7, 3, 2.0, &mut values);
        let mut stream = Stream::new(7, 3);
        let one_by_one: Vec<f32> = (0..50_001).flat_map(|_| stream.normal_pair()).map(|v| (v * 2.0) as f32).collect();
        assert_eq!(values, one_by_one[..100_001]);
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / 100_001.0;
        let variance = values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / 100_001.0;
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((variance - 4.0).abs() < 0.1, "{variance}");
    }

    #[test]
    fn below_is_even_and_bounded() {
        let mut stream = Stream::new(1, stream_of("below"));
        let mut counts = [0; 3];
        (0..30_000).for_each(|_| counts[stream.below(3) as usize] += 1);
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
        assert_eq!(stream.below(1), 0);
        assert_eq!(stream.below(0), 0);
    }

    #[test]
    fn streams_differ() {
        assert_ne!(Stream::new(1, 0).next_u64(), Stream::new(1, 1).next_u64());
        assert_ne!(Stream::new(1, 0).next_u64(), Stream::new(2, 0).next_u64());
    }

    #[test]
    fn arrays_depend_on_the_seed_and_their_number() {
        let drawn = |seed: u64| {
            let mut random = Random::new(seed);
            let arrays = [random.normal([3, 5], 2.0), random.normal([3, 5], 2.0), random.uniform([15], -1.0, 3.0)];
            arrays.map(|array| array.unwrap().to_vec::<f32>().unwrap())
        };
        let [first, second, third] = drawn(7);
        assert_eq!([first.clone(), second.clone(), third.clone()], drawn(7));
        assert_ne!(first, drawn(8)[0]);
        assert_ne!(first, second);
        assert!(third.iter().all(|value| (-1.0..=3.0).contains(value)) && third.iter().any(|value| *value > 1.0));
        // The numbers of an array do not depend on how many were drawn for the arrays before.
        let mut random = Random::new(7);
        random.integers([1000], 0, 2).unwrap();
        assert_eq!(random.normal([3, 5], 2.0).unwrap().to_vec::<f32>().unwrap(), second);
    }

    #[test]
    fn integers_take_all_values_of_their_range_and_no_other() {
        let mut random = Random::new(1);
        let values = random.integers([200], -2, 2).unwrap().to_vec::<i64>().unwrap();
        let found: std::collections::BTreeSet<i64> = values.into_iter().collect();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [-2, -1, 0, 1]);
        // The widest range, whose length an i64 does not hold.
        assert_eq!(random.integers([2], i64::MIN, i64::MAX).unwrap().shape(), [2]);
    }

    #[test]
    fn ranges_without_a_number_are_refused() {
        let mut random = Random::new(1);
        for (drawn, expected) in [
            (random.integers([2], 3, 3), "are 3 and 3, with no integer"),
            (random.uniform([2], 1.0, 0.0), "are 1 and 0, expected finite numbers in this order"),
            (random.uniform([2], 0.0, f64::INFINITY), "expected finite numbers"),
            (random.normal([2], -1.0), "argument 'deviation': is -1, expected a finite number of at least 0"),
            (random.normal([2], f64::NAN), "is NaN"),
        ] {
            let message = drawn.unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
