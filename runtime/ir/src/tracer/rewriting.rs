//! What transforms that trace a program again need of the trace being built.

use std::sync::Arc;

use super::tensor::{POISON, Tensor};
use super::with_top;
use crate::argument::{Arg, map_arguments};
use crate::error::{Error, Place};
use crate::meta::TensorMeta;
use crate::operator::OperatorDef;
use crate::refusal::Refusal;
use crate::trace::{BoundSymbol, Pass, Results};

/// Runs `f` with `name` as the whole scope, whatever the scope around is.
pub fn absolute_scope<R>(name: &str, f: impl FnOnce() -> R) -> R {
    let before = with_top(|builder| std::mem::replace(&mut builder.scope, name.to_owned()));
    let result = f();
    if let Some(before) = before {
        with_top(|builder| builder.scope = before);
    }
    result
}

/// Runs `f` with its lines in the backward pass, and `name` as the whole scope.
pub fn backward<R>(name: &str, f: impl FnOnce() -> R) -> R {
    within_pass(Pass::Backward, || absolute_scope(name, f))
}

/// Runs `f` with its lines among those that are computed again for the backward pass: they are not merged with equal
/// lines of the forward pass, whose results would be kept until then. For the closure of a gradient rule, where that
/// memory is worth more than the time; [`checkpoint`](super::checkpoint) is for programs.
pub fn recomputed<R>(f: impl FnOnce() -> R) -> R {
    within_pass(Pass::Recomputed, f)
}

fn within_pass<R>(pass: Pass, f: impl FnOnce() -> R) -> R {
    let before = with_top(|builder| std::mem::replace(&mut builder.pass, pass));
    let result = f();
    if let Some(before) = before {
        with_top(|builder| builder.pass = before);
    }
    result
}

/// `base`, or one that is made of it if the trace being built has it already.
pub fn free_name(base: &str) -> Arc<str> {
    with_top(|builder| builder.fresh_name(base.into())).unwrap_or_else(|| base.into())
}

/// Reserves names, so that generated ones differ from them.
pub fn reserve_names<'a>(names: impl Iterator<Item = &'a Arc<str>>) {
    with_top(|builder| {
        for name in names {
            builder.names.entry(name.clone()).or_insert(1);
        }
    });
}

/// Gives a value of the trace being built another name, which the caller has reserved.
pub fn rename(tensor: Tensor, name: &Arc<str>) {
    with_top(|builder| {
        if tensor.builder == builder.id && tensor.value != POISON {
            builder.block.values[tensor.value.index()].name = name.clone();
        }
    });
}

/// Adds a copy of a symbol to the trace being built: the same callee, body and place, in the pass that is being traced,
/// `arguments` in terms of new handles, results under the names and metas given.
pub fn append_copy(
    symbol: &BoundSymbol,
    arguments: Vec<Arg<Tensor>>,
    results: &[(Arc<str>, TensorMeta)],
) -> Vec<Tensor> {
    with_top(|builder| {
        let results: Results =
            results.iter().map(|(name, meta)| builder.block.define(name.clone(), meta.clone())).collect();
        let handles = results.iter().map(|value| builder.handle(*value)).collect();
        builder.block.symbols.push(BoundSymbol {
            arguments: map_arguments(&arguments, |tensor| tensor.value),
            results,
            pass: builder.pass,
            ..symbol.clone()
        });
        handles
    })
    .unwrap_or_default()
}

/// Takes the error recorded so far, if any.
pub fn take_error() -> Option<Error> {
    with_top(|builder| builder.error.take()).flatten()
}

/// Whether an error was recorded.
pub fn has_error() -> bool {
    with_top(|builder| builder.error.is_some()).unwrap_or(false)
}

/// Adds to the recorded error, if any, the rule in which it arose.
pub fn annotate_error(what: &str, operator: &str, place: Option<Place>) {
    with_top(|builder| {
        if let Some(error) = builder.error.take() {
            let name = if what.is_empty() { operator.to_owned() } else { format!("{what} {operator}") };
            builder.error = Some(error.in_operator(&name, place));
        }
    });
}

/// How many symbols the trace being built has.
pub fn position() -> usize {
    with_top(|builder| builder.block.symbols.len()).unwrap_or(0)
}

/// Symbols from `first` on stand for the call at `place`.
pub fn set_places_from(first: usize, place: Option<Place>) {
    with_top(|builder| {
        for symbol in &mut builder.block.symbols[first..] {
            symbol.place = place.or(symbol.place);
        }
    });
}

/// The symbols that define `results` stand for the call at `place`.
pub fn set_places(results: &[Tensor], place: Option<Place>) {
    with_top(|builder| {
        for symbol in builder.block.symbols.iter_mut().rev().take(16) {
            if symbol.results.iter().any(|id| results.iter().any(|r| r.value == *id)) {
                symbol.place = place.or(symbol.place);
            }
        }
    });
}

/// Whether the trace being built calls an operator from symbol `first` on.
pub fn calls_since(first: usize, def: &'static OperatorDef) -> bool {
    with_top(|builder| builder.block.symbols[first..].iter().any(|symbol| symbol.operator() == Some(def)))
        .unwrap_or(false)
}

/// Adds the refusals of a call of `operator` to the symbol at `at`, the first that the call became.
pub fn explain_refusals(at: usize, operator: &str, refusals: Vec<Refusal>) {
    with_top(|builder| {
        // The call itself, if it was kept, is offered again when executors claim.
        if let Some(symbol) = builder.block.symbols.get_mut(at).filter(|symbol| symbol.name() != operator) {
            // Outer calls come before those inside them.
            let mut all: Vec<Refusal> = refusals.into_iter().map(|refusal| refusal.inside(operator)).collect();
            all.append(&mut symbol.refusals);
            symbol.refusals = all;
        }
    });
}
