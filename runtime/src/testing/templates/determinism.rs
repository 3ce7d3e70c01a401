//! Two runs give the same bits.

use std::sync::OnceLock;

use super::{Context, Outcome, PASSED};
use crate::testing::problem::{Check, Problem};
use crate::testing::subject::{Ran, Subject};
use crate::testing::tolerance::same_bits;

/// Runs forward and backward again, with one thread and with three.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    let list = context.list()?;
    let ran = subject.forward(&list);
    again(ran.as_ref().as_ref().map_err(Problem::clone)?)?;
    if subject.differentiable()? {
        let joint = subject.joint(&list);
        if let Some(ran) = joint.as_ref().as_ref().map_err(Problem::clone)? {
            again(ran).map_err(|problem| problem.within("with its gradient"))?;
        }
    }
    PASSED
}

fn pools() -> Check<&'static [(usize, rayon::ThreadPool)]> {
    static POOLS: OnceLock<Check<Vec<(usize, rayon::ThreadPool)>>> = OnceLock::new();
    let make = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.map(|pool| (threads, pool)).map_err(|error| Problem(format!("no pool of {threads} threads: {error}")))
    };
    POOLS.get_or_init(|| [1, 3].map(make).into_iter().collect()).as_deref().map_err(Problem::clone)
}

fn again(ran: &Ran) -> Check {
    let compare = |what: &str| -> Check {
        for (i, (output, expected)) in ran.program.run(ran.inputs.clone())?.iter().zip(&ran.outputs).enumerate() {
            same_bits(output, expected).map_err(|problem| problem.within(format!("result {i} of {what}")))?;
        }
        Ok(())
    };
    compare("a second run")?;
    for (threads, pool) in pools()? {
        pool.install(|| compare(&format!("a run on {threads} threads")))?;
    }
    Ok(())
}
