//! Padding: a kernel whose operands have extents that do not fit the hardware (GPT-2's 50257 classes) gets larger ones,
//! with zeros behind the elements, where its implementation asks for them (`padded`).
//!
//! The kernel computes a larger result of them; the result that the program asked for is a view of its beginning.
//! Arithmetic that leads from there to another such kernel, or to a reduction, is done on the whole larger result: rows
//! stay aligned, and the result is not copied; see `wider`. The elements behind those of the program are arbitrary.
//! A reduction leaves them out, and a kernel gets zeros in their place. Any other operand is copied into a larger one.

use rustc_hash::FxHashMap;

use super::claim;
use super::dce;
use super::flatten::{Flattener, Substitution};
use crate::argument::map_arguments;
use crate::choices::Ranking;
use crate::error::{CallStack, Error, Failure, Result};
use crate::executor::find_implementation;
use crate::fuel::Fuel;
use crate::operator::RuleSet;
use crate::strided::{LayoutRules, Strided};
use crate::trace::{Block, BoundSymbol, Results, StageName, Trace, ValueId};
use crate::tracer::infer;
use fulgurite_kernels::view::contiguous_strides;

mod wider;

use wider::Wider;

/// Gives kernels the operands that they ask for; `None` if none does, and if no executor makes them.
///
/// # Errors
/// If an implementation asks for operands that are smaller, or of which its operator computes something else.
pub fn pad(trace: &Trace, ranking: &Ranking<'_>, fuel: &mut Fuel) -> Result<Option<Trace>> {
    let source = &trace.block;
    let wanted: Vec<Option<Vec<Vec<usize>>>> =
        wanted(source).into_iter().map(|shapes| shapes.filter(|_| fuel.burn())).collect();
    if wanted.iter().all(Option::is_none) {
        return Ok(None);
    }
    let (flattener, mut substitution) = Flattener::new(source);
    let mut wider = Wider::new(flattener);
    for (symbol, shapes) in source.symbols.iter().zip(wanted) {
        match shapes {
            Some(shapes) => write(&mut wider, source, symbol, &shapes, &mut substitution)?,
            None => copy(&mut wider, source, symbol, &mut substitution)?,
        }
    }
    let padded = trace.at_stage(StageName::Pad, wider.flattener.finish(source, &substitution));
    match claim::claim(&padded, ranking, fuel) {
        // Masks are not merged: each region computes its own, where one for several layers would be written and read.
        Ok(claimed) => {
            let block = claim::without_bodies(dce::live(claimed.block).canonical());
            Ok(Some(Trace { block, ..padded }))
        }
        // No executor of the list makes larger operands: the program runs as it is.
        Err(Error::Unclaimed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// For each symbol the shapes of its tensors that its kernel asks for.
fn wanted(block: &Block) -> Vec<Option<Vec<Vec<usize>>>> {
    let contiguous = |id: &ValueId| contiguous_strides(block.meta(*id).shape());
    // As the layout pass will have them, before it copies anything.
    let mut seen: FxHashMap<ValueId, Vec<isize>> = FxHashMap::default();
    let mut all = Vec::with_capacity(block.symbols.len());
    for symbol in &block.symbols {
        let Some(def) = symbol.operator() else {
            all.push(None);
            continue;
        };
        let view = LayoutRules::of(def).view;
        let padded = symbol.executor.and_then(|executor| find_implementation(def.name, executor)?.padded);
        if view.is_none() && padded.is_none() {
            all.push(None);
            continue;
        }
        let operands = map_arguments(&symbol.arguments, |id| Strided {
            meta: block.meta(*id).clone(),
            strides: seen.get(id).cloned().unwrap_or_else(|| contiguous(id)),
        });
        if let (Some(rule), [result]) = (view, &symbol.results[..])
            && let Some(view) = rule(&operands)
        {
            seen.insert(*result, view.strides);
        }
        all.push(padded.and_then(|rule| rule(&operands)));
    }
    all
}

/// Writes a symbol with operands of these shapes, and the views that are its results.
fn write(
    wider: &mut Wider,
    source: &Block,
    symbol: &BoundSymbol,
    shapes: &[Vec<usize>],
    substitution: &mut Substitution,
) -> Result<()> {
    let refused = |message: String| Error::Operator {
        operator: symbol.called(),
        failure: Failure::new("Padding", format!("its kernel by {}: {message}", symbol.executor.unwrap_or("nobody"))),
        stack: CallStack { at: symbol.place, frames: Vec::new() },
    };
    let Some(def) = symbol.operator() else { return Ok(()) };
    let operands: Vec<ValueId> = symbol.operands().collect();
    if operands.len() != shapes.len() {
        return Err(refused(format!("asks for {} tensors, it has {}", shapes.len(), operands.len())));
    }
    let mut larger = Vec::with_capacity(operands.len());
    for (id, shape) in operands.iter().zip(shapes) {
        let meta = source.meta(*id);
        if meta.rank() != shape.len() || meta.shape().iter().zip(shape).any(|(own, wanted)| own > wanted) {
            return Err(refused(format!("asks for {shape:?}, which does not hold {meta}")));
        }
        larger.push(wider.with_zeros(Flattener::mapped(substitution, *id), shape, symbol.into())?);
    }
    let mut next = larger.into_iter();
    let arguments = map_arguments(&symbol.arguments, |id| next.next().unwrap_or(*id));
    let metas = map_arguments(&arguments, |id| wider.meta(*id).clone());
    let (results, _) = infer(def, &metas)
        .map_err(|error| refused(format!("asks for tensors that it cannot have: {}", error.of(def.name, None))))?;
    let implementation = symbol.executor.and_then(|executor| find_implementation(def.name, executor));
    if let Some(Err(reason)) = implementation.map(|implementation| implementation.accepts(&metas)) {
        return Err(refused(format!("asks for tensors that it does not take: {reason}")));
    }
    let fits = |(id, meta): (&ValueId, &crate::TensorMeta)| {
        let proper = source.meta(*id);
        proper.rank() == meta.rank()
            && proper.dtype() == meta.dtype()
            && proper.shape().iter().zip(meta.shape()).all(|(proper, larger)| proper <= larger)
    };
    if results.len() != symbol.results.len() || !symbol.results.iter().zip(&results).all(fits) {
        return Err(refused(format!("computes something else of tensors of the shapes {shapes:?}")));
    }
    let mut made = Results::new();
    for (id, meta) in symbol.results.iter().zip(results) {
        let same = meta == *source.meta(*id);
        let name = &source.value(*id).name;
        let name = if same { name.clone() } else { wider.flattener.fresh(&format!("{name}.padded")) };
        made.push(wider.flattener.define(name, meta));
    }
    wider.push(BoundSymbol { arguments, results: made.clone(), body: None, ..symbol.clone() });
    for (id, larger) in symbol.results.iter().zip(made) {
        let proper = source.meta(*id);
        substitution[id.index()] = Some(match wider.meta(larger) == proper {
            true => larger,
            false => wider.beginning(larger, proper.shape(), source.value(*id).name.clone(), symbol.into())?,
        });
    }
    Ok(())
}

/// Copies a symbol. A reduction of what is there in a larger form reduces that.
fn copy(wider: &mut Wider, source: &Block, symbol: &BoundSymbol, substitution: &mut Substitution) -> Result<()> {
    let operand = symbol.operands().next().map(|id| Flattener::mapped(substitution, id));
    let larger = match operand {
        Some(operand) => wider.for_reduction(operand, symbol)?.map(|larger| (operand, larger)),
        None => None,
    };
    let own = symbol.operands().next();
    if let (Some(own), Some((_, larger))) = (own, larger) {
        substitution[own.index()] = Some(larger);
    }
    wider.flattener.copy(source, symbol, substitution);
    wider.note();
    if let (Some(own), Some((operand, _))) = (own, larger) {
        substitution[own.index()] = Some(operand);
    }
    Ok(())
}
