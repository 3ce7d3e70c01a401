//! placeholder
use super::Trace;
/// d
pub struct TraceDiff;
/// d
pub fn diff(_a: &Trace, _b: &Trace) -> TraceDiff { TraceDiff }
