//! Speed of the matrix products that dominate a small language model's training step.
//!
//! `cargo run --release -p fulgurite-kernels --example products`

use std::time::Instant;

use fulgurite_kernels::gemm::{self, Parallelism};
use fulgurite_kernels::matmul::matmul;
use fulgurite_kernels::{DType, TensorMut, TensorRef};

/// The best of five runs, in seconds.
fn best(mut run: impl FnMut()) -> f64 {
    let times = (0..5).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

fn main() {
    println!("{} build", fulgurite_kernels::BUILD);
    println!("{:<30} {:>8} {:>14} {:>14}  GFLOP/s", "m x k x n", "matmul", "gemm, 1 thread", "gemm, threads");
    for (name, m, k, n, transposed_left, transposed_right) in [
        ("logits, weight [n, k]", 512, 128, 50257, false, true),
        ("logits, weight [k, n]", 512, 128, 50257, false, false),
        ("input gradient", 512, 50257, 128, false, false),
        ("weight gradient", 50257, 512, 128, true, false),
        ("weight gradient, [128, n]", 128, 512, 50257, true, false),
        ("feed-forward", 512, 768, 3072, false, true),
        ("feed-forward weight gradient", 768, 512, 3072, true, false),
        ("square", 1024, 1024, 1024, false, false),
    ] {
        let (a, b, mut out) = (vec![0.5f32; m * k], vec![0.25f32; k * n], vec![0f32; m * n]);
        let left = if transposed_left { [1, m as isize] } else { [k as isize, 1] };
        let right = if transposed_right { [1, k as isize] } else { [n as isize, 1] };
        let (left_shape, right_shape, shape) = ([m, k], [k, n], [m, n]);
        let rate = |seconds: f64| 2.0 * (m * k * n) as f64 / seconds / 1e9;
        let ours = best(|| {
            // SAFETY: dense matrices, transposed or not.
            unsafe {
                matmul(
                    TensorRef::new(DType::F32, &left_shape, &left, a.as_ptr().cast()),
                    TensorRef::new(DType::F32, &right_shape, &right, b.as_ptr().cast()),
                    TensorMut::from_slice(&mut out, &shape, &[n as isize, 1]),
                    false,
                );
            }
        });
        let mut plain = |parallelism| {
            best(|| {
                // SAFETY: dense matrices, transposed or not.
                unsafe {
                    gemm::gemm(
                        m,
                        n,
                        k,
                        out.as_mut_ptr(),
                        1,
                        n as isize,
                        false,
                        a.as_ptr(),
                        left[1],
                        left[0],
                        b.as_ptr(),
                        right[1],
                        right[0],
                        1.0,
                        1.0,
                        parallelism,
                    );
                }
            })
        };
        let (one, all) = (plain(Parallelism::None), plain(Parallelism::Rayon(0)));
        println!("{:<30} {:>8.1} {:>14.1} {:>14.1}", name, rate(ours), rate(one), rate(all));
    }
}
