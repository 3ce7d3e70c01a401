//! `optim`: a training step's work on all parameters at once, in a launch or two, and nothing waits for the host.

mod adamw;
mod clipping;
mod gathering;
mod tables;

pub use clipping::{grad_norm, scale_all};

use fulgurite_ops_macros::executor;

/// Optimizers over all parameters in one launch.
#[executor(device = "cuda", priority = 5)]
pub mod optim {
    use fulgurite_runtime::fuel::Fuel;
    use fulgurite_runtime::trace::Block;

    fn fuse(block: &Block, fuel: &mut Fuel) -> Block {
        super::gathering::fuse(block, fuel)
    }

    fn admits_region(body: &Block) -> Claim {
        super::gathering::admits(body)
    }

    fn plan_region(plan: &mut Plan, body: &Block, operands: &[DeviceTensor], results: &[DeviceTensor]) -> Result<()> {
        super::adamw::plan_region(plan, body, operands, results)
    }
}
