//! Which results may have the memory of which operands: by what kernels declare, and by what regions read.

use crate::arithmetic::Arithmetic;
use crate::kernel::KernelRules;
use crate::operator::RuleSet;
use fulgurite_kernels::view::is_contiguous;
use rustc_hash::{FxHashMap, FxHashSet};

use super::layouts::Layout;
use super::{Block, BoundSymbol, Callee, ValueId};
use crate::argument::Arg;
use crate::executor::{find_executor, find_implementation};
use crate::operator::{OperatorDef, OperatorKind};

/// Whether the kernel of a symbol has read each element of `operand` before it writes that element of `result`.
pub fn updates_in_place(symbol: &BoundSymbol, result: ValueId, operand: ValueId) -> bool {
    match symbol.callee {
        Callee::Region { .. } => region_updates_in_place(symbol, result, operand),
        Callee::Operator(def) => {
            // A kernel of its own is as it says, also where the operator is elementwise.
            if let Some(kernel) = own_kernel(symbol) {
                return kernel.in_place
                    && allowed_over(def, symbol, kernel.in_place_over, operand)
                    && beside_each_other(symbol, result, operand);
            }
            Arithmetic::of(def).scalar.is_some()
                && symbol.executor.is_some_and(|name| find_executor(name).is_ok_and(|e| e.claims.is_some()))
        }
        _ => false,
    }
}

/// Whether `result` may take the memory of `root`, which dies at `symbol`: the symbol reads it as one operand, which is
/// it or its beginning in its own order (itself, or a view of another shape), and whose elements are read before they
/// are written.
pub fn may_lie_over(block: &Block, layouts: &[Layout], symbol: &BoundSymbol, result: ValueId, root: ValueId) -> bool {
    let mut operands = symbol.operands().filter(|id| layouts[id.index()].root == root);
    let Some(operand) = operands.next() else { return false };
    let layout = &layouts[operand.index()];
    operands.all(|other| other == operand)
        && layout.offset == 0
        && is_contiguous(block.meta(operand).shape(), &layout.strides)
        && block.meta(operand) == block.meta(result)
        && updates_in_place(symbol, result, operand)
}

/// The kernel that runs a symbol, if it is one of the operator alone.
fn own_kernel(symbol: &BoundSymbol) -> Option<&'static KernelRules> {
    let def = symbol.operator()?;
    if let OperatorKind::Symbol(_) = def.kind {
        return Some(KernelRules::of(def));
    }
    let executor = find_executor(symbol.executor?).ok()?;
    let implementation = find_implementation(def.name, executor.name)?;
    Some(&implementation.kernel).filter(|kernel| kernel.runs_on(executor.device))
}

/// Whether the kernel that runs a symbol says that it updates in place.
fn declares_in_place(symbol: &BoundSymbol) -> bool {
    own_kernel(symbol).is_some_and(|kernel| kernel.in_place)
}

/// Whether `operand` is read as the parameters `over` alone.
fn allowed_over(def: &OperatorDef, symbol: &BoundSymbol, over: &[&str], operand: ValueId) -> bool {
    let mut read =
        def.params.iter().zip(&symbol.arguments).filter(|(_, argument)| argument.tensors().contains(&operand));
    over.is_empty() || read.all(|(param, _)| over.contains(&param.name))
}

/// Whether no list has `operand` at another position than `result` has among the results.
fn beside_each_other(symbol: &BoundSymbol, result: ValueId, operand: ValueId) -> bool {
    symbol.arguments.iter().all(|argument| match argument {
        Arg::List(tensors) => {
            tensors.iter().zip(0..).all(|(id, n)| *id != operand || symbol.results.get(n) == Some(&result))
        }
        _ => true,
    })
}

/// A region of elementwise arithmetic reads before it writes. One that gathers kernels which update in place keeps
/// them apart: a result may overwrite what its own kernel alone reads.
fn region_updates_in_place(symbol: &BoundSymbol, result: ValueId, operand: ValueId) -> bool {
    RegionReaders::default().updates_in_place(symbol, result, operand)
}

/// The readers of each value inside of regions; each region is gone through once.
#[derive(Default)]
pub struct RegionReaders<'a> {
    /// By the first result of the region.
    regions: FxHashMap<ValueId, Option<Readers<'a>>>,
}

struct Readers<'a> {
    body: &'a Block,
    /// Whether there are kernels in it that say what they update in place.
    declared: bool,
    /// The body's value for each operand and for each result of the region.
    inner: FxHashMap<ValueId, ValueId>,
    /// The operands that it is given more than once.
    repeated: FxHashSet<ValueId>,
    /// The first line that reads each value of the body, and whether it is the only one.
    lines: FxHashMap<ValueId, (&'a BoundSymbol, bool)>,
    /// For each value of the body the first one that lines join it with, directly or through others. Of values that
    /// none joins (in a list of lines), one may still be read while the other is written.
    joined: Vec<ValueId>,
}

impl<'a> RegionReaders<'a> {
    /// As [`updates_in_place`].
    pub fn updates_in_place(&mut self, symbol: &'a BoundSymbol, result: ValueId, operand: ValueId) -> bool {
        if !matches!(symbol.callee, Callee::Region { .. }) {
            return updates_in_place(symbol, result, operand);
        }
        let Some(first) = symbol.results.first() else { return false };
        let Some(readers) = self.regions.entry(*first).or_insert_with(|| Readers::of(symbol)) else { return false };
        let (Some(read), Some(written)) = (readers.inner.get(&operand), readers.inner.get(&result)) else {
            return false;
        };
        if !readers.declared {
            // A value that is given twice is read as two.
            return readers.joined[written.index()] == readers.joined[read.index()]
                && !readers.repeated.contains(&operand)
                && !is_read_again(readers.body, *written, *read);
        }
        readers.lines.get(read).is_some_and(|(line, only)| {
            *only
                && !readers.repeated.contains(&operand)
                && line.results.contains(written)
                && updates_in_place(line, *written, *read)
        })
    }
}

impl<'a> Readers<'a> {
    fn of(symbol: &'a BoundSymbol) -> Option<Readers<'a>> {
        let body = symbol.body.as_deref()?;
        let declared = body.symbols.iter().any(declares_in_place);
        let (mut inner, mut lines) = (FxHashMap::default(), FxHashMap::default());
        let mut repeated = FxHashSet::default();
        let operands = symbol.operands().zip(&body.parameters);
        for (outer, own) in operands.chain(symbol.results.iter().copied().zip(&body.results)) {
            if *inner.entry(outer).or_insert(*own) != *own {
                repeated.insert(outer);
            }
        }
        for line in body.symbols.iter().filter(|_| declared) {
            for id in line.operands() {
                let known = lines.entry(id).or_insert((line, true));
                known.1 &= std::ptr::eq(known.0, line);
            }
        }
        Some(Readers { body, declared, inner, repeated, lines, joined: joined(body) })
    }
}

/// For each value of a block the first one that lines join it with, directly or through others.
fn joined(block: &Block) -> Vec<ValueId> {
    fn first(joined: &mut [ValueId], mut id: ValueId) -> ValueId {
        while joined[id.index()] != id {
            joined[id.index()] = joined[joined[id.index()].index()];
            id = joined[id.index()];
        }
        id
    }
    let mut joined: Vec<ValueId> = (0..block.values.len() as u32).map(ValueId).collect();
    for line in &block.symbols {
        let mut all = line.operands().chain(line.results.iter().copied());
        let Some(one) = all.next() else { continue };
        for other in all {
            let (a, b) = (first(&mut joined, one), first(&mut joined, other));
            joined[a.max(b).index()] = a.min(b);
        }
    }
    (0..block.values.len() as u32).map(|id| first(&mut joined, ValueId(id))).collect()
}

/// Whether a region may read the elements of `read` that are where it writes an element of `written` after that: a
/// number for each row is read for every element of the row, maybe by another thread, and a value may be read once more
/// after a reduction.
fn is_read_again(body: &Block, written: ValueId, read: ValueId) -> bool {
    let shape_of = |id: ValueId| body.meta(id).shape();
    let elementwise =
        |line: &BoundSymbol| line.results.iter().all(|out| line.operands().all(|id| shape_of(id) == shape_of(*out)));
    if body.symbols.iter().all(elementwise) {
        return false;
    }
    let all = || body.values.iter().map(|value| value.meta.shape());
    let full = all().max_by_key(|shape| (shape.len(), shape.iter().product::<usize>()));
    if full != Some(shape_of(written)) || shape_of(written).last().is_none_or(|extent| *extent == 1) {
        return true;
    }
    let reduces = |line: &BoundSymbol| {
        let operands = line.operands().map(|id| body.meta(id).len()).max();
        line.results.iter().any(|out| operands.is_some_and(|len| body.meta(*out).len() < len))
    };
    // What is made of these values, through lines that `passes` lets through.
    let made_of = |from: &[ValueId], passes: &dyn Fn(&BoundSymbol) -> bool| {
        let mut made = vec![false; body.values.len()];
        from.iter().for_each(|id| made[id.index()] = true);
        for line in body.symbols.iter().filter(|line| passes(line)) {
            if line.operands().any(|id| made[id.index()]) {
                line.results.iter().for_each(|id| made[id.index()] = true);
            }
        }
        made
    };
    let elements = made_of(&[read], &|line| !reduces(line));
    // What follows from a reduction is computed in a later pass than what does not, and reads its operands in it.
    body.symbols.iter().filter(|line| reduces(line)).any(|reduction| {
        let follows = made_of(&reduction.results, &|_| true);
        let later = |line: &BoundSymbol| line.operands().any(|id| follows[id.index()]);
        !follows[written.index()]
            && body.symbols.iter().any(|line| later(line) && line.operands().any(|id| elements[id.index()]))
    })
}
