//! Gradients of functions of symmetric matrices, which differences of single elements do not have; the executor of
//! linear algebra on a device; and what singular matrices get.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::{Array, DType, Device, Tensor, TensorMeta, jit, tracer};

/// Random numbers that do not depend on anything.
fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 + 13) % 101) as f64 / 50.0 - 1.0).collect()
}

/// Compares the gradient of a weighted sum of the results of `function` of `X · Xᵀ` (less `shift` times the unit
/// matrix) with central differences.
fn compare(name: &str, shift: f64, function: fn(Tensor) -> Vec<Tensor>) {
    let (batch, n) = (2, 3);
    let loss = move |x: Tensor| {
        let unit = eye(n);
        let symmetric = matmul(x, swapaxes(x, -1, -2)) - to(unit, DType::F64) * shift;
        let weighted = function(symmetric).into_iter().enumerate().map(|(i, result)| {
            let count = result.shape().iter().product::<usize>() as i64;
            let weights = to(arange(0, count), DType::F64) * 0.3 + (i as f64 + 0.5);
            (result * reshape(weights, result.shape().iter().map(|n| *n as i64).collect::<Vec<_>>())).sum()
        });
        weighted.reduce(|a, b| a + b).unwrap()
    };
    let step = jit(move |x: Tensor| tracer::value_and_grad(x, |x| loss(*x)));
    let x = numbers(batch * n * n);
    let run = |x: &[f64]| step.call(Array::new([batch, n, n], x).unwrap()).unwrap();
    let gradient = run(&x).1.to_f64().unwrap();
    for (i, gradient) in gradient.iter().enumerate() {
        let at = |by: f64| {
            let mut moved = x.clone();
            moved[i] += by;
            run(&moved).0.item().unwrap()
        };
        let slope = (at(1e-5) - at(-1e-5)) / 2e-5;
        assert!((slope - gradient).abs() <= 1e-6 * (1.0 + slope.abs()), "{name}, element {i}: {gradient}, {slope}");
    }
}

#[test]
fn gradients_of_functions_of_symmetric_matrices() {
    compare("cholesky", -1.0, |x| vec![cholesky(x)]);
    compare("cholesky of the upper triangle", -1.0, |x| vec![cholesky::with(x).upper(true).call()]);
    compare("eigh", 0.25, |x| {
        let (values, vectors) = eigh(x);
        vec![values, vectors]
    });
    compare("eigvalsh", 0.25, |x| vec![eigvalsh(x)]);
    compare("pinv of symmetric matrices", 0.25, |x| vec![pinv::with(x).hermitian(true).call()]);
}

/// On a GPU the host computes the factors, whichever executors come before.
#[test]
fn on_a_gpu_the_host_computes_factors() {
    let meta = || TensorMeta::new([2, 3, 3], DType::F32, Device::new("cuda", 0));
    let step = |x: Tensor| tracer::value_and_grad(x, |x| inv(*x).sum() + slogdet(*x).1.sum());
    let traced = trace("step", "cuda:sm_90a".parse().unwrap(), &Names::default(), meta(), step).unwrap().0;
    let stages = stages(traced, &Options { verify: true, ..Options::default() }).unwrap();
    let claimed = stages.iter().find(|stage| stage.name == "claim").unwrap().trace.block.clone();
    for name in ["prims::solve", "prims::lu", "prims::triangular_solve"] {
        let mut lines = claimed.symbols.iter().filter(|symbol| symbol.name() == name).peekable();
        assert!(lines.peek().is_some(), "{name}");
        assert!(lines.all(|line| line.executor == Some("linalg")), "{name}");
    }
}

#[test]
fn a_singular_matrix_is_named_by_operator_and_number() {
    let matrices = Array::new([2, 2, 2], &[1.0_f32, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 4.0]).unwrap();
    let error = jit(|x: Tensor| inv(x)).call(matrices).unwrap_err();
    assert_eq!(error.code(), "Singular");
    let text = error.to_string();
    assert!(text.contains("inv") && text.contains("matrix 1 of the batch is singular"), "{text}");
}
