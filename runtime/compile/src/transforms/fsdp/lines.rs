//! Which lines can be computed on parts of tensors.

use fulgurite_kernels::scalar::ScalarProgram;

use crate::argument::{Arg, AttributeType};
use crate::arithmetic::{Arithmetic, Elements};
use crate::meta::TensorMeta;
use crate::operator::RuleSet;
use crate::trace::{Block, BoundSymbol, ValueId};

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
    dims.is_some_and(|dims| symbol.arguments[dims] == Arg::<ValueId>::Attribute(Vec::<usize>::new().to_attribute()))
}

/// Whether a line of a decomposition is elementwise or a sum.
pub(super) fn openable(symbol: &BoundSymbol) -> bool {
    elementwise(symbol) || sums(symbol)
}

/// Whether a line is a sum.
pub(super) fn sums(symbol: &BoundSymbol) -> bool {
    symbol.operator().and_then(|def| Arithmetic::of(def).elements) == Some(Elements::Sum)
}

/// Whether a line is the sum of two tensors.
pub(super) fn adds(symbol: &BoundSymbol, metas: &[Arg<TensorMeta>]) -> bool {
    let rule = symbol.operator().and_then(|def| Arithmetic::of(def).scalar);
    let sum = ScalarProgram::record(2, 0, |operands, _| vec![operands[0] + operands[1]]);
    rule.is_some_and(|rule| rule(metas).0 == sum)
}

/// Whether a line gives the elements in another type.
pub(super) fn converts(symbol: &BoundSymbol) -> bool {
    let elements = symbol.operator().and_then(|def| Arithmetic::of(def).elements);
    elements == Some(Elements::Convert) || symbol.body.is_some()
}

/// Whether the decompositions of a line for tensors of two shapes compute the same of each element: a number in one of
/// them may be made of the extents.
pub(super) fn alike(one: Option<&Block>, other: Option<&Block>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one.is_none() == other.is_none() };
    let lines = one.symbols.iter().zip(&other.symbols);
    one.symbols.len() == other.symbols.len() && one.results == other.results && lines.into_iter().all(same)
}

fn same((one, other): (&BoundSymbol, &BoundSymbol)) -> bool {
    let operators = one.operator().zip(other.operator());
    let arguments = match (&one.body, repeats_a_number(one) || sums(one)) {
        // Its attributes say nothing that its decomposition does not, or are extents and dimensions.
        (Some(_), _) | (None, true) => one.operands().eq(other.operands()),
        (None, false) => one.arguments == other.arguments,
    };
    operators.is_some_and(|(one, other)| std::ptr::eq(one, other))
        && one.results == other.results
        && arguments
        && alike(one.body.as_deref(), other.body.as_deref())
}
