//! Which operators round nothing, and which programs add nothing up: what these give has the same bits whoever runs
//! them.

use crate::arithmetic::Arithmetic;
use crate::operator::OperatorDef;
use crate::operator::RuleSet;
use crate::strided::LayoutRules;
use crate::trace::Trace;
use crate::transforms::decompose::decompose;

/// Operators of the library that only move, choose or compare: they round nothing. (One that is missing here is taken
/// to round, which allows more than is needed and asserts less.)
const EXACT: [&str; 34] = [
    "abs",
    "amax",
    "amin",
    "argmax",
    "broadcast_in_dim",
    "cat",
    "ceil",
    "contiguous",
    "convert_element_type",
    "eq",
    "flip",
    "floor",
    "full",
    "gather",
    "ge",
    "gt",
    "index_select",
    "iota",
    "isfinite",
    "le",
    "logical_not",
    "lt",
    "maximum",
    "minimum",
    "ne",
    "neg",
    "pad",
    "permute",
    "reshape",
    "select",
    "sign",
    "slice",
    "topk",
    "trunc",
];

/// Whether an operator gives the same bits by every executor.
pub(crate) fn is_exact(def: &OperatorDef) -> bool {
    LayoutRules::of(def).view.is_some() || EXACT.contains(&def.name.strip_prefix("prims::").unwrap_or(def.name))
}

/// Whether no symbol of the program adds or multiplies over several elements: then it has the same bits fused or not,
/// in any layout.
pub(crate) fn is_elementwise(trace: &Trace) -> bool {
    let opened = decompose(trace, |_| true);
    opened
        .block
        .symbols
        .iter()
        .all(|symbol| symbol.operator().is_some_and(|def| Arithmetic::of(def).scalar.is_some() || is_exact(def)))
}
