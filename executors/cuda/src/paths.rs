//! Sums over paths: a block has a sequence, its threads have the states, and each step follows the one before.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{binds, source_files};

use super::cuda;
use super::support::type_of;

/// The most threads of a block: a sequence of more states has several for each.
const MOST_THREADS: usize = 512;

#[implementation(of = fulgurite_ops::prims::log_path_sums, by = cuda, strided)]
mod log_path_sums_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, emissions: &DeviceTensor, skips: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::log_path_sums(plan, emissions, skips, out)
    }
}

fn log_path_sums(plan: &mut Plan, emissions: &DeviceTensor, skips: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
    if out.meta.is_empty() {
        return Ok(());
    }
    let (sequences, steps, states) = (out.shape()[0], out.shape()[1], out.shape()[2]);
    plan.source(source_files!["paths.cu"]);
    plan.define("ELEMENT", type_of(out.meta.dtype()));
    let mut parameters = binds![emissions, skips, out, sequences, steps, states];
    for tensor in [emissions, skips, out] {
        parameters.extend(tensor.strides.iter().map(|stride| Parameter::from(*stride as i64)));
    }
    let threads = states.next_multiple_of(32).min(MOST_THREADS) as u32;
    plan.launch("log_path_sums", LaunchShape::linear(sequences.min(i32::MAX as usize) as u32, threads), parameters)
}
