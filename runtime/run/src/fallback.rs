//! `host`: what a device lacks is run on the host. Operands are copied there, a kernel of the host's own executors
//! runs, and results are copied back. A trace says `by host` where that happens.

use std::sync::Arc;

use fulgurite_kernels::view::is_contiguous;

use crate::argument::{Arg, map_arguments};
use crate::device::host_work::HostWork;
use crate::device::{DeviceTensor, Plan};
use crate::error::Failure;
use crate::executor::{Claim, EXECUTORS, ExecutorDef, HOST, default_executors, find_implementation};
use crate::host_kernel::of_rule;
use crate::meta::{Device, TensorMeta};
use crate::operator::{OperatorDef, RuleSet};
use crate::precision::Precision;
use crate::strided::Strided;
use crate::tracer::rules::TracingRules;

#[linkme::distributed_slice(EXECUTORS)]
static FALLBACK: &ExecutorDef = &ExecutorDef {
    name: HOST,
    docs: "What a device has no kernel for, copied to the host, run there, and copied back.",
    version: env!("CARGO_PKG_VERSION"),
    tuned: false,
    options: &[],
    device: "any",
    priority: None,
    strided: true,
    strided_results: None,
    precision: Precision::Exact,
    claims: Some(&claims),
    prepare: None,
    plan: Some(&plan),
    fuse: None,
    admits_region: None,
    prepare_region: None,
    plan_region: None,
    package: env!("CARGO_PKG_NAME"),
};

/// The first of the host's own executors that runs the call as it is.
fn taker(def: &'static OperatorDef, metas: &[Arg<TensorMeta>]) -> Option<&'static ExecutorDef> {
    default_executors(Device::CPU.kind()).into_iter().find(|executor| {
        match find_implementation(def.name, executor.name) {
            Some(own) => own.kernel.cpu.is_some() && (own.checker)(metas).is_ok(),
            None => executor.prepare.is_some() && executor.claims.is_some_and(|claims| claims(def, metas).is_ok()),
        }
    })
}

fn claims(def: &'static OperatorDef, arguments: &[Arg<TensorMeta>]) -> Claim {
    if TracingRules::of(def).decomposition.is_some() {
        return Err("is decomposed first".into());
    }
    let metas = map_arguments(arguments, |meta| meta.with_device(Device::CPU));
    taker(def, &metas).map(|_| ()).ok_or_else(|| "no executor of the host runs it".into())
}

fn plan(
    plan: &mut Plan,
    def: &'static OperatorDef,
    arguments: &[Arg<DeviceTensor>],
    results: &[DeviceTensor],
) -> Result<(), Failure> {
    let metas = map_arguments(arguments, |tensor| tensor.meta.with_device(Device::CPU));
    let missing = || Failure::new("NoKernel", format!("{} has no host kernel", def.name));
    let executor = taker(def, &metas).ok_or_else(missing)?;
    if !results.iter().all(DeviceTensor::is_contiguous) {
        return Err(Failure::new("Layout", "a result that is copied back has gaps between its elements"));
    }
    let own = find_implementation(def.name, executor.name);
    let contiguous = !own.map_or(executor.strided, |own| own.kernel.strided);
    let on_host = |tensor: &DeviceTensor| Strided {
        meta: tensor.meta.with_device(Device::CPU),
        strides: match contiguous {
            true => fulgurite_kernels::view::contiguous_strides(tensor.meta.shape()),
            false => tensor.strides.clone(),
        },
    };
    let kernel = match own {
        Some(own) => of_rule(own.kernel.cpu.ok_or_else(missing)?, arguments),
        None => {
            let arguments = map_arguments(arguments, on_host);
            let results: Vec<Strided> = results.iter().map(on_host).collect();
            executor.prepare.ok_or_else(missing)?(def, &arguments, &results)?
        }
    };
    let operands: Vec<DeviceTensor> = arguments.iter().flat_map(Arg::tensors).cloned().collect();
    let contiguous = contiguous && operands.iter().any(|tensor| !is_contiguous(tensor.shape(), &tensor.strides));
    plan.on_host(HostWork { operands, results: results.to_vec(), contiguous, kernel: Arc::new(kernel) });
    Ok(())
}
