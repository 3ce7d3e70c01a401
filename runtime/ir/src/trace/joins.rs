//! Lines of the executor [`JOIN`]: where the joined tensors are in the whole, and which kernels write
//! a part where it belongs.

use std::slice;

use fulgurite_kernels::view::{contiguous_strides, is_contiguous};
use rustc_hash::FxHashMap;

use super::views::{Layout, laid_over, view_of};
use super::{Block, BoundSymbol, Callee, ValueId};
use crate::argument::{Arg, AttributeType};
use crate::arithmetic::Arithmetic;
use crate::error::Result;
use crate::executor::{HOST, JOIN, VIEW, find_executor, find_implementation};
use crate::kernel::KernelRules;
use crate::meta::Device;
use crate::operator::{OperatorDef, OperatorKind, Role, RuleSet};

/// The line that defines each value.
pub type Writers = FxHashMap<ValueId, usize>;

/// The line that defines each value of a block.
pub fn writers(block: &Block) -> Writers {
    let lines = block.symbols.iter().enumerate();
    lines.flat_map(|(line, symbol)| symbol.results.iter().map(move |id| (*id, line))).collect()
}

/// Whether lines of this operator can be joins.
pub fn can_join(def: &OperatorDef) -> bool {
    matches!(def.overload, Some(Role::Cat | Role::Contiguous | Role::ViewAsComplex))
}

/// Whether a line makes complex numbers of their parts, whose memory it takes.
pub fn makes_complex(symbol: &BoundSymbol) -> bool {
    symbol.operator().is_some_and(|def| def.overload == Some(Role::ViewAsComplex))
}

/// Whether a line copies one tensor, to lay it out in another way or to have it apart.
pub fn is_copy(symbol: &BoundSymbol) -> bool {
    symbol.operator().is_some_and(|def| def.overload == Some(Role::Contiguous))
}

/// The tensors that a line puts one after another, and along which dimension. None of a line that
/// [makes complex numbers](makes_complex), which is always a join.
pub fn joined(symbol: &BoundSymbol) -> Option<(&[ValueId], usize)> {
    let def = symbol.operator().filter(|def| can_join(def) && !makes_complex(symbol))?;
    let argument = |name: &str| symbol.arguments.get(def.param(name)?);
    if is_copy(symbol) {
        let [Arg::Tensor(only)] = &symbol.arguments[..] else { return None };
        return Some((slice::from_ref(only), 0));
    }
    let Some(Arg::List(tensors)) = argument("tensors") else { return None };
    let Some(Arg::Attribute(dim)) = argument("dim") else { return None };
    Some((tensors, usize::from_attribute(dim)?))
}

/// The values that are computed for a line that joins, and where each is in the result; `None` if a part is no view
/// of all of one value, or its elements would not be a constant distance apart.
pub fn parts(block: &Block, symbol: &BoundSymbol, writers: &Writers) -> Option<Vec<(ValueId, Layout)>> {
    let whole = *symbol.results.first()?;
    let strides = contiguous_strides(block.meta(whole).shape()).into();
    parts_in(block, symbol, writers, &Layout { root: whole, strides, offset: 0 })
}

/// The [parts] of a line whose result has this layout, as part of another join.
pub fn parts_in(
    block: &Block,
    symbol: &BoundSymbol,
    writers: &Writers,
    whole: &Layout,
) -> Option<Vec<(ValueId, Layout)>> {
    let Layout { root, strides, offset } = whole;
    if makes_complex(symbol) {
        // The parts are counted in their own elements, from the beginning of the complex numbers on, which are a part
        // of nothing else.
        let pairs = symbol.operands().next().filter(|_| symbol.results.contains(root))?;
        return Some(vec![(pairs, Layout { root: *root, ..Layout::own(block, pairs) })]);
    }
    let (tensors, dim) = joined(symbol)?;
    let along = *strides.get(dim)?;
    let mut start = 0;
    let mut parts = Vec::with_capacity(tensors.len());
    for id in tensors {
        let laid = Layout { root: *root, strides: strides.clone(), offset: offset + start * along };
        start += *block.meta(*id).shape().get(dim)? as isize;
        parts.push(computed(block, *id, &laid, writers)?);
    }
    Some(parts)
}

/// The value that `seen` is a view of, and its layout if `seen` is laid out so.
fn computed(block: &Block, seen: ValueId, laid: &Layout, writers: &Writers) -> Option<(ValueId, Layout)> {
    let mut views: Vec<&BoundSymbol> = Vec::new();
    let mut value = seen;
    while let Some(view) = writers.get(&value).map(|line| &block.symbols[*line]) {
        if view.executor != Some(VIEW) {
            break;
        }
        views.push(view);
        value = view.operands().next()?;
    }
    let through = |own: Layout| {
        let mut known = FxHashMap::default();
        known.insert(value, own);
        for view in views.iter().rev() {
            let operand = view.operands().next()?;
            let base = known.get(&operand)?.clone();
            let (_, looked) = view_of_layout(block, view, &base)?;
            known.insert(*view.results.first()?, laid_over(&base, looked));
        }
        known.remove(&seen)
    };
    let own = Layout::own(block, value);
    let plain = through(own.clone())?;
    let (shape, of) = (block.meta(value).shape(), block.meta(seen).shape());
    if plain.offset != 0 || block.meta(value).len() != block.meta(seen).len() || block.meta(value).is_empty() {
        return None;
    }
    // One step along each dimension of the value is one along some of the view's.
    let mut order: Vec<usize> = (0..of.len()).filter(|axis| of[*axis] > 1).collect();
    order.sort_by_key(|axis| std::cmp::Reverse(plain.strides[*axis]));
    let mut strides = own.strides.clone();
    for (axis, stride) in strides.iter_mut().enumerate().filter(|(axis, _)| shape[*axis] > 1) {
        let (mut rest, mut place) = (own.strides[axis], 0);
        for other in &order {
            let step = plain.strides[*other];
            if step <= 0 {
                return None;
            }
            place += rest / step * laid.strides[*other];
            rest %= step;
        }
        if rest != 0 {
            return None;
        }
        *stride = place;
    }
    let layout = Layout { root: laid.root, strides, offset: laid.offset };
    let again = through(layout.clone())?;
    let same = (0..of.len()).all(|axis| of[axis] == 1 || again.strides[axis] == laid.strides[axis]);
    (same && again.offset == laid.offset).then_some((value, layout))
}

/// As [`view_of`], of an operand with this layout.
fn view_of_layout(block: &Block, view: &BoundSymbol, base: &Layout) -> Option<(ValueId, crate::strided::View)> {
    view_of(block, view, |_| base.strides.to_vec())
}

/// The layouts of the parts of all lines that join: in a whole that is a part of no other.
pub fn all_parts(block: &Block) -> Vec<(ValueId, Layout)> {
    let joins = block.symbols.iter().filter(|symbol| symbol.executor == Some(JOIN));
    if joins.clone().next().is_none() {
        return Vec::new();
    }
    let writers = writers(block);
    // Lines are gone through from the last to the first: the place of a whole is known before those of its parts.
    let mut places: FxHashMap<ValueId, Layout> = FxHashMap::default();
    let mut all = Vec::new();
    for symbol in joins.rev() {
        let outer = symbol.results.first().and_then(|whole| places.get(whole));
        let parts = match outer {
            Some(outer) => parts_in(block, symbol, &writers, &outer.clone()),
            None => parts(block, symbol, &writers),
        };
        for (part, layout) in parts.unwrap_or_default().into_iter().rev() {
            places.insert(part, layout.clone());
            all.push((part, layout));
        }
    }
    all.reverse();
    all
}

/// How many of the last dimensions of its results a line wants packed; `None` if its results are contiguous.
pub fn strided_results(symbol: &BoundSymbol) -> Result<Option<usize>> {
    match (&symbol.callee, symbol.executor) {
        (Callee::Region { executor }, _) => Ok(find_executor(executor)?.strided_results),
        (Callee::Operator(def), Some(executor)) => {
            if let OperatorKind::Symbol(_) = def.kind {
                return Ok(KernelRules::of(def).strided_results);
            }
            let executor = find_executor(executor)?;
            match find_implementation(def.name, executor.name) {
                Some(implementation) if implementation.kernel.runs_on(executor.device) => {
                    Ok(implementation.kernel.strided_results)
                }
                _ => Ok(executor.strided_results.filter(|_| Arithmetic::of(def).scalar.is_some())),
            }
        }
        _ => Ok(None),
    }
}

/// Whether a symbol's kernel takes operands of any strides.
pub fn takes_any_strides(symbol: &BoundSymbol) -> Result<bool> {
    match (&symbol.callee, symbol.executor) {
        (Callee::Operator(def), Some(executor)) => match def.kind {
            OperatorKind::Symbol(_) => Ok(KernelRules::of(def).strided),
            _ => match find_implementation(def.name, executor) {
                Some(implementation) if implementation.kernel.runs_on(find_executor(executor)?.device) => {
                    Ok(implementation.kernel.strided)
                }
                _ => Ok(find_executor(executor)?.strided),
            },
        },
        (Callee::Region { executor }, _) => Ok(find_executor(executor)?.strided),
        _ => Ok(true),
    }
}

/// Whether the kernel of a line writes a result of this layout. Every kernel of a device writes one without gaps,
/// wherever it starts. Not of a line that joins, for which nothing runs.
pub fn writes(symbol: &BoundSymbol, shape: &[usize], strides: &[isize]) -> Result<bool> {
    let has_none = is_contiguous(shape, strides);
    if let (true, Callee::Operator(_), Some(executor)) = (has_none, &symbol.callee, symbol.executor)
        && find_executor(executor).is_ok_and(|executor| executor.device != Device::CPU.kind())
    {
        return Ok(true);
    }
    let Some(packed) = strided_results(symbol)? else { return Ok(false) };
    let mut expected = 1;
    for axis in (0..shape.len()).rev().take(packed) {
        if shape[axis] > 1 && strides[axis] != expected {
            return Ok(false);
        }
        expected *= shape[axis] as isize;
    }
    Ok(true)
}

/// Whether a value is computed on the compute stream and does not leave the program itself.
pub fn is_free(block: &Block, value: ValueId, writers: &Writers) -> bool {
    let Some(writer) = writers.get(&value).map(|line| &block.symbols[*line]) else { return false };
    !matches!(writer.executor, Some(VIEW | HOST)) && !writer.is_ordered() && !block.results.contains(&value)
}
