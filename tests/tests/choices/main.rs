//! The best implementation wins: a record decides which executor runs a call, in every stage alike.

mod confirmed;
mod ended;
mod epilogues;
mod measured;
mod pool;
mod session;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_ops_macros::{executor, implementation, operator};
use fulgurite_runtime::argument::Arg;
use fulgurite_runtime::choices::{
    Call, ChoicesFile, DECOMPOSED, Entry, Machine, Purpose, Question, Records, Times, Tried, VERSION, print,
};
use fulgurite_runtime::compile::{Options, Stage, explain, stages};
use fulgurite_runtime::executor::{ExecutorDef, ExecutorOptions, executors_named};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::precision::Precision;
use fulgurite_runtime::registry::find_operator;
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::transforms::vjp;
use fulgurite_runtime::{DType, Device, Target, TensorMeta};

/// Is in the list.
#[executor(device = "cpu")]
pub mod listed {}

/// Is not in the list, and has a gradient of its own.
#[executor(device = "cpu")]
pub mod unlisted {}

/// An executor that rounds to TF32.
#[executor(device = "cpu", precision = tf32)]
pub mod rounding {}

/// Rounds in another way.
#[executor(device = "cpu", precision = fp8)]
pub mod coarse {}

/// Runs on another kind of device.
#[executor(device = "cuda")]
pub mod elsewhere {}

/// `2 · input`.
#[operator(name = "choices::doubled")]
pub mod doubled {
    fn doubled(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        input + input
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| 2.0 * x)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
    }
}

macro_rules! implementations {
    ($($module:ident, $executor:ident;)*) => {$(
        #[implementation(of = doubled, by = $executor)]
        mod $module {
            fn checker(input: &TensorMeta) -> Claim {
                refuse_unless!(input.rank() == 2, "takes matrices, input is {input}");
                Ok(())
            }

            fn execution(input: Tensor) -> Tensor {
                input * 2.0
            }

            fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
                (fulgurite_ops::prims::neg(fulgurite_ops::prims::neg(input + input)), |d_out: Tensor| Grads {
                    input: d_out + d_out,
                })
            }
        }
    )*};
}

implementations! {
    by_listed, listed;
    by_unlisted, unlisted;
    by_rounding, rounding;
    by_coarse, coarse;
}

fn list() -> Vec<&'static ExecutorDef> {
    executors_named(&["listed", "default"], "cpu").unwrap()
}

fn meta(shape: &[usize]) -> TensorMeta {
    TensorMeta::new(shape, DType::F32, Device::CPU)
}

fn program(shape: &[usize]) -> Trace {
    trace("program", Target::cpu(), &Names::default(), meta(shape), doubled).unwrap().0
}

/// A record of `choices::doubled` on a matrix.
fn entry(winner: &str, purpose: Purpose) -> Entry {
    let def = find_operator("choices::doubled").unwrap();
    let Machine { device, libraries } = Machine::of(Device::CPU).unwrap();
    Entry {
        call: Call::new(def, &[Arg::Tensor(meta(&[4, 8]))], purpose, Precision::Exact),
        target: "cpu".into(),
        device,
        libraries,
        version: VERSION.into(),
        winner: winner.into(),
        tried: vec![
            Tried { by: "listed".into(), outcome: Ok(Times { alone: 30.0, beside: None }) },
            Tried { by: DECOMPOSED.into(), outcome: Ok(Times { alone: 20.0, beside: None }) },
            Tried { by: winner.into(), outcome: Ok(Times { alone: 10.0, beside: None }) },
        ],
        note: None,
    }
}

fn file(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("choices.jsonl");
    std::fs::write(&path, text).unwrap();
    path
}

/// The stages of `trace` with these records, on this machine.
fn staged(trace: &Trace, entries: &[Entry]) -> Vec<Stage> {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), &print(entries));
    let choices = ChoicesFile::read(&path, Some(Machine::of(Device::CPU).unwrap())).unwrap();
    assert_eq!(choices.len(), entries.len());
    let options = Options { executors: Some(list()), choices: Some(Arc::new(choices)), ..Options::default() };
    stages(trace.clone(), &options).unwrap()
}

fn claimed(stages: &[Stage]) -> String {
    stages.iter().find(|stage| stage.name == "claim").unwrap().trace.to_string()
}

#[test]
fn the_recorded_winner_comes_before_the_list() {
    let plain = claimed(&staged(&program(&[4, 8]), &[]));
    assert!(plain.contains(" mul(") && !plain.contains("refused"), "{plain}");
    let decomposed = staged(&program(&[4, 8]), &[entry(DECOMPOSED, Purpose::Forward)]);
    let text = claimed(&decomposed);
    assert!(text.contains(" add(") && !text.contains(" mul(") && !text.contains("refused"), "{text}");
    let said = explain(&decomposed);
    let told =
        "choice of choices::doubled(input: f32[4, 8]), forward: decomposed of listed 30.0 us, decomposed 20.0 us";
    assert!(said.contains(told), "{said}");
    // A winner that is not in the list takes part all the same.
    let unlisted = staged(&program(&[4, 8]), &[entry("unlisted", Purpose::Forward)]);
    assert!(claimed(&unlisted).contains(" mul("));
    // Another shape is another call.
    assert_eq!(claimed(&staged(&program(&[8, 4]), &[entry(DECOMPOSED, Purpose::Forward)])), {
        claimed(&staged(&program(&[8, 4]), &[]))
    });
}

/// A call that is a whole program has no neighbours, and a record of its own; one of the call elsewhere counts where
/// there is none.
#[test]
fn a_program_of_one_call_has_a_record_of_its_own() {
    let elsewhere = entry(DECOMPOSED, Purpose::Forward);
    let mut own = entry("unlisted", Purpose::Forward);
    own.call.is_program = true;
    let twice = |x: Tensor| doubled(doubled(x));
    let several = trace("several", Target::cpu(), &Names::default(), meta(&[4, 8]), twice).unwrap().0;
    let said = |trace: &Trace, entries: &[Entry]| explain(&staged(trace, entries));
    let both = [elsewhere.clone(), own.clone()];
    assert!(said(&program(&[4, 8]), &both).contains("forward, a program of its own: unlisted of listed"));
    assert!(said(&several, &both).contains("forward: decomposed of listed"));
    assert!(said(&program(&[4, 8]), &[elsewhere]).contains("forward: decomposed of listed"));
    let alone = said(&several, &[own]);
    let reason = "the file has a record of it as a program of its own, here it is as one of several calls of a program";
    assert!(alone.contains(reason), "{alone}");
}

/// `4 · input`, by calls of another operator.
#[operator(name = "choices::fourfold")]
pub mod fourfold {
    fn fourfold(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        super::doubled(super::doubled(input))
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| 4.0 * x)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
    }
}

#[test]
fn what_a_program_of_one_call_is_decomposed_into_has_neighbours() {
    let (inner, mut own) = (entry(DECOMPOSED, Purpose::Forward), entry("unlisted", Purpose::Forward));
    own.call.is_program = true;
    let outer = trace("outer", Target::cpu(), &Names::default(), meta(&[4, 8]), fourfold).unwrap().0;
    let said = explain(&staged(&outer, &[inner, own]));
    assert!(said.contains("choices::doubled(input: f32[4, 8]), forward: decomposed of listed"), "{said}");
    assert!(!said.contains("a program of its own"), "{said}");
}

#[test]
fn the_same_record_gives_the_same_program() {
    let entries = [entry(DECOMPOSED, Purpose::Forward), entry("unlisted", Purpose::Differentiated)];
    let traces = |stages: Vec<Stage>| stages.iter().map(|stage| stage.trace.to_string()).collect::<Vec<_>>();
    let [a, b] = [(); 2].map(|()| traces(staged(&program(&[4, 8]), &entries)));
    assert_eq!(a, b);
}

#[test]
fn the_winner_of_forward_and_backward_supplies_the_gradient() {
    let joint = |entries: &[Entry]| {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path(), &print(entries));
        let choices = Arc::new(ChoicesFile::read(&path, None).unwrap());
        let options = Options { executors: Some(list()), choices: Some(choices), ..Options::default() };
        let programs = fulgurite_runtime::compile::split_stages(program(&[4, 8]), &[0], &[0], &options).unwrap();
        explain(&programs.joint)
    };
    assert!(joint(&[]).contains("the gradient rule is that of listed"), "{}", joint(&[]));
    let unlisted = joint(&[entry("unlisted", Purpose::Differentiated)]);
    assert!(unlisted.contains("the gradient rule is that of unlisted"), "{unlisted}");
    let decomposed = joint(&[entry(DECOMPOSED, Purpose::Differentiated)]);
    assert!(decomposed.contains("its decomposition is differentiated"), "{decomposed}");
    // A record of the call alone is none of its gradient.
    assert!(joint(&[entry(DECOMPOSED, Purpose::Forward)]).contains("the gradient rule is that of listed"));
    // Without records the trace of the derivative is that of the list.
    let trace = vjp(&program(&[4, 8]), &[0], &list()).unwrap().to_string();
    assert!(trace.contains(" neg("), "{trace}");
}

#[test]
fn a_winner_that_cannot_run_leaves_the_call_to_the_list_with_a_reason() {
    let said = |winner: &str| {
        let stages = staged(&program(&[4, 8]), &[entry(winner, Purpose::Forward)]);
        assert!(claimed(&stages).contains(" mul("), "{}", claimed(&stages));
        explain(&stages)
    };
    assert!(
        said("gone")
            .contains("not gone: choices::doubled: it is recorded as the fastest, and is not linked into this program")
    );
    assert!(said("elsewhere").contains("not elsewhere: choices::doubled: it runs on cuda, the target is cpu"));
    assert!(said("rounding").contains("not rounding: choices::doubled: it computes in tf32, which was not asked for"));
    assert!(said("host_only_by_name").contains("no choice of choices::doubled"));
    // One that refuses the call says so itself.
    let def = find_operator("choices::doubled").unwrap();
    let vector = Call::new(def, &[Arg::Tensor(meta(&[8]))], Purpose::Forward, Precision::Exact);
    let refused = Entry { call: vector, ..entry("unlisted", Purpose::Forward) };
    let stages = staged(&program(&[8]), &[refused]);
    assert!(explain(&stages).contains("not unlisted: choices::doubled: takes matrices"), "{}", explain(&stages));
}

#[test]
fn a_lower_precision_is_chosen_where_it_is_asked_for() {
    let asked = executors_named(&["rounding", "listed", "default"], "cpu").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = entry(DECOMPOSED, Purpose::Forward);
    recorded.call.precisions = Precision::Tf32.into();
    let path = file(folder.path(), &print(&[recorded, entry("unlisted", Purpose::Forward)]));
    let choices = Arc::new(ChoicesFile::read(&path, None).unwrap());
    let options = Options { executors: Some(asked), choices: Some(choices), ..Options::default() };
    let stages = stages(program(&[4, 8]), &options).unwrap();
    assert!(explain(&stages).contains("forward, tf32: decomposed of"), "{}", explain(&stages));
}

#[test]
fn a_lower_precision_asks_for_no_other() {
    let def = find_operator("choices::doubled").unwrap();
    let candidates = |names: &[&str]| {
        let (list, metas, target) =
            (executors_named(names, "cpu").unwrap(), [Arg::Tensor(meta(&[4, 8]))], Target::cpu());
        let purpose = Purpose::Forward;
        let options = ExecutorOptions::default();
        let question = Question {
            def,
            metas: &metas,
            purpose,
            list: &list,
            target: &target,
            is_program: false,
            options: &options,
        };
        Records::candidates(&question, std::time::Duration::ZERO).unwrap()
    };
    assert_eq!(candidates(&["listed", "cpu"]), ["listed", DECOMPOSED, "unlisted"]);
    assert_eq!(candidates(&["coarse", "listed", "cpu"]), ["coarse", "listed", DECOMPOSED, "unlisted"]);
    assert_eq!(candidates(&["rounding", "listed", "cpu"]), ["rounding", "listed", DECOMPOSED, "unlisted"]);

    // A record of a winner that nobody asked for leaves the call to the list, whatever else was asked for.
    let asked = executors_named(&["coarse", "listed", "default"], "cpu").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = entry("rounding", Purpose::Forward);
    recorded.call.precisions = Precision::Fp8.into();
    let choices = Arc::new(ChoicesFile::read(&file(folder.path(), &print(&[recorded])), None).unwrap());
    let options = Options { executors: Some(asked), choices: Some(choices), ..Options::default() };
    let said = explain(&stages(program(&[4, 8]), &options).unwrap());
    assert!(said.contains("not rounding: choices::doubled: it computes in tf32, which was not asked for"), "{said}");
}

#[test]
fn records_of_other_machines_are_ignored_with_a_reason() {
    let plain = claimed(&staged(&program(&[4, 8]), &[]));
    let of = entry(DECOMPOSED, Purpose::Forward);
    let others = [
        (Entry { device: "another model".into(), ..of.clone() }, "its record is of device another model"),
        (Entry { libraries: "driver 0".into(), ..of.clone() }, "its record is of libraries driver 0"),
        (Entry { version: "0.0.1".into(), ..of.clone() }, "its record is of fulgurite 0.0.1"),
        (Entry { target: "cuda:sm_90a".into(), ..of.clone() }, "its record is of cuda:sm_90a, the target is cpu"),
    ];
    for (foreign, reason) in others {
        let stages = staged(&program(&[4, 8]), std::slice::from_ref(&foreign));
        assert_eq!(claimed(&stages), plain);
        assert!(explain(&stages).contains(reason), "{}", explain(&stages));
        // One of this machine beside it counts.
        let both = staged(&program(&[4, 8]), &[foreign, of.clone()]);
        assert!(claimed(&both).contains(" add("));
    }
}

#[test]
fn records_of_other_shapes_are_ignored_with_a_reason() {
    let stages = staged(&program(&[8, 4]), &[entry(DECOMPOSED, Purpose::Forward)]);
    assert_eq!(claimed(&stages), claimed(&staged(&program(&[8, 4]), &[])));
    let reason = "the file has a record of it for input: f32[4, 8]";
    let line = format!("no choice of choices::doubled(input: f32[8, 4]), forward, a program of its own: {reason}");
    assert!(explain(&stages).contains(&line), "{}", explain(&stages));
    let mut of_other_precision = entry(DECOMPOSED, Purpose::Forward);
    of_other_precision.call.precisions = Precision::Tf32.into();
    let stages = staged(&program(&[4, 8]), &[of_other_precision]);
    let reason = "the file has a record of it with precision tf32, here it is exact";
    assert!(explain(&stages).contains(reason), "{}", explain(&stages));
    // One of the gradient says nothing of the call alone.
    let stages = staged(&program(&[8, 4]), &[entry(DECOMPOSED, Purpose::Differentiated)]);
    assert!(!explain(&stages).contains("no choice of"), "{}", explain(&stages));
}

#[test]
fn a_file_that_is_wrong_is_an_error_that_names_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let said = |path: &Path| ChoicesFile::read(path, None).unwrap_err().to_string();
    let whole = print(&[entry("listed", Purpose::Forward)]);
    let path = file(folder.path(), &whole.replace("\"purpose\":\"forward\"", "\"purpose\":\"fun\""));
    assert!(
        said(&path).contains("choices.jsonl") && said(&path).contains("line 2: purpose is 'fun'"),
        "{}",
        said(&path)
    );
    assert!(said(&folder.path().join("absent")).contains("absent"));
}
