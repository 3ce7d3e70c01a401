//! What an operator declares of itself holds on its samples.

use crate::argument::Arg;
use crate::array::Array;
use crate::operator::RuleSet;
use crate::problem::{Check, Problem};
use crate::rules::TestRules;
use crate::samples::round_to;
use crate::subject::Subject;

/// An operator that declares to be exact gives the reference's numbers, rounded to the type of its result. (Integers
/// and booleans must be met exactly anyway.)
pub(crate) fn exact(subject: &Subject, outputs: &[Array]) -> Check {
    let Some(expected) = subject.expected()?.filter(|_| subject.def.exact) else { return Ok(()) };
    let results = outputs.iter().zip(expected).enumerate();
    for (i, (output, expected)) in results.filter(|(_, (output, _))| output.dtype().is_differentiable()) {
        let rounded = expected.values.iter().map(|value| round_to(*value, output.dtype()));
        let mut pairs = output.to_f64()?.into_iter().zip(rounded);
        if let Some((got, expected)) = pairs.find(|(got, expected)| !alike(*got, *expected)) {
            let message = format!("result {i}: the operator declares to be exact: expected {expected:?}, got {got:?}");
            return Err(Problem(message));
        }
    }
    Ok(())
}

/// The reference of an operator that declares to commute gives the same numbers for its first two operands exchanged.
pub(crate) fn commutes(subject: &Subject) -> Check {
    let (def, metas) = (subject.def, &subject.metas);
    let [Arg::Tensor(_), Arg::Tensor(_), others @ ..] = &metas[..] else { return Ok(()) };
    let defaults = def.params.iter().skip(2).zip(others).all(|(param, given)| *given == param.default_argument());
    let (true, Some(rule)) = (def.commutes && defaults, TestRules::of(def).reference) else { return Ok(()) };
    let mut arguments = subject.reference_arguments(&subject.arrays)?;
    arguments.swap(0, 1);
    let exchanged = rule(&arguments).map_err(|failure| Problem::from(failure).within("with operands exchanged"))?;
    for (expected, got) in subject.reference()?.unwrap_or_default().iter().zip(&exchanged) {
        let same = expected.shape() == got.shape()
            && expected.numbers().iter().zip(&got.numbers()).all(|(expected, got)| alike(*expected, *got));
        if !same {
            return Err("the operator declares that its first two operands commute, and its reference gives other \
                        numbers for them exchanged"
                .into());
        }
    }
    Ok(())
}

/// Equal, or both not a number.
fn alike(a: f64, b: f64) -> bool {
    a == b || a.is_nan() && b.is_nan()
}
