//! What a cached `jit` call costs over the kernel itself:
//! `cargo run --release -p fulgurite-benches --bin jit_overhead`

use std::time::Instant;

use fulgurite_benches::processor;
use fulgurite_kernels::elementwise::elementwise;
use fulgurite_kernels::scalar::ScalarProgram;
use fulgurite_kernels::view::{TensorMut, contiguous_strides};
use fulgurite_ops::prelude::*;
use fulgurite_runtime::{Array, Tensor};

fn main() -> fulgurite_runtime::Result<()> {
    fulgurite_benches::require_release()?;
    let step = fulgurite_runtime::jit(|x: Tensor| exp(x)).named("exp");
    let x = Array::new([16], &[0.5f32; 16])?;
    let calls = 20_000u32;
    let mut best_call = f64::INFINITY;
    let mut best_kernel = f64::INFINITY;
    let program = ScalarProgram::record(1, 0, |x, _| vec![x[0].exp()]);
    let (shape, strides) = ([16usize], contiguous_strides(&[16]));
    let mut out = [0f32; 16];
    let mut medians = (Vec::new(), Vec::new());
    for _ in 0..9 {
        let start = Instant::now();
        for _ in 0..calls {
            std::hint::black_box(step.call(x.clone())?);
        }
        let call = start.elapsed().as_secs_f64() / f64::from(calls) * 1e6;
        let start = Instant::now();
        for _ in 0..calls {
            let mut result = TensorMut::from_slice(&mut out, &shape, &strides);
            elementwise(&program, &[x.view()?], &[], std::slice::from_mut(&mut result)).unwrap();
        }
        let kernel = start.elapsed().as_secs_f64() / f64::from(calls) * 1e6;
        best_call = best_call.min(call);
        best_kernel = best_kernel.min(kernel);
        medians.0.push(call);
        medians.1.push(kernel);
    }
    medians.0.sort_by(f64::total_cmp);
    medians.1.sort_by(f64::total_cmp);
    let (call, kernel) = (medians.0[4], medians.1[4]);
    println!("processor: {}", processor());
    println!(
        "exp of 16 f32: jit call {call:.3} us, kernel prepared and run {kernel:.3} us, difference {:.3} us",
        call - kernel
    );
    println!("best of 9: {best_call:.3} us and {best_kernel:.3} us; compiles = {}", step.compiles());
    Ok(())
}
