//! Training in mixed precision with copies of the weights in 16 bits: the same bits as without, and nothing converted.

use fulgurite_executors as _;
use fulgurite_models::config::{GptConfig, Parameter};
use fulgurite_models::decoder::DecoderConfig;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::step::{BatchTensors, StepScalars, TrainState, accumulate_step, train_step};
use fulgurite_models::traces::step_trace;
use fulgurite_models::train::{initial_parameters, step_scalars, zeros};
use fulgurite_models::{ActivationCheckpointing, Model, Parameters, rounded_copies};
use fulgurite_runtime::compile::{Options, Stage, stages};
use fulgurite_runtime::trace::{BoundSymbol, Callee, Storage, print_symbol};
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, DType, Device, Tensor, jit};

const CONFIG: GptConfig =
    GptConfig { vocabulary: 61, context: 8, layers: 2, heads: 2, channels: 16, dropout: 0.1, ..GptConfig::GPT2 };

fn llama() -> DecoderConfig {
    DecoderConfig { n_layer: 2, ..DecoderConfig::named("nano", 61).unwrap() }
}

fn models() -> [Box<dyn Model>; 2] {
    [Box::new(CONFIG), Box::new(llama())]
}

fn in_bf16() -> Options {
    Options { autocast: Some(DType::BF16), verify: true, ..Options::default() }
}

fn batch(number: usize) -> BatchTensors<Array> {
    let ids = |shift: usize| -> Vec<i64> { (0..16).map(|i| ((i * 7 + number * 3 + shift) % 50) as i64).collect() };
    BatchTensors::of_tokens(Array::new([2, 8], &ids(0)).unwrap(), Array::new([2, 8], &ids(1)).unwrap())
}

fn state(model: &dyn Model, copied: bool) -> TrainState<Array> {
    let params = initial_parameters(model, 3).unwrap();
    let moments = || zeros(model, DType::F32, Device::CPU).unwrap();
    let copies = rounded_copies(model, &params, copied.then_some(DType::BF16)).unwrap();
    TrainState { params, exp_avg: moments(), exp_avg_sq: moments(), copies, buffers: Parameters::none() }
}

fn bits(tree: &impl Tree<Leaf = Array>) -> Vec<Vec<u8>> {
    tree.leaves().into_iter().map(|(_, array)| array.to_bytes().unwrap()).collect()
}

/// The losses of five steps, and the state after them.
fn five_steps(model: &dyn Model, copied: bool, options: Options) -> (Vec<Vec<u8>>, TrainState<Array>) {
    let optimizer = OptimizerSettings::default();
    let step = jit(|(state, batch, scalars): (TrainState<Tensor>, BatchTensors<Tensor>, StepScalars<Tensor>)| {
        train_step(model, &optimizer, state, batch, scalars)
    })
    .donate("arg0")
    .options(options);
    let mut state = state(model, copied);
    let mut losses = Vec::new();
    for number in 0..5 {
        let scalars = step_scalars(1e-2, number as u64 + 1, 0).unwrap();
        let (next, loss, _) = step.call((state, batch(number), scalars)).unwrap();
        state = next;
        losses.push(loss.to_bytes().unwrap());
    }
    (losses, state)
}

#[test]
fn copies_change_no_bit() {
    for model in models() {
        let (losses, state) = five_steps(&*model, true, in_bf16());
        let (expected, without) = five_steps(&*model, false, in_bf16());
        assert_eq!(losses, expected);
        assert_eq!(bits(&state.params), bits(&without.params));
        assert!(!state.copies.is_empty());
        let rounded = rounded_copies(&*model, &state.params, Some(DType::BF16)).unwrap();
        assert_eq!(bits(&state.copies), bits(&rounded), "the copies are the rounded parameters");
        let without_rewrites = Options { rewrites: Some(Vec::new()), ..in_bf16() };
        assert_eq!(
            five_steps(&*model, true, without_rewrites.clone()).0,
            five_steps(&*model, false, without_rewrites).0
        );
    }
}

#[test]
fn products_read_the_copies() {
    // What is written to a copy is what a step sees, and so what it computes with.
    let mut changed = state(&CONFIG, true);
    let of = |state: TrainState<Array>| {
        let optimizer = OptimizerSettings::default();
        let step = jit(|(state, batch, scalars): (TrainState<Tensor>, BatchTensors<Tensor>, StepScalars<Tensor>)| {
            train_step(&CONFIG, &optimizer, state, batch, scalars)
        })
        .options(in_bf16());
        step.call((state, batch(0), step_scalars(1e-2, 1, 0).unwrap())).unwrap().1.item().unwrap()
    };
    let before = of(changed.clone());
    for parameter in CONFIG.parameters().iter().filter(|parameter| parameter.is_linear) {
        let copy = changed.copies.get_mut(&parameter.name).unwrap();
        let values: Vec<f64> = copy.to_f64().unwrap().iter().map(|value| value * 2.0 + 0.25).collect();
        let other = Array::from_f64(copy.shape(), copy.dtype(), &values).unwrap();
        let original = std::mem::replace(copy, other);
        let after = of(changed.clone());
        // A constant that is added to all keys changes no weight of attention; the others' part of this bias does.
        assert_ne!(after.to_bits(), before.to_bits(), "{} is not read", parameter.name);
        *changed.copies.get_mut(&parameter.name).unwrap() = original;
    }
}

fn stage<'a>(stages: &'a [Stage], name: &str) -> &'a Stage {
    stages.iter().find(|stage| stage.name == name).unwrap_or_else(|| panic!("there is no stage {name}"))
}

/// The conversions of values of this name.
fn conversions(stage: &Stage, name: &str) -> usize {
    let block = &stage.trace.block;
    let reads = |line: &&BoundSymbol| {
        line.name() == "prims::convert_element_type" && line.operands().all(|id| &*block.value(id).name == name)
    };
    block.symbols.iter().filter(reads).count()
}

#[test]
fn no_parameter_is_converted_that_has_a_copy() {
    for checkpointing in [ActivationCheckpointing::None, ActivationCheckpointing::Blocks] {
        for model in models() {
            let trace = || step_trace(&*model, &OptimizerSettings::default(), (DType::F32, Some(DType::BF16)), [2, 8]);
            let trace = checkpointing.within(trace).unwrap();
            let made = stages(trace, &in_bf16()).unwrap();
            for Parameter { name, is_linear, .. } in model.parameters() {
                // There every `with_copy` that is left has become the parameter.
                let count = conversions(stage(&made, "claim"), &format!("state.params.{name}"));
                assert!(!is_linear || count == 0, "{name} in\n{}", stage(&made, "claim").trace);
            }
            let left =
                |stage: &Stage| stage.trace.block.symbols.iter().filter(|line| line.name() == "with_copy").count();
            assert_eq!(left(stage(&made, "late_rewrite")), 0, "{}", stage(&made, "late_rewrite").trace);
        }
    }
}

#[test]
fn one_kernel_updates_parameters_and_copies_where_they_are() {
    for model in models() {
        let settings = OptimizerSettings::default();
        let trace = step_trace(&*model, &settings, (DType::F32, Some(DType::BF16)), [2, 8]).unwrap();
        let made = stages(retarget(&trace, &"cuda:sm_90a".parse().unwrap()), &in_bf16()).unwrap();
        let fused = &stage(&made, "fuse").trace.block;
        let copies = model.parameters().iter().filter(|parameter| parameter.is_linear).count();
        let region =
            fused.symbols.iter().rev().find(|line| line.callee == Callee::Region { executor: "optim" }).unwrap();
        assert_eq!(region.results.len(), 3 * model.parameters().len() + copies, "{}", print_symbol(fused, region));
        let planned = &stage(&made, "plan_memory").trace;
        for (output, id) in planned.outputs.iter().zip(&planned.block.results) {
            if output.path.starts_with("state.") {
                let value = planned.block.value(*id);
                let Some(Storage::Shared(over)) = value.storage else {
                    panic!("{} has memory of its own", output.path)
                };
                assert_eq!(*planned.block.value(over).name, *output.path);
            }
        }
    }
}

#[test]
fn batches_that_are_added_up_read_the_copies() {
    let accumulate = |copied: bool| {
        type Arguments<T> = ((Parameters<T>, Parameters<T>), Parameters<T>, T, BatchTensors<T>, T);
        let step = jit(|(params, gradients, loss, batch, generator): Arguments<Tensor>| {
            accumulate_step(&CONFIG, 2, params, gradients, loss, batch, generator)
        })
        .options(in_bf16());
        let TrainState { params, copies, exp_avg, .. } = state(&CONFIG, copied);
        let arguments = || {
            let generator = step_scalars(1e-2, 1, 0).unwrap().generator;
            ((params.clone(), copies.clone()), exp_avg.clone(), Array::scalar(0.0_f32), batch(0), generator)
        };
        let compiled = step.compile(&arguments()).unwrap();
        // There every `with_copy` that is left has become the parameter.
        let claimed = compiled.stages().iter().find(|stage| stage.name == "claim").unwrap();
        let converts = |parameter: &Parameter| conversions(claimed, &format!("arg0.0.{}", parameter.name)) > 0;
        let converted = CONFIG.parameters().into_iter().filter(converts).count();
        (converted, bits(&step.call(arguments()).unwrap().0))
    };
    let (converted, found) = accumulate(true);
    let (all, expected) = accumulate(false);
    // The embedding alone, which is read in both types.
    assert_eq!([converted, all], [1, 1 + 8 * CONFIG.layers]);
    assert_eq!(found, expected);
}
