//! Sums of rows whose elements are scattered over memory: on the host a region adds them as the single kernel does,
//! column by column, whatever else it computes of the rows.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, compile};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, TensorMeta};

/// Numbers of other sizes, whose sum depends on the order.
fn numbers(shape: &[usize]) -> Array {
    let values: Vec<f64> = (0..shape.iter().product::<usize>()).map(|i| (i as f64 * 0.7).sin() * 3.0).collect();
    Array::from_f64(shape, DType::F32, &values).unwrap()
}

/// Rows of `x`, their sum, and what has another reduction of the same rows in it.
fn rows(x: Tensor) -> Vec<Tensor> {
    let total = sum::with(x).dim([-1]).keepdim(true).call();
    let shifted = x - amax::with(x).dim([-1]).keepdim(true).call();
    vec![exp(shifted) * total - x, total]
}

#[test]
fn scattered_rows_have_the_bits_of_the_single_kernel() {
    let turned: fn(Tensor) -> Vec<Tensor> = |x| rows(permute(x, [1, 0]));
    let repeated: fn(Tensor) -> Vec<Tensor> = |x| rows(expand(unsqueeze(select(x, 0, 0), 0), [7, 33]));
    for function in [turned, repeated] {
        for shape in [[33, 7], [33, 33], [3, 5], [700, 33]] {
            if std::ptr::fn_addr_eq(function, repeated) && shape != [33, 33] {
                continue;
            }
            let meta = TensorMeta::new(shape, DType::F32, Device::CPU);
            let (traced, _) = trace("rows", Target::cpu(), &Names::default(), meta, function).unwrap();
            let run = |fuse: bool| {
                let options = Options { fuse, ..Options::default() };
                let (program, _) = compile(traced.clone(), &options).unwrap();
                let results = program.run(vec![numbers(&shape)]).unwrap();
                results.iter().map(|result| result.to_vec::<f32>().unwrap()).collect::<Vec<_>>()
            };
            assert_eq!(run(true), run(false), "{shape:?}");
        }
    }
}
