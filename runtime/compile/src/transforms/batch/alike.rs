//! Which calls are alike: the same operator of operands of the same types, made in the same way.

use fulgurite_kernels::view::is_contiguous;
use indexmap::IndexMap;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::limits::{FEWEST, READ, ROWS_SUMMED_BESIDE, Small};
use super::operators::Operators;
use crate::argument::{Arg, AttributeType, map_arguments};
use crate::cost::flops;
use crate::meta::TensorMeta;
use crate::operator::{OperatorDef, RuleSet};
use crate::strided::LayoutRules;
use crate::trace::views::{ALIGNMENT, Layout, laid_over, view_of};
use crate::trace::{Block, BoundSymbol, Callee, Pass, ValueId};

/// What a call reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operand {
    /// The value that the call reads, or that it reads transposed.
    pub base: ValueId,
    /// The value that a line computes and of which `base` is a view with the same elements in the same order.
    pub root: ValueId,
    pub transposed: bool,
}

/// One call of a group.
#[derive(Debug, Clone)]
pub(super) struct Member {
    /// Its result, by which its line is found.
    pub result: ValueId,
    pub operands: SmallVec<[Operand; 2]>,
}

/// Calls that are alike, in the order of the program.
#[derive(Debug)]
pub(super) struct Group {
    pub def: &'static OperatorDef,
    pub members: Vec<Member>,
}

/// What calls of a group have in common.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    name: &'static str,
    /// Arguments without their tensors.
    attributes: Vec<Arg<()>>,
    operands: Vec<(TensorMeta, bool)>,
    pass: Pass,
}

/// The groups of a block: those of products first, since a sum goes by the operands of products that read the same, and
/// of these the small ones, of which more have room.
pub(super) fn groups(block: &Block, operators: &Operators, small: &Small) -> Vec<Group> {
    let mut producers: FxHashMap<ValueId, &BoundSymbol> = FxHashMap::default();
    for symbol in &block.symbols {
        producers.extend(symbol.results.iter().map(|id| (*id, symbol)));
    }
    // Values that the program returns, and values whose views it returns. A returned value has memory of its own, so a
    // part of a batch would be copied.
    let mut results: FxHashSet<ValueId> = block.results.iter().copied().collect();
    for symbol in block.symbols.iter().rev() {
        let is_view = symbol.operator().is_some_and(|def| LayoutRules::of(def).view.is_some());
        if is_view && symbol.results.iter().any(|id| results.contains(id)) {
            results.extend(symbol.operands().take(1));
        }
    }
    let finder = Finder { block, operators, small, producers, results };
    let mut found: IndexMap<Key, Group> = IndexMap::new();
    for def in [operators.matmul, operators.sum] {
        for symbol in block.symbols.iter().filter(|symbol| symbol.operator().is_some_and(|own| std::ptr::eq(own, def)))
        {
            let Some(member) = finder.member(symbol) else { continue };
            let key = Key {
                name: def.name,
                attributes: map_arguments(&symbol.arguments, |_| ()),
                operands: member.operands.iter().map(|own| (block.meta(own.base).clone(), own.transposed)).collect(),
                pass: symbol.pass,
            };
            found.entry(key).or_insert_with(|| Group { def, members: Vec::new() }).members.push(member);
        }
    }
    let mut groups: Vec<Group> = found.into_values().filter(|group| group.members.len() >= FEWEST).collect();
    groups.sort_by_key(|group| {
        let first = &group.members[0];
        let kept = first.operands.iter().map(|operand| operand.root).chain([first.result]);
        let bytes: usize = kept.map(|id| block.meta(id).bytes()).sum();
        (std::ptr::eq(group.def, operators.sum), bytes)
    });
    groups
}

struct Finder<'a> {
    block: &'a Block,
    operators: &'a Operators,
    small: &'a Small,
    producers: FxHashMap<ValueId, &'a BoundSymbol>,
    results: FxHashSet<ValueId>,
}

impl Finder<'_> {
    /// The call of a line, if it is one that may be batched.
    fn member(&self, symbol: &BoundSymbol) -> Option<Member> {
        let is_sum = std::ptr::eq(symbol.operator()?, self.operators.sum);
        let operands: SmallVec<[Operand; 2]> =
            symbol.operands().map(|id| self.operand(id, !is_sum)).collect::<Option<_>>()?;
        let [result] = symbol.results[..] else { return None };
        let fits = match is_sum {
            true => self.sums_columns(symbol)?,
            false => operands.iter().all(|operand| self.block.meta(operand.base).rank() == 2),
        };
        let repeated = operands.iter().enumerate().any(|(at, own)| operands[..at].iter().any(|o| o.root == own.root));
        let returned = self.results.contains(&result);
        (fits && !repeated && !returned && self.is_small(symbol)).then_some(Member { result, operands })
    }

    /// What a call reads, if it is computed by the program and keeps the layout in which it was computed.
    fn operand(&self, id: ValueId, transposable: bool) -> Option<Operand> {
        let mut operand = Operand { base: id, root: id, transposed: false };
        let mut producer = self.producers.get(&id)?;
        if transposable && self.is(producer, self.operators.permute) {
            operand.transposed = dims(producer)? == [1, 0];
            operand.base = producer.operands().next().filter(|_| operand.transposed)?;
            operand.root = operand.base;
            producer = self.producers.get(&operand.root)?;
        }
        let mut views = Vec::new();
        while let Callee::Operator(def) = producer.callee
            && LayoutRules::of(def).view.is_some()
        {
            views.push(*producer);
            operand.root = producer.operands().next()?;
            producer = self.producers.get(&operand.root)?;
        }
        let Callee::Operator(def) = producer.callee else { return None };
        let computed = !def.effects.collective;
        let bytes = self.block.meta(operand.root).bytes() as u64;
        let lies = bytes > 0 && bytes.is_multiple_of(ALIGNMENT) && !self.results.contains(&operand.root);
        (computed && lies && self.in_order(operand, &views)).then_some(operand)
    }

    /// Whether the views of what is computed, the last one first, lead to the same elements in the same order.
    fn in_order(&self, operand: Operand, views: &[&BoundSymbol]) -> bool {
        let mut laid = Layout::own(self.block, operand.root);
        for view in views.iter().rev() {
            let Some((_, looked)) = view_of(self.block, view, |_| laid.strides.to_vec()) else { return false };
            laid = laid_over(&laid, looked);
        }
        let (base, root) = (self.block.meta(operand.base), self.block.meta(operand.root));
        base.len() == root.len() && laid.offset == 0 && is_contiguous(base.shape(), &laid.strides)
    }

    fn is(&self, symbol: &BoundSymbol, def: &OperatorDef) -> bool {
        symbol.operator().is_some_and(|own| std::ptr::eq(own, def))
    }

    /// Whether a sum is of columns, over few rows: rows are summed by the region that makes them.
    fn sums_columns(&self, symbol: &BoundSymbol) -> Option<bool> {
        let (dims, meta) = (dims(symbol)?, self.block.meta(symbol.operands().next()?));
        let rows: usize = dims.iter().filter_map(|dim| meta.shape().get(*dim)).product();
        Some(!dims.is_empty() && !dims.contains(&meta.rank().saturating_sub(1)) && rows < ROWS_SUMMED_BESIDE)
    }

    /// Whether a call takes less than a kernel does at least, and reads little.
    fn is_small(&self, symbol: &BoundSymbol) -> bool {
        let bytes =
            |ids: &mut dyn Iterator<Item = ValueId>| ids.map(|id| self.block.meta(id).bytes() as f64).sum::<f64>();
        let read = bytes(&mut symbol.operands()) / self.small.rates.bytes_per_second;
        let written = bytes(&mut symbol.results.iter().copied()) / self.small.rates.bytes_per_second;
        let arithmetic = flops(self.block, symbol) as f64 / self.small.rates.flops_per_second;
        let least = self.small.least_kernel.as_secs_f64();
        read <= READ * least && (read + written).max(arithmetic) < least
    }
}

/// The attribute `dims` of a line.
pub(super) fn dims(symbol: &BoundSymbol) -> Option<Vec<usize>> {
    let Arg::Attribute(dims) = symbol.arguments.get(symbol.operator()?.param("dims")?)? else { return None };
    Vec::<usize>::from_attribute(dims)
}
