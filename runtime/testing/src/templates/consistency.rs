//! Agrees with the independent reference.

use crate::executor_list::REFERENCE;
use crate::facts;
use crate::operator::RuleSet;
use crate::problem::{Check, Problem};
use crate::rules::TestRules;
use crate::subject::Subject;
use crate::test::{Context, Outcome, PASSED, nothing};

/// The executor's results are near the f64 reference; in low precision at least as near, up to a factor, as the plain
/// decomposition. The plain decomposition itself (the list of the reference executor) must be near by its own
/// conditioning. What the operator declares of itself holds as well.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    if TestRules::of(context.def).reference.is_none() {
        let message = "has no rule `reference`, an independent computation in f64 that its results are compared with";
        return Err(Problem::from(message.to_owned()));
    }
    let ran = subject.forward(&context.list()?);
    let ran = ran.as_ref().as_ref().map_err(Problem::clone)?;
    facts::commutes(subject)?;
    facts::exact(subject, &ran.outputs)?;
    let compared = if context.executor.is_some_and(|executor| executor.name == REFERENCE) {
        subject.compare_plain(&ran.outputs, context.tolerance)?
    } else {
        subject.compare(&ran.outputs, context.tolerance)?
    };
    if compared { PASSED } else { nothing("there is neither a reference nor a decomposition in f64") }
}
