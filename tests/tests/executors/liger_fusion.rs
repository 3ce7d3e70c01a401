//! Operators of Liger-Kernel that need no kernel of their own: the fuser computes their rows in one region, no tensor
//! of the logits' size is written in between, and an MLP in tiles keeps what one tile computes. No device is needed.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::{BoundSymbol, Callee, Trace};
use fulgurite_runtime::{Array, DType, Device, Result, Target, Tensor, TensorMeta, jit, tracer};

const ROWS: usize = 512;
const CLASSES: usize = 1024;

fn options() -> Options {
    let executors = ["liger", "flash", "optim", "cublaslt", "fusion", "cuda"];
    Options { verify: true, ..Options::default() }.with_executors(&executors).unwrap()
}

/// The last stage of `f` for CUDA, of tensors of these shapes in bf16.
fn compiled(shapes: &[&[usize]], f: impl FnOnce(Vec<Tensor>) -> Tensor) -> Trace {
    let hopper: Target = "cuda:sm_90a".parse().unwrap();
    let meta = |shape: &&[usize]| TensorMeta::new(*shape, DType::BF16, Device::new("cuda", 0));
    let metas: Vec<TensorMeta> = shapes.iter().map(meta).collect();
    let (trace, _) = trace("f", hopper, &Names::default(), metas, |x: Vec<Tensor>| vec![f(x)]).unwrap();
    stages(trace, &options()).unwrap().pop().unwrap().trace
}

/// The elements of all tensors that a program writes; views of others are none.
fn written(trace: &Trace) -> usize {
    let block = &trace.block;
    let views = ["prims::broadcast_in_dim", "prims::reshape"];
    let writes = |symbol: &&BoundSymbol| !matches!(symbol.callee, Callee::Delete) && !views.contains(&symbol.name());
    let results = block.symbols.iter().filter(writes).flat_map(|symbol| &symbol.results);
    results.map(|id| block.meta(*id).len()).sum()
}

#[test]
fn the_terms_of_divergences_are_never_written() {
    let both: [&[usize]; 2] = [&[ROWS, CLASSES], &[ROWS, CLASSES]];
    let divergences: [(&str, fn(Tensor, Tensor) -> Tensor); 3] = [
        ("kl_div", |x, y| kl_div::with(x, y).reduction(DivergenceReduction::BatchMean).call()),
        ("jsd", jsd),
        ("tvd", tvd),
    ];
    for (name, divergence) in divergences {
        let trace = compiled(&both, |x| divergence(x[0], x[1]));
        assert!(written(&trace) <= 2 * ROWS, "{name}: {trace}");
    }
}

#[test]
fn a_norm_or_an_activation_is_one_region() {
    let all = ROWS * CLASSES;
    type Layer = fn(Vec<Tensor>) -> Tensor;
    // How many tensors of the input's size are written. The result of group_norm is a view, which is copied here, where
    // it is the program's.
    let layers: [(&str, usize, Layer); 4] = [
        ("relu_squared", 1, |x| relu_squared(x[0])),
        ("dyt", 1, |x| dyt::with(x[0], x[1], x[2]).beta(x[2]).call()),
        ("poly_norm", 1, |x| poly_norm(x[0], x[3], x[1])),
        ("group_norm", 2, |x| group_norm::with(x[0].reshape([512, 16, 64]), 4).weight(x[4]).bias(x[4]).call()),
    ];
    for (name, tensors, layer) in layers {
        let trace = compiled(&[&[ROWS, CLASSES], &[1], &[CLASSES], &[3], &[16]], layer);
        // Parameters are converted by a region of their own.
        let large = |symbol: &&BoundSymbol| symbol.results.iter().any(|id| trace.block.meta(*id).len() >= all);
        let regions = trace.block.symbols.iter().filter(|symbol| matches!(symbol.callee, Callee::Region { .. }));
        let regions = regions.filter(large).count();
        // The parameters of channels are spread over the places of a group once, for all rows.
        assert!(regions == 1 && written(&trace) <= tensors * all + 4 * CLASSES, "{name}: {trace}");
    }
}

/// A SwiGLU in tiles, its loss and the gradients of all operands.
fn mlp(shards: usize) -> impl Fn((Tensor, Tensor, Tensor, Tensor)) -> (Tensor, (Tensor, Tensor, Tensor, Tensor)) {
    move |operands| {
        tracer::value_and_grad(operands, |(x, gate, up, down)| {
            let out = tiled_mlp(*x, Some(shards), |x| linear(swiglu(linear(x, *gate), linear(x, *up)), *down));
            (out * out).sum()
        })
    }
}

#[test]
fn an_mlp_in_tiles_has_the_same_gradients_in_less_memory() -> Result<()> {
    let (length, width, inner) = (400, 8, 64);
    let of = |shape: &[usize], seed: usize| {
        let count: usize = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|i| ((i * 7919 + seed) % 101) as f32 / 200.0 - 0.25).collect();
        Array::new(shape, &values)
    };
    let operands = || -> Result<_> {
        let [gate, up] = [of(&[inner, width], 2)?, of(&[inner, width], 3)?];
        Ok((of(&[2, length, width], 1)?, gate, up, of(&[width, inner], 4)?))
    };
    let run = |shards: usize| -> Result<(Vec<f64>, u64)> {
        let step = jit(mlp(shards)).options(Options::default().with_executors(&["cpu"])?);
        let (loss, gradients) = step.call(operands()?)?;
        let all = [loss, gradients.0, gradients.1, gradients.2, gradients.3];
        let values = all.iter().map(Array::to_f64).collect::<Result<Vec<_>>>()?.concat();
        Ok((values, step.compile(&operands()?)?.program().memory().peak()))
    };
    let (whole, whole_peak) = run(1)?;
    // Tiles of 58, the last one of 52.
    let (tiled, tiled_peak) = run(7)?;
    let largest = whole.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    for (found, expected) in tiled.iter().zip(&whole) {
        assert!((found - expected).abs() <= 1e-5 * largest, "{found}, expected {expected}");
    }
    assert!(tiled_peak * 2 < whole_peak, "{tiled_peak} bytes, {whole_peak} in one tile");
    Ok(())
}
