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
        if let Some((line, new)) = self.written.get(&self.root[id.index()]) {
            if *new != id && self.defined[id.index()].is_some_and(|defined| defined <= *line) {
                return Err(format!(
                    "reads {} after its memory was overwritten by {1}; read {1}",
                    name(block, id),
                    name(block, *new)
                ));
            }
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
                if let Some(parameter) = block.parameters.iter().position(|id| *id == root) {
                    if !effects.mutates.contains(&parameter) {
                        effects.mutates.push(parameter);
                    }
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
            if let Some((start, (stop, other))) = before.or(after) {
                let line = self.line_of(value);
                let message = format!(
                    "'{}' takes bytes {offset}..{end} of the arena while '{}' lives in bytes {start}..{stop}",
                    block.values[value].name, block.values[*other].name
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
