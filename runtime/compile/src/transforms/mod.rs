//! Named functions from trace to trace.

mod attributes;
pub mod autocast;
pub mod autodiff;
pub mod batch;
pub mod bucket;
pub mod channels;
mod cheap;
pub mod claim;
pub mod complex_to_real;
pub mod cse;
pub mod dce;
pub mod ddp;
pub mod decompose;
pub mod donate;
mod draws;
pub mod flatten;
pub mod fsdp;
pub mod fuse;
pub mod join;
pub mod layout;
pub(crate) mod nest;
pub mod pad;
pub mod plan;
pub mod recompute;
pub mod retarget;
pub mod rewrite;
pub mod schedule;
pub mod tensor_parallel;

use crate::choices::Ranking;
use crate::error::Result;
use crate::executor::ExecutorDef;
use crate::trace::{StageName, Trace};

/// The joint trace of a program and its vjp, as [`autodiff::vjp`] makes it. It is called `vjp`, since `autodiff` is a
/// stage that the compilation of every trace has, of joint traces too.
pub fn vjp(trace: &Trace, wrt: &[usize], executors: &[&'static ExecutorDef]) -> Result<Trace> {
    vjp_by(trace, wrt, &Ranking::list(executors, &trace.target), &mut Vec::new())
}

/// As [`vjp`], by the executors of a ranking; `rules` receives the source of the rule of each differentiated call.
pub fn vjp_by(
    trace: &Trace,
    wrt: &[usize],
    ranking: &Ranking<'_>,
    rules: &mut Vec<autodiff::GradientRule>,
) -> Result<Trace> {
    let of = autodiff::floating_outputs(trace);
    let mut joint = autodiff::vjp_of(trace, wrt, &of, ranking, rules)?;
    name_vjp(&mut joint);
    Ok(joint)
}

/// Calls the last transform of a joint trace `vjp`.
pub(crate) fn name_vjp(joint: &mut Trace) {
    if let Some(last) = joint.history.last_mut() {
        StageName::Vjp.name().clone_into(last);
    }
}
