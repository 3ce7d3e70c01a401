//! Speed where a kernel that goes by rows, or by elements one after another, falls off a cliff: few long rows, integer
//! products, many of the largest, chains that round after each operation.
//!
//! `cargo run --release -p fulgurite-kernels --example cliffs -- [products] [topk] [rows] [passes] [rounded]`

use std::time::Instant;

use fulgurite_kernels::dtype::Element;
use fulgurite_kernels::fused::{FusedKernel, FusedNode, FusedProgram, OutputLayout};
use fulgurite_kernels::matmul::matmul;
use fulgurite_kernels::order::topk;
use fulgurite_kernels::reduce::reduce;
use fulgurite_kernels::scalar::ScalarOp::{Div, Exp, Mul, Sub};
use fulgurite_kernels::{DType, Reduction, TensorMut, TensorRef};
use rayon::prelude::*;

/// Rounds of a comparison, in each of which every candidate has its turn.
const ROUNDS: usize = 11;

/// How long one run takes, in seconds.
fn time(mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

/// The best of seven runs, in seconds.
fn best(mut run: impl FnMut()) -> f64 {
    (0..7).map(|_| time(&mut run)).fold(f64::INFINITY, f64::min)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What is compared: its name, the bytes that it moves, and the run.
struct Candidate<'a> {
    name: String,
    bytes: usize,
    run: Box<dyn FnMut() + 'a>,
}

impl<'a> Candidate<'a> {
    fn new(name: &str, bytes: usize, run: impl FnMut() + 'a) -> Candidate<'a> {
        Candidate { name: name.to_owned(), bytes, run: Box::new(run) }
    }
}

/// Runs all candidates by turns. For each the median time, the rate, and the median of the ratios of its rate and the
/// first one's in the same round: others use the memory of a shared machine too.
fn compare(title: &str, mut candidates: Vec<Candidate<'_>>) {
    candidates.iter_mut().for_each(|candidate| (candidate.run)());
    let rounds: Vec<Vec<f64>> =
        (0..ROUNDS).map(|_| candidates.iter_mut().map(|candidate| time(&mut candidate.run)).collect()).collect();
    for (index, candidate) in candidates.iter().enumerate() {
        let rate = |round: &Vec<f64>, of: usize| candidates[of].bytes as f64 / round[of] / 1e9;
        let seconds = median(rounds.iter().map(|round| round[index]).collect());
        let ratio = median(rounds.iter().map(|round| rate(round, index) / rate(round, 0)).collect());
        let gigabytes = candidate.bytes as f64 / seconds / 1e9;
        println!("{title:<18} {:<18} {:>9.3} ms {gigabytes:>7.2} GB/s {ratio:>6.2}", candidate.name, seconds * 1e3);
    }
}

/// Programs of rows: a sum of products, a mean, a largest, and a softmax, each of one input; and the bytes that they
/// move for each element.
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

/// The sum of a part of a row, as plainly as it can be written: what reading alone takes.
fn read(x: &[f32]) -> f32 {
    let mut lanes = [0f32; 64];
    for chunk in x.as_chunks::<64>().0 {
        lanes.iter_mut().zip(chunk).for_each(|(lane, x)| *lane += x);
    }
    lanes.iter().sum()
}

/// Few long rows. A copy counts what it reads and what it writes, sums and maxima what they read, a softmax its three
/// passes over what it reads and what it writes.
fn long_rows() {
    for (rows, width) in [(1usize, 100_000_000usize), (2, 25_000_000), (3, 10_000_000), (1, 1_000_000), (1, 100_000)] {
        let count = rows * width;
        let (x, mut y, mut copied) = (vec![0.5f32; count], vec![0f32; count], vec![0f32; count]);
        let chunk = count.div_ceil(rayon::current_num_threads());
        let (shape, reduced, strides) = ([rows, width], [rows, 1], [width as isize, 1]);
        let source = TensorRef::from_slice(&x, &shape, &strides);
        let mut candidates = vec![
            Candidate::new("copy", 8 * count, || {
                copied.par_chunks_mut(chunk).zip(x.par_chunks(chunk)).for_each(|(y, x)| y.copy_from_slice(x));
            }),
            Candidate::new("read", 4 * count, || {
                std::hint::black_box(x.par_chunks(chunk).map(read).sum::<f32>());
            }),
            Candidate::new("sum, reduce", 4 * count, || {
                let mut out = vec![0f32; rows];
                reduce(Reduction::Sum, source, &[1], TensorMut::from_slice(&mut out, &reduced, &[1, 1]));
            }),
        ];
        let mut y = Some(&mut y);
        for (name, nodes, result, full) in programs(width) {
            let program = FusedProgram { input_dtypes: vec![DType::F32], nodes, outputs: vec![(result, DType::F32)] };
            let strides_out = if full { strides } else { [1, 1] };
            let shape_out = if full { shape } else { reduced };
            let layout = OutputLayout { shape: &shape_out, strides: &strides_out };
            let kernel = FusedKernel::new(&program, &shape, &[&strides], &[layout]);
            let mut few = vec![0f32; rows];
            let mut many = if full { y.take() } else { None };
            candidates.push(Candidate::new(name, if full { 16 } else { 4 } * count, move || {
                let target = many.as_deref_mut().unwrap_or(&mut few);
                let target = TensorMut::from_slice(target, &shape_out, &strides_out);
                kernel.run(&[source], &mut [target]).expect("nothing is divided by zero");
            }));
        }
        compare(&format!("{rows} x {width}"), candidates);
    }
}

/// What passes over a row cost in the caches, on one thread: the best of many short runs, in nanoseconds an element.
fn passes() {
    let width = 65_536;
    let (x, mut full) = (vec![0.5f32; width], vec![0f32; width]);
    let (shape, strides) = ([1, width], [width as isize, 1]);
    for (name, nodes, result, is_full) in programs(width) {
        let program = FusedProgram { input_dtypes: vec![DType::F32], nodes, outputs: vec![(result, DType::F32)] };
        let shape_out = if is_full { shape } else { [1, 1] };
        let strides_out = if is_full { strides } else { [1, 1] };
        let layout = OutputLayout { shape: &shape_out, strides: &strides_out };
        let kernel = FusedKernel::new(&program, &shape, &[&strides], &[layout]);
        let target = if is_full { &mut full[..] } else { &mut full[..1] };
        let seconds = (0..3000).map(|_| {
            time(|| {
                let target = TensorMut::from_slice(&mut *target, &shape_out, &strides_out);
                let source = TensorRef::from_slice(&x, &shape, &strides);
                kernel.run(&[source], &mut [target]).expect("nothing is divided by zero");
            })
        });
        let best = seconds.fold(f64::INFINITY, f64::min);
        println!("{name:<16} {:>7.4} ns an element", best * 1e9 / width as f64);
    }
}

/// Six elementwise operations, each rounded to the element type, beside one and beside a copy of as many elements.
fn rounded() {
    for dtype in [DType::BF16, DType::F16] {
        for count in [1usize << 14, 1 << 20, 1 << 22, 1 << 25] {
            let (x, mut y, mut copied) = (vec![0x3c00u16; count], vec![0u16; count], vec![0u16; count]);
            let mut out = vec![0u16; count];
            let chunk = count.div_ceil(rayon::current_num_threads());
            let (shape, layout) = ([count], OutputLayout { shape: &[count], strides: &[1] });
            let kernel = |operations: u32, rounds: bool| {
                let mut nodes = vec![FusedNode::Input(0), FusedNode::Constant(1.5), FusedNode::Constant(0.25)];
                let mut last = 0;
                for operation in 0..operations {
                    let (op, number) = if operation % 2 == 0 { (Mul, 1) } else { (Sub, 2) };
                    nodes.push(FusedNode::Apply(op, [last, number, 0]));
                    if rounds {
                        nodes.push(FusedNode::Convert(dtype, nodes.len() as u32 - 1));
                    }
                    last = nodes.len() as u32 - 1;
                }
                let program = FusedProgram { input_dtypes: vec![dtype], nodes, outputs: vec![(last, dtype)] };
                FusedKernel::new(&program, &shape, &[&[1]], &[layout])
            };
            let run = |kernel: &FusedKernel, out: &mut [u16]| {
                // SAFETY: the vectors hold `count` elements of two bytes.
                let (x, out) = unsafe {
                    (
                        TensorRef::new(dtype, &shape, &[1], x.as_ptr().cast()),
                        TensorMut::new(dtype, &shape, &[1], out.as_mut_ptr().cast()),
                    )
                };
                kernel.run(&[x], &mut [out]).expect("nothing is divided by zero");
            };
            let (one, six, unrounded) = (kernel(1, true), kernel(6, true), kernel(6, false));
            let mut third = vec![0u16; count];
            let candidates = vec![
                Candidate::new("copy", 4 * count, || {
                    copied.par_chunks_mut(chunk).zip(x.par_chunks(chunk)).for_each(|(y, x)| y.copy_from_slice(x));
                }),
                Candidate::new("1 operation", 4 * count, || run(&one, &mut y)),
                Candidate::new("6, rounded", 4 * count, || run(&six, &mut out)),
                Candidate::new("6, not rounded", 4 * count, || run(&unrounded, &mut third)),
            ];
            compare(&format!("{dtype} x {count}"), candidates);
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

/// Without arguments everything is measured; else what is named: `products`, `topk`, `rows`, `passes`, `rounded`.
fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    println!("{} threads, {} build", rayon::current_num_threads(), fulgurite_kernels::BUILD);
    if wanted("products") {
        product::<u8>(1024);
        product::<i32>(1024);
        product::<i64>(1024);
        product::<f32>(1024);
    }
    if wanted("topk") {
        for k in [1, 1000, 100_000, 500_000, 1_000_000] {
            largest(1_000_000, k);
        }
    }
    if wanted("rows") {
        long_rows();
    }
    if wanted("passes") {
        passes();
    }
    if wanted("rounded") {
        rounded();
    }
}
