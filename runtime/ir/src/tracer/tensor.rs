//! Handles of values.

use crate::trace::ValueId;

/// A tensor of the program being traced: a handle without data, free to copy.
///
/// It lives as long as the trace that made it; using it later is an error of the next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// The trace that made it, of all traces of the process: a handle that comes from another thread is none of this
    /// one's.
    pub(super) builder: u64,
    pub(super) value: ValueId,
}

/// The value of a poisoned handle.
pub(super) const POISON: ValueId = ValueId(u32::MAX);

impl Tensor {
    /// A handle of no trace, to be replaced by one.
    pub const PLACEHOLDER: Tensor = Tensor { builder: u64::MAX, value: POISON };
}
