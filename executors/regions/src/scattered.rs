//! Views whose rows are scattered over memory: an executor whose kernels go through memory in order adds such rows in
//! another order than those whose elements are neighbours.

use fulgurite_runtime::trace::layouts::{Layout, laid_over, view_of};
use fulgurite_runtime::trace::{Block, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

/// The views of a block whose elements along the last dimension are further apart than those along another.
pub(crate) fn scattered(block: &Block) -> FxHashSet<ValueId> {
    let mut layouts: FxHashMap<ValueId, Layout> = FxHashMap::default();
    let mut found = FxHashSet::default();
    for symbol in &block.symbols {
        let of = |id: ValueId| layouts.get(&id).cloned().unwrap_or_else(|| Layout::own(block, id));
        let Some((operand, view)) = view_of(block, symbol, |id| of(id).strides.to_vec()) else { continue };
        let (layout, result) = (laid_over(&of(operand), view), symbol.results[0]);
        if is_scattered(block.meta(result).shape(), &layout.strides) {
            found.insert(result);
        }
        layouts.insert(result, layout);
    }
    found
}

/// Whether rows of such strides are scattered; a dimension of one element has no stride.
fn is_scattered(shape: &[usize], strides: &[isize]) -> bool {
    let apart = |(extent, stride): (&usize, &isize)| (*extent != 1).then_some(stride.unsigned_abs());
    let all: Vec<Option<usize>> = shape.iter().zip(strides).map(apart).collect();
    let Some((row, others)) = all.split_last() else { return false };
    let nearest = others.iter().flatten().min();
    row.is_some_and(|row| nearest.is_some_and(|nearest| *nearest < row))
}
