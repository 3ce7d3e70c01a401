//! Lines of CUDA programs on several streams: planned and verified on any machine, and run on a device where there is
//! one, launched and as one graph. Without a device a test says that it is skipped; `FULGURITE_REQUIRE_CUDA=1` makes
//! that a failure.

use fulgurite_executors as _;
use fulgurite_models::config::GptConfig;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::traces::train_step_trace;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, stages};
use fulgurite_runtime::device::StreamKind;
use fulgurite_runtime::program::Program;
use fulgurite_runtime::testing::mutation::{planned, unplanned};
use fulgurite_runtime::testing::samples::Random;
use fulgurite_runtime::trace::{Trace, ValueId, parse};
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::transforms::{donate, plan, schedule};
use fulgurite_runtime::{Array, DType, Tensor, jit};

use crate::device;

const CONFIG: GptConfig =
    GptConfig { vocabulary: 31, context: 8, layers: 2, heads: 2, channels: 16, ..GptConfig::GPT2 };

/// A training step of a small model, with the layout of a program for CUDA decided.
fn laid_out() -> Trace {
    let trace = train_step_trace(&CONFIG, &OptimizerSettings::default(), 2, 8).unwrap();
    let trace = retarget(&trace, &"cuda:sm_90a".parse().unwrap());
    let stages = stages(trace, &Options::default()).unwrap();
    stages.into_iter().find(|stage| stage.name == "layout").unwrap().trace
}

/// Each line on a stream at random, and a memory plan for that.
fn on_streams(laid_out: &Trace, seed: u64) -> Trace {
    let mut random = Random::new(seed);
    finished(&schedule::schedule_on(laid_out, |_| StreamKind::ALL[(random.next() % 3) as usize]))
}

fn finished(laid_out: &Trace) -> Trace {
    plan::delete_last_used(&plan::plan(&donate::donate(laid_out)))
}

#[test]
fn a_step_on_several_streams_is_planned_verified_and_read_back() {
    let laid_out = laid_out();
    let plain = finished(&laid_out);
    plain.verify().unwrap();
    let arenas = (0..3).map(|seed| {
        let trace = on_streams(&laid_out, seed);
        trace.verify().unwrap();
        assert_eq!(parse(&trace.to_string()).unwrap(), trace);
        trace.arena
    });
    assert!(arenas.max() > Some(plain.arena), "lines of other streams keep values alive for longer");
}

/// Of all events that a step has, the verifier misses each one that is left out.
#[test]
fn each_event_is_needed() {
    let laid_out = laid_out();
    let (mut events, mut missed) = (0, Vec::new());
    for trace in [7, 8].map(|seed| on_streams(&laid_out, seed)) {
        for line in 0..trace.block.symbols.len() {
            for event in 0..trace.block.symbols[line].schedule.after.len() {
                let mut without = trace.clone();
                without.block.symbols[line].schedule.after.remove(event);
                events += 1;
                if without.verify().is_ok() {
                    missed.push(fulgurite_runtime::trace::print_symbol(&trace.block, &trace.block.symbols[line]));
                }
            }
        }
    }
    assert!(events > 50, "only {events} events");
    assert!(missed.is_empty(), "{} of {events} are not needed: {missed:#?}", missed.len());
}

/// A whole takes the place of a value that has been read by then: each of its parts waits for that, not only the first.
#[test]
fn every_part_of_a_whole_waits_for_what_had_its_memory() {
    let text = "# fulgurite trace 2\n# made by layout\n\
                trace f for cuda:sm_90a (r: f32[6, 64], x: f32[2, 64], y: f32[4, 64]) {\n\
                a: f32[6, 64] = prims::exp(r) by cuda\nb: f32[6, 64] = prims::neg(a) by cuda\n\
                p: f32[2, 64] = prims::neg(x) by cuda\nq: f32[4, 64] = prims::neg(y) by cuda\n\
                w: f32[6, 64] = prims::cat([p, q], dim=0) by join\nz: f32[6, 64] = prims::mul(w, 3.0) by cuda\n\
                return b = b, z = z\n}\n";
    let mut trace = plan::plan(&donate::donate(&parse(text).unwrap_or_else(|error| panic!("{error}"))));
    trace.verify().unwrap();
    let id = |name: &str| trace.block.values.iter().position(|value| &*value.name == name).unwrap();
    let (a, b, q, w) = (id("a"), id("b"), id("q"), id("w"));
    assert_eq!(trace.block.values[w].storage, trace.block.values[a].storage, "{trace}");
    let ids = [b, q].map(|index| ValueId(index as u32));
    trace.block.symbols[3].schedule.stream = StreamKind::Copy;
    trace.block.symbols[4].schedule.after.push(ids[1]);
    let message = trace.verify().unwrap_err().to_string();
    assert!(message.contains("'w' takes bytes") && message.contains("may not have ended"), "{message}");
    trace.block.symbols[3].schedule.after.push(ids[0]);
    trace.verify().unwrap();
}

#[test]
fn a_step_on_several_streams_has_the_same_bits() {
    let Some(cuda) = device::cuda() else { return };
    let trace = train_step_trace(&CONFIG, &OptimizerSettings::default(), 2, 8).unwrap();
    let mut random = Random::new(5);
    let inputs: Vec<Array> = (trace.block.parameters.iter())
        .map(|id| {
            let meta = trace.block.meta(*id);
            let mut value = || match meta.dtype() {
                DType::I64 => (random.next() % 30) as f64,
                _ => 0.1 * random.unit() + 0.01,
            };
            let values: Vec<f64> = (0..meta.len()).map(|_| value()).collect();
            Array::from_f64(meta.shape(), meta.dtype(), &values).unwrap()
        })
        .collect();
    // Nothing is donated, so that the arrays serve every run.
    let trace = unplanned(&planned("a training step", trace, inputs.clone(), false, "cuda").unwrap().trace);
    let compiled = stages(trace, &Options { device: Some(cuda), ..Options::default() }).unwrap();
    let laid_out = compiled.into_iter().find(|stage| stage.name == "layout").unwrap().trace;
    let bits = |program: &Program| -> Vec<Vec<u8>> {
        let outputs = program.run(inputs.clone()).unwrap();
        outputs.iter().map(|array| array.to_bytes().unwrap()).collect()
    };
    let plain = Program::new(finished(&laid_out), None).unwrap();
    let expected = bits(&plain);
    for _ in 0..3 {
        assert_eq!(bits(&plain), expected);
    }
    let counts = plain.counts().unwrap();
    assert!(counts.graphs == 1 && counts.branched == 0, "one stream is one chain: {counts:?}");
    for seed in 0..4 {
        let program = Program::new(on_streams(&laid_out, seed), None).unwrap();
        for run in 0..6 {
            assert_eq!(bits(&program), expected, "streams {seed}, run {run}");
        }
        let counts = program.counts().unwrap();
        assert!(counts.graphs >= 1 && counts.replays >= 4, "{counts:?}");
        assert_eq!(counts.branched, counts.graphs, "streams are recorded as branches: {counts:?}");
    }
}

/// Inputs of more than 1 MiB are used where they are. At other addresses in each run, a graph with branches cannot be
/// updated: the program is launched, on its streams.
#[test]
fn a_program_on_several_streams_is_launched_for_other_addresses() {
    let Some(cuda) = device::cuda() else { return };
    const LARGE: [usize; 2] = [1024, 512];
    let large = |run: usize| {
        let values: Vec<f32> = (0..LARGE[0] * LARGE[1]).map(|i| ((i * 31 + run * 17) % 113) as f32 / 64.0).collect();
        Array::new(LARGE, &values).unwrap()
    };
    let f = |(x, y): (Tensor, Tensor)| {
        let (mut left, mut right) = (x, y);
        for _ in 0..6 {
            (left, right) = (tanh(left) * 1.5, tanh(sum(right)) * 0.5 + right.sin());
        }
        (left * right, sum(left) + sum(right), transpose(x, 0, 1))
    };
    let compiled = jit(f).options(Options { device: Some(cuda), fuse: false, ..Options::default() });
    let compiled = compiled.compile(&(large(0), large(1))).unwrap();
    let laid_out = compiled.stage("layout").unwrap();
    let plain = Program::new(finished(laid_out), None).unwrap();
    for seed in 0..4 {
        let program = Program::new(on_streams(laid_out, seed), None).unwrap();
        // Kept alive, so that every run's arrays are elsewhere.
        let mut kept = Vec::new();
        for run in 0..12 {
            let inputs = [large(run), large(run + 1)].map(|array| array.to_device(cuda).unwrap()).to_vec();
            let (found, expected) = (program.run(inputs.clone()).unwrap(), plain.run(inputs.clone()).unwrap());
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.to_bytes().unwrap(), expected.to_bytes().unwrap(), "streams {seed}, run {run}");
            }
            kept.push((inputs, found));
        }
        let counts = program.counts().unwrap();
        assert!(counts.branched >= 1 && counts.replays <= 2 && counts.runs == 12, "{counts:?}");
        // Addresses that come again have a graph, whose branches give the same.
        let (inputs, found) = &kept[11];
        for _ in 0..3 {
            let again = program.run(inputs.clone()).unwrap();
            assert!(again.iter().zip(found).all(|(a, b)| a.to_bytes().unwrap() == b.to_bytes().unwrap()));
        }
    }
}
