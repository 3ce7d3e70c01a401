//! Products with epilogues without a device: every sample is planned for both executors, and the kernels that are used
//! where the library has no algorithm compile. NVRTC is enough; without it this is said aloud.

use std::collections::{BTreeMap, BTreeSet};

use super::common::{accepted, tensors, with_handles};
use fulgurite_executors as _;
use fulgurite_runtime::compile::{Options, compile};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::kernels::cuda::{Compilation, KernelCache, nvrtc};
use fulgurite_runtime::registry::operators;
use fulgurite_runtime::tracer::call;
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{DType, Device, Target, TensorMeta};

/// With this variable set to 1 a machine without NVRTC fails.
const REQUIRE_NVRTC: &str = "FULGURITE_REQUIRE_NVRTC";

#[test]
fn every_product_is_planned_and_what_stands_in_for_it_compiles() {
    let mut sources = BTreeMap::new();
    // Which operators each executor takes, in which types.
    let mut taken: BTreeSet<(&str, &str, DType)> = BTreeSet::new();
    let target: Target = "cuda:sm_90a".parse().unwrap();
    for def in operators().into_iter().filter(|def| def.name.starts_with("cublaslt::")) {
        for (executor, dtype) in [
            ("cublaslt", DType::F64),
            ("cublaslt", DType::F32),
            ("cublaslt", DType::BF16),
            ("cublaslt", DType::F16),
            ("tf32", DType::F32),
        ] {
            for sample in accepted(def, dtype) {
                let metas: Vec<TensorMeta> =
                    tensors(&sample.arguments).iter().map(|tensor| tensor.meta(Device::CPU)).collect();
                let f = |handles: Vec<fulgurite_runtime::Tensor>| call(def, with_handles(&sample.arguments, &handles));
                let (traced, _) = trace("sample", Target::cpu(), &Names::default(), metas, f).unwrap();
                let options = Options::default().with_executors(&[executor, "cuda"]).unwrap();
                let (program, _) = compile(retarget(&traced, &target), &options).unwrap();
                if program.trace().block.symbols.iter().any(|symbol| symbol.executor == Some(executor)) {
                    taken.insert((def.name, executor, dtype));
                }
                for source in program.sources() {
                    sources.insert(format!("{} {:?} {}", source.name, source.options, source.text), source);
                }
            }
        }
    }
    for name in ["linear_gelu", "linear_gelu_aux", "linear_residual", "matmul_gelu_backward", "weight_gradients"] {
        let name = format!("cublaslt::{name}");
        for (executor, dtype) in
            [("cublaslt", DType::F32), ("cublaslt", DType::BF16), ("cublaslt", DType::F16), ("tf32", DType::F32)]
        {
            assert!(taken.contains(&(&name[..], executor, dtype)), "{executor} takes no sample of {name} in {dtype}");
        }
    }
    for name in ["add_bias", "bias_gelu", "gelu_of_sum", "times_gelu_slope", "reduce"] {
        assert!(sources.values().any(|source| *source.name == *format!("{name}.cu")), "no {name}.cu");
    }
    if let Err(error) = nvrtc::version() {
        assert!(std::env::var(REQUIRE_NVRTC).map_or(true, |value| value != "1"), "{error}");
        println!("skipped: {error}");
        return;
    }
    for source in sources.values() {
        let compilation =
            Compilation { name: &source.name, source: &source.text, architecture: "sm_90a", options: &source.options };
        KernelCache::global().compile(&compilation).unwrap_or_else(|error| panic!("{}: {error}", source.name));
    }
}
