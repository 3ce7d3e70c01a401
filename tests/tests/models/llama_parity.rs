//! One small decoder of each switch follows LitGPT: logits and gradients of a batch, the same logits token by token
//! with a cache, and the losses of ten AdamW steps.
//! The vectors are made by `tests/golden/llama_parity.py`.

use std::collections::BTreeMap;

use fulgurite_models::Decoding;
use fulgurite_models::Dropout;
use fulgurite_models::Parameters;
use fulgurite_models::config::Parameter;
use fulgurite_models::decoder::DecoderConfig;
use fulgurite_models::model::Model;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::step::{BatchTensors, StepScalars, TrainState, loss_and_gradients, train_step};
use fulgurite_models::train::step_scalars;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, DType, Device, Tensor, jit};
use safetensors::SafeTensors;
use serde::Deserialize;
use serde_json::Value;

use crate::device;

/// What the metadata says of the vectors.
#[derive(Deserialize)]
struct Parity {
    cases: BTreeMap<String, BTreeMap<String, Value>>,
}

const STEPS: usize = 10;
const ROWS: usize = 2;
const LENGTH: usize = 12;

fn floats(file: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let view = file.tensor(name).unwrap_or_else(|_| panic!("{name} is in the file"));
    assert_eq!(view.dtype(), safetensors::Dtype::F32, "{name}");
    view.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn batches(file: &SafeTensors<'_>) -> Vec<BatchTensors<Array>> {
    let [tokens, targets] = ["inputs", "targets"].map(|name| -> Vec<i64> {
        let data = file.tensor(name).unwrap();
        data.data().chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect()
    });
    let of =
        |all: &[i64], i: usize| Array::new([ROWS, LENGTH], &all[i * ROWS * LENGTH..(i + 1) * ROWS * LENGTH]).unwrap();
    (0..STEPS).map(|i| BatchTensors::of_tokens(of(&tokens, i), of(&targets, i))).collect()
}

/// LitGPT's default configuration, which is Pythia's, with the fields of a case.
fn configured(fields: &BTreeMap<String, Value>) -> DecoderConfig {
    let mut config = DecoderConfig::named("pythia-1b", 0).unwrap();
    fields.iter().for_each(|(name, value)| config.set(&format!("{name}={value}")).unwrap());
    config.validate().unwrap();
    config
}

/// The weights that the script cuts from the pool.
fn initial(config: &DecoderConfig, pool: &[f32]) -> Parameters<Array> {
    let made: fulgurite_runtime::Result<_> =
        Parameters::build(&config.parameters(), &mut |Parameter { name, shape, .. }| {
            let place = name.bytes().fold(0, |place, byte| (place * 31 + usize::from(byte)) % pool.len());
            let gain = name.ends_with(".weight") && shape.len() == 1 && !config.norm_add_unit_offset;
            let value = |i: usize| pool[(place + i) % pool.len()] * 0.2 + if gain { 1.0 } else { 0.0 };
            let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
            Array::new(&shape[..], &values)
        });
    made.unwrap()
}

/// The largest difference, as a part of the largest expected value, or of `least` if that is larger.
fn distance(found: &[f32], expected: &[f32], least: f64) -> f64 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(least, |most, value| most.max(f64::from(value.abs())));
    let most = |most: f64, (a, b): (&f32, &f32)| most.max((f64::from(*a) - f64::from(*b)).abs());
    found.iter().zip(expected).fold(0.0, most) / largest
}

/// Whether a case follows LitGPT by these executors, each number to `tolerance` of the largest one beside it.
fn follows(file: &SafeTensors<'_>, case: &str, config: &DecoderConfig, options: &Options, tolerance: f64) {
    let (pool, batches) = (floats(file, "pool"), batches(file));
    let params = initial(config, &pool);
    let of_one_batch = jit(|(params, batch, generator): (Parameters<Tensor>, BatchTensors<Tensor>, Tensor)| {
        let logits = config.head(&params, config.hidden(&params, batch.inputs, &Dropout::none()));
        (logits, loss_and_gradients(config, params, &Parameters::none(), &batch, generator))
    })
    .options(options.clone());
    let scalars = |step: usize| step_scalars(1e-3, step as u64 + 1, 0).unwrap();
    let (logits, (_, gradients)): (Array, (Array, Parameters<Array>)) =
        of_one_batch.call((params.clone(), batches[0].clone(), scalars(0).generator)).unwrap();
    let expect = |what: &str, found: &[f32], least: f64| {
        let off = distance(found, &floats(file, &format!("{case}/{what}")), least);
        assert!(
            off <= tolerance,
            "{case}: {what} is off by {off:.1e} of the largest, expected at most {tolerance:.0e}"
        );
    };
    expect("logits", &logits.to_vec::<f32>().unwrap(), 0.0);
    let names: Vec<String> = gradients.leaves().into_iter().map(|(name, _)| name).collect();
    let all = |name: &String| floats(file, &format!("{case}/gradient/{name}"));
    let largest = names.iter().flat_map(all).fold(0.0, |most: f32, value| most.max(value.abs()));
    for (name, gradient) in gradients.leaves() {
        // That of the keys' biases is zero but for rounding, and is compared with what the others are.
        expect(&format!("gradient/{name}"), &gradient.to_vec::<f32>().unwrap(), f64::from(largest) * 1e-2);
    }
    let stored = file.names().into_iter().filter(|name| name.starts_with(&format!("{case}/gradient/"))).count();
    assert_eq!(names.len(), stored, "{case}: as many parameters as LitGPT has");

    let optimizer = OptimizerSettings::default();
    let step = jit(|(state, batch, scalars): (TrainState<Tensor>, BatchTensors<Tensor>, StepScalars<Tensor>)| {
        train_step(config, &optimizer, state, batch, scalars)
    })
    .donate("arg0")
    .options(options.clone());
    let zeros = || fulgurite_models::train::zeros(config, DType::F32, Device::CPU).unwrap();
    let mut state = TrainState {
        params,
        exp_avg: zeros(),
        exp_avg_sq: zeros(),
        copies: Parameters::none(),
        buffers: Parameters::none(),
    };
    let (losses, norms) = (floats(file, &format!("{case}/loss")), floats(file, &format!("{case}/norm")));
    for (i, batch) in batches.into_iter().enumerate() {
        let (next, loss, norm) = step.call((state, batch, scalars(i))).unwrap();
        state = next;
        let (loss, norm) = (loss.item().unwrap() as f32, norm.unwrap().item().unwrap() as f32);
        for (what, found, expected) in [("loss", loss, losses[i]), ("gradient norm", norm, norms[i])] {
            let off = distance(&[found], &[expected], 0.0);
            assert!(off <= tolerance, "{case}, step {i}: {what} {found}, LitGPT {expected}: off by {off:.1e}");
        }
    }
    assert_eq!(step.compiles(), 1, "{case}: ten steps compile once");
}

/// Calls `f` with the vectors and each case.
fn each_case(f: &mut dyn FnMut(&SafeTensors<'_>, &str, DecoderConfig)) {
    let bytes = std::fs::read(device::golden("llama_parity.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let parity: Parity = serde_json::from_str(&metadata.metadata().as_ref().unwrap()["parity"]).unwrap();
    assert_eq!(parity.cases.len(), 20);
    parity.cases.iter().for_each(|(case, fields)| f(&file, case, configured(fields)));
}

fn run(executors: &[&str], device: Option<Device>, tolerance: f64) {
    let options = Options { device, ..Options::default() }.with_executors(executors).unwrap();
    each_case(&mut |file, case, config| follows(file, case, &config, &options, tolerance));
}

/// Fields that change no parameter, one or more for each switch, with a value that is wrong.
const WRONG: [(&str, &str); 20] = [
    ("llama", "norm_eps=1e-5"),
    ("grouped", "parallel_residual=true"),
    ("multi_query", "rope_base=1000"),
    ("rotary_share", "rotary_percentage=0.75"),
    ("rotary_share", "rope_base=60"),
    ("rope_llama3", "rope_adjustments=null"),
    ("rope_linear", "rope_adjustments={\"factor\": 4}"),
    ("rope_linear", "rope_condense_ratio=1"),
    ("norm_offset", "norm_add_unit_offset=false"),
    ("geglu", "gelu_approximate=none"),
    ("geglu", "scale_embeddings=false"),
    ("geglu", "mlp_class_name=LLaMAMLP"),
    ("neox", "parallel_residual=false"),
    ("neox_tanh", "gelu_approximate=none"),
    ("caps", "attention_logit_softcapping=null"),
    ("caps", "final_logit_softcapping=1.6"),
    ("window", "sliding_window_size=4"),
    ("window", "sliding_window_indices=[1,1]"),
    ("post_norms", "attention_scores_scalar=null"),
    ("mixture", "n_expert_per_token=3"),
];

#[test]
fn a_wrong_switch_shows_in_the_logits() {
    each_case(&mut |file, case, config| {
        let (pool, batch) = (floats(file, "pool"), batches(file).swap_remove(0));
        let params = initial(&config, &pool);
        for (_, assignment) in WRONG.into_iter().filter(|(of, _)| *of == case) {
            let mut wrong = config.clone();
            wrong.set(assignment).unwrap();
            let logits = jit(|(params, tokens): (Parameters<Tensor>, Tensor)| {
                wrong.head(&params, wrong.hidden(&params, tokens, &Dropout::none()))
            });
            let logits: Array = logits.call((params.clone(), batch.inputs.clone())).unwrap();
            let off = distance(&logits.to_vec::<f32>().unwrap(), &floats(file, &format!("{case}/logits")), 0.0);
            assert!(off > 5e-5, "{case} with {assignment} is off by {off:.1e} alone: the vectors do not see it");
        }
    });
}

#[test]
fn every_switch_follows_litgpt_on_the_cpu_executor() {
    run(&["cpu", "reference"], None, 1e-5);
}

#[test]
fn every_switch_follows_litgpt_on_the_reference_executor() {
    run(&["reference"], None, 1e-5);
}

#[test]
fn every_switch_follows_litgpt_on_the_executors_of_cuda() {
    let Some(cuda) = device::cuda() else { return };
    // Products and sums on the device are added in another order than PyTorch's on the host.
    run(&["optim", "cublaslt", "fusion", "cuda"], Some(cuda), 1e-4);
}

/// Whether a case follows LitGPT with a cache: prompts of different lengths, padded, then token by token; then a second
/// prompt for a cache that is nearly full, so that tokens before it are written again.
fn decodes(file: &SafeTensors<'_>, case: &str, config: &DecoderConfig, options: &Options, tolerance: f64) {
    let params = initial(config, &floats(file, "pool"));
    let (expected, vocabulary) = (floats(file, &format!("{case}/logits")), config.vocabulary());
    let tokens = batches(file).swap_remove(0).inputs.to_vec::<i64>().unwrap();
    let rows: Vec<&[i64]> = tokens.chunks(LENGTH).collect();
    let mut decoding = Decoding::<Vec<Array>, _>::new(config, params, options.clone(), |logits, _| logits);
    let check = |decoding: &Decoding<Vec<Array>, Tensor>, logits: Array| {
        let logits = logits.to_vec::<f32>().unwrap();
        for (row, sequence) in decoding.sequences().iter().enumerate() {
            let own = &logits[row * vocabulary..][..vocabulary];
            let at = (row * LENGTH + sequence.len() - 1) * vocabulary;
            // Of the largest logit of all positions, as for the whole batch.
            let largest = expected.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
            let off = distance(own, &expected[at..][..vocabulary], f64::from(largest));
            let length = sequence.len();
            assert!(off <= tolerance, "{case}: sequence {row} of {length} tokens is off by {off:.1e} of the largest");
        }
    };
    decoding.set_kv_cache(ROWS, LENGTH).unwrap();
    let logits = decoding.extend(&[&rows[0][..5], &rows[1][..2]], vec![]).unwrap();
    check(&decoding, logits);
    for step in 0..4 {
        // The second sequence waits for two steps.
        let second = if step < 2 { 2..2 } else { step..step + 1 };
        let logits = decoding.extend(&[&rows[0][5 + step..][..1], &rows[1][second]], vec![]).unwrap();
        check(&decoding, logits);
    }
    let logits = decoding.extend(&[&rows[0][9..], &rows[1][4..9]], vec![]).unwrap();
    check(&decoding, logits);
    assert_eq!([0, 1].map(|row| decoding.room(row)), [0, LENGTH - 9]);
    assert_eq!(decoding.compiles(), 2, "{case}: one program for prompts, one for a token");
}

fn decode_with(executors: &[&str], device: Option<Device>, tolerance: f64) {
    let options = Options { device, ..Options::default() }.with_executors(executors).unwrap();
    each_case(&mut |file, case, config| decodes(file, case, &config, &options, tolerance));
}

#[test]
fn every_switch_follows_litgpt_with_a_cache() {
    decode_with(&["cpu", "reference"], None, 1e-5);
}

#[test]
fn every_switch_follows_litgpt_with_a_cache_on_the_executors_of_cuda() {
    let Some(cuda) = device::cuda() else { return };
    decode_with(&["optim", "flash", "cublaslt", "fusion", "cuda"], Some(cuda), 1e-4);
}

#[test]
fn every_switch_follows_litgpt_on_the_kernels_of_liger() {
    let Some(cuda) = device::cuda() else { return };
    run(&["liger", "optim", "cublaslt", "fusion", "cuda"], Some(cuda), 1e-4);
}
