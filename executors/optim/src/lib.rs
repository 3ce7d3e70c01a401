//! `optim`: a training step's work on all parameters at once, in a launch or two, and nothing waits for the host.

mod adamw;
mod clipping;
mod gathering;
mod region;
mod tables;

pub use clipping::{grad_norm, scale_all};

use fulgurite_ops_macros::executor;
use fulgurite_runtime::rules::{DeviceTensor, Failure, Plan, Result};
use fulgurite_runtime::trace::{Block, ValueId};
use rustc_hash::FxHashMap;

use region::{Region, broken};

/// Optimizers over all parameters in one launch.
#[executor(device = "cuda", priority = 5)]
pub mod optim {
    use fulgurite_runtime::fuel::Fuel;
    use fulgurite_runtime::trace::Block;

    fn fuse(block: &Block, fuel: &mut Fuel) -> Block {
        super::gathering::fuse(block, fuel)
    }

    fn admits_region(body: &Block) -> Claim {
        super::region::Region::of(body).map(drop)
    }

    fn plan_region(plan: &mut Plan, body: &Block, operands: &[DeviceTensor], results: &[DeviceTensor]) -> Result<()> {
        super::plan(plan, body, operands, results)
    }
}

/// Plans a region of the executor.
fn plan(plan: &mut Plan, body: &Block, operands: &[DeviceTensor], results: &[DeviceTensor]) -> Result<()> {
    let inputs = body.parameters.iter().zip(operands);
    let all: FxHashMap<ValueId, &DeviceTensor> =
        inputs.chain(body.results.iter().zip(results)).map(|(id, tensor)| (*id, tensor)).collect();
    let tensor = |id: ValueId| all.get(&id).map(|tensor| DeviceTensor::clone(tensor)).ok_or_else(broken);
    match Region::of(body)
        .map_err(|reason| Failure::new("Region", format!("a region of the optim executor: {reason}")))?
    {
        Region::Updates(updates) => adamw::plan_updates(plan, &updates, &tensor),
        Region::Norm(gradients) => {
            let own: Vec<DeviceTensor> = gradients.iter().map(|own| tensor(own.value)).collect::<Result<_>>()?;
            clipping::plan_norm(plan, &own, gradients[0].dtype, &results[0])
        }
    }
}
