//! Fusion: each executor of the list that fuses groups the symbols it claimed into regions.

use crate::executor::ExecutorDef;
use crate::fuel::Fuel;
use crate::trace::{Block, StageName, Trace};

/// Lets the executors make regions, in the order of the list.
pub fn fuse(trace: &Trace, executors: &[&'static ExecutorDef], fuel: &mut Fuel) -> Trace {
    let mut fused: Option<Block> = None;
    for executor in executors {
        if let Some(fuse) = executor.fuse.filter(|_| executor.runs_on(trace.target.kind())) {
            fused = Some(fuse(fused.as_ref().unwrap_or(&trace.block), fuel).canonical());
        }
    }
    trace.at_stage(StageName::Fuse, fused.unwrap_or_else(|| trace.block.clone()))
}
