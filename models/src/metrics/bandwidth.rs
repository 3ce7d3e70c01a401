//! What the memory of the host moves in a second.

use std::time::Instant;

use rayon::prelude::*;

/// Elements of each of the two arrays: together more than caches hold.
const ELEMENTS: usize = 8 << 20;
/// Elements that a thread copies at once.
const PART: usize = 64 << 10;
/// Copies that are timed.
const RUNS: usize = 7;

/// Bytes that a copy by all threads of the pool reads and writes in a second: the fastest of several, in about 0.1 s.
pub fn of_host() -> f64 {
    let from = vec![1u64; ELEMENTS];
    let mut to = vec![2u64; ELEMENTS];
    let mut least = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        to.par_chunks_mut(PART).zip(from.par_chunks(PART)).for_each(|(to, from)| to.copy_from_slice(from));
        least = least.min(start.elapsed().as_secs_f64());
    }
    std::hint::black_box(&to);
    2.0 * size_of_val(&*from) as f64 / least.max(1e-9)
}
