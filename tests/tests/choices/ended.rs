//! A candidate that ends its process is skipped by the next one, tried again by the one after that, and then skipped
//! for good: the user may have ended the process by Ctrl-C.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_ops::prelude::*;
use fulgurite_ops_macros::{executor, implementation, operator};
use fulgurite_runtime::choices::{Blamed, DECOMPOSED, Kept, Records, Times};
use fulgurite_runtime::compile::{explain, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::{DType, Device, Target, TensorMeta};

use super::measured::{options, records};

/// Set in the process that is ended: the folder of its records.
const CHILD: &str = "CHOICES_OF_A_CHILD";
/// Set in the process that is ended: what ends it.
const BY: &str = "CHOICES_THAT_END";

/// Ends the process that runs it, if that is asked for.
#[executor(device = "cpu")]
pub mod fatal {}

/// Ends the process that compiles it, if that is asked for.
#[executor(device = "cpu")]
pub mod fatally_compiled {}

/// `input + 2`.
#[operator(name = "choices::risky")]
pub mod risky {
    fn risky(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        input + 2.0
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x + 2.0)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::range(-1.0, 1.0));
    }
}

fn end_if(what: &str) {
    if std::env::var(BY).is_ok_and(|by| by == what) {
        std::process::abort();
    }
}

#[implementation(of = risky, by = fatal)]
mod risky_by_fatal {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "takes f32, input is {input}");
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        super::end_if("running");
        let input: &[f32] = input.contiguous("input")?;
        let out: &mut [f32] = out.contiguous_mut("out")?;
        input.iter().zip(out).for_each(|(x, y)| *y = x + 2.0);
        Ok(())
    }
}

#[implementation(of = risky, by = fatally_compiled)]
mod risky_by_fatally_compiled {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "takes f32, input is {input}");
        Ok(())
    }

    fn execution(input: Tensor) -> Tensor {
        super::end_if("compiling");
        input + 1.0 + 1.0
    }
}

fn explained(folder: &Path) -> String {
    let meta = TensorMeta::new([100], DType::F32, Device::CPU);
    let (trace, _) = trace("program", Target::cpu(), &Names::default(), meta, risky).unwrap();
    explain(&stages(trace, &options(&records(folder), &["cpu"])).unwrap())
}

/// A process that measures, and that a candidate ends.
fn end_a_process(folder: &Path, by: &str) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ended::a_child"])
        .env(CHILD, folder)
        .env(BY, by)
        .output()
        .unwrap();
    assert!(!child.status.success(), "{child:?}");
}

/// The test that [`end_a_process`] runs in a child process.
#[test]
fn a_child() {
    if let Some(folder) = std::env::var_os(CHILD) {
        explained(Path::new(&folder));
    }
}

/// The lines of the journal.
pub(super) fn journal(folder: &Path) -> String {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let logs: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
    let [log] = &logs[..] else { panic!("{logs:?}") };
    std::fs::read_to_string(log).unwrap()
}

fn blamed(candidate: &str, reason: &str, skipped: bool) -> Blamed {
    let call = "choices::risky(input: f32[100]), forward, a program of its own".to_owned();
    Blamed { call, candidate: candidate.into(), reason: reason.into(), skipped }
}

#[test]
fn a_candidate_that_ends_its_process_twice_is_skipped_for_good() {
    for (by, candidate, what) in [("running", "fatal", "ran"), ("compiling", "fatally_compiled", "compiled")] {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path();
        end_a_process(folder, by);
        assert!(journal(folder).contains(&format!("\"what\":\"{by}\"")), "{}", journal(folder));
        assert_eq!(Records::kept(folder), []);
        let reason = format!("ended the process that {what} it");
        assert_eq!(Records::ended(folder), [blamed(candidate, &reason, true)]);

        // The next process skips it, and nothing lasts.
        let said = explained(folder);
        assert!(said.contains(&format!("{candidate} dropped: {reason}")), "{said}");
        assert_eq!(Records::kept(folder), [], "it may have been Ctrl-C");
        assert_eq!(Records::ended(folder), [blamed(candidate, &reason, false)]);

        // The one after that tries it again, and ends as well.
        end_a_process(folder, by);
        let reason = format!("{reason}, twice");
        assert_eq!(Records::ended(folder), [blamed(candidate, &reason, true)]);
        let said = explained(folder);
        assert!(said.contains(&format!("{candidate} dropped: {reason}")), "{said}");
        let all = Records::kept(folder);
        let [Kept { entry: Ok(entry), .. }] = &all[..] else { panic!("{all:?}") };
        assert_eq!(entry.tried.len(), 3, "{entry}");
        // The record says it from now on.
        assert_eq!((journal(folder).as_str(), Records::ended(folder).len()), ("", 0));
        assert_eq!(explained(folder), said);
    }
}

#[test]
fn a_candidate_that_somebody_interrupted_is_measured_after_all() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    end_a_process(folder, "running");
    assert!(explained(folder).contains("fatal dropped: "));
    assert!(!explained(folder).contains("dropped"), "it is tried again");
    let all = Records::kept(folder);
    let [Kept { entry: Ok(entry), .. }] = &all[..] else { panic!("{all:?}") };
    let names: Vec<&str> = entry.tried.iter().map(|tried| tried.by.as_str()).collect();
    assert_eq!(names, [DECOMPOSED, "fatal", "fatally_compiled"]);
    assert!(entry.tried.iter().all(|tried| tried.outcome.is_ok()), "{entry}");
    assert_eq!(journal(folder), "");
}

#[test]
fn who_measures_again_reads_no_record_and_tries_all_candidates() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let explained = |records: Records| {
        let meta = TensorMeta::new([100], DType::F32, Device::CPU);
        let (trace, _) = trace("program", Target::cpu(), &Names::default(), meta, risky).unwrap();
        let records = Arc::new(records.keep_in(folder).from(Duration::ZERO));
        explain(&stages(trace, &options(&records, &["cpu"])).unwrap())
    };
    let records = || Records::new(Device::CPU).unwrap();
    let kept = || match &Records::kept(folder)[..] {
        [Kept { entry: Ok(entry), .. }] => entry.clone(),
        all => panic!("{all:?}"),
    };
    // A record whose winner nobody measured.
    explained(records());
    let mut wrong = kept();
    wrong.tried[0].outcome = Ok(Times { alone: 0.5, beside: None });
    records().keep_in(folder).replace(&wrong);
    assert!(explained(records()).contains("decomposed 0.5 us"), "{}", explained(records()));
    explained(records().again());
    assert_ne!(kept().tried[0].outcome, wrong.tried[0].outcome, "the record is another");

    // The candidate that ended a process is tried, and no longer blamed.
    std::fs::remove_file(&Records::kept(folder)[0].path).unwrap();
    end_a_process(folder, "running");
    assert_eq!(Records::ended(folder).len(), 1);
    assert!(!explained(records().again()).contains("dropped"));
    assert_eq!(Records::ended(folder), []);

    // So it is by a record that takes the place of another.
    let entry = kept();
    std::fs::remove_file(&Records::kept(folder)[0].path).unwrap();
    end_a_process(folder, "running");
    records().keep_in(folder).replace(&entry);
    assert_eq!(Records::ended(folder), []);
}
