//! Batches: small products and sums that are alike, and do not depend on one another, become one product and one sum of
//! all of them. In a training step these are the gradients of weights of all layers: twelve products of 256 rows take
//! twelve times as long as one, and batched about three times as long.
//!
//! ```text
//! a.grad = matmul(permute(a.d_out, dims=[1, 0]), a.input)
//! b.grad = matmul(permute(b.d_out, dims=[1, 0]), b.input)
//! ```
//!
//! become
//!
//! ```text
//! d_outs = cat([reshape(a.d_out, [1, ...]), reshape(b.d_out, [1, ...])], dim=0)
//! inputs = cat([reshape(a.input, [1, ...]), reshape(b.input, [1, ...])], dim=0)
//! grads = matmul(permute(d_outs, dims=[0, 2, 1]), inputs)
//! a.grad = reshape(slice(grads, starts=[0, 0, 0], ends=[1, ...]), ...)
//! b.grad = reshape(slice(grads, starts=[1, 0, 0], ends=[2, ...]), ...)
//! ```
//!
//! Nothing is copied for it: the layout pass has each operand written where it belongs in the whole
//! ([`join`](super::join)), and the results are views. What it costs is memory, since operands are kept until the last
//! of them is there, and results until the last one is read. So it is done where a call reads little, and takes less
//! than the least that a kernel of the device takes
//! ([`DeviceKind::least_kernel`](crate::device::DeviceKind::least_kernel)) at the rates of its fastest products, and
//! all batches together keep no more than 512 MiB. Lines that read a result follow the batch. Left alone are
//! calls whose result the program returns, which has memory of its own; programs with checkpoints, which are there to
//! save memory; and programs whose forward and backward pass are run apart.

mod alike;
mod limits;
mod operators;
mod write;

use crate::device::find_kind;
use crate::error::Result;
use crate::fuel::Fuel;
use crate::trace::{Pass, StageName, Trace};
use limits::Small;
use operators::Operators;

/// Batches what can be batched; `None` if nothing can.
///
/// # Errors
/// If an operator refuses what the batch is made of.
pub fn batch(trace: &Trace, fuel: &mut Fuel) -> Result<Option<Trace>> {
    let Ok(kind) = find_kind(trace.target.kind()) else { return Ok(None) };
    let (Some(least_kernel), Some(rates)) = (kind.least_kernel(), kind.rates(trace.target.architecture())) else {
        return Ok(None);
    };
    // Checkpoints save memory, and a batch takes some. (What the stage `recompute` computes again is decided later.)
    if trace.block.symbols.iter().any(|symbol| symbol.pass == Pass::Recomputed) {
        return Ok(None);
    }
    let Some(operators) = Operators::linked() else { return Ok(None) };
    let small = Small { rates, least_kernel };
    let groups = alike::groups(&trace.block, &operators, &small);
    if groups.is_empty() {
        return Ok(None);
    }
    let mut writer = write::Writer::new(trace.block.clone(), &operators);
    let mut any = false;
    for group in groups {
        any |= writer.batch(&group, fuel)?;
    }
    Ok(any.then(|| trace.at_stage(StageName::Batch, writer.block)))
}
