//! Models whose layers are divided among ranks: the losses of one rank, and what a rank computes of a block.

use std::collections::BTreeMap;

use fulgurite_models::blocks::ActivationCheckpointing;
use fulgurite_models::config::GptConfig;
use fulgurite_models::decoder::DecoderConfig;
use fulgurite_models::head::Logits;
use fulgurite_models::optimizer::Optimizer;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::step::{BatchTensors, StepScalars, TrainState, train_step};
use fulgurite_models::tensor_parallel::{division, generating, parts, wholes};
use fulgurite_models::traces::{decode_trace, train_step_trace};
use fulgurite_models::train::{initial_parameters, step_scalars};
use fulgurite_models::{Decoding, Model, Parameters, rounded_copies};
use fulgurite_runtime::compile::{Options, stages};
use fulgurite_runtime::mesh::Mesh;
use fulgurite_runtime::trace::{Block, Trace};
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, jit, ranks};

use crate::device;

const GPT2: GptConfig =
    GptConfig { vocabulary: 132, context: 16, layers: 2, heads: 4, channels: 32, ..GptConfig::GPT2 };
const OPTIMIZER: OptimizerSettings = OptimizerSettings {
    kind: Optimizer::AdamW,
    beta1: 0.9,
    beta2: 0.95,
    epsilon: 1e-8,
    weight_decay: 0.1,
    clip: Some(1.0),
    momentum: 0.0,
    nesterov: false,
};
/// Sequences of all ranks together.
const ROWS: usize = 4;

/// A decoder with these fields.
fn llama(fields: &[&str]) -> DecoderConfig {
    let mut config = DecoderConfig::named("nano", 64).unwrap();
    for field in fields {
        config.set(field).unwrap();
    }
    config
}

/// How the steps are divided and computed.
#[derive(Clone, Default)]
struct Setting {
    sequence: bool,
    checkpoints: bool,
    chunked: bool,
    autocast: Option<DType>,
}

/// Losses and norms of ten steps on a rank of the mesh, and the whole weights after them.
fn ten_steps(
    model: &dyn Model,
    mesh: &Mesh,
    device: Option<Device>,
    setting: &Setting,
) -> (Vec<[f32; 2]>, Vec<Vec<u8>>) {
    let tensor = mesh.axis("tensor").map(|(_, axis)| axis);
    let data = mesh.axis("data").map(|(_, axis)| axis);
    let plain = Options { mesh: mesh.clone(), device, autocast: setting.autocast, verify: true, ..Options::default() };
    let mut options = plain.clone();
    if let Some(axis) = data {
        options = options.with_ddp(axis.name());
    }
    if let Some(axis) = tensor {
        let mut division = division("state", axis, model, setting.autocast.is_some()).unwrap();
        division.sequence = setting.sequence.then_some(1);
        options = options.with_tensor_parallel(division);
    }
    let own = |whole: Parameters<Array>| match tensor {
        Some(axis) => parts(whole, model, ranks::place(axis).unwrap(), axis).unwrap(),
        None => whole,
    };
    let zeros = || Parameters::build(&model.parameters(), &mut |own| Array::zeros(&own.shape[..], DType::F32)).unwrap();
    let params = initial_parameters(model, 1).unwrap();
    let copies = rounded_copies(model, &params, setting.autocast).unwrap();
    let mut state = TrainState {
        params: own(params),
        exp_avg: own(zeros()),
        exp_avg_sq: own(zeros()),
        copies: own(copies),
        buffers: Parameters::none(),
    };
    let checkpointing =
        if setting.checkpoints { ActivationCheckpointing::Blocks } else { ActivationCheckpointing::None };
    let logits = if setting.chunked { Logits::Chunked } else { Logits::Whole };
    let step = jit(|(state, batch, scalars): (TrainState<Tensor>, BatchTensors<Tensor>, StepScalars<Tensor>)| {
        logits.within(|| checkpointing.within(|| train_step(model, &OPTIMIZER, state, batch, scalars)))
    });
    let step = step.arguments(["state", "batch", "scalars"]).results(["state", "loss", "norm"]);
    let step = step.donate("state").options(options);
    let (count, place) = data.map_or((1, 0), |axis| (axis.extent(), ranks::place(axis).unwrap()));
    let (rows, context) = (ROWS / count, 16);
    let mut reported = Vec::new();
    for number in 0..10 {
        let ids = |shift: usize| {
            let first = (number * ROWS + place * rows) * context + shift;
            let all: Vec<i64> = (first..first + rows * context).map(|i| (i * i * 7 % 61) as i64).collect();
            Array::new([rows, context], &all).unwrap()
        };
        let batch = BatchTensors::of_tokens(ids(0), ids(1));
        let scalars = step_scalars(1e-3, number as u64 + 1, 0).unwrap();
        let (next, loss, norm) = step.call((state, batch, scalars)).unwrap();
        state = next;
        reported.push([loss.item().unwrap() as f32, norm.unwrap().item().unwrap() as f32]);
    }
    let params = match tensor {
        Some(axis) => wholes(&state.params, model, axis, &plain).unwrap(),
        None => state.params,
    };
    (reported, params.leaves().into_iter().map(|(_, array)| array.to_bytes().unwrap()).collect())
}

/// Ranks of these meshes have the losses and norms of one rank, the same ones on each, and the same bits in two runs.
fn as_one_rank(model: &(dyn Model + Sync), meshes: &[&str], setting: &Setting, tolerance: f32) {
    let alone = ten_steps(model, &Mesh::ONE, None, &Setting { sequence: false, ..setting.clone() });
    for mesh in meshes {
        let mesh: Mesh = mesh.parse().unwrap();
        let train = || ranks::simulate(&mesh, |_| ten_steps(model, &mesh, None, setting)).unwrap();
        let (first, again) = (train(), train());
        assert!(first == again, "two runs on {mesh} give the same bits");
        for (losses, weights) in &first {
            assert!(*losses == first[0].0, "the ranks of {mesh} have the same losses");
            assert!(*weights == first[0].1, "the ranks of {mesh} have the same weights");
            for (step, (found, expected)) in losses.iter().zip(&alone.0).enumerate() {
                let off = |at: usize| (found[at] / expected[at] - 1.0).abs();
                assert!(off(0) <= tolerance, "{mesh}, step {step}: loss {}, one rank {}", found[0], expected[0]);
                assert!(off(1) <= 20.0 * tolerance, "{mesh}, step {step}: norm {}, one rank {}", found[1], expected[1]);
            }
        }
    }
}

/// The largest difference in f32 over ten steps.
const CLOSE: f32 = 1e-5;

#[test]
fn gpt2_trains_as_on_one_rank() {
    as_one_rank(&GPT2, &["tensor=1", "tensor=2", "tensor=4", "data=2 tensor=2"], &Setting::default(), CLOSE);
}

/// Grouped keys and values, and a layer of its own that makes logits.
#[test]
fn llama_trains_as_on_one_rank() {
    let config = llama(&["n_head=8", "n_query_groups=4", "n_embd=64"]);
    as_one_rank(&config, &["tensor=2", "tensor=4"], &Setting::default(), CLOSE);
}

/// What other families have: norms of all queries, which each rank has a part of, and of each head; factors, biases,
/// learned positions, an embedding of its own width.
#[test]
fn other_families_train_as_on_one_rank() {
    let sizes = ["n_head=8", "n_query_groups=4", "n_embd=64"];
    for fields in [
        &["norm_qk=true", "norm_qk_type=olmo2", "norm_1=false", "norm_2=false", "post_attention_norm=true"][..],
        &[
            "norm_class_name=LayerNorm",
            "norm_qk=true",
            "norm_qk_type=per_head",
            "parallel_residual=true",
            "shared_attention_norm=true",
            "attn_bias=true",
            "attn_proj_bias=true",
            "attention_clip=0.5",
            "residual_multiplier=0.5",
            "logits_divisor=2",
            "attention_multiplier=0.3",
        ],
        &[
            "norm_class_name=LayerNorm",
            "mlp_class_name=GptNeoxMLP",
            "mlp_activation=relu",
            "bias=true",
            "norm_after_sum=true",
            "final_norm=false",
            "rotary_percentage=0",
            "learned_positions=2",
            "embedding_width=32",
            "tie_embeddings=true",
        ],
    ] {
        let config = llama(&[&sizes, fields].concat());
        as_one_rank(&config, &["tensor=2"], &Setting::default(), CLOSE);
    }
}

#[test]
fn sequences_are_divided_between_layers() {
    let setting = Setting { sequence: true, ..Setting::default() };
    as_one_rank(&GPT2, &["tensor=2"], &setting, CLOSE);
    as_one_rank(
        &llama(&["n_head=8", "n_query_groups=4", "n_embd=64"]),
        &["tensor=4", "data=2 tensor=2"],
        &setting,
        CLOSE,
    );
}

/// An embedding of odd rows is on each rank.
#[test]
fn checkpoints_chunks_and_odd_vocabularies() {
    let odd = GptConfig { vocabulary: 131, ..GPT2 };
    as_one_rank(&odd, &["tensor=2"], &Setting { checkpoints: true, ..Setting::default() }, CLOSE);
    as_one_rank(&GPT2, &["tensor=2"], &Setting { chunked: true, checkpoints: true, ..Setting::default() }, CLOSE);
}

/// With copies of weights in bf16, whose sums are rounded otherwise.
#[test]
fn mixed_precision_follows_one_rank() {
    let setting = Setting { autocast: Some(DType::BF16), ..Setting::default() };
    as_one_rank(&GPT2, &["tensor=2"], &setting, 2e-3);
    as_one_rank(&GPT2, &["tensor=2"], &Setting { sequence: true, ..setting }, 2e-3);
}

#[test]
fn devices_follow_one_rank() {
    let Some(cuda) = device::cuda() else { return };
    let devices = fulgurite_runtime::device::find_kind(cuda.kind()).unwrap().count().unwrap() as usize;
    let alone = ten_steps(&GPT2, &Mesh::ONE, None, &Setting::default());
    for count in [2, 4].into_iter().filter(|count| *count <= devices) {
        for sequence in [false, true] {
            let mesh: Mesh = format!("tensor={count}").parse().unwrap();
            let setting = Setting { sequence, ..Setting::default() };
            let train = || {
                let on = |rank: usize| ten_steps(&GPT2, &mesh, Some(Device::new(cuda.kind(), rank as u32)), &setting);
                ranks::simulate(&mesh, on).unwrap()
            };
            let (first, again) = (train(), train());
            assert!(first == again, "two runs on {mesh} give the same bits");
            assert!(first.iter().all(|(_, weights)| *weights == first[0].1), "ranks have the same weights");
            for (step, (found, expected)) in first[0].0.iter().zip(&alone.0).enumerate() {
                let off = (found[0] / expected[0] - 1.0).abs();
                assert!(off <= 1e-4, "{mesh}, step {step}: loss {}, one rank {}", found[0], expected[0]);
            }
        }
    }
}

/// What cannot be divided is refused by name, with how many there are.
#[test]
fn heads_and_features_that_cannot_be_divided_are_refused() {
    let failure = |model: &dyn Model, ranks: usize| {
        let mesh: Mesh = format!("tensor={ranks}").parse().unwrap();
        division("state", &mesh.axes()[0], model, false).unwrap_err().to_string()
    };
    let message = failure(&GPT2, 3);
    assert!(message.contains("h.0.attn.c_attn.weight"), "{message}");
    assert!(message.contains("has 4 attention heads, which tensor_parallel divides among 3 ranks"), "{message}");
    let message = failure(&llama(&["n_head=8", "n_query_groups=2", "n_embd=64"]), 4);
    assert!(message.contains("has 2 heads of keys and values"), "{message}");
    let message = failure(&llama(&["n_head=8", "n_query_groups=8", "n_embd=64", "intermediate_size=44"]), 8);
    assert!(message.contains("h.0.mlp.fc_1.weight") && message.contains("[44, 64]"), "{message}");
}

/// The logits of a prompt and of tokens after it, by a cache of which each rank has its heads.
fn decoded(model: &dyn Model, mesh: &Mesh) -> Vec<Vec<f64>> {
    let params = initial_parameters(model, 2).unwrap();
    let params = match mesh.axis("tensor") {
        Some((_, axis)) => parts(params, model, ranks::place(axis).unwrap(), axis).unwrap(),
        None => params,
    };
    let options = Options { mesh: mesh.clone(), verify: true, ..Options::default() };
    let options = generating(model, options, true).unwrap();
    let mut decoding = Decoding::new(model, params, options, |logits, _: Vec<Tensor>| logits);
    decoding.set_kv_cache(2, 16).unwrap();
    let prompts: [&[i64]; 2] = [&[3, 1, 4, 1, 5], &[9, 2, 6]];
    let mut all = vec![decoding.extend(&prompts, Vec::<Array>::new()).unwrap().to_f64().unwrap()];
    for token in 0..3 {
        all.push(decoding.extend(&[&[token], &[token + 7]], Vec::new()).unwrap().to_f64().unwrap());
    }
    all
}

#[test]
fn decoding_gives_the_logits_of_one_rank() {
    let llama = llama(&["n_head=8", "n_query_groups=4", "n_embd=64"]);
    for model in [&GPT2 as &(dyn Model + Sync), &llama] {
        let alone = decoded(model, &Mesh::ONE);
        for count in [2, 4] {
            let mesh: Mesh = format!("tensor={count}").parse().unwrap();
            let found = ranks::simulate(&mesh, |_| decoded(model, &mesh)).unwrap();
            assert!(found.iter().all(|logits| *logits == found[0]), "all ranks have the same logits");
            for (step, (found, alone)) in found[0].iter().zip(&alone).enumerate() {
                let off = found.iter().zip(alone).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(found.len() == alone.len() && off <= 1e-5, "step {step} on {mesh}: off by {off}");
            }
        }
    }
}

/// The lines of the outermost program and of the function that is differentiated, by operator.
fn operators(trace: &Trace) -> BTreeMap<&'static str, usize> {
    fn count(block: &Block, found: &mut BTreeMap<&'static str, usize>) {
        for symbol in &block.symbols {
            match (symbol.operator(), &symbol.body) {
                (Some(def), _) => *found.entry(def.name).or_default() += 1,
                (None, Some(body)) => count(body, found),
                _ => {}
            }
        }
    }
    let mut found = BTreeMap::new();
    count(&trace.block, &mut found);
    found
}

/// What executors claim in whole stays whole, and the ranks meet twice in each block: two blocks, the embedding and the
/// logits.
#[test]
fn lines_of_models_stay_whole() {
    let config = llama(&["n_head=8", "n_query_groups=4", "n_embd=64"]);
    let mesh: Mesh = "tensor=2".parse().unwrap();
    let options = Options { mesh: mesh.clone(), verify: true, ..Options::default() };
    let stage = |trace: Trace, options: &Options| {
        let trace = retarget(&trace, &Target::cpu().on_mesh(mesh.clone()));
        let stages = stages(trace, options).unwrap();
        operators(&stages.iter().find(|stage| stage.name == "tensor_parallel").unwrap().trace)
    };
    let decode = decode_trace(&config, (1, 1), 16, DType::F32).unwrap();
    let found = stage(decode, &generating(&config, options.clone(), true).unwrap());
    let of = |found: &BTreeMap<&str, usize>, name: &str| found.get(name).copied().unwrap_or(0);
    // Queries with keys and values, the projection, three layers of the MLP; the logits.
    for (name, count) in [("linear", 11), ("extend_and_attend", 2), ("swiglu", 2), ("rms_norm", 5)] {
        assert_eq!(of(&found, name), count, "{name} of decoding: {found:?}");
    }
    // The embedding, and two of each block.
    assert_eq!((of(&found, "prims::all_reduce"), of(&found, "prims::all_gather")), (5, 1), "{found:?}");
    let step = train_step_trace(&config, &OPTIMIZER, 2, 16).unwrap();
    let division = division("state", &mesh.axes()[0], &config, false).unwrap();
    let found = stage(step, &options.with_tensor_parallel(division));
    for (name, count) in [("linear", 11), ("scaled_dot_product_attention", 2), ("swiglu", 2), ("rms_norm", 5)] {
        assert_eq!(of(&found, name), count, "{name} of a step: {found:?}");
    }
    assert_eq!(of(&found, "adamw"), config.parameters().len(), "{found:?}");
    // The same five; the largest logit, the sum of exponentials, the logit of the target; the norm of all gradients,
    // and the gradients of five norms.
    assert_eq!((of(&found, "prims::all_reduce"), of(&found, "prims::all_gather")), (5 + 3 + 1 + 5, 0), "{found:?}");
}
