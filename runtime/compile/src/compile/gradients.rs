//! A program with its gradients, before it is compiled.

use super::gather::{Gathered, settled};
use super::{Options, Stage, current};
use crate::error::Result;
use crate::trace::{StageName, Trace};
use crate::transforms::vjp_by;

/// A program with its vector-Jacobian product for the inputs `wrt`, as [`vjp_by`] makes it. The rules are those of the
/// implementations that run: calls of which nothing is recorded are measured first, if the options have records.
///
/// # Errors
/// Those of [`vjp_by`].
pub fn with_gradients(trace: Trace, wrt: &[usize], options: &Options) -> Result<Trace> {
    gradients_stage(trace, wrt, options).map(|stage| stage.trace)
}

/// As [`with_gradients`]: a stage that has the program, the source of the rule of each call, and what was recorded of
/// the calls.
///
/// # Errors
/// Those of [`vjp_by`].
pub fn gradients_stage(trace: Trace, wrt: &[usize], options: &Options) -> Result<Stage> {
    current::expect_listed(options, &trace)?;
    let _given = options.executor_options.enter();
    let list = options.executor_list(trace.target.kind());
    let once = |trace: Trace| {
        let ranking = options.ranking(&list, &trace.target, &trace);
        let mut gradients = Vec::new();
        let made = vjp_by(&trace, wrt, &ranking, &mut gradients);
        let made =
            made.map(|trace| Stage { name: StageName::Vjp.name().into(), trace, gradients, choices: ranking.told() });
        let wanted = ranking.wanted().into_iter().map(|one| (one.call.clone(), one)).collect();
        (made, Gathered { wanted, peak: None })
    };
    settled(trace, options.choices.as_deref(), once)
}
