//! What a composite line computes where tensors are divided into parts: parts again, or sums of them. Such a line stays
//! one line, which an executor may claim as it is.

use super::super::cheap::Property;
use super::lines::{adds, repeats_a_number, sums};
use crate::trace::Block;

/// What a value is where tensors are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A part of a tensor.
    Part,
    /// A number that all ranks have.
    Number,
    /// A tensor whose elements all are such a number.
    Filled,
    /// The sum over the parts of one rank.
    OwnSum,
}

/// The kinds of the results of `body` whose parameters are of these kinds; none if a line is neither elementwise nor
/// the sum of all elements.
pub(super) fn kinds(body: &Block, parameters: &[Kind], elementwise: &mut Property) -> Option<Vec<Kind>> {
    let mut known: Vec<Option<Kind>> = vec![None; body.values.len()];
    body.parameters.iter().zip(parameters).for_each(|(id, kind)| known[id.index()] = Some(*kind));
    for symbol in &body.symbols {
        let mut operands = Vec::new();
        for id in symbol.operands() {
            operands.push((known[id.index()]?, body.meta(id)));
        }
        let is = |kind: Kind| operands.iter().any(|(own, _)| *own == kind);
        let shapes = |id| -> &[usize] { body.meta(id).shape() };
        let made = if operands.iter().all(|(kind, _)| *kind == Kind::OwnSum) && !operands.is_empty() {
            adds(symbol, &body.argument_metas(symbol)).then_some(Kind::OwnSum)?
        } else if is(Kind::OwnSum) {
            return None;
        } else if !is(Kind::Part) {
            match &symbol.results[..] {
                [_] if repeats_a_number(symbol) && !is(Kind::Filled) => Kind::Filled,
                _ if !is(Kind::Filled) && symbol.results.iter().all(|id| shapes(*id).is_empty()) => Kind::Number,
                _ => return None,
            }
        } else if sums(symbol) {
            let ([(Kind::Part, operand)], [result]) = (&operands[..], &symbol.results[..]) else { return None };
            (operand.rank() > 0 && shapes(*result).is_empty()).then_some(Kind::OwnSum)?
        } else {
            let [first, ..] = &symbol.results[..] else { return None };
            let shape = shapes(*first);
            let fits = operands.iter().all(|(kind, meta)| *kind == Kind::Number || meta.shape() == shape);
            let alike = symbol.results.iter().all(|id| shapes(*id) == shape);
            (fits && alike && elementwise.holds(symbol)).then_some(Kind::Part)?
        };
        symbol.results.iter().for_each(|id| known[id.index()] = Some(made));
    }
    body.results.iter().map(|id| known[id.index()]).collect()
}
