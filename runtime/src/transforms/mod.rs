//! Named functions from trace to trace.

pub mod autocast;
pub mod autodiff;
pub mod claim;
pub mod cse;
pub mod dce;
pub mod decompose;
pub mod donate;
pub mod flatten;
pub mod fuse;
pub(crate) mod in_place;
pub mod layout;
pub mod plan;
pub mod recompute;
pub mod retarget;
pub mod rewrite;

use crate::error::Result;
use crate::executor::ExecutorDef;
use crate::trace::Trace;

/// The joint trace of a program and its vjp, as [`autodiff::vjp`] makes it. It is called `vjp`, since `autodiff` is a stage that
/// the compilation of every trace has, of joint traces too.
pub fn vjp(trace: &Trace, wrt: &[usize], executors: &[&'static ExecutorDef]) -> Result<Trace> {
    let mut joint = autodiff::vjp(trace, wrt, executors)?;
    name_vjp(&mut joint);
    Ok(joint)
}

/// The name of the stage that makes a joint trace.
pub(crate) const VJP: &str = "vjp";

/// Calls the last transform of a joint trace `vjp`.
pub(crate) fn name_vjp(joint: &mut Trace) {
    if let Some(last) = joint.history.last_mut() {
        VJP.clone_into(last);
    }
}

/// Optimization fuel: how many more claims, fusions and rewrites may be made. Halving it finds the one that breaks a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fuel(Option<u64>);

impl Fuel {
    /// Without a limit.
    pub const UNLIMITED: Fuel = Fuel(None);

    /// At most `steps` optimizations.
    pub fn limited(steps: u64) -> Fuel {
        Fuel(Some(steps))
    }

    /// What is left of it; `None` if there is no limit.
    pub fn left(self) -> Option<u64> {
        self.0
    }

    /// Takes fuel for one optimization; `false` if none is left.
    pub fn burn(&mut self) -> bool {
        match &mut self.0 {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}
