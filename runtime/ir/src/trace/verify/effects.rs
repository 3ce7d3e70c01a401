//! What lines do besides computing their results, and whether their operators declare it.

use crate::operator::RuleSet;
use crate::strided::LayoutRules;
use rustc_hash::FxHashSet;

use super::super::{Block, BoundSymbol, Trace, ValueId};
use super::lives::State;
use super::verifier::{BlockEffects, Check, Verifier};
use crate::argument::Arg;
use crate::error::{Failure, Result};

/// That no operator of a trace declares an effect which no transform honours: values of a program do not change, and
/// nothing but views shares memory as the program says.
pub fn honoured(trace: &Trace) -> Result<()> {
    let mut seen: FxHashSet<*const Block> = FxHashSet::default();
    let mut blocks: Vec<&Block> = vec![&trace.block];
    while let Some(block) = blocks.pop() {
        for symbol in &block.symbols {
            blocks.extend(symbol.body.as_deref().filter(|body| seen.insert(std::ptr::from_ref(*body))));
            let Some(def) = symbol.operator() else { continue };
            let param = |i: usize| def.params.get(i).map_or("?", |param| param.name);
            let message = match (def.effects.mutates, def.effects.aliases) {
                ([], []) => continue,
                ([changed, ..], _) => {
                    let name = param(*changed);
                    format!(
                        "declares `mutates({name})`, and values of a program do not change; return what '{name}' becomes, and \
                         declare `in_place({name})` for the result to take its memory"
                    )
                }
                ([], [(_, of), ..]) => {
                    let name = param(*of);
                    format!(
                        "declares a result that aliases '{name}', and each result of a program has memory of its own; what only \
                         looks at '{name}' in another way has a rule `view`"
                    )
                }
            };
            return Err(symbol.failed(block, Failure::new("Effects", message)));
        }
    }
    Ok(())
}

/// The names of what must be reached in order, in that order.
pub fn ordered(trace: &Trace) -> Vec<&str> {
    let block = &trace.block;
    let lines = block.symbols.iter().filter(|symbol| symbol.is_ordered());
    lines.map(|symbol| symbol.results.first().map_or(symbol.name(), |id| &*block.value(*id).name)).collect()
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
        // What a view rule describes may become a view of its operand's memory.
        if let (Some(_), Some(of), [result]) = (LayoutRules::of(def).view, operands.first(), &symbol.results[..]) {
            state.root[result.index()] = state.root[of.index()];
        }
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
