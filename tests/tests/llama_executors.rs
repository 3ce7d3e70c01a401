//! What becomes of a Llama where the kernels of `liger` are first in the list of executors, and of one where they are
//! not. No device is needed.

use std::collections::BTreeMap;

use fulgurite_models::decoder::DecoderConfig;
use fulgurite_models::traces::{loss_programs, loss_trace};
use fulgurite_runtime::compile::{Options, Stage};
use fulgurite_runtime::trace::{Block, Trace};
use fulgurite_runtime::transforms::retarget::retarget;

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

fn loss(config: &DecoderConfig) -> Trace {
    retarget(&loss_trace(config, 2, 8).unwrap(), &"cuda:sm_90a".parse().unwrap())
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

/// The symbols of `liger` in the last forward and the last backward trace.
fn symbols(config: &DecoderConfig, executors: &[&str]) -> [BTreeMap<String, usize>; 2] {
    let options = Options { verify: true, ..Options::default() }.with_executors(executors).unwrap();
    let programs = loss_programs(loss(config), &options).unwrap();
    [&programs.forward, &programs.backward].map(|stages| {
        let counted = called(last(stages), "liger");
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
        let [forward, backward] = symbols(&llama(&fields), &LIGER);
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
fn programs_without_liger_keep_what_the_model_wrote() {
    for executors in [&["optim", "cublaslt", "fusion", "cuda"][..], &["cpu", "reference"]] {
        let options = Options { verify: true, ..Options::default() }.with_executors(executors).unwrap();
        let trace = loss_trace(&llama(&[]), 2, 8).unwrap();
        let trace = if executors[0] == "cpu" { trace } else { retarget(&trace, &"cuda:sm_90a".parse().unwrap()) };
        let programs = loss_programs(trace, &options).unwrap();
        for stage in programs.joint.iter() {
            let merged = |name: &str| name == "rope" || name == "fused_add_rms_norm";
            let found = stage.trace.block.symbols.iter().find(|symbol| merged(symbol.name()));
            assert!(found.is_none(), "{} at {}", found.unwrap().name(), stage.name);
        }
    }
}
