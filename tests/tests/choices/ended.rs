//! A candidate that ends its process is named and skipped by the next one.

use std::path::Path;
use std::process::Command;

use fulgurite_ops::prelude::*;
use fulgurite_ops_macros::{executor, implementation, operator};
use fulgurite_runtime::choices::{DECOMPOSED, Kept, Records};
use fulgurite_runtime::compile::{explain, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::{DType, Device, Target, TensorMeta};

use super::measured::{options, records};

/// Set in the process that is ended: the folder of its records.
const CHILD: &str = "CHOICES_OF_A_CHILD";

/// Ends the process.
#[executor(device = "cpu")]
pub mod fatal {}

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

#[implementation(of = risky, by = fatal)]
mod risky_by_fatal {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "takes f32, input is {input}");
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        assert!(std::env::var_os(super::CHILD).is_some(), "it is run by the process that it ends alone");
        let _ = (input, out);
        std::process::abort()
    }
}

fn explained(folder: &Path) -> String {
    let meta = TensorMeta::new([100], DType::F32, Device::CPU);
    let (trace, _) = trace("program", Target::cpu(), &Names::default(), meta, risky).unwrap();
    explain(&stages(trace, &options(&records(folder), &["cpu"])).unwrap())
}

#[test]
fn a_candidate_that_ends_its_process_is_skipped_by_the_next() {
    if let Some(folder) = std::env::var_os(CHILD) {
        explained(Path::new(&folder));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ended::a_candidate_that_ends_its_process_is_skipped_by_the_next"])
        .env(CHILD, folder.path())
        .output()
        .unwrap();
    assert!(!child.status.success(), "{child:?}");
    let journal = || std::fs::read_to_string(folder.path().join("measuring.log")).unwrap();
    assert!(journal().contains("\"candidate\":\"fatal\"") && journal().contains("choices::risky"), "{}", journal());
    assert_eq!(Records::kept(folder.path()), []);
    let ended = Records::ended(folder.path());
    assert_eq!(ended, [("choices::risky(input: f32[100]), forward".to_owned(), "fatal".to_owned())]);

    let said = explained(folder.path());
    assert!(said.contains("fatal dropped: ended the process that measured it"), "{said}");
    let all = Records::kept(folder.path());
    let [Kept { entry: Ok(entry), .. }] = &all[..] else { panic!("{all:?}") };
    assert_eq!((entry.winner.as_str(), entry.tried.len()), (DECOMPOSED, 2));
    // The record says it from now on.
    assert_eq!(journal(), "");
    assert_eq!(explained(folder.path()), said);
}
