//! Programs under autocast, as the templates of random programs have them.

use fulgurite_kernels::DType;

use crate::error::Result;
use crate::trace::Trace;
use crate::transforms::autocast::autocast;

/// What products are computed in.
pub(super) const LOW: DType = DType::BF16;

/// A result that moves by more than this part of its size, when values move by their roundings, is at a discontinuity
/// or is ill-conditioned, and says nothing about an executor.
pub(super) const JUMP: f64 = 0.1;

/// The program under autocast.
pub(super) fn mixed(trace: &Trace) -> Result<Trace> {
    autocast(trace, LOW)
}
