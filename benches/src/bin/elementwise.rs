//! `x * a + b` and `gelu(x * a + b)` on tensors beyond the last-level cache, beside the machine's copy bandwidth:
//! `cargo run --release -p fulgurite-benches --bin elementwise`

use fulgurite::compile::Options;
use fulgurite::{Array, Tensor, jit};
use fulgurite_benches::{last_level_cache, median, processor};
use fulgurite_ops::prelude::*;
use rayon::prelude::*;

fn main() -> fulgurite::Result<()> {
    // Well beyond the last-level cache, so that neither side is served by it.
    let len = (4 * last_level_cache()).max(256 << 20).next_multiple_of(1 << 20) / 4;
    let options = Options { verify: false, ..Options::default() };
    let x = Array::new([len], &vec![0.5f32; len])?;
    let (a, b) = (Array::scalar(1.25), Array::scalar(0.5));
    let affine = jit(|(x, a, b): (Tensor, Tensor, Tensor)| x * a + b).options(options.clone());
    let activated = jit(|(x, a, b): (Tensor, Tensor, Tensor)| gelu(x * a + b)).options(options);
    let source = vec![1f32; len];
    let mut target = vec![0f32; len];
    let parts = rayon::current_num_threads();
    let bytes = (2 * 4 * len) as f64;
    let gigabytes = |seconds: f64| bytes / seconds / 1e9;
    let copy = median(1, 9, || {
        target.par_chunks_mut(len / parts).zip(source.par_chunks(len / parts)).for_each(|(t, s)| t.copy_from_slice(s));
    });
    let mut outputs = Vec::new();
    let mut run = |f: &dyn Fn() -> fulgurite::Result<Array>| -> fulgurite::Result<f64> {
        outputs.push(f()?);
        outputs.clear();
        let mut failed = None;
        let time = median(1, 9, || {
            if let Err(error) = f() {
                failed = Some(error);
            }
        });
        failed.map_or(Ok(time.as_secs_f64()), Err)
    };
    let first = run(&|| affine.call((x.clone(), a.clone(), b.clone())))?;
    let second = run(&|| activated.call((x.clone(), a.clone(), b.clone())))?;
    let copy = gigabytes(copy.as_secs_f64());
    println!(
        "processor: {}, {parts} threads, {} MiB a tensor (last-level cache {} MiB), bytes counted: one read and one write",
        processor(),
        (4 * len) >> 20,
        last_level_cache() >> 20
    );
    println!("copy: {copy:.1} GB/s");
    println!("x * a + b: {:.1} GB/s, {:.2} of copy", gigabytes(first), gigabytes(first) / copy);
    println!("gelu(x * a + b): {:.1} GB/s, {:.2} of copy", gigabytes(second), gigabytes(second) / copy);
    Ok(())
}
