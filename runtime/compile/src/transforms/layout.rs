//! Layout: view prims become views, and a visible `contiguous` is inserted before every reader that needs one.

use std::sync::Arc;

use fulgurite_kernels::view::{contiguous_strides, is_contiguous};
use rustc_hash::{FxHashMap, FxHashSet};

use super::flatten::Flattener;
use super::join;
use crate::argument::{Arg, map_arguments};
use crate::error::{Error, Result};
use crate::executor::{ExecutorDef, HOST, JOIN, VIEW, executors_of, find_implementation};
use crate::operator::{Role, RuleSet};
use crate::registry::role;
use crate::strided::LayoutRules;
use crate::trace::joins::{makes_complex, takes_any_strides};
pub use crate::trace::layouts::{Layout, layouts};
use crate::trace::layouts::{laid_over, view_of};
use crate::trace::paths::{input_place, output_place};
use crate::trace::{Block, BoundSymbol, Callee, Output, Results, StageName, Trace, ValueId};
use crate::tracer::{infer, with_defaults};

/// Whether the view `symbol`, with `operand` in place of its own, is of the same type and looks at memory as `laid`
/// says.
fn looks_at(block: &Block, symbol: &BoundSymbol, operand: ValueId, known: &[Layout], laid: &Layout) -> bool {
    let Some(own) = symbol.operands().next() else { return false };
    let arguments = map_arguments(&symbol.arguments, |id| if *id == own { operand } else { *id });
    let metas =
        |symbol: &BoundSymbol| infer(symbol.operator()?, &block.argument_metas(symbol)).ok().map(|(metas, _)| metas);
    let other = BoundSymbol { arguments, ..symbol.clone() };
    // Its rules may refuse the other operand, and are not asked for a view of it then.
    metas(&other).is_some_and(|other| Some(other) == metas(symbol))
        && view_of(block, &other, |id| known[id.index()].strides.to_vec())
            .is_some_and(|(_, view)| laid_over(&known[operand.index()], view) == *laid)
}

/// Whether a value is computed for the one line that reads it, in memory of its own.
fn is_alone(source: &Block, value: ValueId) -> bool {
    let writer = source.symbols.iter().find(|symbol| symbol.results.contains(&value));
    let computed = writer.is_some_and(|symbol| {
        let is_view = symbol.operator().is_some_and(|def| LayoutRules::of(def).view.is_some());
        !is_view && symbol.executor != Some(HOST) && !symbol.is_ordered()
    });
    let reads = source.symbols.iter().flat_map(BoundSymbol::operands).filter(|id| *id == value).count();
    computed && reads == 1 && !source.results.contains(&value)
}

/// Decides views and inserts `contiguous` where a kernel or an output needs it.
pub fn layout(trace: &Trace, executors: &[&'static ExecutorDef]) -> Result<Trace> {
    let source = &trace.block;
    let executors = &executors_of(executors, &trace.target)[..];
    let (mut flattener, mut substitution) = Flattener::new(source);
    // Layouts of the new block's values, kept in step with it.
    let mut known: Vec<Layout> = Vec::with_capacity(source.values.len());
    let extend = |known: &mut Vec<Layout>, block: &Block| {
        for i in known.len()..block.values.len() {
            let id = ValueId(i as u32);
            known.push(Layout::own(block, id));
        }
    };
    extend(&mut known, flattener.block());
    for (i, input) in trace.inputs.iter().enumerate() {
        if let Some(strides) = &input.strides {
            known[i].strides = strides.as_slice().into();
        }
    }
    // What each view looks at.
    let mut viewed: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for symbol in &source.symbols {
        let arguments = map_arguments(&symbol.arguments, |id| Flattener::mapped(&substitution, *id));
        let probe = BoundSymbol { arguments, ..symbol.clone() };
        if let Some((operand, view)) = view_of(flattener.block(), &probe, |id| known[id.index()].strides.to_vec()) {
            let result = symbol.results[0];
            let laid = laid_over(&known[operand.index()], view);
            let chain: Vec<ValueId> = std::iter::successors(Some(operand), |id| viewed.get(id).copied()).collect();
            let same = |id: &&ValueId| known[id.index()] == laid && flattener.block().meta(**id) == source.meta(result);
            if let Some(same) = chain.iter().find(same).filter(|_| !source.results.contains(&result)) {
                substitution[result.index()] = Some(*same);
                continue;
            }
            // A view of a view that looks at the same memory as a view of the first does is one.
            let nearest = chain.iter().rev().find(|id| looks_at(flattener.block(), &probe, **id, &known, &laid));
            let from = *nearest.unwrap_or(&operand);
            let read =
                symbol.operands().next().and_then(|id| substitution[id.index()].replace(from).map(|old| (id, old)));
            let copied = flattener.copy(source, symbol, &mut substitution);
            copied.executor = Some(VIEW);
            copied.refusals.clear();
            viewed.insert(copied.results[0], from);
            let copied = copied.results[0];
            if let Some((id, old)) = read {
                substitution[id.index()] = Some(old);
            }
            extend(&mut known, flattener.block());
            known[copied.index()] = laid;
            continue;
        }
        // What shows another order of the elements than memory has is a view of a copy in that order, which the kernel
        // of the value may write itself (see `join`).
        let shows = |id: ValueId| contiguous_strides(flattener.block().meta(id).shape());
        if let Some((operand, view)) = view_of(flattener.block(), &probe, shows).filter(|_| !makes_complex(symbol)) {
            let copy = contiguous_copy(&mut flattener, operand, symbol, executors)?;
            extend(&mut known, flattener.block());
            let laid = laid_over(&known[copy.index()], view);
            let read =
                symbol.operands().next().and_then(|id| substitution[id.index()].replace(copy).map(|old| (id, old)));
            let copied = flattener.copy(source, symbol, &mut substitution);
            copied.executor = Some(VIEW);
            copied.refusals.clear();
            let copied = copied.results[0];
            if let Some((id, old)) = read {
                substitution[id.index()] = Some(old);
            }
            viewed.insert(copied, copy);
            extend(&mut known, flattener.block());
            known[copied.index()] = laid;
            continue;
        }
        if makes_complex(symbol) {
            let pairs = symbol.operands().next();
            let copy = match pairs.filter(|pairs| !is_alone(source, *pairs)) {
                Some(pairs) => {
                    let new = Flattener::mapped(&substitution, pairs);
                    let copy = contiguous_copy(&mut flattener, new, symbol, executors)?;
                    substitution[pairs.index()].replace(copy).map(|old| (pairs, old))
                }
                None => None,
            };
            flattener.copy(source, symbol, &mut substitution).executor = Some(JOIN);
            if let Some((pairs, old)) = copy {
                substitution[pairs.index()] = Some(old);
            }
            extend(&mut known, flattener.block());
            continue;
        }
        if !takes_any_strides(symbol)? {
            let mut made_contiguous = Vec::new();
            for id in symbol.operands() {
                let new = Flattener::mapped(&substitution, id);
                let contiguous = is_contiguous(flattener.block().meta(new).shape(), &known[new.index()].strides);
                if !contiguous && !made_contiguous.iter().any(|(old, _)| *old == id) {
                    let copy = contiguous_copy(&mut flattener, new, symbol, executors)?;
                    extend(&mut known, flattener.block());
                    made_contiguous.push((id, (new, copy)));
                }
            }
            // Only this consumer reads the copies.
            for (old, (_, copy)) in &made_contiguous {
                substitution[old.index()] = Some(*copy);
            }
            flattener.copy(source, symbol, &mut substitution);
            for (old, (new, _)) in &made_contiguous {
                substitution[old.index()] = Some(*new);
            }
        } else {
            flattener.copy(source, symbol, &mut substitution);
        }
        extend(&mut known, flattener.block());
    }
    // What leaves the program is contiguous and owns its memory; an input may leave as it came.
    let mut substitution_out = substitution.clone();
    let lines = source.symbols.iter().flat_map(|symbol| symbol.results.iter().map(move |id| (*id, symbol)));
    let lines: FxHashMap<ValueId, &BoundSymbol> = lines.collect();
    for id in &source.results {
        let new = Flattener::mapped(&substitution, *id);
        if known[new.index()].root != new && substitution_out[id.index()] == Some(new) {
            // The copy belongs to the pass of the line that defines the value. Without one it is an input.
            let Some(line) = lines.get(id) else { continue };
            let copy = contiguous_copy(&mut flattener, new, line, executors)?;
            extend(&mut known, flattener.block());
            substitution_out[id.index()] = Some(copy);
        }
    }
    let mut block = flattener.finish(source, &substitution_out);
    let donated = donated_results(trace, &block);
    join::join(&mut block, &donated)?;
    Ok(trace.at_stage(StageName::Layout, block))
}

/// The results of a block that may be written over a donated input: those of the same path and type.
fn donated_results(trace: &Trace, block: &Block) -> FxHashSet<ValueId> {
    let inputs = trace.inputs.iter().zip(&block.parameters).filter(|(input, _)| input.donated);
    let inputs: FxHashMap<&str, ValueId> = inputs.map(|(_, id)| (input_place(&block.value(*id).name), *id)).collect();
    let outputs = trace.outputs.iter().zip(&block.results);
    let over = |(output, id): &(&Output, &ValueId)| {
        inputs.get(output_place(&output.path)).is_some_and(|input| block.meta(*input) == block.meta(**id))
    };
    outputs.filter(over).map(|(_, id)| *id).collect()
}

/// Adds `contiguous(value)`, claimed by the first executor of the list that takes it.
fn contiguous_copy(
    flattener: &mut Flattener,
    value: ValueId,
    consumer: &BoundSymbol,
    executors: &[&'static ExecutorDef],
) -> Result<ValueId> {
    let def = role(Role::Contiguous)?;
    let meta = flattener.block().meta(value).clone();
    let arguments = with_defaults(def, vec![Arg::Tensor(value)]);
    let metas = map_arguments(&arguments, |_| meta.clone());
    let taker = executors.iter().find(|executor| match find_implementation(def.name, executor.name) {
        Some(implementation) => {
            implementation.kernel.runs_on(executor.device) && implementation.accepts(&metas).is_ok()
        }
        None => executor.claims.is_some_and(|claims| claims(def, &metas).is_ok()),
    });
    let Some(taker) = taker else {
        return Err(Error::Unclaimed {
            operator: def.name.into(),
            refusals: Vec::new(),
            stack: super::flatten::place_of(consumer),
        });
    };
    let base = format!("{}.contiguous", flattener.block().value(value).name);
    let name: Arc<str> = flattener.fresh(&base);
    let result = flattener.define(name, meta);
    flattener.push(BoundSymbol {
        callee: Callee::Operator(def),
        arguments,
        results: Results::from_slice(&[result]),
        body: None,
        pass: consumer.pass,
        executor: Some(taker.name),
        schedule: Default::default(),
        refusals: Vec::new(),
        place: consumer.place,
    });
    Ok(result)
}
