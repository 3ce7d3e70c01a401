//! Measurements on the host, between executors of which one is slow by construction.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_ops::prelude::*;
use fulgurite_ops_macros::{executor, implementation, operator};
use fulgurite_runtime::choices::{DECOMPOSED, Entry, Kept, Records, Times, Tried, print};
use fulgurite_runtime::compile::{Choose, Options, explain, split_stages, stages};
use fulgurite_runtime::executor::{ExecutorDef, executors_named};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::{Array, DType, Device, Target, TensorMeta, jit};

/// Waits before it computes.
#[executor(device = "cpu")]
pub mod tardy {}

/// Computes at once.
#[executor(device = "cpu")]
pub mod prompt {}

/// Fails whenever it runs.
#[executor(device = "cpu")]
pub mod failing {}

/// `input + 1`, as a prim: its time depends on the executor.
#[operator(name = "choices::next")]
pub mod next {
    fn next(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        // So many passes that an executor that adds at once is faster, however many threads the machine has.
        let mut sum = input + 1.0;
        for _ in 0..20 {
            sum = sum.exp().log();
        }
        sum
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x + 1.0)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::range(-1.0, 1.0));
    }
}

/// Adds 1 after `wait`.
fn add_one(input: &[f32], out: &mut [f32], wait: Duration) {
    std::thread::sleep(wait);
    // By index: compiled without optimizations, iterators take as long as all passes of the decomposition.
    let mut i = 0;
    while i < out.len() {
        out[i] = input[i] + 1.0;
        i += 1;
    }
}

macro_rules! implementations {
    ($($module:ident, $executor:ident, $wait:expr, $fails:literal;)*) => {$(
        #[implementation(of = next, by = $executor)]
        mod $module {
            fn checker(input: &TensorMeta) -> Claim {
                refuse_unless!(input.dtype() == DType::F32, "takes f32, input is {input}");
                Ok(())
            }

            fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
                if $fails {
                    return Err(Failure::new("Broken", "is broken"));
                }
                let input: &[f32] = input.contiguous("input")?;
                super::add_one(input, out.contiguous_mut("out")?, $wait);
                Ok(())
            }
        }
    )*};
}

implementations! {
    by_tardy, tardy, std::time::Duration::from_millis(3), false;
    by_prompt, prompt, std::time::Duration::ZERO, false;
    by_failing, failing, std::time::Duration::ZERO, true;
}

pub(super) fn list(names: &[&str]) -> Vec<&'static ExecutorDef> {
    executors_named(names, "cpu").unwrap()
}

pub(super) fn program(elements: usize) -> Trace {
    let meta = TensorMeta::new([elements], DType::F32, Device::CPU);
    trace("program", Target::cpu(), &Names::default(), meta, next).unwrap().0
}

pub(super) fn records(folder: &Path) -> Arc<Records> {
    Arc::new(Records::new(Device::CPU).unwrap().keep_in(folder).from(Duration::ZERO))
}

pub(super) fn options(records: &Arc<Records>, names: &[&str]) -> Options {
    Options { executors: Some(list(names)), choices: Some(records.clone()), ..Options::default() }
}

#[test]
fn the_fastest_is_measured_recorded_and_followed() {
    let folder = tempfile::tempdir().unwrap();
    let text = |records: &Arc<Records>| {
        // As many elements as make the functions of the decomposition slow.
        let stages = stages(program(200_000), &options(records, &["tardy", "cpu"])).unwrap();
        (explain(&stages), stages.last().unwrap().trace.to_string())
    };
    let (said, first) = text(&records(folder.path()));
    // Not in the list, and faster than the one that is by what that one waits.
    assert!(said.contains("next by prompt"), "{said}");
    let choice = "choice of choices::next(input: f32[200000]), forward, a program of its own: prompt of tardy ";
    assert!(said.contains(choice), "{said}");
    assert!(said.contains("failing dropped: ") && said.contains("is broken"), "{said}");
    let all = Records::kept(folder.path());
    let [Kept { entry: Ok(entry), path }] = &all[..] else { panic!("{all:?}") };
    let names: Vec<&str> = entry.tried.iter().map(|tried| tried.by.as_str()).collect();
    assert_eq!(names, ["tardy", DECOMPOSED, "failing", "prompt"], "the list's, the decomposition, the others");
    assert_eq!(entry.winner, "prompt");
    let beside = |tried: &Tried| tried.outcome.as_ref().is_ok_and(|times| times.beside.is_some());
    assert!(!entry.tried.iter().any(beside), "one call has no neighbours: {entry:?}");

    // One of several calls is measured with neighbours, where it may win.
    let twice = |x: Tensor| next(next(x));
    let meta = TensorMeta::new([200_000], DType::F32, Device::CPU);
    let (several, _) = trace("several", Target::cpu(), &Names::default(), meta, twice).unwrap();
    let among = tempfile::tempdir().unwrap();
    stages(several, &options(&records(among.path()), &["tardy", "cpu"])).unwrap();
    let kept = Records::kept(among.path());
    let [Kept { entry: Ok(other), .. }] = &kept[..] else { panic!("{kept:?}") };
    assert!(other.tried.iter().any(beside), "{other:?}");

    // Another process follows the record, whatever it would have measured.
    let text_of = std::fs::read_to_string(path).unwrap();
    let outcome = Ok(Times { alone: 1.0, beside: None });
    let other = Entry {
        winner: DECOMPOSED.into(),
        tried: vec![Tried { by: "tardy".into(), outcome: outcome.clone() }, Tried { by: DECOMPOSED.into(), outcome }],
        ..entry.clone()
    };
    std::fs::write(path, print(&[other])).unwrap();
    let (said, other) = text(&records(folder.path()));
    assert!(said.contains("its own: decomposed of tardy") && !said.contains("by prompt"), "{said}");
    assert_ne!(first, other);

    // A damaged one is measured anew.
    std::fs::write(path, &text_of[..text_of.len() - 20]).unwrap();
    assert!(Records::kept(folder.path())[0].entry.is_err());
    let (said, again) = text(&records(folder.path()));
    assert!(said.contains("next by prompt"), "{said}");
    assert_eq!(first, again, "the same winner gives the same program");
    assert!(Records::kept(folder.path())[0].entry.is_ok());
}

#[test]
fn what_the_floor_says_is_cheap_is_left_to_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let records = Arc::new(Records::new(Device::CPU).unwrap().keep_in(folder.path()));
    let stages = stages(program(1000), &options(&records, &["tardy", "cpu"])).unwrap();
    assert!(explain(&stages).contains("next by tardy"), "{}", explain(&stages));
    assert_eq!(Records::kept(folder.path()), []);
}

#[test]
fn two_who_measure_at_once_agree() {
    let folder = tempfile::tempdir().unwrap();
    let one = || {
        let records = records(folder.path());
        let stages = stages(program(3000), &options(&records, &["tardy", "cpu"])).unwrap();
        stages.last().unwrap().trace.to_string()
    };
    let traces: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(traces.iter().all(|trace| *trace == traces[0]), "{traces:?}");
    assert_eq!(Records::kept(folder.path()).len(), 1);
}

#[test]
fn forward_and_backward_are_measured_together() {
    let folder = tempfile::tempdir().unwrap();
    let records = records(folder.path());
    let meta = TensorMeta::new([2000], DType::F32, Device::CPU);
    let (trace, _) = trace("program", Target::cpu(), &Names::default(), meta, super::doubled).unwrap();
    let options = options(&records, &["listed", "cpu"]);
    let programs = split_stages(trace, &[0], &[0], &options).unwrap();
    // Its executors take matrices alone: there is nothing to choose.
    assert!(!explain(&programs.joint).contains("choice of"), "{}", explain(&programs.joint));
    let meta = TensorMeta::new([20, 100], DType::F32, Device::CPU);
    let (trace, _) =
        fulgurite_runtime::jit::trace("program", Target::cpu(), &Names::default(), meta, super::doubled).unwrap();
    let programs = split_stages(trace, &[0], &[0], &options).unwrap();
    let said = explain(&programs.joint);
    let choice = "choice of choices::doubled(input: f32[20, 100]), forward and backward, a program of its own: ";
    assert!(said.contains(choice), "{said}");
    let entries = records.known();
    assert!(entries.iter().any(|entry| entry.tried.iter().any(|tried| tried.by == "unlisted")), "{entries:?}");
}

#[test]
fn nothing_is_measured_unless_it_is_wanted() {
    // The host does not choose by default: programs of tests do not depend on the machine.
    let f = jit(next).options(Options { executors: Some(list(&["tardy", "cpu"])), ..Options::default() });
    let x = Array::new([2], &[0.0_f32, 1.0]).unwrap();
    assert!(f.compile(&x).unwrap().explain().contains("next by tardy"));
    // What is only shown is not measured either, unless records are given.
    let options = Options { executors: Some(list(&["tardy", "cpu"])), choose: Choose::Always, ..Options::default() };
    assert!(explain(&stages(program(1 << 20), &options).unwrap()).contains("next by tardy"));
}
