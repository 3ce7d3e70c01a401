//! Safe functions of the crate that are called with extents that do not fit: each panics, naming itself and the
//! operand, before it touches memory. No check is a debug assertion, so a release build refuses the same calls.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite_kernels::access::read_f64;
use fulgurite_kernels::elementwise::{convert, copy, elementwise};
use fulgurite_kernels::fused::{FusedKernel, FusedNode, FusedProgram, OutputLayout};
use fulgurite_kernels::indexing::{gather, index_add, index_select, scatter, scatter_add};
use fulgurite_kernels::matmul::matmul;
use fulgurite_kernels::order::{argmax, topk};
use fulgurite_kernels::paths::log_path_sums;
use fulgurite_kernels::reduce::{Reduction, reduce};
use fulgurite_kernels::row::{self, log_softmax, softmax};
use fulgurite_kernels::scalar::{ScalarOp, ScalarProgram};
use fulgurite_kernels::scan::{cummax, cumsum, linear_scan};
use fulgurite_kernels::search::searchsorted;
use fulgurite_kernels::view::contiguous_strides;
use fulgurite_kernels::{DType, TensorMut, TensorRef};

/// What a call says when it panics.
fn message(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("the call must be refused");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map_or_else(|_| String::new(), |text| (*text).to_owned()),
    }
}

#[track_caller]
fn refused(what: &str, run: impl FnOnce()) {
    let message = message(run);
    assert!(message.contains(what), "expected a message with '{what}', got '{message}'");
}

/// A contiguous tensor of f32 (or i64), with its memory.
struct Numbers<T> {
    data: Vec<T>,
    shape: Vec<usize>,
    strides: Vec<isize>,
}

impl<T: fulgurite_kernels::dtype::Element> Numbers<T> {
    fn new(shape: &[usize]) -> Numbers<T> {
        let data = vec![T::from_f64(0.0); shape.iter().product()];
        Numbers { data, shape: shape.to_vec(), strides: contiguous_strides(shape) }
    }
    fn view(&self) -> TensorRef<'_> {
        TensorRef::from_slice(&self.data, &self.shape, &self.strides)
    }
    fn target(&mut self) -> TensorMut<'_> {
        TensorMut::from_slice(&mut self.data, &self.shape, &self.strides)
    }
}

fn floats(shape: &[usize]) -> Numbers<f32> {
    Numbers::new(shape)
}

fn indices(shape: &[usize]) -> Numbers<i64> {
    Numbers::new(shape)
}

#[test]
fn views_of_nothing_stay_views_of_nothing() {
    let empty = floats(&[0]);
    assert!(empty.view().reshaped(&[5], &[0]).is_none());
    assert!(empty.view().reshaped(&[], &[]).is_none());
    let strided: [f32; 0] = [];
    let nothing = TensorRef::from_slice(&strided, &[0], &[0]);
    assert!(nothing.reshaped(&[5], &[0]).is_none());
    assert!(nothing.reshaped(&[1, 1], &[0, 0]).is_none());
    assert_eq!(read_f64(&nothing.reshaped(&[0, 1], &[0, 1]).unwrap()), [0.0; 0]);
    let (mut data, shape, strides) = ([0f32; 0], [0], [0]);
    let mut nothing = TensorMut::from_slice(&mut data, &shape, &strides);
    assert!(nothing.reshaped(&[1], &[0]).is_none());
    let some = floats(&[3]);
    let view = some.view();
    assert_eq!(view.reshaped(&[2, 3], &[0, 1]).unwrap().len(), 6);
    assert!(view.reshaped(&[0, 3], &[0, 1]).is_none());
}

#[test]
fn a_shape_of_more_elements_than_addresses_is_no_view_of_nothing() {
    let mut data: [f32; 0] = [];
    let (shape, strides) = ([1 << 63, 2], [2, 1]);
    refused("more elements than there are addresses", || _ = TensorRef::from_slice(&data, &shape, &strides).len());
    refused("more elements than there are addresses", || _ = TensorMut::from_slice(&mut data, &shape, &strides).len());
    assert_eq!(TensorRef::from_slice(&[0f32; 0], &[1 << 63, 0, 1 << 63], &[0, 0, 0]).len(), 0);
}

#[test]
fn copies_and_programs() {
    let source = floats(&[40, 40]);
    let transposed = source.view().reshaped(&[40, 40], &[40, 1]).unwrap();
    refused("convert: target has shape [2, 3], expected [40, 40]", || convert(transposed, floats(&[2, 3]).target()));
    refused("convert: target has shape [1600], expected [40, 40]", || copy(transposed, floats(&[1600]).target()));
    refused("copy: target is i64, expected f32", || copy(transposed, indices(&[40, 40]).target()));
    let program = ScalarProgram::record(2, 0, |x, _| vec![x[0] + x[1]]);
    let (a, b, short) = (floats(&[3, 4]), floats(&[3, 4]), floats(&[4]));
    let run =
        |inputs: &[TensorRef<'_>], output: TensorMut<'_>| elementwise(&program, inputs, &[], &mut [output]).unwrap();
    refused("input 1 has a stride for each dimension", || run(&[a.view(), short.view()], floats(&[3, 4]).target()));
    refused("input 0 has the layout", || run(&[a.view(), b.view()], floats(&[4, 3]).target()));
    refused("input 2 has a stride for each dimension", || {
        run(&[a.view(), b.view(), short.view()], floats(&[3, 4]).target());
    });
}

#[test]
fn fused_programs() {
    let nodes = vec![FusedNode::Input(0), FusedNode::Apply(ScalarOp::Neg, [0; 3])];
    let program = FusedProgram { input_dtypes: vec![DType::F32; 2], nodes, outputs: vec![(1, DType::F32); 2] };
    let x = floats(&[3, 4]);
    let (mut first, mut second) = (floats(&[3, 4]), floats(&[3, 4]));
    // The second input of the program is never read; its place must not be taken for that of an output.
    refused("as many inputs as the program has", || {
        program.run(&[3, 4], &[x.view()], &mut [first.target(), second.target()]).unwrap();
    });
    let mut program = program;
    program.input_dtypes.truncate(1);
    refused("as many outputs as the program has", || {
        program.run(&[3, 4], &[x.view()], &mut [first.target()]).unwrap();
    });
    refused("output 1 has as many dimensions", || {
        program.run(&[3, 4], &[x.view()], &mut [first.target(), floats(&[12]).target()]).unwrap();
    });
    refused("output 1 has the layout", || {
        program.run(&[3, 4], &[x.view()], &mut [first.target(), floats(&[1, 4]).target()]).unwrap();
    });
    refused("a value per element has its own output element", || {
        program.run(&[3, 4], &[x.view()], &mut [first.target(), floats(&[3, 1]).target()]).unwrap();
    });
    refused("has as many dimensions", || {
        let output = OutputLayout { shape: &[3, 4], strides: &[1] };
        FusedKernel::new(&program, &[3, 4], &[&[4, 1]], &[output, output]);
    });
}

#[test]
fn reductions_and_what_goes_along_a_dimension() {
    let x = floats(&[3, 4]);
    let sum = |dims: &[usize], mut target: Numbers<f32>| reduce(Reduction::Sum, x.view(), dims, target.target());
    refused("reduce: target has shape [2], expected [3]", || sum(&[1], floats(&[2])));
    refused("reduce: target has shape [3, 2], expected [3, 1]", || sum(&[1], floats(&[3, 2])));
    refused("reduce: target has shape [1, 1, 1], expected [3]", || sum(&[1], floats(&[1, 1, 1])));
    refused("reduce: dims are [1, 1]", || sum(&[1, 1], floats(&[3])));
    refused("reduce: dims are [2]", || sum(&[2], floats(&[3, 4])));
    refused("argmax: target has shape [4], expected [3]", || argmax(x.view(), 1, indices(&[4]).target()));
    refused("argmax: dim is 2", || argmax(x.view(), 2, indices(&[3, 4]).target()));
    refused("argmax: dimension 0 of [0, 4] is empty", || argmax(floats(&[0, 4]).view(), 0, indices(&[4]).target()));
    refused("cumsum: target has shape [2, 4], expected [3, 4]", || cumsum(x.view(), 1, floats(&[2, 4]).target()));
    refused("cummax: indices has shape [3, 3], expected [3, 4]", || {
        cummax(x.view(), 1, floats(&[3, 4]).target(), indices(&[3, 3]).target());
    });
    refused("linear_scan: second has shape [3, 3], expected [3, 4]", || {
        linear_scan(x.view(), floats(&[3, 3]).view(), 1, floats(&[3, 4]).target());
    });
    refused("log_path_sums: skips has shape [2, 3], expected [2, 4]", || {
        let (rows, skips) = (floats(&[2, 3, 4]), Numbers::<u8>::new(&[2, 3]));
        log_path_sums(rows.view(), skips.view(), floats(&[2, 3, 4]).target());
    });
    refused("searchsorted: sorted has shape [2, 4], values [3, 4]", || {
        searchsorted(floats(&[2, 4]).view(), x.view(), true, indices(&[3, 4]).target());
    });
    refused("searchsorted: target has shape [3], expected [3, 4]", || {
        searchsorted(floats(&[4]).view(), x.view(), true, indices(&[3]).target());
    });
    refused("cumsum: dim is 7", || cumsum(x.view(), 7, floats(&[3, 4]).target()));
    let best = |k: [usize; 2], of: [usize; 2]| topk(x.view(), 1, true, floats(&k).target(), indices(&of).target());
    refused("topk: 5 elements are wanted of 4", || best([3, 5], [3, 5]));
    refused("topk: indices has shape [3, 1], expected [3, 2]", || best([3, 2], [3, 1]));
    refused("topk: values has shape [2, 2], expected [3, 2]", || best([2, 2], [3, 2]));
}

#[test]
fn indexing() {
    let (x, at) = (floats(&[3, 4]), indices(&[2]));
    let run =
        |dim, index: &Numbers<i64>, mut target: Numbers<f32>| gather(x.view(), dim, index.view(), target.target());
    refused("gather: target has shape [2, 4], expected [2, 3]", || run(0, &indices(&[2, 3]), floats(&[2, 4])).unwrap());
    refused("gather: index has shape [2, 5], which is larger", || run(0, &indices(&[2, 5]), floats(&[2, 5])).unwrap());
    refused("gather: index has shape [2], which is larger", || run(0, &at, floats(&[2])).unwrap());
    refused("gather: dim is 2", || run(2, &indices(&[2, 3]), floats(&[2, 3])).unwrap());
    refused("gather: target is i64, expected f32", || {
        gather(x.view(), 0, indices(&[3, 4]).view(), indices(&[3, 4]).target()).unwrap();
    });
    let select = |dim, index: &Numbers<i64>, mut target: Numbers<f32>| {
        index_select(x.view(), dim, index.view(), target.target()).unwrap();
    };
    refused("index_select: target has shape [3, 4], expected [2, 4]", || select(0, &at, floats(&[3, 4])));
    refused("index_select: index has shape [2, 1], expected 1 dimensions", || {
        select(0, &indices(&[2, 1]), floats(&[2, 4]))
    });
    refused("index_select: dim is 2", || select(2, &at, floats(&[3, 4])));
    let mut target = floats(&[3, 4]);
    refused("index_add: source has shape [3, 4], expected [2, 4]", || {
        index_add(target.target(), 0, at.view(), x.view()).unwrap()
    });
    refused("scatter_add: index has shape [4, 4], which is larger than source", || {
        scatter_add(target.target(), 0, indices(&[4, 4]).view(), x.view()).unwrap();
    });
    refused("scatter_add: index has shape [3, 4], which is larger than target", || {
        scatter_add(floats(&[3, 2]).target(), 0, indices(&[3, 4]).view(), x.view()).unwrap();
    });
    refused("scatter: source has shape [3, 4], expected [2, 4]", || {
        scatter(target.target(), 0, indices(&[2, 4]).view(), x.view()).unwrap();
    });
    refused("scatter: index has shape [3, 4], which is larger than target", || {
        scatter(floats(&[3, 2]).target(), 0, indices(&[3, 4]).view(), x.view()).unwrap();
    });
}

#[test]
fn products() {
    let run = |left: &[usize], right: &[usize], target: &[usize]| {
        matmul(floats(left).view(), floats(right).view(), floats(target).target(), false);
    };
    refused("matmul: right has shape [5, 3], expected [4, 3]", || run(&[2, 4], &[5, 3], &[2, 3]));
    refused("matmul: left has shape [2, 4], expected [3, 4]", || run(&[2, 4], &[4, 3], &[3, 3]));
    refused("matmul: right has shape [4, 3], expected [4, 9]", || run(&[2, 4], &[4, 3], &[2, 9]));
    refused("matmul: left has shape [2, 2, 4], expected [3, 2, 4]", || run(&[2, 2, 4], &[3, 4, 3], &[3, 2, 3]));
    refused("matmul: left has shape [4], expected 2 dimensions", || run(&[4], &[4, 3], &[1, 3]));
    refused("matmul: target has shape [3]", || run(&[1, 4], &[4, 3], &[3]));
    let (left, right) = (indices(&[2, 4]), indices(&[3, 3]));
    refused("matmul: right has shape [3, 3]", || matmul(left.view(), right.view(), indices(&[2, 3]).target(), false));
}

#[test]
fn rows() {
    let x = floats(&[3, 4]);
    refused("softmax: target has shape [3, 1], expected [3, 4]", || softmax(x.view(), floats(&[3, 1]).target()));
    refused("log_softmax: target has shape [4], expected [3, 4]", || log_softmax(x.view(), floats(&[4]).target()));
    let loss = |logits: &[usize], targets: &[usize], losses: &[usize], totals: &[usize]| {
        let (losses, totals) = (&mut floats(losses), &mut floats(totals));
        let targets = indices(targets);
        row::cross_entropy_forward(floats(logits).view(), targets.view(), -1, 0.0, losses.target(), totals.target())
            .unwrap();
    };
    refused("cross_entropy: targets has shape [9], expected [3]", || loss(&[3, 4], &[9], &[3], &[3]));
    refused("cross_entropy: logits has shape [12], expected 2 dimensions", || loss(&[12], &[3], &[3], &[3]));
    refused("cross_entropy_forward: losses has shape [2], expected [3]", || loss(&[3, 4], &[3], &[2], &[3]));
    refused("cross_entropy_forward: log_sum_exp has shape [4]", || loss(&[3, 4], &[3], &[3], &[4]));
    let gradient = |totals: &[usize], scales: &[usize], out: &[usize]| {
        let (totals, scales, targets) = (floats(totals), floats(scales), indices(&[3]));
        let mut out = floats(out);
        let (logits, targets) = (x.view(), targets.view());
        row::cross_entropy_backward(logits, targets, totals.view(), scales.view(), -1, 0.0, out.target()).unwrap();
    };
    refused("cross_entropy_backward: log_sum_exp has shape [1], expected [3]", || gradient(&[1], &[3], &[3, 4]));
    refused("cross_entropy_backward: row_scale has shape [2], expected [3]", || gradient(&[3], &[2], &[3, 4]));
    refused("cross_entropy_backward: d_logits has shape [3, 3], expected [3, 4]", || gradient(&[3], &[3], &[3, 3]));
    let norm = |input: &[usize], weight: &[usize], out: &[usize], mean: &[usize]| {
        let (input, weight) = (floats(input), floats(weight));
        let (mut out, mut mean, mut deviation) = (floats(out), floats(mean), floats(&[3]));
        let (mean, deviation) = (mean.target(), deviation.target());
        row::layer_norm_forward(input.view(), Some(weight.view()), None, 1e-5, out.target(), mean, deviation);
    };
    refused("row: a value per column has shape [2], expected [4]", || norm(&[3, 4], &[2], &[3, 4], &[3]));
    refused("layer_norm_forward: output has shape [2, 4]", || norm(&[3, 4], &[4], &[2, 4], &[3]));
    refused("layer_norm_forward: mean has shape [1], expected [3]", || norm(&[3, 4], &[4], &[3, 4], &[1]));
    refused("layer_norm_forward: input has shape [12]", || norm(&[12], &[4], &[12], &[3]));
    let backward = |d_output: &[usize], mean: &[usize], d_input: &[usize], d_weight: &[usize]| {
        let (d_output, mean, deviation) = (floats(d_output), floats(mean), floats(&[3]));
        let (mut d_input, mut d_weight) = (floats(d_input), floats(d_weight));
        let gradients = (Some(d_input.target()), Some(d_weight.target()));
        let statistics = (mean.view(), deviation.view());
        row::layer_norm_backward(
            d_output.view(),
            x.view(),
            None,
            statistics.0,
            statistics.1,
            gradients.0,
            gradients.1,
            None,
        );
    };
    refused("layer_norm_backward: d_output has shape [2, 4]", || backward(&[2, 4], &[3], &[3, 4], &[4]));
    refused("layer_norm_backward: mean has shape [2]", || backward(&[3, 4], &[2], &[3, 4], &[4]));
    refused("layer_norm_backward: d_input has shape [3, 3]", || backward(&[3, 4], &[3], &[3, 3], &[4]));
    refused("layer_norm_backward: d_weight has shape [3]", || backward(&[3, 4], &[3], &[3, 4], &[3]));
}

#[test]
fn no_check_is_a_debug_assertion() {
    fn look(folder: &std::path::Path, files: &mut usize, found: &mut Vec<String>) {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                look(&path, files, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                *files += 1;
                // Not `cfg!(debug_assertions)`, which says how the library was built.
                if text.contains("debug_assert!") || text.contains("debug_assert_") {
                    found.push(path.display().to_string());
                }
            }
        }
    }
    let (mut files, mut found) = (0, Vec::new());
    look(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files, &mut found);
    assert!(files > 50 && found.is_empty(), "{files} files; debug assertions are off in release builds: {found:?}");
}
