//! Fusion: each executor of the list that fuses groups the symbols it claimed into regions.

use super::Fuel;
use crate::executor::ExecutorDef;
use crate::trace::Trace;

/// Lets the executors make regions, in the order of the list.
pub fn fuse(trace: &Trace, executors: &[&'static ExecutorDef], fuel: &mut Fuel) -> Trace {
    let mut block = trace.block.clone();
    for executor in executors {
        if let Some(fuse) = executor.fuse.filter(|_| executor.device == trace.target.kind()) {
            block = fuse(&block, fuel).canonical();
        }
    }
    trace.transformed("fuse", block)
}
