//! The loss of a two-layer GPT-2 and its gradients as two programs: run one after the other, compared with the one
//! program that holds both, and stored as text with the values that are saved between them.

use fulgurite_models::config::GptConfig;
use fulgurite_models::dropout::Dropout;
use fulgurite_models::gpt2::Gpt2;
use fulgurite_models::traces::{loss_programs, loss_trace};
use fulgurite_ops::prelude::value_and_grad;
use fulgurite_runtime::compile::{Options, Programs, compile, prepare};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::print::{PrintOptions, print};
use fulgurite_runtime::trace::{Trace, parse};
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, TensorMeta};

const CONFIG: GptConfig =
    GptConfig { vocabulary: 61, context: 8, layers: 2, heads: 2, channels: 16, ..GptConfig::GPT2 };

fn inputs(trace: &Trace) -> Vec<Array> {
    let mut random = fulgurite_runtime::testing::samples::Random::new(7);
    let array = |meta: &TensorMeta| {
        let mut value = || match meta.dtype() {
            DType::I64 => (random.next() % 50) as f64,
            _ => 0.2 * random.normal(),
        };
        let values: Vec<f64> = (0..meta.len()).map(|_| value()).collect();
        Array::from_f64(meta.shape(), meta.dtype(), &values).unwrap()
    };
    let block = &trace.block;
    block.parameters.iter().map(|id| block.meta(*id)).map(array).collect()
}

fn programs(options: &Options) -> Programs {
    loss_programs(loss_trace(&CONFIG, DType::F32, [2, 8]).unwrap(), options).unwrap()
}

/// The program with `value_and_grad` in it.
fn joint() -> Trace {
    let names =
        Names { arguments: vec!["params".into(), "batch".into()], results: vec!["loss".into(), "gradients".into()] };
    let meta = |shape: &[usize], dtype| TensorMeta::new(shape, dtype, Device::CPU);
    let params: Result<Gpt2<TensorMeta>, std::convert::Infallible> =
        Gpt2::build(&CONFIG, &mut |_, shape| Ok(meta(shape, DType::F32)));
    let tokens = || meta(&[2, 8], DType::I64);
    let arguments = (params.unwrap(), (tokens(), tokens()));
    let f = |(params, (tokens, targets)): (Gpt2<Tensor>, (Tensor, Tensor))| {
        value_and_grad(params, |params| params.loss(&CONFIG, tokens, targets, &Dropout::none()))
    };
    trace("loss", Target::cpu(), &names, arguments, f).unwrap().0
}

#[test]
fn two_programs_give_what_one_gives() {
    let loss = loss_trace(&CONFIG, DType::F32, [2, 8]).unwrap();
    let inputs = inputs(&loss);
    for names in [None, Some(["reference"])] {
        let mut options = Options { verify: true, ..Options::default() };
        if let Some(names) = names {
            options = options.with_executors(&names).unwrap();
        }
        let programs = programs(&options);
        let (forward, backward) = prepare(&programs, &options).unwrap();
        let mut outputs = forward.run(inputs.clone()).unwrap();
        let saved = outputs.split_off(1);
        assert_eq!(saved.len(), programs.saved().len());
        let one = Array::new([], &[1.0_f32]).unwrap();
        let gradients = backward.run(saved.into_iter().chain([one]).collect()).unwrap();
        let (program, _) = compile(joint(), &options).unwrap();
        let expected = program.run(inputs.clone()).unwrap();
        assert_eq!(gradients.len() + 1, expected.len());
        let names = &program.trace().outputs;
        for (i, (ours, expected)) in outputs.iter().chain(&gradients).zip(&expected).enumerate() {
            let (ours, expected) = (ours.to_f64().unwrap(), expected.to_f64().unwrap());
            let scale = expected.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
            for (ours, expected) in ours.iter().zip(&expected) {
                // Regions differ, and with them the order in which a row is summed.
                assert!((ours - expected).abs() <= 1e-5 * scale, "{}: {ours}, expected {expected}", names[i].path);
            }
        }
    }
}

/// The backward program reads nothing but what is saved and the cotangent; both print and parse back at every stage.
#[test]
fn both_programs_are_whole_at_every_stage() {
    let programs = programs(&Options { verify: true, ..Options::default() });
    for stage in programs.joint.iter().chain(&programs.forward).chain(&programs.backward) {
        let text = stage.trace.to_string();
        assert_eq!(parse(&text).unwrap(), stage.trace, "{}", stage.name);
    }
    let names =
        |stages: &[fulgurite_runtime::compile::Stage]| stages.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&programs.joint), ["acquire", "rewrite", "vjp", "dce", "cse", "late_rewrite"]);
    let halves = ["split", "claim", "fuse", "layout", "donate", "plan_memory", "delete_last_used"];
    assert_eq!(names(&programs.forward), halves);
    assert_eq!(names(&programs.backward), halves);
    let backward = &programs.backward[0].trace;
    assert_eq!(backward.inputs.len(), programs.saved().len() + 1);
    assert_eq!(backward.outputs.len(), CONFIG.parameters().len());
}

fn text(programs: &Programs, stage: &str, options: PrintOptions) -> String {
    let of = |stages: &[fulgurite_runtime::compile::Stage]| {
        print(&stages.iter().find(|own| own.name == stage).unwrap().trace, options)
    };
    let saved: Vec<String> = programs
        .saved()
        .iter()
        .map(|saved| format!("#   {}: {}{}", saved.name, saved.meta, if saved.argument { ", an argument" } else { "" }))
        .collect();
    format!("{}\n# saved\n{}\n\n{}", of(&programs.forward), saved.join("\n"), of(&programs.backward))
}

#[test]
fn both_programs_are_as_stored() {
    let options = Options { verify: true, ..Options::default() };
    insta::assert_snapshot!("gpt2_programs_split", text(&programs(&options), "split", PrintOptions::OUTLINE));
    insta::assert_snapshot!(
        "gpt2_programs_planned",
        text(&programs(&options), "delete_last_used", PrintOptions { depth: 1, ..PrintOptions::OUTLINE })
    );
    let target: Target = "cuda:sm_90a".parse().unwrap();
    let cuda = loss_programs(retarget(&loss_trace(&CONFIG, DType::F32, [2, 8]).unwrap(), &target), &options).unwrap();
    insta::assert_snapshot!("gpt2_programs_cuda_fused", text(&cuda, "fuse", PrintOptions::OUTLINE));
}
