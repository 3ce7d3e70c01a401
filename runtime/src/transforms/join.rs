//! Joins: tensors that are only computed to be put side by side are written where they belong in the whole, and nothing
//! runs for the line that joins them. What is only computed to be laid out in another way, as a program returns it, is
//! written so: the one part of a `contiguous` line.
//!
//! Such a line is of the executor [`JOIN`]. The memory of each part is a part of the whole's, which has its place from
//! the first part on; a part's strides and offset follow from the line. A part may be seen through views before it is
//! joined: the gradients of queries, [B, L, H, E], are joined as [B, L, H * E]. A part that lies row by row in the
//! whole may be read by others too, for whom it is where it always was, and it may be joined of parts itself.

use std::slice;

use rustc_hash::{FxHashMap, FxHashSet};

use super::dce;
use super::views::{ALIGNMENT, Layout, laid_over, view_of};
use crate::argument::{Arg, AttributeType};
use crate::arithmetic::Arithmetic;
use crate::array::Strides;
use crate::error::Result;
use crate::executor::{HOST, JOIN, VIEW, find_executor, find_implementation};
use crate::kernel::KernelRules;
use crate::meta::{Device, TensorMeta};
use crate::operator::{OperatorDef, OperatorKind, Role, RuleSet};
use crate::trace::{Block, BoundSymbol, Callee, ValueId};
use fulgurite_kernels::view::{contiguous_strides, is_contiguous};

/// A part that others read too begins at a multiple of so many bytes of its whole, as a value of its own does.
const ALIGNED: usize = ALIGNMENT as usize;

/// The line that defines each value.
pub(crate) type Writers = FxHashMap<ValueId, usize>;

/// The line that defines each value of a block.
pub(crate) fn writers(block: &Block) -> Writers {
    let lines = block.symbols.iter().enumerate();
    lines.flat_map(|(line, symbol)| symbol.results.iter().map(move |id| (*id, line))).collect()
}

/// Whether lines of this operator can be joins.
pub(crate) fn can_join(def: &OperatorDef) -> bool {
    matches!(def.overload, Some(Role::Cat | Role::Contiguous))
}

/// Whether a line copies one tensor, to lay it out in another way or to have it apart.
fn is_copy(symbol: &BoundSymbol) -> bool {
    symbol.operator().is_some_and(|def| def.overload == Some(Role::Contiguous))
}

/// The tensors that a line puts one after another, and along which dimension.
fn joined(symbol: &BoundSymbol) -> Option<(&[ValueId], usize)> {
    let def = symbol.operator().filter(|def| can_join(def))?;
    let argument = |name: &str| symbol.arguments.get(def.param(name)?);
    if is_copy(symbol) {
        let [Arg::Tensor(only)] = &symbol.arguments[..] else { return None };
        return Some((slice::from_ref(only), 0));
    }
    let Some(Arg::List(tensors)) = argument("tensors") else { return None };
    let Some(Arg::Attribute(dim)) = argument("dim") else { return None };
    Some((tensors, usize::from_attribute(dim)?))
}

/// The values that are computed for a line that joins, and where each lies in the result; `None` if a part is no view
/// of all of one value, or its elements would not be a constant distance apart.
pub(crate) fn parts(block: &Block, symbol: &BoundSymbol, writers: &Writers) -> Option<Vec<(ValueId, Layout)>> {
    let (tensors, dim) = joined(symbol)?;
    let whole = *symbol.results.first()?;
    let strides: Strides = contiguous_strides(block.meta(whole).shape()).into();
    let along = *strides.get(dim)?;
    let mut start = 0;
    let mut parts = Vec::with_capacity(tensors.len());
    for id in tensors {
        let laid = Layout { root: whole, strides: strides.clone(), offset: start * along };
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

/// Where the parts of all lines that join lie: in a whole that is a part of no other.
pub(crate) fn all_parts(block: &Block) -> Vec<(ValueId, Layout)> {
    let mut joins = block.symbols.iter().filter(|symbol| symbol.executor == Some(JOIN)).peekable();
    if joins.peek().is_none() {
        return Vec::new();
    }
    let writers = writers(block);
    let mut all: Vec<(ValueId, Layout)> = joins.filter_map(|symbol| parts(block, symbol, &writers)).flatten().collect();
    // Lines are gone through from the last to the first: the place of a whole is known before those of its parts.
    let mut places: FxHashMap<ValueId, Layout> = FxHashMap::default();
    for (part, layout) in all.iter_mut().rev() {
        if let Some(outer) = places.get(&layout.root) {
            layout.root = outer.root;
            layout.offset += outer.offset;
        }
        places.insert(*part, layout.clone());
    }
    all
}

/// How many of the last dimensions of its results a line wants packed; `None` if its results are contiguous.
pub(crate) fn strided_results(symbol: &BoundSymbol) -> Result<Option<usize>> {
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
pub(crate) fn takes_any_strides(symbol: &BoundSymbol) -> Result<bool> {
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
/// wherever it starts.
pub(crate) fn writes(symbol: &BoundSymbol, shape: &[usize], strides: &[isize]) -> Result<bool> {
    let has_none = is_contiguous(shape, strides);
    // Parts of what is joined are written with the strides of a whole that has no gaps.
    if symbol.executor == Some(JOIN) {
        return Ok(has_none);
    }
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

/// Makes joins of those lines whose kernels write the parts where they belong, and whose parts nobody else reads or lie
/// there row by row.
///
/// Copies that are `donated` stay copies: they are written over an input.
pub(super) fn join(block: &mut Block, donated: &FxHashSet<ValueId>) -> Result<()> {
    let candidates: Vec<usize> = (0..block.symbols.len())
        .filter(|line| {
            let symbol = &block.symbols[*line];
            let copies = is_copy(symbol) && !symbol.results.iter().any(|id| donated.contains(id));
            joined(symbol).is_some_and(|(tensors, _)| tensors.len() > 1 || copies)
        })
        .collect();
    if candidates.is_empty() {
        return Ok(());
    }
    let writers = writers(block);
    let needed = dce::needed(block);
    let mut reads = vec![0usize; block.values.len()];
    // Views that others took the place of read as well, and are removed later.
    let lines = block.symbols.iter().zip(&needed).filter(|(_, needed)| **needed).map(|(symbol, _)| symbol);
    for id in lines.flat_map(BoundSymbol::operands).chain(block.results.iter().copied()) {
        reads[id.index()] += 1;
    }
    let lives = Lives::of(block, &writers);
    let mut taken: FxHashSet<ValueId> = FxHashSet::default();
    for line in candidates {
        let symbol = &block.symbols[line];
        let Some(parts) = parts(block, symbol, &writers) else { continue };
        let mut fits = symbol.executor != Some(VIEW) && !symbol.is_ordered();
        let copies = is_copy(symbol);
        for (value, layout) in &parts {
            let shape = block.meta(*value).shape();
            let alone = reads[value.index()] == 1;
            // For its other readers a shared part is as aligned as before, and it does not make the whole live longer.
            let shared = is_contiguous(shape, &layout.strides)
                && (layout.offset.unsigned_abs() * block.meta(*value).dtype().size()).is_multiple_of(ALIGNED)
                && lives.end(*value) <= lives.end(layout.root);
            fits = fits && !taken.contains(value) && is_free(block, *value, &writers);
            if fits && copies && !(alone || shared) {
                fits = lives.end(*value) <= lives.end(layout.root) && is_taken_anyhow(block, &needed, *value)?;
            } else {
                fits = fits && (alone || shared);
            }
            fits = fits && (!copies || has_rows(block.meta(*value), &layout.strides));
            let Some(writer) = writers.get(value).filter(|_| fits) else { break };
            fits = writes(&block.symbols[*writer], shape, &layout.strides)?;
        }
        // Where a part lies in another way than it did, views between it and the line are read by nobody else.
        let through = |id: &ValueId| {
            let view = |id: &ValueId| writers.get(id).map(|line| &block.symbols[*line]);
            let is_view = |symbol: &&BoundSymbol| symbol.executor == Some(VIEW);
            std::iter::successors(Some(*id), |id| view(id).filter(is_view)?.operands().next())
                .take_while(|id| view(id).is_some_and(|line| is_view(&line)))
                .all(|id| reads[id.index()] == 1)
        };
        let stays = |(_, layout): &(ValueId, Layout), shape: &[usize]| is_contiguous(shape, &layout.strides);
        let alone = joined(symbol).is_some_and(|(tensors, _)| {
            let mut each = tensors.iter().zip(&parts);
            each.all(|(id, part)| stays(part, block.meta(part.0).shape()) || through(id))
        });
        let twice = parts.iter().enumerate().any(|(at, (value, _))| parts[..at].iter().any(|(own, _)| own == value));
        if fits && alone && !twice {
            taken.extend(parts.iter().map(|(value, _)| *value));
            let symbol = &mut block.symbols[line];
            symbol.executor = Some(JOIN);
            symbol.refusals.clear();
        }
    }
    Ok(())
}

/// Bytes of a row that is worth a place of its own: a kernel that writes less at once takes longer than a copy.
const ROW: usize = 16;

/// Whether a value that is laid out so consists of rows that are written at once, or has no gaps.
fn has_rows(meta: &TensorMeta, strides: &[isize]) -> bool {
    let shape = meta.shape();
    let row = shape.iter().zip(strides).rfind(|(extent, _)| **extent > 1);
    is_contiguous(shape, strides)
        || row.is_none_or(|(extent, stride)| *stride == 1 && extent * meta.dtype().size() >= ROW)
}

/// Whether the lines that are needed and read a value take it however it lies, but for a single view of it. Those
/// that a library computes may copy what lies otherwise, and do not count as such.
fn is_taken_anyhow(block: &Block, needed: &[bool], value: ValueId) -> Result<bool> {
    let mut views = 0;
    for (symbol, _) in block.symbols.iter().zip(needed).filter(|(_, needed)| **needed) {
        if !symbol.operands().any(|id| id == value) {
            continue;
        }
        match symbol.executor {
            Some(VIEW) => views += 1,
            Some(JOIN | HOST) => return Ok(false),
            _ => {
                let own = symbol.operator().is_none_or(|def| {
                    matches!(def.kind, OperatorKind::Symbol(_)) || Arithmetic::of(def).scalar.is_some()
                });
                if !own || !takes_any_strides(symbol)? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(views <= 1)
}

/// Where values are read last, themselves or through views.
struct Lives {
    /// For each value the one that it is a view of.
    behind: Vec<ValueId>,
    last: Vec<usize>,
}

impl Lives {
    fn of(block: &Block, writers: &Writers) -> Lives {
        let view = |id: ValueId| writers.get(&id).map(|line| &block.symbols[*line]);
        let behind = |id: ValueId| {
            let operand = |id: &ValueId| view(*id).filter(|line| line.executor == Some(VIEW))?.operands().next();
            std::iter::successors(Some(id), operand).last().unwrap_or(id)
        };
        let behind: Vec<ValueId> = (0..block.values.len() as u32).map(|id| behind(ValueId(id))).collect();
        let mut last = vec![0; block.values.len()];
        for (line, symbol) in block.symbols.iter().enumerate() {
            symbol.operands().for_each(|id| last[behind[id.index()].index()] = line);
        }
        block.results.iter().for_each(|id| last[behind[id.index()].index()] = usize::MAX);
        Lives { behind, last }
    }

    /// The last line that reads the memory of a value; the greatest number if it is returned.
    fn end(&self, id: ValueId) -> usize {
        self.last[self.behind[id.index()].index()]
    }
}

/// Whether a value is computed on the compute stream by a line that changes nothing else, and does not leave the
/// program itself.
pub(crate) fn is_free(block: &Block, value: ValueId, writers: &Writers) -> bool {
    let Some(writer) = writers.get(&value).map(|line| &block.symbols[*line]) else { return false };
    let effects = writer.operator().map(|def| def.effects);
    !matches!(writer.executor, Some(VIEW | HOST))
        && !writer.is_ordered()
        && !block.results.contains(&value)
        && effects.is_none_or(|effects| effects.mutates.is_empty() && effects.aliases.is_empty())
}
