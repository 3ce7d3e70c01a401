//! Joins: tensors that are only computed to be put side by side are written where they belong in the whole, and nothing
//! runs for the line that joins them. What is only computed to be laid out in another way, as a program returns it, is
//! written so: the one part of a `contiguous` line.
//!
//! Such a line is of the executor [`JOIN`]. The memory of each part is a part of the whole's, which has its place from
//! the first part on; a part's strides and offset follow from the line. A part may be seen through views before it is
//! joined: the gradients of queries, [B, L, H, E], are joined as [B, L, H * E]. A part that is row by row in the whole
//! may be read by others too, for whom it is where it always was. A part may be joined of parts itself, which are then
//! written where they belong in the outer whole: the two halves that a rotary embedding turns, in what queries, keys
//! and values share.

use fulgurite_kernels::view::is_contiguous;
use rustc_hash::FxHashSet;

use super::dce;
use crate::arithmetic::Arithmetic;
use crate::error::Result;
use crate::executor::{HOST, JOIN, VIEW};
use crate::meta::TensorMeta;
use crate::operator::{OperatorKind, RuleSet};
use crate::trace::joins::{
    Writers, is_copy, is_free, joined, makes_complex, parts, parts_in, takes_any_strides, writers, writes,
};
use crate::trace::views::{ALIGNMENT, Layout};
use crate::trace::{Block, BoundSymbol, ValueId};

/// A part that others read too begins at a multiple of so many bytes of its whole, as a value of its own does.
const ALIGNED: usize = ALIGNMENT as usize;

/// Makes joins of those lines whose kernels write the parts where they belong, and whose parts nothing else reads or
/// are there row by row.
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
            if !fits {
                break;
            }
            fits = is_written(block, &writers, &reads, *value, layout)?;
        }
        let alone = are_read_here(block, &writers, &reads, symbol, &parts);
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

/// Whether the line that computes a value can write it with this layout. For one that joins, the lines of its parts
/// write it: row by row, and nothing else reads parts that move against where they are in their whole.
fn is_written(block: &Block, writers: &Writers, reads: &[usize], value: ValueId, layout: &Layout) -> Result<bool> {
    let (shape, symbol) = (block.meta(value).shape(), writers.get(&value).map(|line| &block.symbols[*line]));
    let Some(symbol) = symbol else { return Ok(false) };
    let without_gaps = is_contiguous(shape, &layout.strides);
    if symbol.executor != Some(JOIN) {
        return writes(symbol, shape, &layout.strides);
    }
    // Complex numbers are whole values: their parts are counted in other elements.
    if without_gaps || makes_complex(symbol) {
        return Ok(!makes_complex(symbol));
    }
    let Some(parts) = parts_in(block, symbol, writers, layout) else { return Ok(false) };
    for (part, inner) in &parts {
        let alone = reads[part.index()] == 1 && has_rows(block.meta(*part), &inner.strides);
        if !alone || !is_written(block, writers, reads, *part, inner)? {
            return Ok(false);
        }
    }
    Ok(are_read_here(block, writers, reads, symbol, &parts))
}

/// Whether nothing but this line reads the views between it and its parts, where a part gets another layout.
fn are_read_here(
    block: &Block,
    writers: &Writers,
    reads: &[usize],
    symbol: &BoundSymbol,
    parts: &[(ValueId, Layout)],
) -> bool {
    let view = |id: &ValueId| writers.get(id).map(|line| &block.symbols[*line]);
    let is_view = |symbol: &&BoundSymbol| symbol.executor == Some(VIEW);
    let through = |id: &ValueId| {
        std::iter::successors(Some(*id), |id| view(id).filter(is_view)?.operands().next())
            .take_while(|id| view(id).is_some_and(|line| is_view(&line)))
            .all(|id| reads[id.index()] == 1)
    };
    let stays = |(value, layout): &(ValueId, Layout)| is_contiguous(block.meta(*value).shape(), &layout.strides);
    joined(symbol).is_some_and(|(tensors, _)| tensors.iter().zip(parts).all(|(id, part)| stays(part) || through(id)))
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

/// Whether the lines that are needed and read a value take it in any layout, but for a single view of it. Those
/// that a library computes may copy an operand of another layout, and do not count as such.
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
