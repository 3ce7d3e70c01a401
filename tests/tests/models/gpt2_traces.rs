//! The traces of GPT-2: snapshots of two layers, every stage parses, verifies and runs, and names are stable.

use std::sync::Arc;

use fulgurite_models::config::GptConfig;
use fulgurite_models::dropout::Dropout;
use fulgurite_models::gpt2::Gpt2;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::traces::{loss_trace, train_step_stages, train_step_trace};
use fulgurite_ops::prelude::{cross_entropy, linear, relu, reshape, tanh};
use fulgurite_runtime::compile::{Options, compile};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::registry::find_operator;
use fulgurite_runtime::trace::print::{PrintOptions, print};
use fulgurite_runtime::trace::{Callee, Storage, Trace, ValueId, parse};
use fulgurite_runtime::tracer::scope;
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, TensorMeta};

const CONFIG: GptConfig =
    GptConfig { vocabulary: 61, context: 8, layers: 2, heads: 2, channels: 16, ..GptConfig::GPT2 };

fn inputs(trace: &Trace) -> Vec<Array> {
    let mut random = fulgurite_runtime::testing::samples::Random::new(7);
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
    let forward = loss_trace(&CONFIG, DType::F32, [2, 8]).unwrap();
    insta::assert_snapshot!("gpt2_loss_acquired", acquired_text(&forward));
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
        let full = print(&stage.trace, PrintOptions::FULL);
        assert_eq!(parse(&full).unwrap(), stage.trace, "stage {} parses back from its full text", stage.name);
    }
    insta::assert_snapshot!("gpt2_train_step_cuda_planned", stages.last().unwrap().trace.to_string());
    // Each kind of generated kernel once, in full; the others by name.
    let (mut texts, mut shown) = (String::new(), std::collections::HashSet::new());
    for source in program.sources() {
        let before = source.text.lines().take_while(|line| !line.starts_with("#line"));
        let defines = before.filter_map(|line| line.strip_prefix("#define "));
        let defines: String = defines.map(|line| format!("; {}", line.replacen(' ', "=", 1))).collect();
        texts += &format!("== {} {}{defines}\n", source.name, source.options.join(" "));
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

/// What a model calls. What the calls stand for is in the operators' own snapshots: a line for each operator of a model
/// is what a reviewer of a model's change wants to see.
fn acquired_text(trace: &Trace) -> String {
    print(trace, PrintOptions { depth: 0, ..PrintOptions::COMPACT })
}

/// The lines that a review of the acquired snapshot of GPT-2 shows as removed or added when one operator comes between
/// its layers and its head, and when one comes between head and loss.
#[test]
fn inserting_an_operator_changes_few_lines() {
    let meta = |shape: &[usize], dtype| TensorMeta::new(shape, dtype, Device::CPU);
    let acquired = |insert_before_head: bool, insert_behind_head: bool| {
        let params: Gpt2<TensorMeta> =
            Gpt2::build::<std::convert::Infallible>(&CONFIG, &mut |_, shape| Ok(meta(shape, DType::F32)))
                .unwrap_or_else(|never| match never {});
        let names =
            Names { arguments: vec!["params".into(), "tokens".into(), "targets".into()], results: vec!["loss".into()] };
        let tokens = meta(&[2, 8], DType::I64);
        let arguments = (params, tokens.clone(), tokens);
        let (trace, _) = trace(
            "loss",
            Target::cpu(),
            &names,
            arguments,
            |(params, tokens, targets): (Gpt2<Tensor>, Tensor, Tensor)| {
                let mut hidden = params.hidden(&CONFIG, tokens, &Dropout::none());
                if insert_before_head {
                    hidden = relu(hidden);
                }
                let mut logits = scope("lm_head", || linear(hidden, params.wte.weight));
                if insert_behind_head {
                    logits = scope("cap", || tanh(logits));
                }
                scope("loss", || cross_entropy(reshape(logits, [16, 61]), reshape(targets, [16])))
            },
        )
        .unwrap();
        acquired_text(&trace)
    };
    let plain = acquired(false, false);
    assert!(plain.contains("\n  h.1.mlp.gelu = gelu("), "{plain}");
    for changed in [acquired(true, false), acquired(false, true)] {
        let diff = similar::TextDiff::from_lines(&plain, &changed);
        let lines: Vec<_> =
            diff.iter_all_changes().filter(|change| change.tag() != similar::ChangeTag::Equal).collect();
        assert!((1..5).contains(&lines.len()), "{lines:#?}");
    }
}

/// The acquired training step with SiLU in place of GELU.
fn with_another_activation(trace: &Trace) -> Trace {
    let mut trace = trace.clone();
    let mut changed = 0;
    for outer in &mut trace.block.symbols {
        let Some(body) = &mut outer.body else { continue };
        for symbol in &mut Arc::make_mut(body).symbols {
            if symbol.name() == "gelu" {
                symbol.callee = Callee::Operator(find_operator("silu").unwrap());
                symbol.arguments.truncate(1);
                symbol.body = None;
                changed += 1;
            }
        }
    }
    assert_eq!(changed, CONFIG.layers);
    trace
}

/// The program's statements without the memory plan (see [`places`]; the section is one list, so that an entry more
/// folds its lines anew), each on one line, behind the heads of those that it is nested in.
fn statements(trace: &Trace) -> Vec<String> {
    let text = print(trace, PrintOptions { storage: false, ..PrintOptions::COMPACT });
    let mut statements: Vec<String> = Vec::new();
    let mut heads: Vec<(usize, String)> = Vec::new();
    let mut last = 0;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        match statements.last_mut() {
            // A continued line, and its refusals.
            Some(statement) if indent >= last + 4 || line.trim_start().starts_with("refused by ") => {
                *statement = format!("{statement} {}", line.trim());
            }
            _ => {
                let closes = line.trim_start().starts_with('}');
                heads.retain(|(outer, _)| *outer < indent || (closes && *outer == indent));
                let around: Vec<&str> = heads.iter().map(|(_, head)| &**head).collect();
                statements.push(format!("{}{line}", around.concat()));
                last = indent;
            }
        }
        // A loss holds all lines, and says nothing of one.
        let statement = statements.last().map_or("", |statement| statement);
        if line.ends_with('{') && !statement.contains("value_and_grad(") {
            heads.push((last, statement.trim_start().to_owned()));
        }
    }
    statements
}

/// What the memory section says, or follows from the lines, of each value of a planned program.
fn places(trace: &Trace) -> Vec<(&str, String)> {
    let place = |id: &ValueId| match trace.block.value(*id).storage {
        Some(Storage::Shared(root)) => format!("in {}", trace.block.value(root).name),
        other => format!("{other:?}"),
    };
    let results = trace.block.symbols.iter().flat_map(|symbol| &symbol.results);
    results.map(|id| (&*trace.block.value(*id).name, place(id))).collect()
}

/// Another activation changes the lines of the layers' `mlp` and no others, after every transform, and the places of no
/// other values in memory.
#[test]
fn another_activation_changes_the_lines_about_it_alone() {
    for target in ["cpu", "cuda:sm_90a"] {
        let acquired = train_step_trace(&CONFIG, &OptimizerSettings::default(), 2, 8).unwrap();
        let acquired = retarget(&acquired, &target.parse().unwrap());
        let of = |trace: Trace| compile(trace, &Options::default()).unwrap().1;
        let (before, after) = (of(acquired.clone()), of(with_another_activation(&acquired)));
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before.name, after.name);
            let (a, b) = (statements(&before.trace), statements(&after.trace));
            let (a, b): (Vec<&str>, Vec<&str>) = (a.iter().map(|s| &**s).collect(), b.iter().map(|s| &**s).collect());
            let diff = similar::TextDiff::from_slices(&a, &b);
            let changes = diff.iter_all_changes().filter(|change| change.tag() != similar::ChangeTag::Equal);
            let changed: Vec<&str> = changes.map(|change| change.value()).collect();
            let about = |line: &str| line.contains(".mlp.") || line.contains("gelu");
            let others = |trace| places(trace).into_iter().filter(|(name, _)| !about(name)).collect::<Vec<_>>();
            assert_eq!(others(&before.trace), others(&after.trace), "{target}, {}", before.name);
            let elsewhere: Vec<&&str> = changed.iter().filter(|line| !about(line)).collect();
            assert!(!changed.is_empty() && elsewhere.is_empty(), "{target}, {}: {elsewhere:#?}", before.name);
        }
    }
}
