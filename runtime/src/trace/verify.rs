//! The rules of the language, checked after every transform in tests and debug builds.
//!
//! Names are unique in their block; values are defined once, before they are read, and not read after they were deleted
//! or overwritten; metas are what the operators' rules say; a nested body fits its symbol and has no effect that the
//! operator does not declare; executors exist and run on the target; the memory plan gives no byte to two values at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::print::{MAX_DEPTH, print_input, print_return, print_symbol};
use super::{Block, BoundSymbol, Callee, Storage, Trace, ValueId};
use crate::argument::Arg;
use crate::error::{CallStack, Error, Place, Result};
use crate::executor::find_executor;
use crate::meta::TensorMeta;
use crate::operator::OperatorDef;
use crate::tracer::{InferError, infer};
use crate::transforms::plan::updates_in_place;

/// Checks every rule of the language.
pub fn verify(trace: &Trace) -> Result<()> {
    let mut verifier = Verifier { trace, bodies: FxHashMap::default() };
    verifier.interface()?;
    verifier.block(&trace.block, 0)?;
    verifier.storage()
}

/// What a block does besides computing its results.
#[derive(Debug, Clone, Default)]
struct BlockEffects {
    random: bool,
    collective: bool,
    /// Which parameters' data it changes.
    mutates: Vec<usize>,
}

/// What is known of the values of a block while its lines are walked.
struct State {
    /// The line that defines a value: 0 for parameters, then from 1.
    defined: Vec<Option<usize>>,
    deleted: Vec<bool>,
    /// The value whose memory a value has, by declared aliases.
    root: Vec<u32>,
    /// Who last overwrote the memory of a root, and the result that has the new contents.
    written: FxHashMap<u32, (usize, ValueId)>,
    names: FxHashSet<Arc<str>>,
}

/// A broken rule in words; the caller adds the line.
type Check<T = ()> = Result<T, String>;

struct Verifier<'a> {
    trace: &'a Trace,
    /// Bodies found right. Symbols share them, so each is checked once.
    bodies: FxHashMap<*const Block, BlockEffects>,
}

fn name(block: &Block, id: ValueId) -> String {
    block.values.get(id.index()).map_or_else(|| format!("?{}", id.0), |value| format!("'{}'", value.name))
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

impl State {
    fn new(block: &Block) -> State {
        let n = block.values.len();
        State {
            defined: vec![None; n],
            deleted: vec![false; n],
            root: (0..n as u32).collect(),
            written: FxHashMap::default(),
            names: FxHashSet::default(),
        }
    }

    fn define(&mut self, block: &Block, id: ValueId, line: usize) -> Check {
        let Some(value) = block.values.get(id.index()) else {
            return Err(format!("defines value {}, the block has {}", id.0, block.values.len()));
        };
        if self.defined[id.index()].is_some() {
            return Err(format!("defines {} a second time", name(block, id)));
        }
        self.defined[id.index()] = Some(line);
        if !self.names.insert(value.name.clone()) {
            return Err(format!("another value is called {} too", name(block, id)));
        }
        Ok(())
    }

    fn alive(&self, block: &Block, id: ValueId) -> Check {
        match self.defined.get(id.index()) {
            None => Err(format!("reads value {}, the block has {}", id.0, block.values.len())),
            Some(None) => Err(format!("reads {} before it is defined", name(block, id))),
            Some(Some(_)) if self.deleted[id.index()] => Err(format!("reads {} after its 'del'", name(block, id))),
            Some(Some(_)) => Ok(()),
        }
    }

    /// That the value is alive and still has its contents.
    fn readable(&self, block: &Block, id: ValueId) -> Check {
        self.alive(block, id)?;
        if let Some((line, new)) = self.written.get(&self.root[id.index()])
            && *new != id
            && self.defined[id.index()].is_some_and(|defined| defined <= *line)
        {
            return Err(format!(
                "reads {} after its memory was overwritten by {1}; read {1}",
                name(block, id),
                name(block, *new)
            ));
        }
        Ok(())
    }
}

impl Verifier<'_> {
    fn broken(&self, line: String, place: Option<Place>, message: String) -> Error {
        Error::Verify {
            transform: self.trace.history.last().map_or("tracing", |transform| transform).to_owned(),
            line,
            message,
            stack: CallStack { at: place, frames: Vec::new() },
        }
    }

    /// Inputs and outputs against the block.
    fn interface(&self) -> Result<()> {
        let Trace { inputs, outputs, block, .. } = self.trace;
        let header = format!("trace {} for {}", self.trace.name, self.trace.target);
        if inputs.len() != block.parameters.len() {
            let message = format!(
                "declares {}, the block has {}",
                count(inputs.len(), "input"),
                count(block.parameters.len(), "parameter")
            );
            return Err(self.broken(header, None, message));
        }
        if outputs.len() != block.results.len() {
            let message = format!(
                "declares {}, the block has {}",
                count(outputs.len(), "output"),
                count(block.results.len(), "result")
            );
            return Err(self.broken(header, None, message));
        }
        for (i, (input, id)) in inputs.iter().zip(&block.parameters).enumerate() {
            let (Some(strides), Some(value)) = (&input.strides, block.values.get(id.index())) else { continue };
            if strides.len() != value.meta.rank() {
                let message =
                    format!("has {} for {}", count(strides.len(), "stride"), count(value.meta.rank(), "dimension"));
                return Err(self.broken(print_input(self.trace, i), None, message));
            }
        }
        Ok(())
    }

    fn block(&mut self, block: &Block, depth: usize) -> Result<BlockEffects> {
        let mut state = State::new(block);
        let mut effects = BlockEffects::default();
        for (i, id) in block.parameters.iter().enumerate() {
            state.define(block, *id, 0).map_err(|message| {
                let line = if depth == 0 { print_input(self.trace, i) } else { name(block, *id) };
                self.broken(line, None, message)
            })?;
        }
        for (i, symbol) in block.symbols.iter().enumerate() {
            let broken = |message: String| self.broken(print_symbol(block, symbol), symbol.place, message);
            Self::operands(block, symbol, &mut state).map_err(broken)?;
            self.claim(symbol).map_err(broken)?;
            for id in &symbol.results {
                // Metas come first: a rule that reads a result's meta needs the value to exist.
                if id.index() >= block.values.len() {
                    return Err(broken(format!("defines value {}, the block has {}", id.0, block.values.len())));
                }
            }
            Self::signature(block, symbol).map_err(|wrong| match wrong {
                Wrong::Here(message) => broken(message),
                Wrong::Inside(error) => broken(format!("its rules fail: {error}")),
            })?;
            let inner = match &symbol.body {
                Some(body) => {
                    Self::body(block, symbol, body).map_err(broken)?;
                    self.nested(symbol, body, depth)?
                }
                None => BlockEffects::default(),
            };
            let broken = |message: String| self.broken(print_symbol(block, symbol), symbol.place, message);
            let done = Self::effects(symbol, inner).map_err(broken)?;
            for id in &symbol.results {
                state.define(block, *id, i + 1).map_err(broken)?;
            }
            Self::apply(symbol, &done, i + 1, &mut state);
            effects.random |= done.random;
            effects.collective |= done.collective;
            let operands: Vec<ValueId> = symbol.operands().collect();
            for operand in done.mutates {
                let root = ValueId(state.root[operands[operand].index()]);
                if let Some(parameter) = block.parameters.iter().position(|id| *id == root)
                    && !effects.mutates.contains(&parameter)
                {
                    effects.mutates.push(parameter);
                }
            }
        }
        for id in &block.results {
            state.readable(block, *id).map_err(|message| {
                let line = if depth == 0 { print_return(self.trace) } else { format!("yield {}", name(block, *id)) };
                self.broken(line, None, message.replacen("reads", "returns", 1))
            })?;
        }
        Ok(effects)
    }

    /// Definition before use, and no use after the end of a value's life.
    fn operands(block: &Block, symbol: &BoundSymbol, state: &mut State) -> Check {
        let delete = symbol.callee == Callee::Delete;
        for id in symbol.operands() {
            if delete {
                state.alive(block, id)?;
                state.deleted[id.index()] = true;
            } else {
                state.readable(block, id)?;
            }
        }
        Ok(())
    }

    fn executor(&self, executor: &str) -> Check {
        let found = find_executor(executor).map_err(|error| error.to_string())?;
        let target = self.trace.target.kind();
        if found.device != target && found.device != "any" {
            return Err(format!("executor '{executor}' runs on {}, the trace is for {target}", found.device));
        }
        Ok(())
    }

    fn claim(&self, symbol: &BoundSymbol) -> Check {
        if let Some(executor) = symbol.executor {
            self.executor(executor)?;
        }
        if let Callee::Region { executor } = symbol.callee {
            self.executor(executor)?;
            if symbol.executor.is_some_and(|claimed| claimed != executor) {
                return Err(format!("is a region of '{executor}', but claimed by another executor"));
            }
            for inner in symbol.body.iter().flat_map(|body| &body.symbols) {
                if matches!(inner.callee, Callee::Region { .. } | Callee::ValueAndGrad { .. }) {
                    return Err(format!("a region holds operators, not '{}'", inner.name()));
                }
                if let Some(other) = inner.executor.filter(|other| *other != executor) {
                    return Err(format!(
                        "is a region of '{executor}', but '{}' in it is claimed by '{other}'",
                        inner.name()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Arguments and results against what is called. Every operand is known to be in range.
    fn signature(block: &Block, symbol: &BoundSymbol) -> Result<(), Wrong> {
        let only_tensors = symbol.arguments.iter().all(|argument| matches!(argument, Arg::Tensor(_) | Arg::List(_)));
        if symbol.operator().is_none() && !only_tensors {
            return Err(Wrong::Here(format!("arguments of '{}' are tensors", symbol.name())));
        }
        let expected: Vec<TensorMeta> = match &symbol.callee {
            Callee::Operator(def) => Self::infer(def, block, symbol)?,
            Callee::Delete => {
                if symbol.arguments.is_empty() || symbol.body.is_some() || symbol.executor.is_some() {
                    return Err(Wrong::Here("'del' takes values, and nobody runs it".into()));
                }
                Vec::new()
            }
            Callee::ValueAndGrad { wrt } => {
                let Some(body) = &symbol.body else { return Err(Wrong::Here("value_and_grad lacks its body".into())) };
                let [loss] = body.results[..] else {
                    let message =
                        format!("the body gives {}, expected the loss alone", count(body.results.len(), "result"));
                    return Err(Wrong::Here(message));
                };
                let Some(loss) = body.values.get(loss.index()).map(|value| &value.meta) else {
                    return Err(Wrong::Here("the body gives a value that it does not have".into()));
                };
                if loss.rank() != 0 || !loss.dtype().is_floating() {
                    return Err(Wrong::Here(format!(
                        "the body gives {loss}, expected a zero-dimensional floating-point tensor"
                    )));
                }
                let mut metas = vec![loss.clone()];
                for (i, index) in wrt.iter().enumerate() {
                    let value = body.parameters.get(*index).and_then(|id| body.values.get(id.index()));
                    let Some(value) = value else {
                        let has = count(body.parameters.len(), "parameter");
                        return Err(Wrong::Here(format!("wrt names parameter {index}, the body has {has}")));
                    };
                    if wrt[..i].contains(index) {
                        return Err(Wrong::Here(format!("wrt names parameter {index} twice")));
                    }
                    if !value.meta.dtype().is_floating() {
                        let message = format!("no gradient with respect to '{}': it is {}", value.name, value.meta);
                        return Err(Wrong::Here(message));
                    }
                    metas.push(value.meta.clone());
                }
                metas
            }
            Callee::Region { .. } => {
                let Some(body) = &symbol.body else { return Err(Wrong::Here("a region lacks its body".into())) };
                let metas = body.results.iter().map(|id| body.values.get(id.index()).map(|value| value.meta.clone()));
                match metas.collect::<Option<_>>() {
                    Some(metas) => metas,
                    None => return Err(Wrong::Here("the body gives a value that it does not have".into())),
                }
            }
        };
        if expected.len() != symbol.results.len() {
            let named = symbol.results.len();
            let message =
                format!("{} returns {}, the line names {named}", symbol.name(), count(expected.len(), "tensor"));
            return Err(Wrong::Here(message));
        }
        for (id, expected) in symbol.results.iter().zip(&expected) {
            if block.meta(*id) != expected {
                let message =
                    format!("{} is {}, {} gives {expected}", name(block, *id), block.meta(*id), symbol.name());
                return Err(Wrong::Here(message));
            }
        }
        Ok(())
    }

    fn infer(def: &'static OperatorDef, block: &Block, symbol: &BoundSymbol) -> Result<Vec<TensorMeta>, Wrong> {
        match infer(def, &block.argument_metas(symbol)) {
            Ok((metas, _)) => Ok(metas),
            Err(InferError::Failure(failure)) => Err(Wrong::Here(failure.message)),
            Err(InferError::Inner(error)) => Err(Wrong::Inside(error)),
        }
    }

    /// A body's parameters are the operands, and its results the symbol's.
    fn body(block: &Block, symbol: &BoundSymbol, body: &Block) -> Check {
        let operands: Vec<ValueId> = symbol.operands().collect();
        if operands.len() != body.parameters.len() {
            let (takes, gets) = (count(body.parameters.len(), "parameter"), count(operands.len(), "tensor"));
            return Err(format!("its body takes {takes}, the call has {gets}"));
        }
        for (operand, parameter) in operands.iter().zip(&body.parameters) {
            let meta = body.values.get(parameter.index()).map(|value| &value.meta);
            if meta != Some(block.meta(*operand)) {
                let meta = meta.map_or_else(|| "no value".to_owned(), ToString::to_string);
                return Err(format!(
                    "its body's parameter {} is {meta}, the argument {} is {}",
                    name(body, *parameter),
                    name(block, *operand),
                    block.meta(*operand)
                ));
            }
        }
        if matches!(symbol.callee, Callee::ValueAndGrad { .. }) {
            return Ok(());
        }
        if body.results.len() != symbol.results.len() {
            let (gives, names) = (count(body.results.len(), "result"), symbol.results.len());
            return Err(format!("its body gives {gives}, the line names {names}"));
        }
        for (inner, outer) in body.results.iter().zip(&symbol.results) {
            let meta = body.values.get(inner.index()).map(|value| &value.meta);
            if meta != Some(block.meta(*outer)) {
                let meta = meta.map_or_else(|| "no value".to_owned(), ToString::to_string);
                return Err(format!(
                    "its body gives {meta} for {}, which is {}",
                    name(block, *outer),
                    block.meta(*outer)
                ));
            }
        }
        Ok(())
    }

    fn nested(&mut self, symbol: &BoundSymbol, body: &Arc<Block>, depth: usize) -> Result<BlockEffects> {
        if let Some(known) = self.bodies.get(&Arc::as_ptr(body)) {
            return Ok(known.clone());
        }
        if depth >= MAX_DEPTH {
            return Err(self.broken(
                symbol.name().into(),
                symbol.place,
                format!("bodies nest deeper than {MAX_DEPTH}"),
            ));
        }
        let effects = self.block(body, depth + 1).map_err(|mut error| {
            if let Error::Verify { stack, .. } = &mut error {
                stack.frames.push((symbol.name().to_owned(), symbol.place));
            }
            error
        })?;
        self.bodies.insert(Arc::as_ptr(body), effects.clone());
        Ok(effects)
    }

    /// What a symbol does, by declaration and by its body; `mutates` are positions among its operands.
    fn effects(symbol: &BoundSymbol, inner: BlockEffects) -> Check<BlockEffects> {
        let Some(def) = symbol.operator() else { return Ok(inner) };
        if inner.random && !def.effects.random {
            return Err(format!("its body draws random numbers, which {} does not declare", def.name));
        }
        if inner.collective && !def.effects.collective {
            return Err(format!("its body has a collective, which {} does not declare", def.name));
        }
        let mut mutates = Vec::new();
        let mut operand = 0;
        for (i, argument) in symbol.arguments.iter().enumerate() {
            for _ in argument.tensors() {
                if def.effects.mutates.contains(&i) {
                    mutates.push(operand);
                } else if inner.mutates.contains(&operand) {
                    let param = def.params.get(i).map_or("?", |param| param.name);
                    return Err(format!("its body changes '{param}', which {} does not declare", def.name));
                }
                operand += 1;
            }
        }
        Ok(BlockEffects { random: def.effects.random, collective: def.effects.collective, mutates })
    }

    /// Notes whose memory the results have, and whose contents are gone.
    fn apply(symbol: &BoundSymbol, done: &BlockEffects, line: usize, state: &mut State) {
        let Some(def) = symbol.operator() else { return };
        let operands: Vec<ValueId> = symbol.operands().collect();
        for (result, param) in def.effects.aliases {
            let (Some(result), Some(Arg::Tensor(of) | Arg::Optional(Some(of)))) =
                (symbol.results.get(*result), symbol.arguments.get(*param))
            else {
                continue;
            };
            let root = state.root[of.index()];
            state.root[result.index()] = root;
            if done.mutates.iter().any(|operand| operands[*operand] == *of) && def.effects.mutates.contains(param) {
                state.written.insert(root, (line, *result));
            }
        }
    }

    // === The memory plan ===

    /// For each value the one whose memory it has in the plan.
    fn roots(&self) -> Result<Vec<usize>> {
        let values = &self.trace.block.values;
        let mut roots: Vec<Option<usize>> = vec![None; values.len()];
        for start in 0..values.len() {
            let mut chain = Vec::new();
            let mut at = start;
            let root = loop {
                if let Some(root) = roots[at] {
                    break root;
                }
                let Some(Storage::Shared(next)) = values[at].storage else { break at };
                chain.push(at);
                if next.index() >= values.len() || chain.len() > values.len() {
                    let line = self.line_of(start);
                    let message = if next.index() >= values.len() {
                        format!(
                            "'{}' shares the memory of value {}, the block has {}",
                            values[at].name,
                            next.0,
                            values.len()
                        )
                    } else {
                        format!("'{}' shares memory in a circle", values[at].name)
                    };
                    return Err(self.broken(line.0, line.1, message));
                }
                at = next.index();
            };
            for member in chain {
                roots[member] = Some(root);
            }
            roots[start] = Some(root);
        }
        Ok(roots.into_iter().flatten().collect())
    }

    /// The line that defines a value of the trace's own block.
    fn line_of(&self, value: usize) -> (String, Option<Place>) {
        let block = &self.trace.block;
        if let Some(input) = block.parameters.iter().position(|id| id.index() == value) {
            return (print_input(self.trace, input), None);
        }
        let symbol = block.symbols.iter().find(|symbol| symbol.results.iter().any(|id| id.index() == value));
        symbol.map_or_else(
            || (block.values[value].name.to_string(), None),
            |symbol| (print_symbol(block, symbol), symbol.place),
        )
    }

    fn storage(&self) -> Result<()> {
        let block = &self.trace.block;
        if block.values.iter().all(|value| value.storage.is_none()) {
            return Ok(());
        }
        let roots = self.roots()?;
        // First and last line of everything that has a root's memory.
        let mut lives: Vec<Option<(usize, usize)>> = vec![None; block.values.len()];
        let mut note = |id: ValueId, line: usize| {
            let life = lives[roots[id.index()]].get_or_insert((line, line));
            *life = (life.0.min(line), life.1.max(line));
        };
        block.parameters.iter().for_each(|id| note(*id, 0));
        for (i, symbol) in block.symbols.iter().enumerate() {
            if symbol.callee != Callee::Delete {
                symbol.operands().for_each(|id| note(id, i + 1));
            }
            symbol.results.iter().for_each(|id| note(*id, i + 1));
        }
        for id in &block.results {
            note(*id, block.symbols.len() + 1);
            if let Some(Storage::Arena(_)) = block.values[roots[id.index()]].storage {
                let message =
                    format!("returns {}, which lies in the arena and does not outlive the call", name(block, *id));
                return Err(self.broken(print_return(self.trace), None, message));
            }
        }
        let mut placed = Vec::new();
        for (i, value) in block.values.iter().enumerate() {
            let (Some(Storage::Arena(offset)), Some((first, last))) = (value.storage, lives[i]) else { continue };
            let end = offset.saturating_add(value.meta.bytes() as u64);
            let problem = match self.trace.arena {
                None => Some(format!("'{}' lies in the arena, but the trace has none", value.name)),
                Some(size) if end > size => {
                    Some(format!("'{}' ends at byte {end} of the arena, which has {size}", value.name))
                }
                Some(_) => None,
            };
            if let Some(message) = problem {
                let line = self.line_of(i);
                return Err(self.broken(line.0, line.1, message));
            }
            if end > offset {
                placed.push((first, last, offset, end, i));
            }
        }
        // In the order of their lives; what is alive never overlaps, so that only neighbours need to be asked.
        placed.sort_unstable();
        let mut alive: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        let mut ends: BTreeSet<(usize, u64)> = BTreeSet::new();
        for (first, last, offset, end, value) in placed {
            while let Some(&(over, at)) = ends.first().filter(|(over, _)| *over < first) {
                ends.remove(&(over, at));
                alive.remove(&at);
            }
            let before = alive.range(..=offset).next_back().filter(|(_, (end, ..))| *end > offset);
            let after = alive.range(offset..).next().filter(|(start, _)| **start < end);
            let taken = before.or(after).map(|(start, (stop, other))| (*start, *stop, *other));
            // A kernel that reads an element before it writes it may take the place of an operand that dies there.
            let in_place = taken.is_some_and(|(start, stop, other)| {
                let symbol = first.checked_sub(1).and_then(|line| block.symbols.get(line));
                (start, stop) == (offset, end)
                    && ends.contains(&(first, start))
                    && block.values[other].meta == block.values[value].meta
                    && symbol.is_some_and(|symbol| {
                        let operand = |id: ValueId| id.index() == other;
                        let through_a_view = |id: ValueId| roots[id.index()] == other && id.index() != other;
                        updates_in_place(symbol)
                            && symbol.operands().any(operand)
                            && !symbol.operands().any(through_a_view)
                    })
            });
            if in_place {
                ends.remove(&(first, offset));
            } else if let Some((start, stop, other)) = taken {
                let line = self.line_of(value);
                let message = format!(
                    "'{}' takes bytes {offset}..{end} of the arena while '{}' lives in bytes {start}..{stop}",
                    block.values[value].name, block.values[other].name
                );
                return Err(self.broken(line.0, line.1, message));
            }
            alive.insert(offset, (end, value));
            ends.insert((last, offset));
        }
        Ok(())
    }
}

/// Why a line does not fit what it calls.
enum Wrong {
    Here(String),
    Inside(Error),
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::argument::Attribute;
    use crate::trace::parse;
    use crate::trace::test_support::{GOOD, op};
    use crate::tracer::{call, trace_block};
    use crate::{DType, Device};

    fn failure(trace: &Trace) -> (String, String, String, CallStack) {
        match verify(trace) {
            Err(Error::Verify { transform, line, message, stack }) => (transform, line, message, stack),
            other => panic!("{other:?} from\n{trace}"),
        }
    }

    /// The message for the good trace with `from` replaced.
    fn edited(from: &str, to: &str) -> (String, String) {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        let trace = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let (_, line, message, _) = failure(&trace);
        (line, message)
    }

    fn changed(change: impl FnOnce(&mut Trace)) -> String {
        let mut trace = parse(GOOD).unwrap();
        change(&mut trace);
        failure(&trace).2
    }

    #[test]
    fn a_good_trace_is_good() {
        parse(GOOD).unwrap().verify().unwrap();
        parse("# fulgurite trace 1\ntrace f for cpu () {\nreturn\n}").unwrap().verify().unwrap();
    }

    #[test]
    fn every_rule_has_a_text_that_breaks_it() {
        for (from, to, line, message) in [
            // Lives of values.
            ("other=-0.0", "other=values, last=exp) #", "mixed: f32[8] =", "reads 'exp' after its 'del'"),
            ("del exp, view", "del exp, exp", "del exp, exp", "reads 'exp' after its 'del'"),
            (
                "return loss = loss,",
                "return loss = exp,",
                "return loss = exp, params.w = new",
                "returns 'exp' after its 'del'",
            ),
            // Metas.
            ("cat: f32[8]", "cat: f32[9]", "cat: f32[9] = tt::cat", "'cat' is f32[9], tt::cat gives f32[8]"),
            ("view, k=8", "view, k=7", "values: f32[8]", "input is f32[8], expected 7 elements"),
            ("parts=2", "parts=3", "many: f32[8]", "tt::split returns 3 tensors, the line names 2"),
            (
                "cat: f32[8] = tt::cat([mixed, x], dim=0)",
                "cat: f32[8] = tt::fails(x)",
                "cat:",
                "its rules fail: tt::topk: input is f32[8], expected 7",
            ),
            // Bodies.
            (
                "(input: f32[8], weight: f32[8])",
                "(input: f32[8], weight: f32[9])",
                "norm:",
                "its body's parameter 'weight' is f32[9], the argument 'x' is f32[8]",
            ),
            (
                "(input: f32[8], weight: f32[8])",
                "(input: f32[8], weight: f32[8], more: f32[8])",
                "norm:",
                "its body takes 3 parameters, the call has 2 tensors",
            ),
            ("yield add\n", "yield add, add\n", "norm:", "its body gives 2 results, the line names 1"),
            (
                "add: f32[8] = tt::add(identity, weight)\n    yield add",
                "m: f32[] = tt::mean(input)\n    yield m",
                "norm:",
                "its body gives f32[] for 'norm', which is f32[8]",
            ),
            (
                "identity: f32[8] = tt::identity(exp) {",
                "identity: f32[] = tt::identity(exp) {",
                "identity: f32[] =",
                "'identity' is f32[], tt::identity gives f32[8]",
            ),
            // Executors.
            ("tt::exp(x) by tt_host", "tt::exp(x) by tt_hose", "exp:", "no executor is called 'tt_hose', there are:"),
            (
                "tt::exp(x) by tt_host",
                "tt::exp(x) by tt_elsewhere",
                "exp:",
                "executor 'tt_elsewhere' runs on tt_device, the trace is for cpu",
            ),
            // Gradients.
            ("wrt=[0]", "wrt=[2]", "loss:", "wrt names parameter 2, the body has 2 parameters"),
            (
                "loss: f32[], grad.w: f32[8] = value_and_grad([params.w, x], wrt=[0])",
                "loss: f32[], grad.w: f32[8], g: f32[8] = value_and_grad([params.w, x], wrt=[0, 0])",
                "loss:",
                "wrt names parameter 0 twice",
            ),
            (
                "value_and_grad([params.w, x], wrt=[0]) {\n    (w: f32[8]",
                "value_and_grad([indices, x], wrt=[0]) {\n    (w: i64[8]",
                "loss:",
                "no gradient with respect to 'w': it is i64[8]",
            ),
            (
                "loss: f32[], grad.w: f32[8] =",
                "loss: f32[], grad.w: f32[9] =",
                "loss:",
                "'grad.w' is f32[9], value_and_grad gives f32[8]",
            ),
            (
                "loss: f32[], grad.w: f32[8] =",
                "loss: f32[] =",
                "loss:",
                "value_and_grad returns 2 tensors, the line names 1",
            ),
            (
                "yield mean\n",
                "yield w\n",
                "loss:",
                "the body gives f32[8], expected a zero-dimensional floating-point tensor",
            ),
            ("yield mean\n", "yield mean, w\n", "loss:", "the body gives 2 results, expected the loss alone"),
            (
                "value_and_grad([params.w, x]",
                "value_and_grad([params.w]",
                "loss:",
                "its body takes 2 parameters, the call has 1 tensor",
            ),
            // Regions.
            ("executor=tt_host)", "executor=tt_hose)", "h.0:", "no executor is called 'tt_hose'"),
            (
                "executor=tt_host)",
                "executor=tt_other_host)",
                "h.0:",
                "is a region of 'tt_other_host', but claimed by another executor",
            ),
            (
                "tt::add(a, b) by tt_host",
                "tt::add(a, b) by tt_other_host",
                "h.0:",
                "is a region of 'tt_host', but 'tt::add' in it is claimed by 'tt_other_host'",
            ),
            (
                "r: f32[8] = tt::add(a, b) by tt_host",
                "r: f32[8] = region(a, executor=tt_host) {\n(a: f32[8])\nyield a\n}",
                "h.0:",
                "a region holds operators, not 'region'",
            ),
            ("region([norm, dy]", "region([norm]", "h.0:", "its body takes 2 parameters, the call has 1 tensor"),
            ("h.0: f32[8]", "h.0: f32[7]", "h.0:", "'h.0' is f32[7], region gives f32[8]"),
            // Effects.
            (
                "cat: f32[8] = tt::cat([mixed, x], dim=0)",
                "cat: f32[8] = tt::sly_random(x) {\n(input: f32[8])\nd: f32[8] = tt::dropout(input)\nyield d\n}",
                "cat:",
                "its body draws random numbers, which tt::sly_random does not declare",
            ),
            (
                "cat: f32[8] = tt::cat([mixed, x], dim=0)",
                "cat: f32[8] = tt::sly_collective(x) {\n(input: f32[8])\nd: f32[8] = tt::all_reduce(input)\nyield d\n}",
                "cat:",
                "its body has a collective, which tt::sly_collective does not declare",
            ),
            (
                "cat: f32[8] = tt::cat([mixed, x], dim=0)",
                "cat: f32[8] = tt::sly_update(x, dy) {\n(input: f32[8], delta: f32[8])\nv: f32[8] = tt::view(input)\nd: f32[8] = tt::update(v, delta)\nyield d\n}",
                "cat:",
                "its body changes 'input', which tt::sly_update does not declare",
            ),
            (
                "  return loss = loss",
                "  late: f32[8] = tt::exp(params.w)\n  return loss = loss",
                "late:",
                "reads 'params.w' after its memory was overwritten by 'new'; read 'new'",
            ),
            (
                "return loss = loss, params.w = new",
                "return loss = loss, params.w = params.w",
                "return",
                "returns 'params.w' after its memory was overwritten by 'new'",
            ),
            (
                "  new: f32[8] in params.w = tt::update(params.w, every)",
                "  v: f32[8] = tt::view(params.w)\n  new: f32[8] = tt::update(params.w, every)\n  late: f32[8] = tt::exp(v)",
                "late:",
                "reads 'v' after its memory was overwritten by 'new'",
            ),
            // The header.
            ("strides [1]", "strides [1, 2]", "x: f32[8] strides [1, 2]", "has 2 strides for 1 dimension"),
            // Memory.
            ("arena 96 ", "", "exp:", "'exp' lies in the arena, but the trace has none"),
            ("arena 96 ", "arena 63 ", "values:", "'values' ends at byte 64 of the arena, which has 63"),
            (
                "at arena+32",
                "at arena+31",
                "values:",
                "'values' takes bytes 31..63 of the arena while 'exp' lives in bytes 0..32",
            ),
            (
                "norm: f32[8] at arena+0",
                "norm: f32[8] at arena+40",
                "norm:",
                "'norm' takes bytes 40..72 of the arena while 'values' lives in bytes 32..64",
            ),
            (
                "norm: f32[8] at arena+0",
                "norm: f32[8] at arena+18446744073709551615",
                "norm:",
                "ends at byte 18446744073709551615",
            ),
            ("h.0: f32[8] at output", "h.0: f32[8] at arena+64", "return", "returns 'h.0', which lies in the arena"),
            ("exp: f32[8] at arena+0", "exp: f32[8] in view", "exp:", "'exp' shares memory in a circle"),
        ] {
            let (at, said) = edited(from, to);
            assert!(at.starts_with(line) && said.contains(message), "{from} -> {to}\n  {at}\n  {said}");
        }
    }

    #[test]
    fn every_rule_has_a_trace_that_breaks_it() {
        let far = ValueId(u32::MAX);
        for (message, expected) in [
            (changed(|t| t.inputs.truncate(1)), "declares 1 input, the block has 4 parameters"),
            (changed(|t| t.outputs.clear()), "declares 0 outputs, the block has 3 results"),
            (changed(|t| t.block.parameters[1] = t.block.parameters[0]), "defines 'params.w' a second time"),
            (changed(|t| t.block.parameters[1] = far), "defines value 4294967295, the block has"),
            (changed(|t| t.block.values[1].name = "params.w".into()), "another value is called 'params.w' too"),
            (changed(|t| t.block.values[4].name = "x".into()), "another value is called 'x' too"),
            (changed(|t| t.block.symbols[0].results[0] = far), "defines value 4294967295, the block has"),
            (changed(|t| t.block.symbols[0].results[0] = ValueId(0)), "'params.w' a second time"),
            (
                changed(|t| t.block.symbols[0].arguments = vec![Arg::Tensor(far)]),
                "reads value 4294967295, the block has",
            ),
            (
                changed(|t| t.block.symbols[0].arguments = vec![Arg::Tensor(ValueId(4))]),
                "reads 'exp' before it is defined",
            ),
            (changed(|t| t.block.symbols.swap(0, 1)), "reads 'exp' before it is defined"),
            (changed(|t| t.block.results[0] = far), "returns value 4294967295"),
            (changed(|t| t.block.symbols[0].arguments.clear()), "takes 1 arguments, got 0"),
            (changed(|t| t.block.symbols[0].arguments = vec![Arg::Optional(None)]), "argument 'input' must be tensor"),
            (changed(|t| t.block.symbols[0].results.clear()), "tt::exp returns 1 tensor, the line names 0"),
            (changed(|t| t.block.symbols[3].arguments.clear()), "'del' takes values, and nobody runs it"),
            (changed(|t| t.block.symbols[3].executor = Some("tt_host")), "'del' takes values, and nobody runs it"),
            (
                changed(|t| t.block.symbols[3].arguments.push(Arg::Attribute(Attribute::None))),
                "arguments of 'del' are tensors",
            ),
            (changed(|t| t.block.symbols[5].body = None), "a region lacks its body"),
            (changed(|t| body(t, 5).results[0] = far), "the body gives a value that it does not have"),
            (changed(|t| body(t, 5).parameters[0] = far), "its body's parameter ?4294967295 is no value"),
            (changed(|t| body(t, 4).results[0] = far), "its body gives no value for 'norm'"),
            (changed(|t| gradient(t).body = None), "value_and_grad lacks its body"),
            (
                changed(|t| t.block.values[5].storage = Some(Storage::Shared(far))),
                "'view' shares the memory of value 4294967295",
            ),
        ] {
            assert!(message.contains(expected), "{message}\n  expected {expected}");
        }
    }

    fn body(trace: &mut Trace, symbol: usize) -> &mut Block {
        Arc::make_mut(trace.block.symbols[symbol].body.as_mut().unwrap())
    }

    fn gradient(trace: &mut Trace) -> &mut BoundSymbol {
        trace.block.symbols.iter_mut().find(|s| matches!(s.callee, Callee::ValueAndGrad { .. })).unwrap()
    }

    #[test]
    fn errors_name_the_transform_and_the_way_in() {
        let mut trace = parse(GOOD).unwrap();
        let place = Place::caller();
        trace.block.symbols[4].place = Some(place);
        body(&mut trace, 4).symbols.remove(0);
        let (transform, line, message, stack) = failure(&trace);
        assert_eq!((&*transform, &*line), ("delete-last-used", "identity: f32[8] = tt::identity(exp)"));
        assert_eq!(message, "reads 'exp' before it is defined");
        assert_eq!(stack.frames, [("tt::norm".to_owned(), Some(place))]);
        trace.history.clear();
        assert_eq!(failure(&trace).0, "tracing");
    }

    #[test]
    fn bodies_nest_no_deeper_than_the_text() {
        let meta = TensorMeta::new([4], DType::F32, Device::CPU);
        let mut block = trace_block(&[("input".into(), meta.clone())], |x| vec![x[0]]).unwrap();
        for _ in 0..=MAX_DEPTH {
            let mut outer =
                trace_block(&[("input".into(), meta.clone())], |x| call(op("tt::exp"), vec![Arg::Tensor(x[0])]))
                    .unwrap();
            outer.symbols[0].body = Some(Arc::new(block));
            block = outer;
        }
        let good = parse(GOOD).unwrap();
        let trace = Trace { inputs: good.inputs[..1].to_vec(), outputs: good.outputs[..1].to_vec(), block, ..good };
        let trace = Trace { inputs: vec![super::super::Input { strides: None, ..trace.inputs[0].clone() }], ..trace };
        assert!(failure(&trace).2.contains("bodies nest deeper than 64"));
    }

    #[test]
    fn shared_bodies_are_checked_once() {
        // Some thousand calls of a composite of composites: as many lines as a training step has.
        let meta = TensorMeta::new([4], DType::F32, Device::CPU);
        let block = trace_block(&[("x".into(), meta)], |x| {
            let mut y = x[0];
            for _ in 0..3000 {
                y = call(op("tt::deep"), vec![Arg::Tensor(y), Arg::Optional(Some(x[0]))])[0];
            }
            vec![y]
        });
        let good = parse(GOOD).unwrap();
        let input = super::super::Input { role: Default::default(), donated: false, strides: None };
        let trace = Trace { inputs: vec![input], outputs: good.outputs[..1].to_vec(), block: block.unwrap(), ..good };
        let started = Instant::now();
        trace.verify().unwrap();
        let took = started.elapsed();
        assert!(took.as_millis() < 500, "{took:?}");
        println!("verified {} lines in {took:?}", trace.block.symbols.len());
        let text = trace.to_string();
        let started = Instant::now();
        assert_eq!(parse(&text).unwrap(), trace);
        println!("parsed {} lines in {:?}", text.lines().count(), started.elapsed());
    }
}
