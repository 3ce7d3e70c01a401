//! Speed of row operations, reductions and indexing at the sizes of a small language model.
//!
//! `cargo run --release -p fulgurite-kernels --example rows`

use std::time::Instant;

use fulgurite_kernels::view::contiguous_strides;
use fulgurite_kernels::{Reduction, TensorMut, TensorRef, elementwise, indexing, philox, reduce, row};

/// The best of nine runs, in seconds.
fn best(mut run: impl FnMut()) -> f64 {
    let times = (0..9).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

fn report(name: &str, bytes: usize, seconds: f64) {
    println!("{name:<44} {:>9.1} us {:>7.2} GB/s", seconds * 1e6, bytes as f64 / seconds / 1e9);
}

fn main() {
    println!("{} build", fulgurite_kernels::BUILD);
    let (n, c) = (512, 50257);
    let (shape, strides, rows) = ([n, c], [c as isize, 1], [n]);
    let logits: Vec<f32> = (0..n * c).map(|i| ((i * 7919) % 1013) as f32 * 1e-3).collect();
    let targets: Vec<i64> = (0..n as i64).map(|i| i * 31 % c as i64).collect();
    let (mut losses, mut totals, scales) = (vec![0f32; n], vec![0f32; n], vec![1f32; n]);
    let mut gradient = vec![0f32; n * c];
    let logits_view = TensorRef::from_slice(&logits, &shape, &strides);
    let target_view = TensorRef::from_slice(&targets, &rows, &[1]);
    let seconds = best(|| {
        let losses = TensorMut::from_slice(&mut losses, &rows, &[1]);
        let totals = TensorMut::from_slice(&mut totals, &rows, &[1]);
        row::cross_entropy_forward(logits_view, target_view, -100, 0.0, losses, totals).expect("targets are in range");
    });
    report("cross-entropy 512 x 50257", n * c * 4, seconds);
    let seconds = best(|| {
        let totals = TensorRef::from_slice(&totals, &rows, &[1]);
        let scales = TensorRef::from_slice(&scales, &rows, &[1]);
        let gradient = TensorMut::from_slice(&mut gradient, &shape, &strides);
        row::cross_entropy_backward(logits_view, target_view, totals, scales, -100, 0.0, gradient)
            .expect("targets are in range");
    });
    report("cross-entropy gradient 512 x 50257", 2 * n * c * 4, seconds);
    let seconds = best(|| row::softmax(logits_view, TensorMut::from_slice(&mut gradient, &shape, &strides)));
    report("softmax 512 x 50257", 2 * n * c * 4, seconds);
    for (n, c) in [(32_768, 64), (8192, 256), (2048, 768)] {
        let (shape, strides, rows, columns) = ([n, c], [c as isize, 1], [n], [c]);
        let x: Vec<f32> = (0..n * c).map(|i| ((i * 7919) % 1013) as f32 * 1e-3).collect();
        let (mut y, mut mean, mut reciprocal) = (x.clone(), vec![0f32; n], vec![0f32; n]);
        let weight = vec![1f32; c];
        let (mut d_weight, mut d_bias) = (vec![0f32; c], vec![0f32; c]);
        let x_view = TensorRef::from_slice(&x, &shape, &strides);
        let weight_view = TensorRef::from_slice(&weight, &columns, &[1]);
        let seconds = best(|| row::softmax(x_view, TensorMut::from_slice(&mut y, &shape, &strides)));
        report(&format!("softmax {n} x {c}"), 2 * n * c * 4, seconds);
        let seconds = best(|| {
            let y = TensorMut::from_slice(&mut y, &shape, &strides);
            let mean = TensorMut::from_slice(&mut mean, &rows, &[1]);
            let reciprocal = TensorMut::from_slice(&mut reciprocal, &rows, &[1]);
            row::layer_norm_forward(x_view, Some(weight_view), Some(weight_view), 1e-5, y, mean, reciprocal);
        });
        report(&format!("layer norm {n} x {c}"), 2 * n * c * 4, seconds);
        let seconds = best(|| {
            row::layer_norm_backward(
                x_view,
                x_view,
                Some(weight_view),
                TensorRef::from_slice(&mean, &rows, &[1]),
                TensorRef::from_slice(&reciprocal, &rows, &[1]),
                Some(TensorMut::from_slice(&mut y, &shape, &strides)),
                Some(TensorMut::from_slice(&mut d_weight, &columns, &[1])),
                Some(TensorMut::from_slice(&mut d_bias, &columns, &[1])),
            );
        });
        report(&format!("layer norm gradients {n} x {c}"), 5 * n * c * 4, seconds);
        let seconds = best(|| {
            reduce::reduce(Reduction::Sum, x_view, &[0], TensorMut::from_slice(&mut d_bias, &columns, &[1]));
        });
        report(&format!("sum over rows {n} x {c}"), n * c * 4, seconds);
        let seconds = best(|| {
            reduce::reduce(Reduction::Sum, x_view, &[1], TensorMut::from_slice(&mut mean, &rows, &[1]));
        });
        report(&format!("sum over columns {n} x {c}"), n * c * 4, seconds);
        let transposed_shape = [c, n];
        let (transposed, source_strides) = (contiguous_strides(&transposed_shape), [1, c as isize]);
        let seconds = best(|| {
            // SAFETY: a transposed view of a dense matrix.
            let source =
                unsafe { TensorRef::new(x_view.dtype(), &transposed_shape, &source_strides, x.as_ptr().cast()) };
            elementwise::copy(source, TensorMut::from_slice(&mut y, &transposed_shape, &transposed));
        });
        report(&format!("transpose {n} x {c}"), 2 * n * c * 4, seconds);
    }
    let (vocabulary, width, count) = (50257, 128, 512);
    let (shape, strides) = ([vocabulary, width], [width as isize, 1]);
    let (row_shape, index_shape) = ([count, width], [count]);
    let mut table = vec![0f32; vocabulary * width];
    let mut values = vec![1f32; count * width];
    let index = TensorRef::from_slice(&targets, &index_shape, &[1]);
    let seconds = best(|| {
        let source = TensorRef::from_slice(&table, &shape, &strides);
        indexing::index_select(source, 0, index, TensorMut::from_slice(&mut values, &row_shape, &strides))
            .expect("indices are in range");
    });
    report("embedding 512 rows of 128", 2 * count * width * 4, seconds);
    let seconds = best(|| {
        let source = TensorRef::from_slice(&values, &row_shape, &strides);
        indexing::index_add(TensorMut::from_slice(&mut table, &shape, &strides), 0, index, source)
            .expect("indices are in range");
    });
    report("embedding gradient 512 rows of 128", 3 * count * width * 4, seconds);
    let flat = [table.len()];
    let numbers = philox::Numbers::new(1, 2);
    let seconds = best(|| philox::uniform(TensorMut::from_slice(&mut table, &flat, &[1]), numbers, 0.0, 1.0));
    report("uniform 6.4 million f32", vocabulary * width * 4, seconds);
    let seconds = best(|| philox::fill(TensorMut::from_slice(&mut table, &flat, &[1]), 0.0));
    report("fill 6.4 million f32", vocabulary * width * 4, seconds);
}
