//! Default implementations: composites that are recorded as what they consist of.

use std::sync::Arc;

use super::{Builder, Tensor, with_top};
use crate::argument::{Arg, map_arguments};
use crate::error::Place;
use crate::operator::OperatorDef;
use crate::trace::{Block, BoundSymbol, Callee, ValueId};

/// Traces `f` with the default implementation of each operator: in place of a composite its decomposition is recorded,
/// down to operators that have none, and differentiated as such. No executor, rewrite or gradient rule that is written
/// for the composite is used, whatever the list of executors says. Values are those of the decomposition.
///
/// It is for comparing an implementation with the definition within one program, and for going around one that is
/// wrong: `decomposed(|| geglu(gate, up))`. To leave out an executor altogether, name the others in
/// `Options::executors`. It concerns the trace that is being built, with the bodies of `value_and_grad` and
/// `checkpoint` within `f`: around a call of a compiled function, and within rules of operators, it changes nothing.
pub fn decomposed<R>(f: impl FnOnce() -> R) -> R {
    let before = with_top(|builder| (builder.id, std::mem::replace(&mut builder.decomposed, true)));
    let result = f();
    if let Some((id, before)) = before {
        with_top(|builder| {
            if builder.id == id {
                builder.decomposed = before;
            }
        });
    }
    result
}

/// Records the lines of a call's decomposition in place of the call; what its results are.
pub(super) fn append_body(
    def: &'static OperatorDef,
    arguments: &[Arg<ValueId>],
    body: &Block,
    place: Place,
) -> Vec<Tensor> {
    with_top(|builder| {
        let prefix = builder.scoped(def.short_name());
        let prefix = builder.fresh_name(prefix);
        let results = lines(builder, body, arguments, &prefix, place);
        results.into_iter().map(|value| builder.handle(value)).collect()
    })
    .unwrap_or_default()
}

/// Writes the lines of `body` with these arguments, names below `prefix`: its results.
fn lines(
    builder: &mut Builder,
    body: &Block,
    arguments: &[Arg<ValueId>],
    prefix: &Arc<str>,
    place: Place,
) -> Vec<ValueId> {
    let operands = arguments.iter().flat_map(Arg::tensors).copied();
    let mut became: Vec<Option<ValueId>> = vec![None; body.values.len()];
    for (parameter, operand) in body.parameters.iter().zip(operands) {
        became[parameter.index()] = Some(operand);
    }
    let mapped = |became: &[Option<ValueId>], value: ValueId| {
        became[value.index()].unwrap_or_else(|| unreachable!("a block defines what it uses"))
    };
    for symbol in &body.symbols {
        let arguments = map_arguments(&symbol.arguments, |value| mapped(&became, *value));
        let below = |builder: &mut Builder, value: ValueId| {
            builder.fresh_name(format!("{prefix}.{}", body.value(value).name).into())
        };
        let results: Vec<ValueId> = match (&symbol.callee, &symbol.body) {
            (Callee::Operator(_), Some(inner)) => {
                let prefix = symbol.results.first().map_or_else(|| prefix.clone(), |value| below(builder, *value));
                lines(builder, inner, &arguments, &prefix, place)
            }
            _ => {
                let results = symbol.results.iter().map(|value| {
                    let name = below(builder, *value);
                    builder.block.define(name, body.meta(*value).clone())
                });
                let results: Vec<ValueId> = results.collect();
                builder.block.symbols.push(BoundSymbol {
                    arguments,
                    results: results.iter().copied().collect(),
                    pass: builder.pass,
                    place: Some(place),
                    ..symbol.clone()
                });
                results
            }
        };
        for (value, result) in symbol.results.iter().zip(results) {
            became[value.index()] = Some(result);
        }
    }
    body.results.iter().map(|value| mapped(&became, *value)).collect()
}
