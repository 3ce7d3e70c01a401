//! Where the elements of values are: what a program uses for each value of its trace (strides, and an offset in the
//! memory of another value) is what the lines of the trace say.
//!
//! The layouts come from the planner. They are checked line by line: a view is where its rule says, the parts of a join
//! are the slices of the whole that it is defined to have, and every other value has memory of its own.

use super::super::layouts::Layout;
use super::super::print::print_input;
use super::super::{Block, BoundSymbol, Callee, ValueId};
use super::kernels::Runner;
use super::verifier::{Verifier, name};
use crate::argument::{Arg, AttributeType, map_arguments};
use crate::error::Result;
use crate::executor::{HOST, JOIN, VIEW};
use crate::operator::{OperatorDef, Role, RuleSet};
use crate::strided::{LayoutRules, Strided};

/// Whether lines of this operator can be joins.
pub(super) fn can_join(def: &OperatorDef) -> bool {
    matches!(def.overload, Some(Role::Cat | Role::Contiguous | Role::ViewAsComplex))
}

/// Strides of a tensor row by row.
fn row_by_row(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1) as isize);
    }
    strides
}

/// Whether elements of this shape are at the same places with both strides.
pub(super) fn same_strides(shape: &[usize], one: &[isize], other: &[isize]) -> bool {
    let counts = one.len() == shape.len() && other.len() == shape.len();
    counts && (shape.contains(&0) || shape.iter().zip(one).zip(other).all(|((extent, a), b)| *extent == 1 || a == b))
}

/// The first and the last element of a tensor, from its own first one on; none if it has no elements.
pub(super) fn extent(shape: &[usize], strides: &[isize]) -> Option<(i128, i128)> {
    if shape.contains(&0) {
        return None;
    }
    let mut ends = (0, 0);
    for (extent, stride) in shape.iter().zip(strides) {
        let way = (*extent as i128 - 1) * *stride as i128;
        if way < 0 {
            ends.0 += way;
        } else {
            ends.1 += way;
        }
    }
    Some(ends)
}

impl<'t> Verifier<'t> {
    /// That every value is where the lines say, and that kernels write their results there.
    pub(super) fn places(&self, layouts: &[Layout]) -> Result<()> {
        let block = &self.trace.block;
        let mut writer: Vec<Option<usize>> = vec![None; block.values.len()];
        // The values that a join has as parts.
        let mut joined = vec![false; block.values.len()];
        for (line, symbol) in block.symbols.iter().enumerate() {
            symbol.results.iter().for_each(|id| writer[id.index()] = Some(line));
            let broken = |message: String| self.broken_by(block, symbol, message);
            match symbol.executor {
                Some(VIEW) => viewed(block, symbol, layouts).map_err(broken)?,
                Some(JOIN) => {
                    for part in parts(block, symbol, layouts, &writer).map_err(broken)? {
                        joined[part.index()] = true;
                    }
                }
                _ => {}
            }
        }
        for symbol in &block.symbols {
            self.results(symbol, layouts, &joined)?;
        }
        for (at, (id, input)) in block.parameters.iter().zip(&self.trace.inputs).enumerate() {
            let (shape, own) = (block.meta(*id).shape(), &layouts[id.index()]);
            let strides = input.strides.clone().unwrap_or_else(|| row_by_row(shape));
            if own.root != *id || own.offset != 0 || !same_strides(shape, &own.strides, &strides) {
                let message = format!("the program takes {} to be laid out otherwise", name(block, *id));
                return Err(self.broken(print_input(self.trace, at), None, message));
            }
        }
        Ok(())
    }

    /// The results of a line that is no view: each is by itself, or a part of a join that its kernel can write.
    fn results(&self, symbol: &'t BoundSymbol, layouts: &[Layout], joined: &[bool]) -> Result<()> {
        let block = &self.trace.block;
        if symbol.executor == Some(VIEW) || symbol.callee == Callee::Delete {
            return Ok(());
        }
        let runner = Runner::of(symbol, self.trace.target.kind());
        for id in &symbol.results {
            let (shape, own) = (block.meta(*id).shape(), &layouts[id.index()]);
            let message = if own.root == *id {
                let as_computed = own.offset == 0 && same_strides(shape, &own.strides, &row_by_row(shape));
                (!as_computed).then(|| format!("the program takes {} to be laid out otherwise", name(block, *id)))
            } else if !joined[id.index()] {
                let whole = name(block, own.root);
                Some(format!("the program has {} in {whole}, of which no line makes it a part", name(block, *id)))
            } else {
                // All kernels write parts of complex numbers where these begin, one after the other.
                let begins = block.meta(own.root).dtype().is_complex() && own.offset == 0;
                let all_parts = begins && same_strides(shape, &own.strides, &row_by_row(shape));
                (!all_parts && !runner.writes(symbol, shape, &own.strides)).then(|| {
                    let whole = name(block, own.root);
                    format!("its kernel does not write {} at its place in {whole}", name(block, *id))
                })
            };
            if let Some(message) = message {
                return Err(self.broken_by(block, symbol, message));
            }
        }
        Ok(())
    }

    /// What a planned trace gives to a kernel has the strides that the kernel takes.
    pub(super) fn operand_strides(&self, layouts: &[Layout]) -> Result<()> {
        let block = &self.trace.block;
        for symbol in block.symbols.iter().filter(|symbol| symbol.callee != Callee::Delete) {
            let gaps = |id: &ValueId| {
                let shape = block.meta(*id).shape();
                !same_strides(shape, &layouts[id.index()].strides, &row_by_row(shape))
            };
            let Some(operand) = symbol.operands().find(gaps).filter(|_| symbol.executor != Some(VIEW)) else {
                continue;
            };
            if !Runner::of(symbol, self.trace.target.kind()).reads_any_strides() {
                let message =
                    format!("its kernel takes contiguous operands, and {} is not contiguous", name(block, operand));
                return Err(self.broken_by(block, symbol, message));
            }
        }
        Ok(())
    }
}

/// That the result of a line of the executor [`VIEW`] is where the operator's rule has it in its operand's memory.
fn viewed(block: &Block, symbol: &BoundSymbol, layouts: &[Layout]) -> Result<(), String> {
    let impossible = || "is claimed by 'view', but its operand's memory cannot be looked at in that way".to_owned();
    let [result] = symbol.results[..] else { return Err(impossible()) };
    let strided =
        |id: &ValueId| Strided { meta: block.meta(*id).clone(), strides: layouts[id.index()].strides.to_vec() };
    let rule = symbol.operator().and_then(|def| LayoutRules::of(def).view);
    let view = rule.and_then(|rule| rule(&map_arguments(&symbol.arguments, strided)));
    let (Some(operand), Some(view)) = (symbol.operands().next(), view) else { return Err(impossible()) };
    let (base, own, shape) = (&layouts[operand.index()], &layouts[result.index()], block.meta(result).shape());
    let there = own.root == base.root
        && own.offset == base.offset.saturating_add(view.offset)
        && same_strides(shape, &own.strides, &view.strides);
    if !there {
        return Err(format!(
            "the program has {} elsewhere than this view of {}",
            name(block, result),
            name(block, operand)
        ));
    }
    // Of views that look at whole elements: what a view shows is inside of what it looks at.
    let root = block.meta(own.root);
    let whole = root.dtype().size() == block.meta(result).dtype().size() && !block.parameters.contains(&own.root);
    let Some((first, last)) = extent(shape, &own.strides).filter(|_| whole) else { return Ok(()) };
    let (first, last) = (first + own.offset as i128, last + own.offset as i128);
    if first < 0 || last >= root.len() as i128 {
        return Err(format!("shows elements {first} to {last} of {}, which has {}", name(block, own.root), root.len()));
    }
    Ok(())
}

/// The values that a line of the executor [`JOIN`] has as parts, each of which is computed at its place in the result.
fn parts(
    block: &Block,
    symbol: &BoundSymbol,
    layouts: &[Layout],
    writer: &[Option<usize>],
) -> Result<Vec<ValueId>, String> {
    let operands: Vec<ValueId> = symbol.operands().collect();
    if let Some((_, id)) = operands.iter().enumerate().find(|(at, id)| operands[..*at].contains(id)) {
        return Err(format!("is claimed by 'join', and reads {} twice", name(block, *id)));
    }
    let elsewhere =
        |id: ValueId| format!("is claimed by 'join', but {} cannot be written in its result", name(block, id));
    let (Some(def), [whole]) = (symbol.operator(), &symbol.results[..]) else { return Ok(Vec::new()) };
    if def.overload == Some(Role::ViewAsComplex) {
        return pairs(block, *whole, &operands, layouts, writer)
            .ok_or_else(|| elsewhere(operands[0]))
            .map(|id| vec![id]);
    }
    let along = match def.overload {
        Some(Role::Cat) => match def.param("dim").and_then(|at| symbol.arguments.get(at)) {
            Some(Arg::Attribute(dim)) => usize::from_attribute(dim),
            _ => None,
        },
        _ => Some(0),
    };
    let (shape, laid) = (block.meta(*whole).shape(), &layouts[whole.index()]);
    let mut start = 0;
    let mut found = Vec::with_capacity(operands.len());
    for id in operands {
        let (own, meta) = (&layouts[id.index()], block.meta(id));
        // One tensor is copied as it is; others are beside each other along a dimension.
        let offset = match (along.and_then(|dim| laid.strides.get(dim)), along.and_then(|dim| meta.shape().get(dim))) {
            (Some(stride), Some(extent)) => {
                let offset = laid.offset.saturating_add((start as isize).saturating_mul(*stride));
                start += extent;
                offset
            }
            _ if def.overload == Some(Role::Contiguous) && shape.is_empty() => laid.offset,
            _ => return Err(elsewhere(id)),
        };
        let there =
            (own.root, own.offset) == (laid.root, offset) && same_strides(meta.shape(), &own.strides, &laid.strides);
        // All of one value is there, of which the operand may be a view.
        let Some(part) = computed(block, id, writer).filter(|part| there && block.meta(*part).len() == meta.len())
        else {
            return Err(elsewhere(id));
        };
        if meta.is_empty() || !is_written_for_it(block, part, writer) {
            return Err(elsewhere(part));
        }
        found.push(part);
    }
    Ok(found)
}

/// The parts of complex numbers, `whole`, if they are all that is in its memory, row by row, and were written for it:
/// by the host too, which brings a whole value as it does others.
fn pairs(
    block: &Block,
    whole: ValueId,
    operands: &[ValueId],
    layouts: &[Layout],
    writer: &[Option<usize>],
) -> Option<ValueId> {
    let [pairs] = operands else { return None };
    let (own, meta) = (&layouts[pairs.index()], block.meta(*pairs));
    let there = layouts[whole.index()].root == whole
        && (own.root, own.offset) == (whole, 0)
        && same_strides(meta.shape(), &own.strides, &row_by_row(meta.shape()))
        && meta.bytes() == block.meta(whole).bytes();
    let line = writer[pairs.index()].map(|line| &block.symbols[line])?;
    let alone = line.executor != Some(VIEW) && !line.is_ordered() && !block.results.contains(pairs);
    (there && alone).then_some(*pairs)
}

/// The value of whose memory `seen` is a view; itself if it is none.
fn computed(block: &Block, seen: ValueId, writer: &[Option<usize>]) -> Option<ValueId> {
    let mut value = seen;
    loop {
        let line = writer[value.index()].map(|line| &block.symbols[line]);
        match line.filter(|line| line.executor == Some(VIEW)) {
            Some(view) => value = view.operands().next()?,
            None => return Some(value),
        }
    }
}

/// Whether a value is computed by a line of the program's own stream that does nothing else, and stays in the program:
/// it is no input and no result, the host does not bring it, and no other process writes it.
fn is_written_for_it(block: &Block, value: ValueId, writer: &[Option<usize>]) -> bool {
    let Some(line) = writer[value.index()].map(|line| &block.symbols[line]) else { return false };
    line.executor != Some(HOST) && !line.is_ordered() && !block.results.contains(&value)
}
