//! `checkpoint`: one line of the trace, whose body is computed again for the backward pass.

use std::panic::resume_unwind;
use std::sync::Arc;

use super::tensor::Tensor;
use super::{Poisoned, append, build, scope, with_top};
use crate::argument::Arg;
use crate::error::Place;
use crate::operator::ResultsDef;
use crate::trace::{BoundSymbol, Callee, Pass, Results, ValueId};
use crate::tree::Tree;

/// Runs `f` as [`scope`] does, and declares it a checkpoint: of what it computes, the backward pass keeps the results
/// alone. It computes the rest again, right before it needs it, from the tensors that `f` uses. Values, gradients and
/// random numbers are the same, to the bit, unless a rewrite of an executor matches in one of the two programs alone.
/// Memory is less by what `f` computes on the way, and time is more by one run of `f`.
///
/// The call is one line of the trace, with `f` as its body. It is a [`scope`] without a derivative, in the inner one of
/// two nested `value_and_grad`, whose values are kept for the outer one, and within an operator's rule: an operator is
/// differentiated by its own rule.
#[track_caller]
pub fn checkpoint<T: Tree<Leaf = Tensor, With<Tensor> = T>>(name: &str, f: impl FnOnce() -> T) -> T {
    let place = Place::caller();
    let in_program = with_top(|builder| builder.error.is_none() && builder.rule_of.is_empty()).unwrap_or(false);
    if !in_program {
        return scope(name, f);
    }
    let mut structure = None;
    let traced = build(&[], true, |_| {
        let results = f();
        let leaves = results.leaves().into_iter().map(|(_, tensor)| *tensor).collect();
        structure = Some(results);
        leaves
    });
    let filled = |structure: Option<T>, mut next: Box<dyn FnMut() -> Tensor>| match structure {
        Some(structure) => structure.map(&mut |_| next()),
        None => resume_unwind(Box::new(Poisoned)),
    };
    let (block, captures) = match traced {
        Ok(traced) => traced,
        Err(error) => {
            let poison = with_top(|builder| {
                builder.fail(error.in_operator("checkpoint", Some(place)));
                builder.poison()
            });
            return filled(structure, Box::new(move || poison.unwrap_or(Tensor::PLACEHOLDER)));
        }
    };
    let metas = block.results.iter().map(|id| block.meta(*id).clone()).collect();
    let operands: Vec<ValueId> = captures.iter().map(|(outer, _)| *outer).collect();
    let symbol = BoundSymbol {
        callee: Callee::Checkpoint,
        arguments: vec![Arg::List(operands)],
        results: Results::new(),
        body: Some(Arc::new(block.canonical())),
        pass: Pass::Forward,
        executor: None,
        schedule: Default::default(),
        refusals: Vec::new(),
        place: Some(place),
    };
    let mut results = append(symbol, name, ResultsDef::List, metas).into_iter();
    filled(structure, Box::new(move || results.next().unwrap_or_else(|| unreachable!("one for each leaf"))))
}
