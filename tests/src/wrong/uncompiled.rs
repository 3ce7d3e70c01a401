//! A kind of device whose sources nothing on this machine compiles, and a kernel for it whose pointer has another type
//! than its tensor.

use std::sync::Arc;

use fulgurite_ops_macros::{executor, implementation, operator};
use fulgurite_runtime::Failure;
use fulgurite_runtime::device::{Category, DEVICE_KINDS, DeviceContext, DeviceError, DeviceKind, Properties, Source};

struct Uncompiled;

#[fulgurite_runtime::__private::linkme::distributed_slice(DEVICE_KINDS)]
#[linkme(crate = fulgurite_runtime::__private::linkme)]
static UNCOMPILED: &dyn DeviceKind = &Uncompiled;

fn absent() -> DeviceError {
    DeviceError::new(Category::Unavailable, "there is no such device")
}

impl DeviceKind for Uncompiled {
    fn name(&self) -> &'static str {
        "uncompiled"
    }

    fn docs(&self) -> &'static str {
        "A device that is nowhere."
    }

    fn priority(&self) -> Option<u32> {
        None
    }

    fn count(&self) -> Result<u32, DeviceError> {
        Err(absent())
    }

    fn properties(&self, _ordinal: u32) -> Result<Properties, DeviceError> {
        Err(absent())
    }

    fn typical(&self, architecture: Option<&str>) -> Properties {
        Properties {
            model: "none".into(),
            architecture: architecture.map(str::to_owned),
            multiprocessors: 1,
            threads_per_multiprocessor: 1024,
            shared_bytes_per_multiprocessor: 0,
            shared_bytes_per_block: 0,
            threads_per_block: 1024,
            grid: [1 << 16; 3],
            clusters: false,
        }
    }

    fn usual_architecture(&self) -> Option<&'static str> {
        Some("none")
    }

    fn open(&self, _ordinal: u32) -> Result<Arc<dyn DeviceContext>, DeviceError> {
        Err(absent())
    }

    fn source(&self, name: &str, _defines: &[(String, String)], text: &str) -> Result<Source, Failure> {
        Ok(Source { name: name.into(), text: text.into(), options: Vec::new() })
    }
}

/// Kernels for it.
#[executor(device = "uncompiled")]
pub mod uncompiled_kernels {}

/// `-input`.
#[operator(name = "wrong::uncompiled", no_grad = "of no interest here")]
pub mod uncompiled_negation {
    fn uncompiled_negation(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        fulgurite_ops::prims::neg(input)
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        -input
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 5])));
    }
}

#[implementation(of = uncompiled_negation, by = uncompiled_kernels)]
mod uncompiled_negation_by_kernels {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "f32 only");
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        plan.source(source_files!["uncompiled.cu"]);
        plan.launch("uncompiled", LaunchShape::linear(1, 32), binds![input, out, input.meta.len() as u64])
    }
}
