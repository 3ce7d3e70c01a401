//! What lines do besides computing their results, and whether their operators declare it.

use super::super::{BoundSymbol, ValueId};
use super::lives::State;
use super::{Check, Verifier};
use crate::argument::Arg;

/// What a block does besides computing its results.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockEffects {
    pub(super) random: bool,
    pub(super) collective: bool,
    /// Which parameters' data it changes.
    pub(super) mutates: Vec<usize>,
}

impl Verifier<'_> {
    /// What a symbol does, by declaration and by its body; `mutates` are positions among its operands.
    pub(super) fn effects(symbol: &BoundSymbol, inner: BlockEffects) -> Check<BlockEffects> {
        let Some(def) = symbol.operator() else { return Ok(inner) };
        if inner.random && !def.effects.random {
            return Err(format!("its body draws random numbers, which {} does not declare", def.name));
        }
        if inner.collective && !def.effects.collective {
            return Err(format!("its body has a collective, which {} does not declare", def.name));
        }
        let mut mutates = Vec::new();
        let mut operand = 0;
        for (i, argument) in symbol.arguments.iter().enumerate() {
            for _ in argument.tensors() {
                if def.effects.mutates.contains(&i) {
                    mutates.push(operand);
                } else if inner.mutates.contains(&operand) {
                    let param = def.params.get(i).map_or("?", |param| param.name);
                    return Err(format!("its body changes '{param}', which {} does not declare", def.name));
                }
                operand += 1;
            }
        }
        Ok(BlockEffects { random: def.effects.random, collective: def.effects.collective, mutates })
    }

    /// Notes whose memory the results have, and whose contents are gone.
    pub(super) fn apply(symbol: &BoundSymbol, done: &BlockEffects, line: usize, state: &mut State) {
        let Some(def) = symbol.operator() else { return };
        let operands: Vec<ValueId> = symbol.operands().collect();
        for (result, param) in def.effects.aliases {
            let (Some(result), Some(Arg::Tensor(of) | Arg::Optional(Some(of)))) =
                (symbol.results.get(*result), symbol.arguments.get(*param))
            else {
                continue;
            };
            let root = state.root[of.index()];
            state.root[result.index()] = root;
            if done.mutates.iter().any(|operand| operands[*operand] == *of) && def.effects.mutates.contains(param) {
                state.written.insert(root, (line, *result));
            }
        }
    }
}
