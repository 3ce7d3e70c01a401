//! Models whose loss is computed in chunks of logits: the numbers of whole logits but for rounding, in less memory.

use fulgurite_models::config::Parameter;
use fulgurite_models::decoder::DecoderConfig;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::step::{BatchTensors, loss_and_gradients};
use fulgurite_models::traces::{loss_trace, step_trace};
use fulgurite_models::{ActivationCheckpointing, Dropout, GptConfig, Logits, Model, Parameters};
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, compile, stages};
use fulgurite_runtime::testing::samples::Random;
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, DType, Target, jit};

const VOCABULARY: usize = 61;
const ROWS: usize = 5;
const CONTEXT: usize = 8;

const LAYERS: usize = 2;
/// Chunks have 8 positions, half the width, so that there are five of them.
const WIDTH: usize = 16;

fn models() -> Vec<(&'static str, Box<dyn Model>)> {
    let llama = |set: &[&str]| -> Box<dyn Model> {
        let mut config = DecoderConfig::named("nano", VOCABULARY).unwrap();
        let small = ["block_size=8", "n_embd=16", "n_head=2", "n_query_groups=1", "intermediate_size=24"];
        config.set(&format!("n_layer={LAYERS}")).unwrap();
        small.iter().chain(set).for_each(|field| config.set(field).unwrap());
        config.validate().unwrap();
        Box::new(config)
    };
    let gpt2 = GptConfig {
        vocabulary: VOCABULARY,
        context: CONTEXT,
        layers: LAYERS,
        heads: 2,
        channels: WIDTH,
        dropout: 0.1,
        ..GptConfig::GPT2
    };
    vec![
        ("gpt2", Box::new(gpt2)),
        ("llama", llama(&[])),
        ("llama with a bias and a cap", llama(&["lm_head_bias=true", "final_logit_softcapping=1.5"])),
        ("tied llama", llama(&["tie_embeddings=true"])),
    ]
}

/// Numbers of these shapes that bf16 has, so that they are the same in every type.
fn parameters(model: &dyn Model, dtype: DType) -> Parameters<Array> {
    let mut random = Random::new(7);
    let mut make = |Parameter { shape, .. }: &Parameter| {
        let values: Vec<f64> = (0..shape.iter().product()).map(|_| 0.3 * random.normal()).collect();
        Array::from_f64(shape, dtype, &Array::from_f64(shape, DType::BF16, &values)?.to_f64()?)
    };
    Parameters::build(&model.parameters(), &mut make).unwrap()
}

/// Of the targets some do not count.
fn batch() -> BatchTensors<Array> {
    let mut random = Random::new(11);
    let mut ids = || -> Vec<i64> { (0..ROWS * CONTEXT).map(|_| (random.next() % VOCABULARY as u64) as i64).collect() };
    let (tokens, mut targets) = (ids(), ids());
    targets.iter_mut().skip(3).step_by(7).for_each(|target| *target = -100);
    let array = |ids: &[i64]| Array::new([ROWS, CONTEXT], ids).unwrap();
    BatchTensors::of_tokens(array(&tokens), array(&targets))
}

type Arguments<T> = (Parameters<T>, BatchTensors<T>, T);

/// The loss, that of the same batch without gradients and dropout, and all gradients, by name.
fn numbers(model: &dyn Model, logits: Logits, dtype: DType, options: &Options) -> Vec<(String, Vec<f64>)> {
    let arguments: Arguments<Array> = (parameters(model, dtype), batch(), Array::new([2], &[5_i64, 0]).unwrap());
    let both = jit(|(params, batch, generator): Arguments<Tensor>| {
        logits.within(|| {
            let alone = model.loss(&params, batch.inputs, batch.targets, &Dropout::none());
            let (loss, gradients) = loss_and_gradients(model, params, &Parameters::none(), &batch, generator);
            (alone, loss, gradients)
        })
    });
    let (alone, loss, gradients): (Array, Array, Parameters<Array>) =
        both.options(options.clone()).call(arguments).unwrap();
    let losses = [("validation loss".to_owned(), &alone), ("loss".to_owned(), &loss)];
    losses.into_iter().chain(gradients.leaves()).map(|(name, array)| (name, array.to_f64().unwrap())).collect()
}

/// Both ways differ in the order of three sums: over positions (the mean and the gradient of the layer's weight), over
/// classes (the log-sum-exp and the gradient of the hidden states) and over the width (a logit). A sum of n terms is
/// off by n units of rounding at most, and what follows keeps that in proportion. In bf16 each product on the way back
/// rounds its result, at different numbers once the first differ: two at the layer, and six of each block.
#[test]
fn losses_and_gradients_agree() {
    let (terms, products) = ((ROWS * CONTEXT + VOCABULARY + WIDTH) as f64, (2 + 6 * LAYERS) as f64);
    for (dtype, autocast, tolerance) in [
        (DType::F64, None, terms * (-53_f64).exp2()),
        (DType::F32, None, terms * (-24_f64).exp2()),
        (DType::F32, Some(DType::BF16), 2.0 * products * (-9_f64).exp2()),
        (DType::BF16, None, 2.0 * products * (-9_f64).exp2()),
    ] {
        let options = Options { autocast, verify: true, ..Options::default() };
        for (name, model) in models() {
            let [whole, chunked] = Logits::ALL.map(|logits| numbers(&*model, logits, dtype, &options));
            for ((what, whole), (_, chunked)) in whole.iter().zip(&chunked) {
                let most = whole.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
                let off = whole.iter().zip(chunked).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                let of = format!("{name} in {dtype} with autocast {autocast:?}, {what}");
                assert!(most > 1e-3, "{of}: nothing above {most}");
                assert!(off <= tolerance * most, "{of}: {off:e} off, of {most:e}");
            }
            assert_ne!(whole, chunked, "{name} in {dtype}: both are computed in the same way");
        }
    }
}

/// The loss of a batch, or a training step, on a target.
fn program(model: &dyn Model, logits: Logits, dtype: DType, rows: usize, step: bool, target: &str) -> Trace {
    let batch = [rows, model.context()];
    let trace = logits.within(|| match step {
        true => step_trace(model, &OptimizerSettings::default(), (dtype, None), batch),
        false => loss_trace(model, dtype, batch),
    });
    let target: Target = target.parse().unwrap();
    if target == Target::cpu() { trace.unwrap() } else { retarget(&trace.unwrap(), &target) }
}

#[test]
fn a_program_in_chunks_never_has_all_logits_and_needs_less_memory() {
    const ROWS: usize = 8;
    let gpt2 = GptConfig::named("nano", 50257).unwrap();
    let mut llama = DecoderConfig::named("nano", 50257).unwrap();
    llama.set("n_embd=32").unwrap();
    let models: [(&str, &dyn Model); 2] = [("gpt2", &gpt2), ("llama", &llama)];
    for (name, model) in models {
        let elements = ROWS * model.context() * model.vocabulary();
        for (dtype, autocast) in [(DType::F32, None), (DType::F32, Some(DType::BF16)), (DType::BF16, None)] {
            let options = Options { autocast, verify: false, ..Options::default() };
            for target in ["cuda:sm_90a", "cpu"] {
                for step in [true, false] {
                    let [whole, chunked] = Logits::ALL.map(|logits| {
                        let trace = program(model, logits, dtype, ROWS, step, target);
                        let (program, stages) = compile(trace, &options).unwrap();
                        let values = &stages.last().unwrap().trace.block.values;
                        let largest = values.iter().map(|value| value.meta.len()).max().unwrap();
                        assert_eq!(largest >= elements, logits == Logits::Whole, "{name}, {logits}: {largest}");
                        program.memory().peak()
                    });
                    let of = format!("{name} {dtype} {autocast:?} for {target}, a step: {step}");
                    assert!(chunked < whole, "{of}: {chunked} and {whole} bytes");
                }
            }
        }
    }
}

/// The chunks are outside of the blocks, which a backward pass computes again.
#[test]
fn checkpointed_blocks_leave_the_loss_as_it_is() {
    for (name, model) in models() {
        let [kept, again] = [ActivationCheckpointing::None, ActivationCheckpointing::Blocks].map(|checkpointing| {
            checkpointing.within(|| numbers(&*model, Logits::Chunked, DType::F32, &Options::default()))
        });
        assert_eq!(kept, again, "{name}");
    }
}

/// Autocast converts the layer's weight once, and not each chunk's.
#[test]
fn the_weight_is_converted_once() {
    let (_, model) = models().swap_remove(0);
    let options = Options { autocast: Some(DType::BF16), verify: true, ..Options::default() };
    let trace = program(&*model, Logits::Chunked, DType::F32, ROWS, true, "cpu");
    let stages = stages(trace, &options).unwrap();
    let trace = &stages.iter().find(|stage| stage.name == "cse").unwrap().trace;
    let of_weight = |line: &&fulgurite_runtime::trace::BoundSymbol| {
        line.name() == "prims::convert_element_type"
            && line.operands().all(|id| &*trace.block.value(id).name == "state.params.wte.weight")
    };
    assert_eq!(trace.block.symbols.iter().filter(of_weight).count(), 1, "{trace}");
}
