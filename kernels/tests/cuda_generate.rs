//! Generated kernels, on machines without a device: their text, and that NVRTC compiles it to code that keeps everything
//! in registers. Without NVRTC the latter says that it is skipped.

#[path = "generated/cases.rs"]
mod cases;
mod common;

use cases::Case;
use fulgurite_kernels::cuda::generate::OPTIONS;
use fulgurite_kernels::cuda::{Compilation, nvrtc};

/// Compiles every case, and says which ones fail or spill.
fn compile(list: &[Case]) {
    if !common::has_nvrtc() {
        return;
    }
    let options = OPTIONS.map(String::from);
    let mut failures = Vec::new();
    for case in list {
        for (architecture, shared_bytes) in [("sm_80", 163 << 10), ("sm_90a", 227 << 10)] {
            let kernel = match case.generate_with_shared(shared_bytes) {
                Ok(kernel) => kernel,
                Err(error) => {
                    failures.push(format!("{}: {error}", case.name));
                    continue;
                }
            };
            let compilation =
                Compilation { name: &kernel.name, source: &kernel.source, architecture, options: &options };
            match nvrtc::compile(&compilation) {
                Err(error) => failures.push(format!("{error}\n{}", kernel.source)),
                Ok(cubin) => {
                    let [resources] = cubin.kernels() else { panic!("one kernel, not {:?}", cubin.kernels()) };
                    let mut report = |what: &str| failures.push(format!("{what}: {resources:?}\n{}", kernel.source));
                    if resources.name != kernel.name {
                        report("another name");
                    }
                    if resources.parameters.len() != kernel.parameters.len() {
                        report("other parameters");
                    }
                    if resources.uses_local_memory() && !kernel.local_memory {
                        report("undeclared local memory");
                    }
                    if !cubin.warnings(&compilation).is_empty() {
                        report(&format!("warnings {:?}", cubin.warnings(&compilation)));
                    }
                }
            }
        }
    }
    println!("{} kernels", list.len());
    for failure in &failures {
        println!("{}", failure.lines().take(4).collect::<Vec<_>>().join("\n"));
    }
    assert!(failures.is_empty(), "{} failures, the first:\n{}", failures.len(), failures[0]);
}

#[test]
fn operations_compile() {
    compile(&cases::operations());
}

#[test]
fn conversions_compile() {
    compile(&cases::conversions());
}

#[test]
fn layouts_compile() {
    compile(&cases::layouts());
}
#[test]
fn dump() {
    let Ok(which) = std::env::var("DUMP") else { return };
    for case in cases::layouts().iter().chain(&cases::rows()).chain(&cases::operations()).chain(&cases::random(300)) {
        if case.name == which {
            println!("{}", case.generate_with_shared(227 << 10).unwrap().source);
        }
    }
}

#[test]
fn rows_compile() {
    compile(&cases::rows());
}

#[test]
fn random_programs_compile() {
    compile(&cases::random(200));
}
