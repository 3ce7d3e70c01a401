//! What a compilation has measured, in one go: each call once, and no longer than it may take.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite_ops::prelude::*;
use fulgurite_runtime::choices::{Choices, Found, Question, Records, Told, Wanted};
use fulgurite_runtime::compile::{
    Choose, Options, Place, Stage, UserTransform, compile, explain, split_stages, stages,
};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::{Array, DType, Device, Target, TensorMeta, jit};

use super::measured::{list, next, program, records};

/// Records that measure for a while, and what they were asked to measure: how often a program has which call.
#[derive(Debug)]
struct Asked {
    records: Arc<Records>,
    most: Option<Duration>,
    wanted: Mutex<Vec<Vec<(usize, String)>>>,
    peaks: Mutex<Vec<Option<u64>>>,
}

impl Asked {
    fn new(records: &Arc<Records>, most: Option<Duration>) -> Arc<Asked> {
        let (wanted, peaks) = Default::default();
        Arc::new(Asked { records: records.clone(), most, wanted, peaks })
    }
}

impl Choices for Asked {
    fn find(&self, question: &Question<'_>) -> Found {
        self.records.find(question)
    }

    fn measure(&self, wanted: &[Wanted], peak: Option<u64>) {
        let shown = wanted.iter().map(|one| (one.count, one.call.to_string()));
        self.wanted.lock().unwrap().push(shown.collect());
        self.peaks.lock().unwrap().push(peak);
        self.records.measure_for(wanted, peak, self.most, &mut |_| {});
    }
}

/// Has no records, and keeps what it is told where programs are compiled to be run.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<Vec<String>>>);

impl Choices for Heard {
    fn find(&self, _: &Question<'_>) -> Found {
        Found::Ignored("nothing is known".into())
    }

    fn compiled(&self, told: &[Told]) {
        self.0.lock().unwrap().push(told.iter().map(ToString::to_string).collect());
    }
}

#[test]
fn who_keeps_records_is_told_what_was_found_where_programs_are_compiled_to_be_run() {
    let heard = Arc::new(Heard::default());
    let options =
        Options { executors: Some(list(&["listed", "cpu"])), choices: Some(heard.clone()), ..Options::default() };
    let told = || std::mem::take(&mut *heard.0.lock().unwrap());
    stages(program(300), &options).unwrap();
    assert!(told().is_empty(), "stages are looked at");
    compile(program(300), &options).unwrap();
    let all = told();
    let said = "no choice of choices::next(input: f32[300]), forward, a program of its own: nothing is known";
    assert!(all.len() == 1 && all[0].iter().any(|told| told == said), "{all:?}");
    // Forward and backward are told of at once.
    let twice = jit(|x: Tensor| super::doubled(super::doubled(x))).arguments(["x"]).results(["y"]).options(options);
    twice.vjp().call(Array::zeros([20, 100], DType::F32).unwrap()).unwrap();
    let all = told();
    let said = "no choice of choices::doubled(input: f32[20, 100]), forward and backward: nothing is known";
    assert!(all.len() == 1 && all[0].iter().any(|told| told == said), "{all:?}");
}

/// Says of each call that it is to be measured, and remembers that it was.
#[derive(Debug, Default)]
struct Measures(Mutex<Vec<String>>);

impl Choices for Measures {
    fn find(&self, question: &Question<'_>) -> Found {
        match self.0.lock().unwrap().contains(&question.call().to_string()) {
            true => Found::Ignored("it was measured".into()),
            false => Found::Unmeasured,
        }
    }

    fn measure(&self, wanted: &[Wanted], _: Option<u64>) {
        self.0.lock().unwrap().extend(wanted.iter().map(|one| one.call.to_string()));
    }
}

/// Calls that were measured are chosen again; what a compilation did before the first of them is not done again.
#[test]
fn a_compilation_goes_on_from_the_first_call_that_was_measured() {
    let (runs, late) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let counting = |count: &Arc<Mutex<usize>>| {
        let count = count.clone();
        move |trace: &Trace| {
            *count.lock().unwrap() += 1;
            Ok(trace.clone())
        }
    };
    let measures = Arc::new(Measures::default());
    let options = Options {
        executors: Some(list(&["listed", "cpu"])),
        choices: Some(measures.clone()),
        transforms: vec![
            UserTransform::new("early", counting(&runs)),
            UserTransform::new("late", counting(&late)).at(Place::BeforeClaim),
        ],
        ..Options::default()
    };
    let made = stages(program(300), &options).unwrap();
    assert_eq!((*runs.lock().unwrap(), *late.lock().unwrap()), (1, 1));
    assert!(!measures.0.lock().unwrap().is_empty());
    let said = explain(&made);
    assert!(said.contains("it was measured"), "{said}");
    let plain = stages(program(300), &Options { choices: None, ..options }).unwrap();
    let texts = |stages: &[Stage]| stages.iter().map(|stage| stage.trace.to_string()).collect::<Vec<_>>();
    assert_eq!(texts(&made), texts(&plain));
}

fn explained(trace: Trace, choices: &Arc<Asked>) -> String {
    let options =
        Options { executors: Some(list(&["tardy", "cpu"])), choices: Some(choices.clone()), ..Options::default() };
    explain(&stages(trace, &options).unwrap())
}

/// Three layers, and a head.
fn layers() -> Trace {
    let meta = |elements: usize| TensorMeta::new([elements], DType::F32, Device::CPU);
    let of = |(x, y): (Tensor, Tensor)| (next(next(next(x))), next(y));
    trace("program", Target::cpu(), &Names::default(), (meta(300), meta(500)), of).unwrap().0
}

#[test]
fn equal_calls_of_a_program_are_measured_once() {
    let folder = tempfile::tempdir().unwrap();
    let asked = Asked::new(&records(folder.path()), None);
    explained(layers(), &asked);
    let of = |elements: usize| format!("choices::next(input: f32[{elements}]), forward");
    assert_eq!(asked.wanted.lock().unwrap()[..], [vec![(3, of(300)), (1, of(500))]]);
    // Two inputs, and two outputs of which nothing is donated.
    let peak = asked.peaks.lock().unwrap()[0].unwrap();
    assert!(peak >= 2 * (300 + 500) * 4, "{peak}");
    assert_eq!(Records::kept(folder.path()).len(), 2);
    // Another process finds all records, and asks for nothing.
    let again = Asked::new(&records(folder.path()), None);
    assert!(explained(layers(), &again).contains("choice of choices::next(input: f32[300])"));
    assert!(again.wanted.lock().unwrap().is_empty());
}

#[test]
fn forward_and_backward_programs_are_gathered_together() {
    let folder = tempfile::tempdir().unwrap();
    let asked = Asked::new(&records(folder.path()), None);
    let options =
        Options { executors: Some(list(&["tardy", "cpu"])), choices: Some(asked.clone()), ..Options::default() };
    split_stages(layers(), &[0, 1], &[0, 1], &options).unwrap();
    let wanted = asked.wanted.lock().unwrap();
    // `next` has no gradient but that of its decomposition, which leaves no call with candidates.
    assert!(wanted.is_empty(), "{wanted:?}");
    drop(wanted);
    let meta = TensorMeta::new([20, 100], DType::F32, Device::CPU);
    let twice = |x: Tensor| super::doubled(super::doubled(x));
    let (trace, _) = trace("program", Target::cpu(), &Names::default(), meta, twice).unwrap();
    let options = Options { executors: Some(list(&["listed", "cpu"])), ..options };
    split_stages(trace, &[0], &[0], &options).unwrap();
    let first = asked.wanted.lock().unwrap()[0].clone();
    assert!(first.contains(&(2, "choices::doubled(input: f32[20, 100]), forward and backward".into())), "{first:?}");
}

#[test]
fn what_time_does_not_suffice_for_follows_the_list_and_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let records = records(folder.path());
    let said = explained(program(300), &Asked::new(&records, Some(Duration::ZERO)));
    let reason = "no choice of choices::next(input: f32[300]), forward, a program of its own: the time for \
                  measuring was up";
    assert!(said.contains(reason) && said.contains("next by tardy"), "{said}");
    assert!(Records::kept(folder.path()).is_empty() && records.known().is_empty());
    // The same process answers alike, also where there is more time.
    let later = Asked::new(&records, None);
    assert_eq!(explained(program(300), &later), said);
    assert!(later.wanted.lock().unwrap().is_empty());
    // The next process measures.
    let next = Asked::new(&super::measured::records(folder.path()), None);
    assert!(!explained(program(300), &next).contains("no choice of"));
    assert_eq!((next.wanted.lock().unwrap().len(), Records::kept(folder.path()).len()), (1, 1));
}

#[test]
fn options_say_how_long_programs_that_are_run_are_measured() {
    // What people switched off is not measured for this test.
    if std::env::var_os("FULGURITE_CHOOSE").is_some() {
        return;
    }
    let options = Options {
        executors: Some(list(&["tardy", "cpu"])),
        choose: Choose::Always,
        choose_for: Duration::ZERO,
        ..Options::default()
    };
    let said = jit(next).options(options).compile(&Array::zeros([1 << 20], DType::F32).unwrap()).unwrap().explain();
    let reason = "no choice of choices::next(input: f32[1048576]), forward, a program of its own: the time for \
                  measuring was up";
    assert!(said.contains(reason) && said.contains("next by tardy"), "{said}");
}
