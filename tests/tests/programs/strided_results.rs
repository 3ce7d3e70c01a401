//! Everyday calls whose results are written with gaps between their elements, at the lengths where tiles end: columns
//! appended to matrices, vectors stacked, columns padded, and gradients of slices.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::jit::jit;
use fulgurite_runtime::tracer::{self, Tensor};
use fulgurite_runtime::{Array, DType};

/// A tile's length and one more: of f32, f64, 16-bit types and i64; of i32 and u8; and two and three tiles.
const ROWS: [usize; 7] = [1025, 2048, 2049, 4096, 4097, 8193, 12_289];

/// Small whole numbers that every type holds; for booleans, 0 and 1.
fn numbers(dtype: DType, shape: &[usize], seed: usize) -> (Array, Vec<f64>) {
    let count: usize = shape.iter().product();
    let most = if dtype == DType::Bool { 2 } else { 101 };
    let values: Vec<f64> = (0..count).map(|i| ((i * 7 + i / 101 + seed * 3) % most) as f64).collect();
    (Array::from_f64(shape, dtype, &values).unwrap(), values)
}

/// The default executors, with and without fusion.
fn options() -> [Options; 2] {
    [true, false].map(|fuse| Options { fuse, ..Options::default() })
}

#[track_caller]
fn check(what: &str, out: &Array, expected: &[f64]) {
    let got = out.to_f64().unwrap();
    assert_eq!(got.len(), expected.len(), "{what}");
    if let Some(at) = got.iter().zip(expected).position(|(got, expected)| got != expected) {
        panic!("{what} {}: element {at} is {}, expected {}", out.meta(), got[at], expected[at]);
    }
}

/// Columns of a matrix, row-major.
fn columns(columns: &[&[f64]]) -> Vec<f64> {
    (0..columns[0].len()).flat_map(|row| columns.iter().map(move |column| column[row])).collect()
}

#[test]
fn columns_side_by_side() {
    for dtype in DType::REAL {
        for n in ROWS {
            for options in options() {
                let [(x, xs), (y, ys)] = [1, 2].map(|seed| numbers(dtype, &[n, 1], seed));
                let beside = jit(|(x, y): (Tensor, Tensor)| cat::with([x, y]).dim(1).call()).options(options.clone());
                check("cat of columns", &beside.call((x.clone(), y)).unwrap(), &columns(&[&xs, &ys]));

                let (wide, ws) = numbers(dtype, &[n, 3], 3);
                let [a, b, c] = [0, 1, 2].map(|column| ws.iter().skip(column).step_by(3).copied().collect::<Vec<_>>());
                check("cat of a matrix and a column", &beside.call((wide, x)).unwrap(), &columns(&[&a, &b, &c, &xs]));

                let [(x, xs), (y, ys)] = [4, 5].map(|seed| numbers(dtype, &[n], seed));
                let stacked =
                    jit(|(x, y): (Tensor, Tensor)| stack::with([x, y]).dim(1).call()).options(options.clone());
                check("stack of vectors", &stacked.call((x, y)).unwrap(), &columns(&[&xs, &ys]));

                let [(x, xs), (y, ys)] = [6, 7].map(|seed| numbers(dtype, &[2, n], seed));
                let stacked = jit(|(x, y): (Tensor, Tensor)| stack::with([x, y]).dim(-1).call()).options(options);
                check("stack of matrices", &stacked.call((x, y)).unwrap(), &columns(&[&xs, &ys]));
            }
        }
    }
}

#[test]
fn columns_with_a_border() {
    for dtype in DType::REAL {
        for n in ROWS {
            for options in options() {
                let (x, xs) = numbers(dtype, &[n, 1], 1);
                let zeros = vec![0.0; n];
                let padded = jit(|x: Tensor| pad(x, [1, 1])).options(options.clone());
                check("pad by (1, 1)", &padded.call(x.clone()).unwrap(), &columns(&[&zeros, &xs, &zeros]));
                let padded = jit(|x: Tensor| pad(x, [0, 1])).options(options);
                check("pad by (0, 1)", &padded.call(x).unwrap(), &columns(&[&xs, &zeros]));
            }
        }
    }
}

#[test]
fn gradients_of_columns_of_a_matrix() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for n in ROWS {
            for options in options() {
                let ((x, xs), zeros) = (numbers(dtype, &[n, 2], 1), vec![0.0; n]);
                let second: Vec<f64> = xs.iter().skip(1).step_by(2).map(|x| 2.0 * x).collect();
                let sliced = jit(move |x: Tensor| {
                    tracer::value_and_grad(x, |x| {
                        let column = prims::slice(*x, [0, 1], [n, 2], [1, 1]);
                        (column * column).sum()
                    })
                    .1
                });
                let gradient = sliced.options(options.clone()).call(x.clone()).unwrap();
                check("gradient of a slice", &gradient, &columns(&[&zeros, &second]));

                let first: Vec<f64> = xs.iter().step_by(2).map(|x| 2.0 * x).collect();
                let narrowed = jit(move |x: Tensor| {
                    tracer::value_and_grad(x, |x| {
                        let column = narrow(*x, 1, 0, 1);
                        (column * column).sum()
                    })
                    .1
                });
                let gradient = narrowed.options(options).call(x).unwrap();
                check("gradient of narrow", &gradient, &columns(&[&first, &zeros]));
            }
        }
    }
}
