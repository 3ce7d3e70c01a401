//! The executor `cpu` takes every prim: a prim without a kernel elsewhere can always run on the host. (The generated
//! tests compare the results.)

use super::common::{accepted, tensors, with_handles};
use fulgurite_runtime::compile::{Options, compile};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::operator::OperatorKind;
use fulgurite_runtime::registry::operators;
use fulgurite_runtime::testing::samples::Sample;
use fulgurite_runtime::tracer::call;
use fulgurite_runtime::{DType, Device, Target, Tensor, TensorMeta};

#[test]
fn every_prim_is_taken_by_the_host() {
    let options = Options::default().with_executors(&["cpu"]).unwrap();
    let mut samples = 0;
    let mut refused = Vec::new();
    for def in operators().iter().filter(|def| def.kind == OperatorKind::Prim) {
        for dtype in DType::ALL {
            for Sample { arguments, .. } in accepted(def, dtype) {
                samples += 1;
                let metas: Vec<TensorMeta> =
                    tensors(&arguments).iter().map(|tensor| tensor.meta(Device::CPU)).collect();
                let f = |handles: Vec<Tensor>| call(def, with_handles(&arguments, &handles));
                let (traced, _) = trace("sample", Target::cpu(), &Names::default(), metas, f).unwrap();
                if let Err(error) = compile(traced, &options) {
                    refused.push(format!("{} in {dtype}: {error}", def.name));
                }
            }
        }
    }
    assert!(samples > 100, "only {samples} samples");
    assert!(refused.is_empty(), "{} of {samples} refused:\n{}", refused.len(), refused.join("\n"));
}
