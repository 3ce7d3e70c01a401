//! Memory bandwidth of fused elementwise programs, against `memcpy` on as many threads.
//!
//! `cargo run --release -p fulgurite-kernels --example bandwidth`

use std::time::Instant;

use fulgurite_kernels::fused::{FusedKernel, FusedNode, FusedProgram, OutputLayout};
use fulgurite_kernels::scalar::ScalarOp::{Add, Erf, Mul};
use fulgurite_kernels::{DType, TensorMut, TensorRef};
use rayon::prelude::*;

/// The best of nine runs, in seconds.
fn best(mut run: impl FnMut()) -> f64 {
    let times = (0..9).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

fn main() {
    println!("{} threads, {} build", rayon::current_num_threads(), fulgurite_kernels::BUILD);
    for count in [16usize, 16 << 10, 1 << 20, 32 << 20] {
        let repeat = (4_000_000 / count).max(1);
        let (x, a, b) = (vec![1.5f32; count], vec![0.5f32; count], vec![0.25f32; count]);
        let mut out = vec![1.0f32; count];
        let report = |name: &str, tensors: usize, seconds: f64| {
            let seconds = seconds / repeat as f64;
            let rate = (tensors * count * 4) as f64 / seconds / 1e9;
            println!("{count:>10} {name:<34} {:>12.3} us {rate:>8.2} GB/s", seconds * 1e6);
        };
        report(
            "memcpy",
            2,
            best(|| {
                for _ in 0..repeat {
                    if count < 1 << 16 {
                        out.copy_from_slice(&x);
                    } else {
                        let chunk = count.div_ceil(rayon::current_num_threads());
                        out.par_chunks_mut(chunk).zip(x.par_chunks(chunk)).for_each(|(out, x)| out.copy_from_slice(x));
                    }
                }
            }),
        );
        let shape = [count];
        let output = [OutputLayout { shape: &shape, strides: &[1] }];
        let (input, apply) = (FusedNode::Input, FusedNode::Apply);
        let linear = vec![input(0), input(1), input(2), apply(Mul, [0, 1, 0]), apply(Add, [3, 2, 0])];
        let mut gelu = linear.clone();
        gelu.extend([
            FusedNode::Constant(0.5),
            apply(Mul, [4, 5, 0]),
            FusedNode::Constant(std::f64::consts::FRAC_1_SQRT_2),
            apply(Mul, [4, 7, 0]),
            apply(Erf, [8, 0, 0]),
            FusedNode::Constant(1.0),
            apply(Add, [9, 10, 0]),
            apply(Mul, [6, 11, 0]),
        ]);
        for (name, nodes, stride, tensors) in [
            ("x * a + b, a and b numbers", linear.clone(), 0, 2),
            ("x * a + b, a and b tensors", linear, 1, 4),
            ("gelu(x * a + b), a and b numbers", gelu, 0, 2),
        ] {
            let last = nodes.len() as u32 - 1;
            let program = FusedProgram { input_dtypes: vec![DType::F32; 3], nodes, outputs: vec![(last, DType::F32)] };
            let strides = [stride];
            let kernel = FusedKernel::new(&program, &shape, &[&[1], &strides, &strides], &output);
            let seconds = best(|| {
                for _ in 0..repeat {
                    // SAFETY: the vectors hold `count` elements.
                    let view = |data: &[f32], strides| unsafe {
                        TensorRef::new(DType::F32, &shape, strides, data.as_ptr().cast())
                    };
                    kernel
                        .run(
                            &[view(&x, &[1]), view(&a, &strides), view(&b, &strides)],
                            &mut [TensorMut::from_slice(&mut out, &shape, &[1])],
                        )
                        .unwrap();
                }
            });
            report(name, tensors, seconds);
        }
        let program = FusedProgram {
            input_dtypes: vec![DType::F32],
            nodes: vec![input(0), FusedNode::Constant(2.0), apply(Mul, [0, 1, 0])],
            outputs: vec![(2, DType::F32)],
        };
        let seconds = best(|| {
            for _ in 0..repeat {
                program
                    .run(
                        &shape,
                        &[TensorRef::from_slice(&x, &shape, &[1])],
                        &mut [TensorMut::from_slice(&mut out, &shape, &[1])],
                    )
                    .unwrap();
            }
        });
        report("x * 2, prepared anew each time", 2, seconds);
    }
}
