//! `x * a + b` and `gelu(x * a + b)` on tensors beyond the last-level cache, beside the machine's copy bandwidth:
//! `cargo run --release -p fulgurite-benches --bin elementwise`

use std::time::Instant;

use fulgurite_benches::{median_of, processor};
use fulgurite_kernels::machine::last_level_cache;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::{Array, Tensor, jit};
use rayon::prelude::*;

/// Medians are of so many.
const ROUNDS: usize = 15;

fn main() -> fulgurite_runtime::Result<()> {
    // Well beyond the last-level cache (and beyond several, where a processor has more than one), so that neither side
    // is served by it.
    let len = (4 * last_level_cache()).max(1 << 30).next_multiple_of(1 << 20) / 4;
    let options = Options { verify: false, ..Options::default() };
    let x = Array::new([len], &vec![0.5f32; len])?;
    let (a, b) = (Array::scalar(1.25), Array::scalar(0.5));
    let affine = jit(|(x, a, b): (Tensor, Tensor, Tensor)| x * a + b).options(options.clone());
    let activated = jit(|(x, a, b): (Tensor, Tensor, Tensor)| gelu(x * a + b)).options(options);
    let source = vec![1f32; len];
    let mut target = vec![0f32; len];
    let parts = rayon::current_num_threads();
    let bytes = (2 * 4 * len) as f64;
    let gigabytes = |milliseconds: f64| bytes / milliseconds / 1e6;
    let mut copy = || {
        target.par_chunks_mut(len / parts).zip(source.par_chunks(len / parts)).for_each(|(t, s)| t.copy_from_slice(s));
        Ok(())
    };
    let mut first = || affine.call((x.clone(), a.clone(), b.clone())).map(drop);
    let mut second = || activated.call((x.clone(), a.clone(), b.clone())).map(drop);
    // By turns: others may use the memory too, now more and now less.
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..=ROUNDS {
        let work: [&mut dyn FnMut() -> fulgurite_runtime::Result<()>; 3] = [&mut copy, &mut first, &mut second];
        for (times, work) in times.iter_mut().zip(work) {
            let start = Instant::now();
            work()?;
            // The first round takes the memory that the others use.
            if round > 0 {
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    let of_copy = |times: &[Vec<f64>], which: usize| {
        median_of(times[0].iter().zip(&times[which]).map(|(copy, time)| copy / time).collect())
    };
    let ratios = [of_copy(&times, 1), of_copy(&times, 2)];
    let [copy, first, second] = times.map(|times| gigabytes(median_of(times)));
    println!(
        "processor: {}, {parts} threads, {} MiB a tensor (last-level cache {} MiB), bytes counted: one read and one \
         write",
        processor(),
        (4 * len) >> 20,
        last_level_cache() >> 20
    );
    println!("copy: {copy:.1} GB/s");
    println!("x * a + b: {first:.1} GB/s, {:.2} of copy", ratios[0]);
    println!("gelu(x * a + b): {second:.1} GB/s, {:.2} of copy", ratios[1]);
    Ok(())
}
