//! The traces of GPT-2: snapshots of two layers, every stage parses, verifies and runs, and names are stable.

use fulgurite::compile::{Options, compile};
use fulgurite::trace::{Trace, parse};
use fulgurite::transforms::retarget::retarget;
use fulgurite::{Array, DType};
use fulgurite_models::checkpoint::OptimizerSettings;
use fulgurite_models::config::GptConfig;
use fulgurite_models::traces::{loss_trace, train_step_stages, train_step_trace};

const CONFIG: GptConfig = GptConfig { vocabulary: 61, context: 8, layers: 2, heads: 2, channels: 16, dropout: 0.0 };

fn inputs(trace: &Trace) -> Vec<Array> {
    let mut random = fulgurite::testing::samples::Random::new(7);
    trace
        .block
        .parameters
        .iter()
        .map(|id| {
            let meta = trace.block.meta(*id);
            let values: Vec<f64> =
                (0..meta.len())
                    .map(|_| {
                        if meta.dtype() == DType::I64 {
                            (random.next() % 50) as f64
                        } else {
                            0.1 * random.unit() + 0.01
                        }
                    })
                    .collect();
            Array::from_f64(meta.shape(), meta.dtype(), &values).unwrap()
        })
        .collect()
}

fn results(trace: Trace) -> Vec<Vec<u8>> {
    let inputs = inputs(&trace);
    let (program, _) = compile(trace, &Options::default()).unwrap();
    program.run(inputs).unwrap().iter().map(|array| array.to_bytes().unwrap()).collect()
}

#[test]
fn every_stage_of_a_training_step_parses_verifies_and_runs() {
    let stages = train_step_stages(&CONFIG, &OptimizerSettings::default(), 2, 8, &Options::default()).unwrap();
    let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "acquire",
            "rewrite",
            "autodiff",
            "dce",
            "cse",
            "late_rewrite",
            "claim",
            "fuse",
            "layout",
            "donate",
            "plan_memory",
            "delete_last_used"
        ]
    );
    let expected = results(stages[0].trace.clone());
    for stage in &stages {
        let parsed = parse(&stage.trace.to_string()).unwrap_or_else(|error| panic!("{}: {error}", stage.name));
        assert_eq!(parsed, stage.trace, "stage {} parses back to itself", stage.name);
        parsed.verify().unwrap_or_else(|error| panic!("{}: {error}", stage.name));
        assert_eq!(results(parsed), expected, "stage {} computes the same bits", stage.name);
    }
}

#[test]
fn snapshots_of_two_layers() {
    let forward = loss_trace(&CONFIG, 2, 8).unwrap();
    insta::assert_snapshot!("gpt2_loss_acquired", forward.to_string());
    let stages = train_step_stages(&CONFIG, &OptimizerSettings::default(), 2, 8, &Options::default()).unwrap();
    let last = stages.last().unwrap();
    insta::assert_snapshot!("gpt2_train_step_planned", last.trace.to_string());
}

/// The training step as it is run on a GPU, and the kernels' sources: no GPU is needed to see them.
#[test]
fn snapshots_for_cuda() {
    let acquired = train_step_trace(&CONFIG, &OptimizerSettings::default(), 2, 8).unwrap();
    let acquired = retarget(&acquired, &"cuda:sm_90a".parse().unwrap());
    let options = Options { verify: true, ..Options::default() };
    let (program, stages) = compile(acquired.clone(), &options).unwrap();
    for stage in &stages {
        let parsed = parse(&stage.trace.to_string()).unwrap_or_else(|error| panic!("{}: {error}", stage.name));
        assert_eq!(parsed, stage.trace, "stage {} parses back to itself", stage.name);
    }
    insta::assert_snapshot!("gpt2_train_step_cuda_planned", stages.last().unwrap().trace.to_string());
    // Each kind of generated kernel once, in full; the others by name.
    let (mut texts, mut shown) = (String::new(), std::collections::HashSet::new());
    for source in program.sources() {
        texts += &format!("== {} {}\n", source.name, source.options.join(" "));
        if source.name.starts_with("region") && shown.len() < 4 && shown.insert(source.text.len()) {
            texts += &format!("{}\n", source.text);
        }
    }
    insta::assert_snapshot!("gpt2_train_step_cuda_sources", texts);
    let llmc = Options::default().with_executors(&["llmc", "optim", "cublaslt", "fusion", "cuda"]).unwrap();
    let (_, stages) = compile(acquired, &llmc).unwrap();
    let claimed = &stages.iter().find(|stage| stage.name == "claim").unwrap().trace;
    let symbols = |name: &str| claimed.block.symbols.iter().filter(|symbol| symbol.name() == name).count();
    let layers = CONFIG.layers;
    let expected = [
        ("llmc::permute", layers),
        ("llmc::unpermute", layers),
        ("llmc::permute_backward", layers),
        ("llmc::unpermute_backward", layers),
        ("llmc::softmax", layers),
        ("llmc::gelu", layers),
        ("llmc::gelu_backward", layers),
        ("llmc::layernorm", 2 * layers + 1),
        ("llmc::layernorm_backward", 2 * layers + 1),
        ("llmc::crossentropy", 1),
        ("llmc::crossentropy_softmax_backward", 1),
    ];
    for (name, count) in expected {
        assert_eq!(symbols(name), count, "{name} in\n{claimed}");
    }
}

#[test]
fn inserting_an_operator_changes_few_lines() {
    use fulgurite::jit::{Names, trace};
    use fulgurite::{Device, Target, TensorMeta};
    use fulgurite_ops::prelude::*;
    let build = |inserted: bool| {
        let meta = TensorMeta::new([4, 16], DType::F32, Device::CPU);
        let (trace, _) = trace("stack", Target::cpu(), &Names::default(), meta, |mut x: Tensor| {
            for i in 0..4 {
                x = scope(&format!("h.{i}"), || {
                    let y = scope("norm", || softmax(x, -1));
                    let y = if inserted && i == 1 { scope("extra", || tanh(y)) } else { y };
                    x + scope("act", || gelu(y))
                });
            }
            x
        })
        .unwrap();
        trace.to_string()
    };
    let (plain, inserted) = (build(false), build(true));
    let old: std::collections::HashSet<&str> = plain.lines().collect();
    // A nested decomposition belongs to the inserted line; what counts is what changes around it.
    let changed = inserted
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   ") && !old.contains(line))
        .count();
    assert!((1..5).contains(&changed), "{changed} lines changed:\n{inserted}");
}
