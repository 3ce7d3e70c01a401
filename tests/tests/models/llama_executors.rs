//! A Llama where the kernels of `liger` are first in the list of executors, and one where they are not. No device is
//! needed.

use std::collections::BTreeMap;

use fulgurite_models::decoder::DecoderConfig;
use fulgurite_models::traces::{loss_programs, loss_trace};
use fulgurite_runtime::compile::{Options, Stage};
use fulgurite_runtime::trace::{Block, Trace};
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{DType, Device};

const LAYERS: usize = 2;
const LIGER: [&str; 5] = ["liger", "optim", "cublaslt", "fusion", "cuda"];

fn llama(fields: &[&str]) -> DecoderConfig {
    let mut config = DecoderConfig::named("nano", 61).unwrap();
    for field in fields {
        config.set(field).unwrap();
    }
    config.set(&format!("n_layer={LAYERS}")).unwrap();
    config
}

fn loss(config: &DecoderConfig, dtype: DType) -> Trace {
    retarget(&loss_trace(config, dtype, [2, 8]).unwrap(), &"cuda:sm_90a".parse().unwrap())
}

fn last(stages: &[Stage]) -> &Block {
    &stages.last().unwrap().trace.block
}

/// How often each symbol of `executor` is called.
fn called<'a>(block: &'a Block, executor: &str) -> BTreeMap<&'a str, usize> {
    let mut called = BTreeMap::new();
    for symbol in block.symbols.iter().filter(|symbol| symbol.executor == Some(executor)) {
        *called.entry(symbol.name()).or_default() += 1;
    }
    called
}

/// The symbols that `owner` runs in the last forward and the last backward trace, where `liger` is first in the list.
fn symbols(config: &DecoderConfig, dtype: DType, owner: &str) -> [BTreeMap<String, usize>; 2] {
    let options = Options { verify: true, ..Options::default() }.with_executors(&LIGER).unwrap();
    let programs = loss_programs(loss(config, dtype), &options).unwrap();
    [&programs.forward, &programs.backward].map(|stages| {
        let counted = called(last(stages), owner);
        counted.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    })
}

fn expected(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn norms_residuals_and_rotations_of_a_llama_are_kernels_of_liger() {
    // The first norm reads the embeddings; each other one a sum, whose own cotangent it adds. The last sum is read by
    // its norm alone.
    let sums = 2 * LAYERS;
    let configs = [
        vec![],
        vec!["n_query_groups=1"],
        vec!["norm_eps=1e-6", "norm_add_unit_offset=true", "mlp_class_name=GemmaMLP"],
        vec!["norm_eps=1e-6", "rotary_percentage=0.5"],
    ];
    for fields in configs {
        let [forward, backward] = symbols(&llama(&fields), DType::F32, "liger");
        let of_liger = |name: &str| name.contains("rms_norm") || name.contains("rope");
        let forward: BTreeMap<_, _> = forward.into_iter().filter(|(name, _)| of_liger(name)).collect();
        let backward: BTreeMap<_, _> = backward.into_iter().filter(|(name, _)| of_liger(name)).collect();
        let kernels = [("liger::rms_norm", 1), ("liger::fused_add_rms_norm", sums), ("liger::rope", LAYERS)];
        assert_eq!(forward, expected(&kernels), "{fields:?}");
        let kernels = [
            ("liger::rms_norm_backward", 2),
            ("liger::fused_add_rms_norm_backward", sums - 1),
            ("liger::rope", LAYERS),
        ];
        assert_eq!(backward, expected(&kernels), "{fields:?}");
    }
}

#[test]
fn layer_norms_are_kernels_that_liger_shares() {
    let norms = 2 * LAYERS + 1;
    let [forward, backward] = symbols(&llama(&["norm_class_name=LayerNorm"]), DType::BF16, "llmc");
    // Attention in bf16 is written out without `flash`.
    assert_eq!(forward, expected(&[("llmc::layernorm", norms), ("llmc::softmax", LAYERS)]));
    assert_eq!(backward, expected(&[("llmc::layernorm_backward", norms)]));
}

#[test]
fn experts_of_a_mixture_compute_their_own_rows_alone() {
    let config = llama(&["mlp_class_name=LLaMAMoE", "n_expert=4", "n_expert_per_token=2"]);
    let of_groups = |symbols: BTreeMap<String, usize>| -> BTreeMap<String, usize> {
        symbols.into_iter().filter(|(name, _)| name.contains("grouped")).collect()
    };
    let [forward, backward] = symbols(&config, DType::BF16, "liger").map(of_groups);
    assert_eq!(forward, expected(&[("grouped_linear", 3 * LAYERS)]));
    assert_eq!(backward, expected(&[("grouped_linear", 3 * LAYERS), ("grouped_outer", 3 * LAYERS)]));
    // Of attention, and of the router.
    let [forward, _] = symbols(&config, DType::BF16, "llmc");
    assert_eq!(forward, expected(&[("llmc::softmax", 2 * LAYERS)]));
    // The kernels are written for 16 bits.
    assert!(symbols(&config, DType::F32, "liger").map(of_groups).iter().all(BTreeMap::is_empty));
}

#[test]
fn programs_without_liger_keep_what_the_model_wrote() {
    for executors in [&["optim", "cublaslt", "fusion", "cuda"][..], &["cpu", "reference"]] {
        let options = Options { verify: true, ..Options::default() }.with_executors(executors).unwrap();
        let trace = loss_trace(&llama(&[]), DType::F32, [2, 8]).unwrap();
        let trace =
            if Device::is_host(executors[0]) { trace } else { retarget(&trace, &"cuda:sm_90a".parse().unwrap()) };
        let programs = loss_programs(trace, &options).unwrap();
        for stage in programs.joint.iter() {
            let merged = |name: &str| name == "rope" || name == "fused_add_rms_norm";
            let found = stage.trace.block.symbols.iter().find(|symbol| merged(symbol.name()));
            assert!(found.is_none(), "{} at {}", found.unwrap().name(), stage.name);
        }
    }
}
