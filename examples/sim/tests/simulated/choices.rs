//! Candidates measured on a device, which times runs by its own events.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fulgurite::choices::{ChoicesFile, DECOMPOSED, Entry, Records, Tried, print};
use fulgurite::compile::{Choose, Options};
use fulgurite::device::DeviceState;
use fulgurite::executor::{default_executors, executors_named, find_executor};
use fulgurite::ops::prelude::*;
use fulgurite::{Array, Device, Tensor, jit};
use fulgurite_example_sim::cubed;

fn sim() -> Device {
    Device::new("sim", 0)
}

fn numbers() -> Array {
    let values: Vec<f32> = (0..40 * 30).map(|i| (i * 7919 % 101) as f32 / 50.0 - 1.0).collect();
    Array::new([40, 30], &values).unwrap()
}

fn records() -> Arc<Records> {
    Arc::new(Records::new(sim()).unwrap().from(Duration::ZERO))
}

fn options(records: &Arc<Records>) -> Options {
    Options { device: Some(sim()), choices: Some(records.clone()), ..Options::default() }
}

/// Records of the device that no test records a timeline of: while there is one, nothing is measured.
fn undisturbed() -> (Arc<Records>, Options) {
    let device = Device::new("sim", 1);
    let records = Arc::new(Records::new(device).unwrap().from(Duration::ZERO));
    let options = Options { device: Some(device), ..options(&records) };
    (records, options)
}

/// Tells a thread to stop when it is dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One after the other: a timeline is the device's.
#[test]
fn a_device_measures_candidates_and_keeps_no_memory_of_them() {
    let host = jit(|x: Tensor| softmax(x, -1)).call(numbers()).unwrap().to_f64().unwrap();
    let records = records();
    let f = jit(|x: Tensor| softmax(x, -1)).options(options(&records));
    let result = f.call(numbers()).unwrap().to_f64().unwrap();
    assert!(result.iter().zip(&host).all(|(a, b)| (a - b).abs() < 1e-6));
    let known = records.known();
    let [entry] = &known[..] else { panic!("{known:?}") };
    let names: Vec<&str> = entry.tried.iter().map(|tried| tried.by.as_str()).collect();
    assert_eq!(names, ["sim", DECOMPOSED]);
    let [own, other] = [0, 1].map(|at| entry.tried[at].outcome.clone().unwrap());
    assert!(own.alone > 0.0 && other.alone > 0.0, "{entry}");
    // With neighbours only if the list's is not the fastest alone.
    let open = other.alone < 0.98 * own.alone;
    assert_eq!((own.beside.is_some(), other.beside.is_some()), (open, open), "{entry}");
    assert!(f.compile(&numbers()).unwrap().explain().contains("choice of softmax(input: f32[40, 30]"));
    let held = DeviceState::of(sim()).unwrap().context().memory_held();
    assert!(held.now < 64 << 20, "{held:?}: what is written between runs was given back");

    // A profiler that records what the device does is not disturbed.
    let other = self::records();
    let state = DeviceState::of(sim()).unwrap();
    state.begin_timeline().unwrap();
    jit(|x: Tensor| softmax(x, -1)).options(options(&other)).call(numbers()).unwrap();
    assert!(!state.end_timeline().unwrap().is_empty());
    assert_eq!(other.known(), []);

    // A profiler that begins meanwhile disturbs measuring, and nothing is recorded that was not timed.
    let stop = AtomicBool::new(false);
    let disturbed = self::records();
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                state.begin_timeline().unwrap();
                std::thread::sleep(Duration::from_micros(300));
                state.end_timeline().unwrap();
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        for rows in 2..40 {
            let array = Array::zeros([rows, 30], fulgurite::DType::F32).unwrap();
            jit(|x: Tensor| softmax(x, -1)).options(options(&disturbed)).call(array).unwrap();
        }
    });
    for entry in disturbed.known() {
        let times = entry.tried.iter().map(|tried| tried.outcome.clone().unwrap());
        assert!(times.into_iter().all(|times| times.alone > 0.0), "{entry}");
    }

    // By default the kind does not measure: its programs do not depend on the machine.
    let plain = jit(|x: Tensor| softmax(x, -1)).options(Options { device: Some(sim()), ..Options::default() });
    assert!(!plain.compile(&numbers()).unwrap().explain().contains("choice of"));

    records_belong_to_a_version_and_to_values_of_options();
}

fn records_belong_to_a_version_and_to_values_of_options() {
    let records = records();
    let measured = |options: Options| {
        jit(|(gate, up): (Tensor, Tensor)| geglu(gate, up)).options(options).call((numbers(), numbers())).unwrap();
        let mut calls: Vec<String> = records.known().iter().map(|entry| entry.call.to_string()).collect();
        calls.sort();
        calls
    };
    let first = measured(options(&records));
    assert!(first.len() == 1 && first[0].contains(", sim 1.1"), "{first:?}");
    assert_eq!(measured(options(&records)), first);
    let other = measured(options(&records).with_option(&fulgurite_example_sim::sim::BLOCK, 16));
    assert!(other.len() == 2 && other.iter().any(|call| call.contains(", sim 1.1, sim.block=16")), "{other:?}");
    let text = fulgurite::choices::print(&records.known().iter().map(|entry| (**entry).clone()).collect::<Vec<_>>());
    assert_eq!(fulgurite::choices::parse(&text).unwrap().len(), 2, "{text}");
}

/// Each value of a tuned parameter is a candidate, and the record decides.
#[test]
fn values_of_a_tuned_parameter_are_measured_and_recorded() {
    let (records, options) = undisturbed();
    let f = jit(cubed).options(options);
    let expected: Vec<f64> = numbers().to_f64().unwrap().iter().map(|x| x * x * x).collect();
    let right = |found: Array| {
        let found = found.to_f64().unwrap();
        found.iter().zip(&expected).all(|(found, expected)| (found - expected).abs() < 1e-6)
    };
    assert!(right(f.call(numbers()).unwrap()));
    let known = records.known();
    let [entry] = &known[..] else { panic!("{known:?}") };
    let names: Vec<&str> = entry.tried.iter().map(|tried| tried.by.as_str()).collect();
    assert_eq!(names, ["sim", DECOMPOSED, "cubed_by_sim_BLOCK_1024", "cubed_by_sim_BLOCK_256"]);
    let explained = f.compile(&numbers()).unwrap().explain();
    assert!(explained.contains("choice of ") && explained.contains("cubed_by_sim_BLOCK_256"), "{explained}");

    // Every value gives the same, and the trace shows it; without measuring it is the first.
    for name in ["sim", "cubed_by_sim_BLOCK_256", "cubed_by_sim_BLOCK_1024"] {
        let plain = Options { device: Some(sim()), ..Options::default() };
        let named = jit(cubed).options(plain.with_executors(&[name, "sim"]).unwrap());
        assert!(right(named.call(numbers()).unwrap()), "{name}");
        let claimed = named.compile(&numbers()).unwrap().stage("claim").unwrap().to_string();
        assert!(claimed.contains(&format!("by {name}")), "{claimed}");
    }
    let plain = jit(cubed).options(Options { device: Some(sim()), ..Options::default() });
    let claimed = plain.compile(&numbers()).unwrap().stage("claim").unwrap().to_string();
    assert!(claimed.contains("by sim") && !claimed.contains("BLOCK"), "{claimed}");
}

/// What `cubed` compiles to with these records of a file: the claimed trace, and what is explained.
fn with_file(folder: &Path, entries: &[Entry]) -> [String; 2] {
    let path = folder.join("cubed.choices");
    std::fs::write(&path, print(entries)).unwrap();
    let choices = Some(Arc::new(ChoicesFile::read(&path, None).unwrap()) as _);
    let compiled = jit(cubed).options(Options { device: Some(sim()), choices, ..Options::default() });
    let compiled = compiled.compile(&numbers()).unwrap();
    [compiled.stage("claim").unwrap().to_string(), compiled.explain()]
}

/// The record of `cubed` with this winner.
fn won_by(winner: &str) -> Entry {
    let (records, options) = undisturbed();
    jit(cubed).options(options).call(numbers()).unwrap();
    let measured = (*records.known()[0]).clone();
    let times = measured.tried.iter().find_map(|tried| tried.outcome.clone().ok()).unwrap();
    let tried = vec![Tried { by: winner.into(), outcome: Ok(times) }];
    Entry { winner: winner.into(), tried, ..measured }
}

#[test]
fn values_beside_the_default_run_only_by_a_record_or_by_name() {
    let tuned = ["cubed_by_sim_BLOCK_256", "cubed_by_sim_BLOCK_1024"];
    for name in tuned {
        assert_eq!(find_executor(name).unwrap().priority, None, "{name}");
    }
    let lists = [default_executors("sim"), executors_named(&["default"], "sim").unwrap()];
    for list in lists.into_iter().chain([executors_named(&["sim", "default"], "sim").unwrap()]) {
        let names: Vec<&str> = list.iter().map(|executor| executor.name).collect();
        assert!(names.contains(&"sim") && tuned.iter().all(|name| !names.contains(name)), "{names:?}");
    }
    // Neither without records, nor with a file that has none, or one of another shape.
    let folder = tempfile::tempdir().unwrap();
    for choose in [Choose::Auto, Choose::Never] {
        let plain = jit(cubed).options(Options { device: Some(sim()), choose, ..Options::default() });
        let claimed = plain.compile(&numbers()).unwrap().stage("claim").unwrap().to_string();
        assert!(claimed.contains(" by sim") && !claimed.contains("BLOCK"), "{claimed}");
    }
    let mut other = won_by("cubed_by_sim_BLOCK_256");
    other.call.arguments = "input: f32[7]".into();
    for entries in [&[][..], &[other]] {
        let [claimed, _] = with_file(folder.path(), entries);
        assert!(claimed.contains(" by sim") && !claimed.contains("BLOCK"), "{claimed}");
    }
    let [claimed, _] = with_file(folder.path(), &[won_by("cubed_by_sim_BLOCK_256")]);
    assert!(claimed.contains(" by cubed_by_sim_BLOCK_256"), "{claimed}");
}

/// The winner was removed from the list, or another value was added to it. Its record belongs to the list as it was.
#[test]
fn a_record_of_other_values_is_not_followed_and_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut of_another_list = won_by("cubed_by_sim_BLOCK_512");
    let here = of_another_list.call.executors.clone();
    assert_eq!(here, "cubed_by_sim_BLOCK_1024 1.1, cubed_by_sim_BLOCK_256 1.1, sim 1.1");
    let mut said = |executors: &str| {
        of_another_list.call.executors = executors.to_owned();
        let [claimed, explained] = with_file(folder.path(), std::slice::from_ref(&of_another_list));
        assert!(claimed.contains(" by sim") && !claimed.contains("BLOCK"), "{claimed}");
        assert!(explained.contains("no choice of fulgurite_example_sim::cubed(input: f32[40, 30])"), "{explained}");
        explained
    };
    let gone = said(&here.replace("_256", "_512"));
    let reason = "the file has a record of it with cubed_by_sim_BLOCK_512 1.1, which is not here; there is ";
    assert!(gone.contains(&format!("{reason}{here}\n")), "{gone}");
    let added = said(&here.replace("cubed_by_sim_BLOCK_256 1.1, ", ""));
    assert!(added.contains(": the file has a record of it without cubed_by_sim_BLOCK_256 1.1\n"), "{added}");
}
