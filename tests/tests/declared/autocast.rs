//! What autocast makes of operators that declare nothing, of functions and their gradients, and what it refuses.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::{Arg, Attribute};
use fulgurite_runtime::compile::{Options, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::{BoundSymbol, Callee, Trace};
use fulgurite_runtime::transforms::autocast::autocast;
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, TensorMeta, jit, tracer};

/// `relu(input · weightᵀ)`, of a crate that knows nothing of mixed precision.
#[operator]
pub mod layer {
    fn layer(input: Tensor<Floating>, weight: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor, weight: Tensor) -> Tensor {
        super::relu(super::linear(input, weight)) * 2.0
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([3, 8])));
    }
}

/// The same, to be kept as it is.
#[operator(autocast = keep)]
pub mod kept_layer {
    fn kept_layer(input: Tensor<Floating>, weight: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor, weight: Tensor) -> Tensor {
        super::layer(input, weight)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([3, 8])));
    }
}

fn meta(shape: &[usize], dtype: DType) -> TensorMeta {
    TensorMeta::new(shape, dtype, Device::CPU)
}

/// The trace of `f` of f32 tensors x [4, 8] and w [3, 8].
fn acquired(f: impl FnOnce(Tensor, Tensor) -> Tensor) -> Trace {
    acquired_in(DType::F32, f)
}

fn acquired_in(dtype: DType, f: impl FnOnce(Tensor, Tensor) -> Tensor) -> Trace {
    let names = Names { arguments: vec!["x".into(), "w".into()], results: vec!["out".into()] };
    let metas = (meta(&[4, 8], dtype), meta(&[3, 8], dtype));
    trace("f", Target::cpu(), &names, metas, |(x, w)| f(x, w)).unwrap().0
}

fn mixed(trace: &Trace) -> Trace {
    let mixed = autocast(trace, DType::BF16).unwrap();
    mixed.verify().unwrap_or_else(|error| panic!("{error}\n{mixed}"));
    assert_eq!(autocast(&mixed, DType::BF16).unwrap().block, mixed.block, "once more changes\n{mixed}");
    mixed
}

fn lines<'a>(trace: &'a Trace, name: &str) -> Vec<&'a BoundSymbol> {
    trace.block.symbols.iter().filter(|line| line.name() == name).collect()
}

/// The types that the only line of an operator reads and gives.
fn types(trace: &Trace, name: &str) -> (Vec<DType>, DType) {
    let [line] = lines(trace, name)[..] else { panic!("{name} is no line, or several, of\n{trace}") };
    let of = |id: &fulgurite_runtime::trace::ValueId| trace.block.meta(*id).dtype();
    (line.operands().map(|id| of(&id)).collect(), of(&line.results[0]))
}

const LOW: DType = DType::BF16;
const FULL: DType = DType::F32;

#[test]
fn classes_decide_and_results_keep_their_type() {
    let trace = mixed(&acquired(|x, w| softmax(gelu(linear(x, w)), -1)));
    assert_eq!(types(&trace, "linear"), (vec![LOW, LOW], LOW));
    assert_eq!(types(&trace, "gelu"), (vec![LOW], LOW));
    // It is told to give f32; no f32 copy of its input is written.
    assert_eq!(types(&trace, "softmax"), (vec![LOW], FULL));
    assert_eq!(lines(&trace, "softmax")[0].arguments[2], Arg::Attribute(Attribute::DType(FULL)));
    assert_eq!(lines(&trace, "prims::convert_element_type").len(), 2, "{trace}");

    let trace = mixed(&acquired(|x, w| exp(linear(x, w))));
    assert_eq!(types(&trace, "exp"), (vec![FULL], FULL));
    // The result of the function is converted back.
    let trace = mixed(&acquired(linear));
    assert_eq!(types(&trace, "linear"), (vec![LOW, LOW], LOW));
    assert_eq!(trace.block.meta(trace.block.results[0]).dtype(), FULL);
}

#[test]
fn what_declares_nothing_follows_its_own_promotion_or_meets_in_the_widest() {
    // The residual stream stays f32.
    let trace = mixed(&acquired(|x, w| linear(x, w) + sum(x)));
    assert_eq!(types(&trace, "add"), (vec![LOW, FULL], LOW));
    let trace = mixed(&acquired(|x, w| linear(x, w) + linear(x, w).to(FULL)));
    assert_eq!(types(&trace, "add"), (vec![LOW, FULL], FULL));
    // A prim takes operands of one type alone.
    let trace = mixed(&acquired(|x, w| prims::add(linear(x, w), exp(linear(x, w)))));
    assert_eq!(types(&trace, "prims::add"), (vec![FULL, FULL], FULL));
    let trace = mixed(&acquired(|x, w| prims::add(linear(x, w), linear(x, w))));
    assert_eq!(types(&trace, "prims::add"), (vec![LOW, LOW], LOW));
}

#[test]
fn an_operator_that_holds_products_is_opened_unless_it_says_keep() {
    let trace = mixed(&acquired(layer));
    assert!(lines(&trace, "layer").is_empty(), "{trace}");
    assert_eq!(types(&trace, "linear"), (vec![LOW, LOW], LOW));
    assert_eq!(types(&trace, "relu"), (vec![LOW], LOW));
    let trace = mixed(&acquired(kept_layer));
    assert_eq!(types(&trace, "kept_layer"), (vec![FULL, FULL], FULL));
    assert_eq!(lines(&trace, "prims::convert_element_type").len(), 0, "{trace}");
}

#[test]
fn other_types_and_types_asked_for_are_left_alone() {
    let written = acquired_in(DType::F64, |x, w| exp(linear(x, w)));
    assert_eq!(mixed(&written).block, written.block);
    let written = acquired(|x, w| x.to(DType::I64).matmul(w.to(DType::I64).transpose(0, 1)));
    assert_eq!(mixed(&written).block, written.block);
    let trace = mixed(&acquired(|x, w| softmax::with(linear(x, w), -1).dtype(DType::F64).call()));
    assert_eq!(types(&trace, "softmax"), (vec![LOW], DType::F64));
    let trace = mixed(&acquired(|x, w| linear(x, w).to(DType::F64)));
    assert_eq!(types(&trace, "to"), (vec![LOW], DType::F64));
    // A product with f64 is one of f64, as it was written.
    let both = acquired(|x, w| linear(x.to(DType::F64), w.to(DType::F64)));
    assert_eq!(types(&mixed(&both), "linear"), (vec![DType::F64; 2], DType::F64));
}

#[test]
fn gradients_of_f32_weights_are_f32_and_a_weight_is_converted_once() {
    let written = acquired(|x, w| {
        let (loss, gradient) = tracer::value_and_grad(w, |w| mean(linear(x, *w) * gelu(linear(x * 2.0, *w))));
        gradient * loss
    });
    let trace = mixed(&written);
    let Some(line) = trace.block.symbols.iter().find(|line| matches!(line.callee, Callee::ValueAndGrad { .. })) else {
        panic!("no gradient is taken in\n{trace}")
    };
    let body = line.body.as_ref().unwrap();
    let converted = |block: &fulgurite_runtime::trace::Block| {
        let of_weight = |line: &&BoundSymbol| {
            line.name() == "prims::convert_element_type" && line.operands().any(|id| &*block.value(id).name == "w")
        };
        block.symbols.iter().filter(of_weight).count()
    };
    assert_eq!(converted(body), 2, "each use converts, so that gradients are added in f32\n{trace}");
    let options = Options { autocast: Some(LOW), verify: true, ..Options::default() };
    let stages = stages(written, &options).unwrap();
    let of = |name: &str| &stages.iter().find(|stage| stage.name == name).unwrap().trace;
    assert_eq!(converted(&of("autodiff").block), 2);
    assert_eq!(converted(&of("cse").block), 1, "{}", of("cse"));
    let sums = of("cse").block.symbols.iter().filter(|line| line.name() == "add");
    let wide: Vec<DType> = sums.map(|line| of("cse").block.meta(line.results[0]).dtype()).collect();
    assert!(wide.contains(&FULL), "the weight's two gradients meet in f32\n{}", of("cse"));
}

#[test]
fn what_cannot_be_is_refused() {
    let written = acquired(linear);
    let refused = |trace: &Trace, dtype| autocast(trace, dtype).unwrap_err().to_string();
    assert!(
        refused(&written, DType::F32).contains("'autocast': is f32, expected bf16 or f16"),
        "{}",
        refused(&written, FULL)
    );
    let joint =
        fulgurite_runtime::transforms::vjp(&written, &[0, 1], &Options::default().executor_list("cpu")).unwrap();
    assert!(refused(&joint, LOW).contains("before autodiff"), "{}", refused(&joint, LOW));
    let options = Options { autocast: Some(LOW), ..Options::default() };
    let error = stages(joint, &options).unwrap_err().to_string();
    assert!(error.contains("has been through 'vjp'"), "{error}");
    // Converted, it would change a copy.
}

#[test]
fn the_type_is_part_of_the_key_of_compiled_functions() {
    let arguments = || (Array::new([1, 2], &[1.0_f32, 1.0]).unwrap(), Array::new([1, 2], &[1.0_f32, 2e-3]).unwrap());
    let f = jit(|(x, w): (Tensor, Tensor)| linear(x, w));
    assert_eq!(f.call(arguments()).unwrap().to_vec::<f32>().unwrap(), [1.002]);
    // 1.002 rounds to 1 in bf16.
    let f = f.options(Options { autocast: Some(LOW), ..Options::default() });
    assert_eq!(f.call(arguments()).unwrap().to_vec::<f32>().unwrap(), [1.0]);
    assert_eq!(f.compiles(), 2);
    assert!(f.compile(&arguments()).unwrap().stage("autocast").is_some());
    let f = f.options(Options::default());
    assert_eq!(f.call(arguments()).unwrap().to_vec::<f32>().unwrap(), [1.002]);
    // Options begin anew: a program is that of the options it was compiled with.
    assert_eq!(f.compiles(), 3);
}

#[test]
fn a_stored_trace_is_not_taken_through_it_twice() {
    let trace = mixed(&acquired(linear));
    let options = Options { autocast: Some(LOW), verify: true, ..Options::default() };
    let names: Vec<String> = stages(trace, &options).unwrap().into_iter().map(|stage| stage.name).collect();
    assert_eq!(names.iter().filter(|name| *name == "autocast").count(), 1, "{names:?}");
}

#[test]
fn products_are_of_f16_where_that_is_asked_for() {
    // 1 + 2^-9 is a number of f16 and not of bf16; 1 + 2^-12 is of neither.
    let (fine, finer) = (1.0 + 2f64.powi(-9), 1.0 + 2f64.powi(-12));
    let array = |values: &[f64]| Array::from_f64([1, 2], DType::F32, values).unwrap();
    let run = |low: Option<DType>| {
        let function = jit(|(input, weight): (Tensor, Tensor)| linear(input, weight))
            .options(Options { autocast: low, ..Options::default() });
        let inputs = (array(&[fine, finer]), array(&[1.0, 1.0]));
        let compiled = function.compile(&inputs).unwrap();
        let types: Vec<DType> = compiled.stage("autocast").map_or_else(Vec::new, |trace| {
            let block = &trace.block;
            let line = block.symbols.iter().find(|line| line.name() == "linear").unwrap();
            line.operands().chain(line.results.iter().copied()).map(|id| block.meta(id).dtype()).collect()
        });
        (types, function.call(inputs).unwrap().to_f64().unwrap()[0])
    };
    assert_eq!(run(Some(DType::F16)), (vec![DType::F16; 3], fine + 1.0));
    assert_eq!(run(Some(DType::BF16)), (vec![DType::BF16; 3], 2.0));
    assert_eq!(run(None), (Vec::new(), fine + finer));
}

/// Log-probabilities of before come from the same products: where nothing has changed since, each ratio is one.
#[test]
fn log_probabilities_that_are_given_stay_as_they_are() {
    let f = jit(|(input, weight, tokens, mask, advantages, old): (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)| {
        fused_linear_grpo(input, weight, tokens, mask, advantages, old)
    })
    .options(Options { autocast: Some(DType::BF16), ..Options::default() });
    let numbers = |count: usize, by: usize| -> Vec<f32> { (0..count).map(|i| (i * by % 13) as f32 - 6.0).collect() };
    let call = |old: &Array| {
        let [input, weight] = [(Vec::from([2, 3, 4]), 7), (Vec::from([5, 4]), 5)];
        let of = |(shape, by): (Vec<usize>, usize)| Array::new(shape.clone(), &numbers(shape.iter().product(), by));
        let tokens = Array::new([2, 3], &[0i64, 4, 1, 2, 3, 0]).unwrap();
        let mask = Array::from_f64([2, 3], DType::Bool, &[1.0; 6]).unwrap();
        let advantages = Array::new([2], &[1.0_f32, -0.25]).unwrap();
        f.call((of(input).unwrap(), of(weight).unwrap(), tokens, mask, advantages, old.clone())).unwrap()
    };
    let (_, log_p) = call(&Array::new([2, 3], &[0.0_f32; 6]).unwrap());
    let loss = call(&log_p).0.to_vec::<f32>().unwrap()[0];
    assert!((loss + 0.375).abs() < 1e-6, "{loss}");
}

#[test]
fn weights_of_classes_are_not_rounded_with_the_logits() {
    let classes = |count: usize| (meta(&[count], DType::I64), meta(&[3], DType::F32));
    let names = || Names { arguments: ["x", "w", "classes", "weights"].map(Into::into).into(), results: Vec::new() };
    let (target, weights) = classes(4);
    let metas = (meta(&[4, 8], DType::F32), meta(&[3, 8], DType::F32), target, weights);
    let fused = |(x, w, classes, weights): (Tensor, Tensor, Tensor, Tensor)| {
        fulgurite_ops::nn::fused_linear_cross_entropy::with(x, w, classes).ce_weight(weights).call()
    };
    let program = mixed(&trace("f", Target::cpu(), &names(), metas, fused).unwrap().0);
    let name = "fused_linear_cross_entropy";
    assert_eq!(types(&program, name), (vec![LOW, LOW, DType::I64, FULL], FULL), "{program}");

    // The logits of a product in bf16 keep the weights company in the losses as well.
    let of = |loss: fn(Tensor, Tensor, Tensor) -> Tensor, name: &str| {
        let (target, weights) = classes(4);
        let metas = (meta(&[4, 8], DType::F32), meta(&[3, 8], DType::F32), target, weights);
        let f = |(x, w, classes, weights): (Tensor, Tensor, Tensor, Tensor)| loss(linear(x, w), classes, weights);
        let program = mixed(&trace("f", Target::cpu(), &names(), metas, f).unwrap().0);
        types(&program, name).0
    };
    let losses = |x, classes, weights| class_losses::with(x, classes).weight(weights).call();
    assert_eq!(of(losses, "class_losses"), [LOW, DType::I64, FULL]);
    let reduced = |x, classes, weights| cross_entropy::with(x, classes).weight(weights).call();
    assert_eq!(of(reduced, "cross_entropy"), [FULL, DType::I64, FULL]);
}
