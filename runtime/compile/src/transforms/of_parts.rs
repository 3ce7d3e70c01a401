//! What a composite line computes where tensors are divided into parts: of parts of the same kind again, or sums of them.
//! Such a line stays one line, which an executor may claim as it is.

use fulgurite_kernels::scalar::ScalarProgram;

use super::cheap::Property;
use crate::argument::{Arg, Attribute, AttributeType};
use crate::arithmetic::{Arithmetic, Elements};
use crate::meta::TensorMeta;
use crate::operator::RuleSet;
use crate::trace::{Block, BoundSymbol};

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

/// Whether a line computes each element of its results of one of each operand, or repeats a number.
pub(super) fn elementwise(symbol: &BoundSymbol) -> bool {
    symbol.operator().is_some_and(|def| {
        let arithmetic = Arithmetic::of(def);
        arithmetic.scalar.is_some()
            || arithmetic.elements == Some(Elements::Convert)
            || repeats_a_number(symbol)
            || symbol.body.is_some()
    })
}

/// Whether a line makes a tensor of one without dimensions.
pub(super) fn repeats_a_number(symbol: &BoundSymbol) -> bool {
    let def = symbol.operator().filter(|def| Arithmetic::of(def).elements == Some(Elements::Broadcast));
    let dims = def.and_then(|def| def.param("dims"));
    dims.is_some_and(|dims| symbol.arguments[dims] == Arg::Attribute(Vec::<usize>::new().to_attribute()))
}

/// Whether a line is the sum of two tensors.
pub(super) fn adds(symbol: &BoundSymbol, metas: &[Arg<TensorMeta>]) -> bool {
    let rule = symbol.operator().and_then(|def| Arithmetic::of(def).scalar);
    let sum = ScalarProgram::record(2, 0, |operands, _| vec![operands[0] + operands[1]]);
    rule.is_some_and(|rule| rule(metas).0 == sum)
}

/// Whether a line is a sum, whose operand then has dimensions.
pub(super) fn sums(symbol: &BoundSymbol) -> bool {
    symbol.operator().and_then(|def| Arithmetic::of(def).elements) == Some(Elements::Sum)
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

/// Whether two decompositions of one operator, of whole tensors and of their parts, are the same but for shapes: a
/// number that was made from a shape would be another one.
pub(super) fn same_but_for_shapes(whole: &Block, part: &Block) -> bool {
    let same_line = |(whole, part): (&BoundSymbol, &BoundSymbol)| {
        let same = |(own, other): (&Arg<_>, &Arg<_>)| match (own, other) {
            // Dimensions, and extents.
            (Arg::Attribute(Attribute::List(_)), Arg::Attribute(Attribute::List(_))) => true,
            (own, other) => own == other,
        };
        whole.callee == part.callee
            && whole.arguments.len() == part.arguments.len()
            && whole.arguments.iter().zip(&part.arguments).all(same)
            && match (&whole.body, &part.body) {
                (Some(whole), Some(part)) => same_but_for_shapes(whole, part),
                (whole, part) => whole.is_none() && part.is_none(),
            }
    };
    let lines = whole.symbols.len() == part.symbols.len() && whole.symbols.iter().zip(&part.symbols).all(same_line);
    lines && whole.results == part.results
}
