//! A training step of GPT-2 where hand-written kernels come first in the list of executors. No device
//! is needed.

use std::collections::BTreeMap;

use fulgurite_models::config::GptConfig;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::traces::train_step_trace;
use fulgurite_runtime::DType;
use fulgurite_runtime::compile::{Options, Stage, compile, stages};
use fulgurite_runtime::trace::{Block, Callee, Storage, Trace};
use fulgurite_runtime::transforms::retarget::retarget;

const LAYERS: usize = 2;
const CONFIG: GptConfig =
    GptConfig { vocabulary: 61, context: 8, layers: LAYERS, heads: 2, channels: 16, ..GptConfig::GPT2 };

fn step() -> Trace {
    let settings = OptimizerSettings { clip: Some(1.0), ..OptimizerSettings::default() };
    let trace = train_step_trace(&CONFIG, &settings, 2, 8).unwrap();
    retarget(&trace, &"cuda:sm_90a".parse().unwrap())
}

fn options(executors: &[&str]) -> Options {
    Options { verify: true, ..Options::default() }.with_executors(executors).unwrap()
}

fn stage<'a>(stages: &'a [Stage], name: &str) -> &'a Trace {
    &stages.iter().find(|stage| stage.name == name).unwrap().trace
}

/// How often each symbol of `executor` is called.
fn called<'a>(block: &'a Block, executor: &str) -> BTreeMap<&'a str, usize> {
    let mut called = BTreeMap::new();
    for symbol in block.symbols.iter().filter(|symbol| symbol.executor == Some(executor)) {
        *called.entry(symbol.name()).or_default() += 1;
    }
    called
}

#[test]
fn the_step_consists_of_the_kernels_of_llmc() {
    let stages = stages(step(), &options(&["llmc", "optim", "cublaslt", "cuda"])).unwrap();
    let claimed = &stage(&stages, "claim").block;
    let norms = 2 * LAYERS + 1;
    let expected = [
        ("llmc::crossentropy", 1),
        ("llmc::crossentropy_softmax_backward", 1),
        ("llmc::gelu", LAYERS),
        ("llmc::gelu_backward", LAYERS),
        ("llmc::layernorm", norms),
        ("llmc::layernorm_backward", norms),
        ("llmc::permute", LAYERS),
        ("llmc::permute_backward", LAYERS),
        ("llmc::softmax", LAYERS),
        ("llmc::unpermute", LAYERS),
        ("llmc::unpermute_backward", LAYERS),
    ];
    assert_eq!(called(claimed, "llmc"), BTreeMap::from(expected));
    let parameters = CONFIG.parameters().len();
    let expected = [("adamw", parameters), ("optim::grad_norm", 1), ("optim::scale_all", 1)];
    assert_eq!(called(claimed, "optim"), BTreeMap::from(expected));
}

#[test]
fn all_parameters_are_updated_by_one_region_where_they_are() {
    let stages = stages(step(), &options(&["optim", "cublaslt", "fusion", "cuda"])).unwrap();
    let planned = &stages.last().unwrap().trace.block;
    let regions: Vec<_> =
        planned.symbols.iter().filter(|symbol| symbol.callee == Callee::Region { executor: "optim" }).collect();
    assert_eq!(regions.len(), 1);
    // Gradients are scaled inside it.
    assert_eq!(regions[0].body.as_ref().unwrap().symbols.len(), 1 + CONFIG.parameters().len());
    assert!(!planned.symbols.iter().any(|symbol| symbol.name() == "optim::scale_all"));
    // Parameters and moments are donated: each result overwrites the input of its own name.
    for id in &regions[0].results {
        let Some(Storage::Shared(over)) = planned.value(*id).storage else {
            panic!("{} has memory of its own", planned.value(*id).name)
        };
        assert!(planned.parameters.contains(&over) && regions[0].operands().any(|operand| operand == over));
    }
}

#[test]
fn gradients_of_16_bits_are_not_widened_for_norm_and_update() {
    let options = Options { autocast: Some(DType::BF16), ..options(&["optim", "cublaslt", "fusion", "cuda"]) };
    let stages = stages(step(), &options).unwrap();
    let fused = &stage(&stages, "fuse").block;
    let regions: Vec<_> =
        fused.symbols.iter().filter(|symbol| symbol.callee == Callee::Region { executor: "optim" }).collect();
    let [norm, updates] = regions[..] else { panic!("{} regions of norm and updates", regions.len()) };
    let bodies = [norm, updates].map(|region| region.body.as_ref().unwrap());
    assert_eq!(bodies[0].symbols.last().unwrap().name(), "optim::grad_norm");
    // Gradients of the linear layers' weights and biases, which both regions read as they are.
    let narrow = |body: &Block| body.parameters.iter().filter(|id| body.meta(**id).dtype() == DType::BF16).count();
    assert_eq!(bodies.map(|body| narrow(body)), [8 * LAYERS; 2]);
    let written: Vec<_> =
        fused.symbols.iter().filter(|symbol| symbol.name() == "prims::convert_element_type").collect();
    let read: Vec<_> = regions.iter().flat_map(|region| region.operands()).collect();
    assert!(written.iter().all(|symbol| !read.contains(&symbol.results[0])));
}

#[test]
fn the_whole_step_is_planned() {
    for executors in [&["llmc", "optim", "cublaslt", "fusion", "cuda"][..], &["optim", "cublaslt", "cuda"]] {
        let (program, _) = compile(step(), &options(executors)).unwrap();
        let names: Vec<String> = program.sources().iter().map(|source| source.name.to_string()).collect();
        assert!(names.iter().any(|name| name == "adamw.cu") && names.iter().any(|name| name == "norm.cu"), "{names:?}");
        // One launch for all parameters, so one source.
        assert_eq!(names.iter().filter(|name| *name == "adamw.cu").count(), 1);
    }
}
