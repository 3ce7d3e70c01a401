//! Executors in a list that have nothing for the devices that a program is compiled for: they refuse every line.

use std::sync::{Mutex, PoisonError};

use fulgurite::Target;
use fulgurite::executor::ExecutorDef;
use fulgurite::kernels::cuda::cublaslt::has_eight_bits;
use fulgurite::precision::Precision;

use super::output::warn;

/// What runs nothing itself, or on the host for another device.
const ANY: &str = "any";

/// Warns, once of each list, of the executors in it that have nothing for any of the targets, in a line, and of those
/// that do nothing of their own on an architecture.
pub fn warn_of(executors: &[&'static ExecutorDef], targets: &[Target]) {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    for line in idle(executors, targets).into_iter().chain(without_eight_bits(executors, targets)) {
        if !told.contains(&line) {
            warn(&line);
            told.push(line);
        }
    }
}

fn idle(executors: &[&'static ExecutorDef], targets: &[Target]) -> Option<String> {
    let runs =
        |executor: &ExecutorDef| executor.device == ANY || targets.iter().any(|target| executor.runs_on(target.kind()));
    let idle: Vec<String> = executors
        .iter()
        .filter(|executor| !runs(executor))
        .map(|executor| format!("{} (runs on {})", executor.name, executor.device))
        .collect();
    let kinds: Vec<&str> = targets.iter().map(Target::kind).collect();
    (!idle.is_empty()).then(|| format!("--executors: of no use for {}: {}", kinds.join(" and "), idle.join(", ")))
}

fn without_eight_bits(executors: &[&'static ExecutorDef], targets: &[Target]) -> Option<String> {
    let rounds = |executor: &&&ExecutorDef| {
        executor.precision == Precision::Fp8 && targets.iter().any(|target| executor.runs_on(target.kind()))
    };
    let executor = executors.iter().find(rounds)?;
    let architectures: Vec<&str> = targets.iter().filter_map(Target::architecture).collect();
    let none_has = !architectures.is_empty() && !architectures.iter().any(|architecture| has_eight_bits(architecture));
    none_has.then(|| {
        format!(
            "--executors: {} rounds nothing to 8 bits on {}, which has no products of 8 bits, as sm_89 and later \
             architectures have",
            executor.name,
            architectures.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use fulgurite::executor::executors_named;

    use super::*;

    fn told(names: &[&str], targets: &[&str]) -> [Option<String>; 2] {
        let targets: Vec<Target> = targets.iter().map(|target| target.parse().unwrap()).collect();
        let executors = executors_named(names, targets[0].kind()).unwrap();
        [idle(&executors, &targets), without_eight_bits(&executors, &targets)]
    }

    #[test]
    fn names_of_other_devices_are_told_in_one_line() {
        let line = |text: &str| Some(text.to_owned());
        assert_eq!(
            told(&["cpu", "cuda", "reference"], &["cuda:sm_90a"]),
            [line("--executors: of no use for cuda: cpu (runs on cpu), reference (runs on cpu)"), None]
        );
        assert_eq!(
            told(&["flash", "default"], &["cpu"]),
            [line("--executors: of no use for cpu: flash (runs on cuda)"), None]
        );
        for (names, targets) in [
            (&["liger", "default"][..], &["cuda:sm_90a"][..]),
            (&["default", "view", "host"], &["cpu"]),
            (&["flash", "cpu", "cuda"], &["cuda:sm_90a", "cpu"]),
        ] {
            assert_eq!(told(names, targets), [None, None], "{names:?}");
        }
    }

    #[test]
    fn products_of_8_bits_need_an_architecture_that_has_them() {
        let of = |target: &str| told(&["fp8", "default"], &[target])[1].clone();
        let line = of("cuda:sm_80").unwrap();
        assert!(line.contains("fp8 rounds nothing to 8 bits on sm_80, which has no products of 8 bits"), "{line}");
        assert_eq!([of("cuda:sm_89"), of("cuda:sm_90a"), of("cuda:sm_100a"), of("cuda")], [None, None, None, None]);
        assert_eq!(told(&["default"], &["cuda:sm_80"])[1], None);
    }
}
