//! Candidates to run a call.

use super::call::Purpose;
use super::entry::DECOMPOSED;
use super::program::is_gathered;
use super::ranking::{Question, precisions_of};
use crate::argument::Arg;
use crate::executor::{ExecutorDef, executors, find_implementation};
use crate::operator::{OperatorKind, RuleSet};
use crate::tracer::rules::TracingRules;
use crate::transforms::autodiff::rules::GradientRules;
use crate::transforms::claim::takes;

/// The candidates for a call, what the list takes first: executors of the list, the decomposition, and the other
/// executors of the target's kind whose precision is asked for. Fewer than two if there is nothing to choose.
///
/// A call that the first executor puts into regions with others has no candidates: what it costs alone says nothing of
/// them.
pub(super) fn candidates(question: &Question<'_>) -> Vec<&'static str> {
    let Question { def, metas, purpose, list, target, options, .. } = *question;
    // Measuring has threads of its own.
    let _given = options.enter();
    let asked = !matches!(def.kind, OperatorKind::Symbol(_)) && !def.effects.collective;
    if !asked || metas.iter().flat_map(Arg::tensors).next().is_none() {
        return Vec::new();
    }
    let accepts = |executor: &&&'static ExecutorDef| {
        let implementation = find_implementation(def.name, executor.name);
        executor.runs_on(target.kind())
            && match purpose {
                Purpose::Forward => takes(executor, def, metas),
                Purpose::Differentiated => {
                    implementation.is_some_and(|own| own.grad.is_some() && own.accepts(metas).is_ok())
                }
            }
    };
    let mut listed = list.iter().filter(accepts).peekable();
    let first = listed.peek().copied().copied();
    let by_rules = |executor: &ExecutorDef| find_implementation(def.name, executor.name).is_none();
    if listed.peek().is_some_and(|first| by_rules(first) && first.fuse.is_some()) {
        return Vec::new();
    }
    // Of those that take calls by their rules the first alone: the others are there for what it refuses.
    let mut names: Vec<&'static str> = Vec::new();
    for executor in listed {
        if names.is_empty() || !by_rules(executor) {
            names.push(executor.name);
        }
    }
    let opens = match purpose {
        Purpose::Forward => TracingRules::of(def).decomposition.is_some(),
        Purpose::Differentiated => {
            TracingRules::of(def).decomposition.is_some() || GradientRules::of(def).grad.is_some()
        }
    };
    if opens {
        names.push(DECOMPOSED);
    }
    let all = executors();
    let others = all.iter().filter(|executor| {
        executor.device == target.kind()
            && precisions_of(list).contains(executor.precision)
            && !by_rules(executor)
            && !list.iter().any(|listed| listed.name == executor.name)
    });
    names.extend(others.filter(accepts).map(|executor| executor.name));
    // On a thread of its own: that of a compilation may be tracing.
    let gathered = |first| std::thread::scope(|scope| scope.spawn(|| is_gathered(question, first)).join());
    match first.filter(|first| names.len() > 1 && first.fuse.is_some()).map(gathered) {
        Some(Ok(true)) => Vec::new(),
        _ => names,
    }
}
