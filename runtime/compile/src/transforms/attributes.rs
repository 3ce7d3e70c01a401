//! Arguments of a symbol by the names of their parameters.

use crate::argument::Arg;
use crate::trace::{BoundSymbol, ValueId};

/// The argument of that name, as one tensor or an attribute.
pub(crate) fn argument<'a>(symbol: &'a BoundSymbol, name: &str) -> Option<&'a Arg<ValueId>> {
    symbol.arguments.get(symbol.operator()?.param(name)?)
}

/// The arguments of a symbol with another attribute of that name.
pub(crate) fn with_attribute(symbol: &BoundSymbol, name: &str, attribute: Arg<ValueId>) -> Option<Vec<Arg<ValueId>>> {
    let at = symbol.operator()?.param(name)?;
    let mut arguments = symbol.arguments.clone();
    *arguments.get_mut(at)? = attribute;
    Some(arguments)
}
