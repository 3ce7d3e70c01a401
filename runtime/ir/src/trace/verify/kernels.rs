//! What the kernel of a line declares about the memory that it is given. Declarations are trusted (templates of the
//! generated tests check them); what follows from them for a plan is decided here, apart from the planner.

use crate::arithmetic::Arithmetic;
use crate::executor::{ExecutorDef, JOIN, find_executor, find_implementation, owner_on};
use crate::kernel::KernelRules;
use crate::meta::Device;
use crate::operator::{OperatorKind, RuleSet};
use crate::trace::{BoundSymbol, Callee, ValueId};

/// What runs one line.
pub(super) enum Runner {
    /// Nothing: a line that no executor has taken, or a deletion.
    Nothing,
    /// A kernel of its own, with its declaration.
    Kernel(&'static KernelRules, &'static ExecutorDef),
    /// An executor that computes the operator by its rules.
    Rules(&'static ExecutorDef),
    /// An executor that computes a region.
    Region(&'static ExecutorDef),
}

impl Runner {
    /// What runs a line on a device of this kind. Executors are known to exist.
    pub(super) fn of(symbol: &BoundSymbol, device: &str) -> Runner {
        let found = |name: &str| find_executor(name).ok();
        match (&symbol.callee, symbol.executor) {
            (Callee::Region { executor }, _) => found(executor).map_or(Runner::Nothing, Runner::Region),
            (Callee::Operator(def), claimed) => {
                // A symbol is run by its owner there, also inside of a region.
                if let OperatorKind::Symbol(owners) = def.kind {
                    let owner = || owner_on(owners, device).ok().flatten();
                    let executor = claimed.map_or_else(owner, found);
                    return executor.map_or(Runner::Nothing, |executor| Runner::Kernel(KernelRules::of(def), executor));
                }
                let Some(executor) = claimed.and_then(found) else { return Runner::Nothing };
                match find_implementation(def.name, executor.name) {
                    Some(own) if own.kernel.runs_on(executor.device) => Runner::Kernel(&own.kernel, executor),
                    _ => Runner::Rules(executor),
                }
            }
            _ => Runner::Nothing,
        }
    }

    /// Whether operands may have any strides; otherwise they must be contiguous.
    pub(super) fn reads_any_strides(&self) -> bool {
        match self {
            Runner::Nothing => true,
            Runner::Kernel(kernel, _) => kernel.strided,
            Runner::Rules(executor) | Runner::Region(executor) => executor.strided,
        }
    }

    /// Whether a result may be written with these strides, inside of a larger value.
    pub(super) fn writes(&self, symbol: &BoundSymbol, shape: &[usize], strides: &[isize]) -> bool {
        let without_gaps = packed(shape, strides) == shape.len();
        let rows = match self {
            // Nothing runs for a join: its result is written by the lines of its parts, of which each is looked at.
            _ if symbol.executor == Some(JOIN) => return true,
            Runner::Nothing => None,
            // A kernel of a device is told where its result begins.
            Runner::Kernel(_, executor) | Runner::Rules(executor)
                if without_gaps && !Device::is_host(executor.device) =>
            {
                return true;
            }
            Runner::Kernel(kernel, _) => kernel.strided_results,
            Runner::Rules(executor) => executor.strided_results.filter(|_| is_elementwise(symbol)),
            Runner::Region(executor) => executor.strided_results,
        };
        rows.is_some_and(|rows| packed(shape, strides) >= rows.min(shape.len()))
    }

    /// Whether an element of `operand` has been read before the element at the same place of `result` is written. Not
    /// of regions: [`super::regions`].
    pub(super) fn reads_first(&self, symbol: &BoundSymbol, result: ValueId, operand: ValueId) -> bool {
        match self {
            Runner::Nothing | Runner::Region(_) => false,
            Runner::Rules(executor) => executor.claims.is_some() && is_elementwise(symbol),
            Runner::Kernel(kernel, _) => {
                let Some(def) = symbol.operator().filter(|_| kernel.in_place) else { return false };
                // The declaration is about each argument that the operand is read as.
                def.params.iter().zip(&symbol.arguments).all(|(param, argument)| {
                    let mut places = argument.tensors().iter().enumerate().filter(|(_, id)| **id == operand);
                    let named = kernel.in_place_over.is_empty() || kernel.in_place_over.contains(&param.name);
                    let is_list = matches!(argument, crate::argument::Arg::List(_));
                    places.all(|(n, _)| named && (!is_list || symbol.results.get(n) == Some(&result)))
                })
            }
        }
    }

    /// Whether a kernel of its own says what it updates in place.
    pub(super) fn declares_in_place(&self) -> bool {
        matches!(self, Runner::Kernel(kernel, _) if kernel.in_place)
    }
}

/// Whether an operator computes each element of its results from the elements at the same place.
fn is_elementwise(symbol: &BoundSymbol) -> bool {
    symbol.operator().is_some_and(|def| Arithmetic::of(def).scalar.is_some())
}

/// How many of the last dimensions are laid out as in a contiguous tensor.
fn packed(shape: &[usize], strides: &[isize]) -> usize {
    if shape.contains(&0) {
        return shape.len();
    }
    let mut expected = 1isize;
    for (count, (extent, stride)) in shape.iter().zip(strides).rev().enumerate() {
        if *extent != 1 && *stride != expected {
            return count;
        }
        expected = expected.saturating_mul(*extent as isize);
    }
    shape.len()
}

#[cfg(test)]
mod tests {
    use super::super::super::parse;
    use super::*;

    #[test]
    fn a_line_of_a_region_is_run_by_the_owner_on_the_target() {
        let text = "# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {\ny = tt::shared(x)\nreturn y\n}";
        let trace = parse(text).unwrap();
        let owner = |device: &str| match Runner::of(&trace.block.symbols[0], device) {
            Runner::Kernel(_, executor) => Some(executor.name),
            _ => None,
        };
        assert_eq!(owner("cpu"), Some("tt_host"));
        assert_eq!(owner("tt_device"), Some("tt_elsewhere"));
        assert_eq!(owner("tt_other_device"), None);
    }
}
