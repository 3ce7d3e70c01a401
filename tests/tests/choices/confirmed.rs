//! Whole programs confirm choices. Times of single calls are made up; what the program takes is not.

use std::sync::Arc;

use fulgurite_runtime::argument::Arg;
use fulgurite_runtime::choices::{
    Call, Confirmed, DECOMPOSED, Entry, Machine, Purpose, Times, Tried, VERSION, confirm,
};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::precision::Precision;
use fulgurite_runtime::registry::find_operator;
use fulgurite_runtime::{DType, Device, TensorMeta};

use super::measured::{list, program};

/// A record of `choices::next` on 100 elements: the executor that the list gives, and another with these times.
fn entry(winner: &str, [listed, other]: [&str; 2], [alone, beside]: [f64; 2]) -> Arc<Entry> {
    let Machine { device, libraries } = Machine::of(Device::CPU).unwrap();
    let meta = Arg::Tensor(TensorMeta::new([100], DType::F32, Device::CPU));
    let tried = |by: &str, alone, beside| Tried { by: by.into(), outcome: Ok(Times { alone, beside: Some(beside) }) };
    Arc::new(Entry {
        call: Call::new(find_operator("choices::next").unwrap(), &[meta], Purpose::Forward, Precision::Exact),
        target: "cpu".into(),
        device,
        libraries,
        version: VERSION.into(),
        winner: winner.into(),
        tried: vec![tried(listed, 100.0, 100.0), tried(other, alone, beside)],
        note: None,
    })
}

/// The record as it is kept, and what was tried: candidate and whether it was kept. `first` has the call by the list.
fn confirmed(first: &str, entry: Arc<Entry>) -> (Entry, Vec<(Option<String>, bool)>) {
    confirmed_after(first, entry, None)
}

/// The same where `recorded` is the winner of an earlier record of the call.
fn confirmed_after(first: &str, entry: Arc<Entry>, recorded: Option<&str>) -> (Entry, Vec<(Option<String>, bool)>) {
    let options = Options { executors: Some(list(&[first, "cpu"])), ..Options::default() };
    let mut tried = Vec::new();
    let mut each = |one: &Confirmed| tried.push((one.contender.clone(), one.kept));
    let mut kept =
        confirm(&program(100), &options, Device::CPU, &[entry], &|_| recorded.map(str::to_owned), &mut each).unwrap();
    assert_eq!(kept.len(), 1);
    (kept.remove(0), tried)
}

// `tardy` waits for three milliseconds, which no other takes.

#[test]
fn a_winner_that_makes_the_program_slower_is_left_to_the_list() {
    let (kept, tried) = confirmed("prompt", entry("tardy", ["prompt", "tardy"], [50.0, 50.0]));
    assert_eq!((kept.winner.as_str(), tried), ("prompt", vec![(None, false)]));
    assert!(kept.note.unwrap().starts_with("tardy won alone; no gain in the program "));
}

#[test]
fn a_winner_that_makes_it_faster_is_kept() {
    let (kept, tried) = confirmed("tardy", entry("prompt", ["tardy", "prompt"], [50.0, 50.0]));
    assert_eq!((kept.winner.as_str(), kept.note, tried), ("prompt", None, vec![(None, true)]));
}

#[test]
fn what_is_recorded_changes_where_the_program_is_clear() {
    let (kept, tried) = confirmed_after("prompt", entry("tardy", ["prompt", "tardy"], [50.0, 50.0]), Some("tardy"));
    assert_eq!((kept.winner.as_str(), tried), ("prompt", vec![(None, false)]));
    let (kept, tried) = confirmed_after("tardy", entry("prompt", ["tardy", "prompt"], [50.0, 50.0]), Some("tardy"));
    assert_eq!((kept.winner.as_str(), tried), ("prompt", vec![(None, true)]));
}

#[test]
fn who_is_faster_in_one_way_only_is_tried_in_the_program() {
    for times in [[50.0, 150.0], [150.0, 50.0]] {
        let (kept, tried) = confirmed("tardy", entry("tardy", ["tardy", "prompt"], times));
        assert_eq!((kept.winner.as_str(), tried), ("prompt", vec![(Some("prompt".to_owned()), true)]));
        assert_eq!(kept.note.as_deref(), Some("prompt is faster in the program program"));
        let (kept, tried) = confirmed("prompt", entry("prompt", ["prompt", "tardy"], times));
        assert_eq!((kept.winner.as_str(), tried), ("prompt", vec![(Some("tardy".to_owned()), false)]));
        assert_eq!(kept.note, None);
    }
    // A candidate that is slower in both is not tried, nor one that is as fast.
    for times in [[150.0, 150.0], [99.0, 99.0]] {
        let (kept, tried) = confirmed("tardy", entry("tardy", ["tardy", DECOMPOSED], times));
        assert_eq!((kept.winner.as_str(), tried), ("tardy", vec![]));
    }
}
