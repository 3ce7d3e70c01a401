//! Speed where a kernel that goes by rows, or by elements one after another, falls off a cliff: few long rows, integer products,
//! many of the largest.
//!
//! `cargo run --release -p fulgurite-kernels --example cliffs`

use std::time::Instant;

use fulgurite_kernels::dtype::Element;
use fulgurite_kernels::fused::{FusedKernel, FusedNode, FusedProgram, OutputLayout};
use fulgurite_kernels::matmul::matmul;
use fulgurite_kernels::order::topk;
use fulgurite_kernels::reduce::reduce;
use fulgurite_kernels::scalar::ScalarOp::{Div, Exp, Mul, Sub};
use fulgurite_kernels::{DType, Reduction, TensorMut, TensorRef};
use rayon::prelude::*;

/// The best of seven runs, in seconds.
fn best(mut run: impl FnMut()) -> f64 {
    let times = (0..7).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

/// Programs of rows: a sum of products, a mean, a largest, and a softmax, each of one input; and the bytes that they move for each
/// element.
fn programs(width: usize) -> [(&'static str, Vec<FusedNode>, u32, bool); 4] {
    let (input, constant, apply) = (FusedNode::Input(0), FusedNode::Constant, FusedNode::Apply);
    let (sum, max) = (|of| FusedNode::Reduce(Reduction::Sum, of), |of| FusedNode::Reduce(Reduction::Max, of));
    [
        ("sum of x * 2", vec![input, constant(2.0), apply(Mul, [0, 1, 0]), sum(2)], 3, false),
        ("mean", vec![input, sum(0), constant(width as f64), apply(Div, [1, 2, 0])], 3, false),
        ("amax of x * 2", vec![input, constant(2.0), apply(Mul, [0, 1, 0]), max(2)], 3, false),
        (
            "softmax",
            vec![input, max(0), apply(Sub, [0, 1, 0]), apply(Exp, [2, 0, 0]), sum(3), apply(Div, [3, 4, 0])],
            5,
            true,
        ),
    ]
}

fn long_rows() {
    for (rows, width) in [(1usize, 100_000_000usize), (2, 25_000_000), (3, 10_000_000), (1, 1_000_000), (1, 100_000)] {
        let count = rows * width;
        let (x, mut y) = (vec![0.5f32; count], vec![0f32; count]);
        let chunk = count.div_ceil(rayon::current_num_threads());
        let copy = best(|| y.par_chunks_mut(chunk).zip(x.par_chunks(chunk)).for_each(|(y, x)| y.copy_from_slice(x)));
        let copied = 8.0 * count as f64 / copy / 1e9;
        println!("{rows} x {width:<12} {:<16} {:>9.2} ms {copied:>7.2} GB/s", "copy", copy * 1e3);
        let report = |name: &str, bytes: usize, seconds: f64| {
            let rate = (bytes * count) as f64 / seconds / 1e9;
            let part = rate / copied;
            println!("{rows} x {width:<12} {name:<16} {:>9.2} ms {rate:>7.2} GB/s {part:>6.2} of copy", seconds * 1e3);
        };
        let (shape, reduced, strides) = ([rows, width], [rows, 1], [width as isize, 1]);
        let source = TensorRef::from_slice(&x, &shape, &strides);
        let mut out = vec![0f32; rows];
        report(
            "sum, reduce",
            4,
            best(|| reduce(Reduction::Sum, source, &[1], TensorMut::from_slice(&mut out, &reduced, &[1, 1]))),
        );
        for (name, nodes, result, full) in programs(width) {
            let program = FusedProgram { input_dtypes: vec![DType::F32], nodes, outputs: vec![(result, DType::F32)] };
            let (shape_out, strides_out) = if full { (shape, strides) } else { (reduced, [1, 1]) };
            let layout = OutputLayout { shape: &shape_out, strides: &strides_out };
            let kernel = FusedKernel::new(&program, &shape, &[&strides], &[layout]);
            let target = if full { &mut y } else { &mut out };
            let seconds = best(|| {
                let target = TensorMut::from_slice(&mut *target, &shape_out, &strides_out);
                kernel.run(&[source], &mut [target]).expect("nothing is divided by zero");
            });
            // A softmax reads its input three times and writes once.
            report(name, if full { 16 } else { 4 }, seconds);
        }
    }
}

fn product<T: Element>(n: usize) {
    let (a, b) = (vec![T::from_f64(3.0); n * n], vec![T::from_f64(5.0); n * n]);
    let mut out = vec![T::from_f64(0.0); n * n];
    let (shape, strides) = ([n, n], [n as isize, 1]);
    let seconds = best(|| {
        let (a, b) = (TensorRef::from_slice(&a, &shape, &strides), TensorRef::from_slice(&b, &shape, &strides));
        matmul(a, b, TensorMut::from_slice(&mut out, &shape, &strides), false);
    });
    println!("{n}^3 in {:<4} {:>9.1} ms", T::DTYPE, seconds * 1e3);
}

fn largest(length: usize, k: usize) {
    let x: Vec<f32> = (0..length).map(|i| ((i * 2_654_435_761) % 16_777_213) as f32).collect();
    let (mut values, mut indices) = (vec![0f32; k], vec![0i64; k]);
    let shape = [k];
    let seconds = best(|| {
        let values = TensorMut::from_slice(&mut values, &shape, &[1]);
        let indices = TensorMut::from_slice(&mut indices, &shape, &[1]);
        topk(TensorRef::from_slice(&x, &[length], &[1]), 0, true, values, indices);
    });
    println!("topk {k} of {length} {:>9.1} ms", seconds * 1e3);
}

fn main() {
    println!("{} threads", rayon::current_num_threads());
    product::<u8>(1024);
    product::<i32>(1024);
    product::<i64>(1024);
    product::<f32>(1024);
    for k in [1, 1000, 100_000, 500_000, 1_000_000] {
        largest(1_000_000, k);
    }
    long_rows();
}
