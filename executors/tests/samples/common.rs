//! Shared by the tests of sources: samples, and their arguments as traced tensors.
#![allow(dead_code, reason = "each test target uses a part")]

// Naming the crate links the executors.
use fulgurite_executors as _;
use fulgurite_runtime::argument::{Arg, map_arguments};
use fulgurite_runtime::operator::OperatorDef;
use fulgurite_runtime::testing::samples::{Sample, SampleTensor, Samples};
use fulgurite_runtime::{DType, Device, Tensor};

/// The tensors among the arguments.
pub fn tensors(arguments: &[Arg<SampleTensor>]) -> Vec<SampleTensor> {
    arguments.iter().flat_map(Arg::tensors).cloned().collect()
}

/// The arguments with traced tensors.
pub fn with_handles(arguments: &[Arg<SampleTensor>], handles: &[Tensor]) -> Vec<Arg<Tensor>> {
    let mut handles = handles.iter();
    map_arguments(arguments, |_| *handles.next().expect("one for each tensor"))
}

/// The samples whose arguments are of the classes that the signature names.
pub fn accepted(def: &'static OperatorDef, dtype: DType) -> Vec<Sample> {
    let fits = |sample: &Sample| {
        let metas = map_arguments(&sample.arguments, |tensor| tensor.meta(Device::CPU));
        def.check_arguments(&metas).is_ok()
    };
    Samples::of_operator(def, dtype).into_iter().filter(fits).collect()
}

/// Fails with all `failures` of `count` at once.
pub fn report(failures: Vec<String>, count: usize) {
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n"));
}
