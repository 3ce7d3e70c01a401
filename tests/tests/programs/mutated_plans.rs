//! Whatever verifies runs right: planned traces of operators' samples, of random programs and of a small GPT-2 step are
//! changed at random, and of those that verify none may differ from its lines run without a plan.
//!
//! The gate runs some of them. `FULGURITE_MUTANTS=10000 cargo test -p fulgurite-tests --test programs --
//! mutated_plans::` runs as many as asked for, with other programs and samples; `FULGURITE_MUTANT_SEED=7` starts
//! elsewhere. Where there is a CUDA device the same is done with plans for it.

use std::time::Instant;

use fulgurite_executors as _;
use fulgurite_models::config::GptConfig;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::traces::train_step_trace;
use fulgurite_runtime::testing::mutation::{
    Planned, Verdict, changed, judge, planned, random_programs, sampled_programs,
};
use fulgurite_runtime::testing::samples::Random;
use fulgurite_runtime::trace::parse;
use fulgurite_runtime::{Array, DType};

use crate::device;

const CONFIG: GptConfig = GptConfig { vocabulary: 31, context: 4, layers: 1, heads: 2, channels: 8, ..GptConfig::GPT2 };

/// How many are changed in the gate.
const IN_THE_GATE: usize = 1500;

fn number(variable: &str, otherwise: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is '{text}', expected a number")),
        Err(_) => otherwise,
    }
}

fn training_step(kind: &str) -> Planned {
    let trace = train_step_trace(&CONFIG, &OptimizerSettings::default(), 2, 4).unwrap();
    let mut random = Random::new(7);
    let mut array = |id| {
        let meta = trace.block.meta(id);
        let mut value = || match meta.dtype() {
            DType::I64 => (random.next() % 30) as f64,
            _ => 0.1 * random.unit() + 0.01,
        };
        let values: Vec<f64> = (0..meta.len()).map(|_| value()).collect();
        Array::from_f64(meta.shape(), meta.dtype(), &values).unwrap()
    };
    let inputs = trace.block.parameters.iter().map(|id| array(*id)).collect();
    planned("a training step", trace, inputs, false, kind).unwrap()
}

/// A line whose operand and result are parts of one whole changes memory of the whole, and not its operand.
#[test]
fn a_part_of_a_whole_may_be_made_from_another_part() {
    let lines =
        "  y = prims::exp(x)\n  z = prims::exp(y)\n  both: f32[4, 4] = prims::cat([y, z], dim=0)\n  return both\n";
    let text = format!("# fulgurite trace 2\ntrace f for cpu (x: f32[2, 4]) {{\n{lines}}}\n");
    let x = Array::from_f64([2, 4], DType::F32, &[0.5; 8]).unwrap();
    let program = planned("parts", parse(&text).unwrap(), vec![x], false, "cpu").unwrap();
    assert_eq!(judge(&program.trace, &program.inputs), Ok(Verdict::Right));
}

#[test]
fn what_verifies_runs_right() {
    changed_plans_run_right("cpu");
}

#[test]
fn what_verifies_runs_right_on_a_device() {
    if device::cuda().is_some() {
        changed_plans_run_right("cuda");
    }
}

/// Changes plans for a kind of device at random, and runs those that verify.
fn changed_plans_run_right(kind: &str) {
    let (count, seed) = (number("FULGURITE_MUTANTS", IN_THE_GATE), number("FULGURITE_MUTANT_SEED", 0));
    let started = Instant::now();
    let mut programs = vec![training_step(kind)];
    // As many rounds of samples and programs as it takes for a few changes of each.
    for round in 0..(count / 2000).clamp(1, 8) {
        programs.extend(sampled_programs(seed + round, kind).unwrap());
        let first = (seed + round * 40) as u64;
        programs.extend(random_programs(first..first + 40, kind).unwrap());
    }
    for program in &programs {
        let verdict = judge(&program.trace, &program.inputs).unwrap_or_else(|why| panic!("{}: {why}", program.name));
        assert_eq!(verdict, Verdict::Right, "{}", program.name);
    }
    let mut random = Random::new(seed as u64 + 1);
    let (mut refused, mut fails, mut right, mut wrong) = (0, 0, 0, Vec::new());
    for i in 0..count {
        // The step is one of many, and the largest.
        let program = if i % 20 == 0 { &programs[0] } else { &programs[i % programs.len()] };
        let (trace, what) = changed(&program.trace, &mut random);
        match judge(&trace, &program.inputs) {
            Ok(Verdict::Refused) => refused += 1,
            Ok(Verdict::Fails) => fails += 1,
            Ok(Verdict::Right) => right += 1,
            Err(why) => wrong.push(format!("{}: {what}\n{why}\n{trace}", program.name)),
        }
    }
    eprintln!(
        "{count} changed traces of {} programs: {refused} refused, {fails} fail with and without a plan, {right} verify and run right, \
         {} differ; {:?}",
        programs.len(),
        wrong.len(),
        started.elapsed()
    );
    for one in wrong.iter().take(number("FULGURITE_MUTANTS_SHOWN", 3)) {
        eprintln!("{one}\n");
    }
    assert!(wrong.is_empty(), "{} of {count} verify and differ", wrong.len());
    assert!(right >= count / 50, "only {right} of {count} verify: the changes are too coarse to test anything");
}
