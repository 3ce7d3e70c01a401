//! Tensor parallelism: each rank along an axis of the mesh has parts of parameters, and computes with them parts of
//! what one rank would compute, of the same batch.
//!
//! The program is traced with whole tensors. Here its arguments become parts ([`Division`]), and each line is written
//! with what a rank has of its operands. Declared arithmetic says what comes of it: parts again, along the dimension
//! that the elements went to; or, where a dimension is summed over of which each rank has a part, terms of a sum over
//! the ranks. A line that needs more than parts has the ranks meet: sums by `all_reduce`, parts by `all_gather`. A line
//! with a decomposition stays one line if the decomposition for parts is what its own lines become; otherwise these
//! take its place.
//!
//! The loss of a `value_and_grad` line is divided by the number of ranks before it is differentiated, so that the loss
//! is the sum of what the ranks have. Then the gradient of each collective is its dual, as everywhere; the gradient of
//! a part is that of the part; and the gradient of what all ranks have is the sum of theirs. Shoeybi et al., 2019
//! (Megatron-LM); Korthikanti et al., 2022, for the parts of sequences.

mod divided;
mod lookup;
mod meet;
mod rules;
mod same;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

pub use self::divided::Divided;
use self::meet::fraction;
use self::same::same;
use self::writer::{Line, State, Strategy, Writer};
use super::autodiff::rules::GradientRules;
use super::flatten::{Flattener, Substitution};
use super::fsdp::axis_of;
use crate::argument::{Arg, map_arguments};
use crate::error::{Error, Result};
use crate::mesh::{Axis, Mesh};
use crate::meta::TensorMeta;
use crate::operator::{OperatorDef, Role, RuleSet};
use crate::testing::directives::{Directive, DirectiveKind, Template};
use crate::testing::rules::TestRules;
use crate::trace::paths::{input_place, output_place};
use crate::trace::verify::axis_of as axis_of_line;
use crate::trace::{Block, BoundSymbol, Callee, Results, Trace, ValueId};
use crate::tracer::infer;

/// Its name in the history of a trace.
pub const TENSOR_PARALLEL: &str = "tensor_parallel";

/// Which arguments of a program are divided among the ranks along an axis, and how. Results with the paths of such
/// arguments are divided like them, if they have the same extent in that dimension. All ranks along the axis give all
/// other arguments alike.
#[derive(Debug, Clone, Default)]
pub struct Division {
    axis: String,
    parts: BTreeMap<String, Divided>,
    /// The dimension of values of three dimensions along which sums over the ranks are scattered, where it can be
    /// divided: that of positions, which norms and additions between layers have no need to know all of. Without it
    /// each rank has all positions.
    pub sequence: Option<usize>,
}

impl Division {
    /// No arguments yet, along the axis of this name.
    pub fn new(axis: &str) -> Division {
        Division { axis: axis.to_owned(), ..Division::default() }
    }

    /// The argument of this path, in the names of the function's arguments, is divided like this.
    pub fn with_part(mut self, path: &str, divided: Divided) -> Division {
        self.parts.insert(path.to_owned(), divided);
        self
    }

    /// The name of the axis.
    pub fn axis(&self) -> &str {
        &self.axis
    }

    /// The paths of the arguments that are divided.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.parts.keys().map(String::as_str)
    }

    /// How the argument at `path` is divided, if it is.
    pub fn part(&self, path: &str) -> Option<&Divided> {
        self.parts.get(path)
    }

    /// The axis on a mesh.
    ///
    /// # Errors
    /// If the mesh has none of its name, or an argument cannot be divided among its ranks.
    pub fn axis_of<'a>(&self, mesh: &'a Mesh) -> Result<&'a Axis> {
        let axis = axis_of(mesh, &self.axis, TENSOR_PARALLEL)?;
        let ranks = axis.extent();
        let odd = |by: &Divided| by.extent() == 0 || by.sections.iter().any(|section| !section.is_multiple_of(ranks));
        match self.parts.iter().find(|(_, by)| odd(by)) {
            None => Ok(axis),
            Some((path, Divided { dim, sections })) => {
                let message = format!(
                    "is divided along dimension {dim} in sections of {sections:?} among {ranks} ranks, expected \
                     multiples of {ranks}"
                );
                Err(Error::Argument { argument: path.clone(), message })
            }
        }
    }
}

/// `trace` with the arguments of `division` as parts of tensors.
///
/// # Errors
/// If the target's mesh has no such axis, an argument has another shape or cannot be divided, the program has none of
/// them or has been through this before, a line of it goes along the axis, or a gradient is taken inside of another one
/// or is no derivative.
pub fn tensor_parallel(trace: &Trace, division: &Division) -> Result<Trace> {
    let axis = division.axis_of(trace.target.mesh())?;
    if trace.history.iter().any(|past| past == TENSOR_PARALLEL) {
        let message = "has divided this program before: give it once, with all parts".to_owned();
        return Err(Error::Argument { argument: TENSOR_PARALLEL.into(), message });
    }
    let block = &trace.block;
    if let Some(line) = line_along(block, axis) {
        let (name, called) = (axis.name(), line.name());
        let message = format!(
            "is '{name}', along which '{called}' of the program goes: what it says of ranks is another thing for ranks \
             that divide what one rank computes; expected an axis of its own"
        );
        return Err(Error::Argument { argument: format!("the axis of {TENSOR_PARALLEL}"), message });
    }
    let mut given = Vec::with_capacity(block.parameters.len());
    for id in &block.parameters {
        let (name, shape) = (&*block.value(*id).name, block.meta(*id).shape());
        given.push(match division.part(name) {
            Some(divided) if divided.fits(shape, axis.extent()) => Some(State::Divided(divided.clone())),
            Some(Divided { dim, sections }) => {
                let message = format!("has shape {shape:?}, expected sections of {sections:?} in dimension {dim}");
                return Err(Error::Argument { argument: name.to_owned(), message });
            }
            None => None,
        });
    }
    if given.iter().all(Option::is_none) {
        let message = "has nothing to do: none of the program's arguments is divided".to_owned();
        return Err(Error::Argument { argument: TENSOR_PARALLEL.into(), message });
    }
    let places: FxHashMap<&str, &Divided> =
        division.parts.iter().map(|(path, divided)| (input_place(path), divided)).collect();
    let wanted = |at: usize| places.get(output_place(&trace.outputs[at].path)).map(|by| (*by).clone());
    let strategy = Strategy { axis, sequence: division.sequence, differentiated: false };
    let (block, _) = function(&strategy, block, &given, &Ends::Wanted(&wanted))?;
    Ok(trace.transformed(TENSOR_PARALLEL, block))
}

/// What the results of a block are.
enum Ends<'a> {
    /// Whole, or divided as said.
    Wanted(&'a dyn Fn(usize) -> Option<Divided>),
    /// Whatever they have become.
    Open,
}

/// A block for one rank, whose parameters have these states, and the states of its results.
fn function(
    strategy: &Strategy<'_>,
    source: &Block,
    given: &[Option<State>],
    ends: &Ends<'_>,
) -> Result<(Block, Vec<Option<State>>)> {
    let (writer, mut substitution) = written(strategy, source, given)?;
    let mut writer = writer;
    let mut states = Vec::with_capacity(source.results.len());
    for (at, id) in source.results.iter().enumerate() {
        let mut now = Flattener::mapped(&substitution, *id);
        if let Ends::Wanted(wanted) = ends {
            now = match wanted(at) {
                Some(by) if by.fits(source.meta(*id).shape(), strategy.ranks()) => writer.divided(now, &by, None)?,
                _ => writer.whole(now, None)?,
            };
        }
        substitution[id.index()] = Some(now);
        states.push(writer.state(now).cloned());
    }
    Ok((writer.flattener.finish(source, &substitution), states))
}

/// The lines of a block, written for one rank.
fn written<'a>(
    strategy: &'a Strategy<'a>,
    source: &Block,
    given: &[Option<State>],
) -> Result<(Writer<'a>, Substitution)> {
    let mut before = source.clone();
    for (id, state) in source.parameters.iter().zip(given) {
        let Some(by) = state.as_ref().and_then(State::division) else { continue };
        let meta = &mut before.values[id.index()].meta;
        *meta = meta.with_shape(by.part(meta.shape(), strategy.ranks()));
    }
    let (flattener, mut substitution) = Flattener::new(&before);
    let mut writer = Writer::new(strategy, flattener);
    for (id, state) in source.parameters.iter().zip(given) {
        writer.set(Flattener::mapped(&substitution, *id), state.clone());
    }
    for symbol in &source.symbols {
        writer.write(source, symbol, &mut substitution)?;
    }
    Ok((writer, substitution))
}

/// A line that depends on the ranks along an axis: a collective, the place of a rank, its draws.
fn line_along<'a>(block: &'a Block, axis: &Axis) -> Option<&'a BoundSymbol> {
    block.symbols.iter().find_map(|line| {
        let own = axis_of_line(line).and_then(|text| text.parse::<Axis>().ok());
        if own.is_some_and(|own| own.name() == axis.name()) {
            return Some(line);
        }
        line.body.as_ref().and_then(|body| line_along(body, axis))
    })
}

fn is_gradient(symbol: &BoundSymbol) -> bool {
    matches!(symbol.callee, Callee::ValueAndGrad { .. })
        || (symbol.callee.holds_program()
            && symbol.body.as_ref().is_some_and(|body| body.symbols.iter().any(is_gradient)))
}

/// A line of a function whose gradient of an operand is no derivative: its decomposition does not read that operand,
/// which depends on the parameters that are differentiated.
fn without_derivative<'a>(body: &'a Block, differentiated: &[bool]) -> Option<&'a BoundSymbol> {
    let parameters = body.parameters.iter().zip(differentiated).filter(|(_, by)| **by);
    let mut depend: FxHashSet<ValueId> = parameters.map(|(id, _)| *id).collect();
    body.symbols.iter().find_map(|line| {
        let depends: Vec<bool> = line.operands().map(|id| depend.contains(&id)).collect();
        if !depends.contains(&true) {
            return None;
        }
        depend.extend(line.results.iter().copied());
        let inner = line.body.as_ref()?;
        if line.operator().is_none_or(|def| GradientRules::of(def).grad.is_none()) {
            return without_derivative(inner, &depends);
        }
        let reads = |id: ValueId| {
            inner.results.contains(&id) || inner.symbols.iter().any(|at| at.operands().any(|read| read == id))
        };
        inner.parameters.iter().zip(depends).any(|(id, depends)| depends && !reads(*id)).then_some(line)
    })
}

impl Writer<'_> {
    fn write(&mut self, source: &Block, symbol: &BoundSymbol, substitution: &mut Substitution) -> Result<()> {
        let now: Vec<(ValueId, ValueId)> =
            symbol.operands().map(|id| (id, Flattener::mapped(substitution, id))).collect();
        if now.iter().all(|(_, now)| self.state(*now).is_none()) {
            self.copy(source, symbol, substitution);
            return Ok(());
        }
        if let Callee::ValueAndGrad { wrt } = &symbol.callee {
            return self.gradients(source, symbol, wrt, substitution);
        }
        if symbol.callee.holds_program() {
            return self.held(source, symbol, substitution);
        }
        let Some(def) = symbol.operator() else { return self.with_wholes(source, symbol, substitution) };
        let mut line = Line { source, symbol, def, now: now.into_iter().collect() };
        let Some(body) = &symbol.body else {
            return match self.by_rule(&line, substitution)? {
                true => Ok(()),
                false => self.with_wholes(source, symbol, substitution),
            };
        };
        self.with_sequences(&mut line)?;
        if self.kept(&line, body, substitution)? {
            return Ok(());
        }
        // The decomposition of a sum would have the ranks meet within it.
        if line.now.values().any(|now| self.is_partial(*now)) {
            self.with_sums(&mut line)?;
            if line.now.values().all(|now| self.state(*now).is_none()) {
                return self.with_wholes(source, symbol, substitution);
            }
            self.with_sequences(&mut line)?;
            if self.kept(&line, body, substitution)? {
                return Ok(());
            }
        }
        // Its own gradient may be another one than that of its lines, where these have none or several.
        let own_gradient = self.strategy.differentiated && GradientRules::of(line.def).grad.is_some();
        if own_gradient && self.with_parts(&mut line)? && self.kept(&line, body, substitution)? {
            return Ok(());
        }
        if own_gradient && (has_other_gradient(line.def) || !self.opens_to_parts(&line, body)?) {
            return self.with_wholes(source, symbol, substitution);
        }
        self.open(&line, body, substitution)
    }

    /// Whether the lines of a decomposition compute with parts anywhere. Where they only gather them, nothing is won by
    /// their gradient in place of the line's own.
    fn opens_to_parts(&self, line: &Line<'_>, body: &Block) -> Result<bool> {
        let given: Vec<Option<State>> = line.symbol.operands().map(|id| self.state(line.now[&id]).cloned()).collect();
        Ok(written(self.strategy, body, &given)?.0.by_parts)
    }

    /// Divides operands like one of them that is divided, where they have its shape. False if there is nothing to do.
    fn with_parts(&mut self, line: &mut Line<'_>) -> Result<bool> {
        let division = |id: ValueId| Some((line.meta(id).shape().to_vec(), self.division(line.now[&id])?.clone()));
        let Some((shape, by)) = line.symbol.operands().find_map(division) else { return Ok(false) };
        let mut divides = false;
        for id in line.symbol.operands() {
            let now = line.now[&id];
            if line.meta(id).shape() == shape && self.division(now) != Some(&by) {
                let part = self.divided(now, &by, Some(line.symbol))?;
                self.set(part, Some(State::Divided(by.clone())));
                line.now.insert(id, part);
                divides = true;
            }
        }
        Ok(divides)
    }

    /// Gathers what is divided along a sequence, for a line that reads other parts too.
    fn with_sequences(&mut self, line: &mut Line<'_>) -> Result<()> {
        let parts = |now: &ValueId| matches!(self.state(*now), Some(State::Divided(_)));
        if !line.now.values().any(parts) {
            return Ok(());
        }
        for id in line.symbol.operands() {
            if let Some(State::Sequence(_)) = self.state(line.now[&id]) {
                let whole = self.whole(line.now[&id], Some(line.symbol))?;
                line.now.insert(id, whole);
            }
        }
        Ok(())
    }

    /// Makes the sums that a line reads: scattered along a sequence, or whole.
    fn with_sums(&mut self, line: &mut Line<'_>) -> Result<()> {
        for id in line.symbol.operands() {
            let now = line.now[&id];
            if !self.is_partial(now) {
                continue;
            }
            let sum = match self.strategy.of_sequence(self.meta(now)) {
                Some(by) => {
                    let part = self.divided(now, &by, Some(line.symbol))?;
                    self.set(part, Some(State::Sequence(by)));
                    part
                }
                None => self.whole(now, Some(line.symbol))?,
            };
            line.now.insert(id, sum);
        }
        Ok(())
    }

    /// Writes a line with whole operands.
    fn with_wholes(&mut self, source: &Block, symbol: &BoundSymbol, substitution: &mut Substitution) -> Result<()> {
        let operands: Vec<ValueId> = symbol.operands().collect();
        let before: Vec<Option<ValueId>> = operands.iter().map(|id| substitution[id.index()]).collect();
        for id in &operands {
            let whole = self.whole(Flattener::mapped(substitution, *id), Some(symbol))?;
            substitution[id.index()] = Some(whole);
        }
        self.copy(source, symbol, substitution);
        for (id, before) in operands.iter().zip(before) {
            substitution[id.index()] = before;
        }
        Ok(())
    }

    /// Writes a line with a decomposition as one line, if its decomposition for what this rank has of its operands is
    /// what the lines of its own become, and no other rank is asked for anything in between. False if not.
    fn kept(&mut self, line: &Line<'_>, body: &Block, substitution: &mut Substitution) -> Result<bool> {
        let arguments = line.arguments();
        let metas = map_arguments(&arguments, |id| self.meta(*id).clone());
        let Ok((metas, Some(own))) = infer(line.def, &metas) else { return Ok(false) };
        let given: Vec<Option<State>> = line.symbol.operands().map(|id| self.state(line.now[&id]).cloned()).collect();
        let (writer, inner) = written(self.strategy, body, &given)?;
        if writer.asks {
            return Ok(false);
        }
        let states: Vec<Option<State>> =
            body.results.iter().map(|id| writer.state(Flattener::mapped(&inner, *id)).cloned()).collect();
        let made = writer.flattener.finish(body, &inner);
        Ok(metas.iter().eq(made.results.iter().map(|id| made.meta(*id)))
            && same(&made, &own)
            && self.apply(line, arguments, &states, substitution)?)
    }

    /// Writes the decomposition in place of the line.
    fn open(&mut self, line: &Line<'_>, body: &Block, substitution: &mut Substitution) -> Result<()> {
        let symbol = line.symbol;
        let names: Vec<Arc<str>> = symbol.results.iter().map(|id| line.source.value(*id).name.clone()).collect();
        let prefix = names.first().map_or(symbol.name(), |name| symbol.call_name(name));
        let operands: Vec<ValueId> = symbol.operands().map(|id| line.now[&id]).collect();
        let (named, mut inner) = self.flattener.open(body, operands.into_iter(), prefix, &names);
        // With a gradient of its own it has that of a function, in which it does not matter what ties share.
        let ties = self.ties;
        self.ties &= GradientRules::of(line.def).grad.is_none();
        for line in &named.symbols {
            let place = symbol.place_inside().or(line.place);
            self.write(&named, &BoundSymbol { place, pass: symbol.pass, ..line.clone() }, &mut inner)?;
        }
        self.ties = ties;
        for (outer, result) in symbol.results.iter().zip(&named.results) {
            substitution[outer.index()] = Some(Flattener::mapped(&inner, *result));
        }
        Ok(())
    }

    /// What operands of a line that holds a program are, once sums over the ranks are made.
    fn given(&mut self, symbol: &BoundSymbol, substitution: &Substitution) -> Result<FxHashMap<ValueId, ValueId>> {
        let mut now = FxHashMap::default();
        for id in symbol.operands() {
            let mut operand = Flattener::mapped(substitution, id);
            if self.is_partial(operand) {
                operand = self.whole(operand, Some(symbol))?;
            }
            now.insert(id, operand);
        }
        Ok(now)
    }

    /// Writes a line that holds a program, a checkpoint.
    fn held(&mut self, source: &Block, symbol: &BoundSymbol, substitution: &mut Substitution) -> Result<()> {
        let Some(body) = &symbol.body else { return self.with_wholes(source, symbol, substitution) };
        if body.symbols.iter().any(is_gradient) {
            return Err(nested("a checkpoint"));
        }
        let now = self.given(symbol, substitution)?;
        let states: Vec<Option<State>> = symbol.operands().map(|id| self.state(now[&id]).cloned()).collect();
        let (inner, states) = function(self.strategy, body, &states, &Ends::Open)?;
        let metas: Vec<TensorMeta> = inner.results.iter().map(|id| inner.meta(*id).clone()).collect();
        let line = BoundSymbol {
            arguments: map_arguments(&symbol.arguments, |id| now[id]),
            results: Results::new(),
            body: Some(Arc::new(inner.canonical())),
            ..symbol.clone()
        };
        self.written((source, symbol), line, metas.into_iter().zip(states).collect(), substitution);
        Ok(())
    }

    /// Writes a `value_and_grad` line whose function takes parts, and gives parts of the gradients.
    fn gradients(
        &mut self,
        source: &Block,
        symbol: &BoundSymbol,
        wrt: &[usize],
        substitution: &mut Substitution,
    ) -> Result<()> {
        let Some(body) = &symbol.body else { return Ok(()) };
        if body.symbols.iter().any(is_gradient) {
            return Err(nested("another one"));
        }
        let differentiated: Vec<bool> = (0..body.parameters.len()).map(|at| wrt.contains(&at)).collect();
        if let Some(line) = without_derivative(body, &differentiated) {
            let message = format!(
                "takes no gradient of '{}' that is no derivative, since gradients are added up over the ranks",
                line.name()
            );
            return Err(Error::Argument { argument: TENSOR_PARALLEL.into(), message });
        }
        let now = self.given(symbol, substitution)?;
        let states: Vec<Option<State>> = symbol.operands().map(|id| self.state(now[&id]).cloned()).collect();
        let strategy = Strategy { differentiated: true, ..*self.strategy };
        let (inner, _) = function(&strategy, body, &states, &Ends::Wanted(&|_| None))?;
        let (inner, share) = self.shared(inner, symbol)?;
        let first = symbol.results.len() - wrt.len();
        let results = symbol.results.iter().enumerate().map(|(at, id)| {
            let meta = source.meta(*id);
            let state = at.checked_sub(first).and_then(|at| states[wrt[at]].clone());
            let ranks = self.strategy.ranks();
            let part = state.as_ref().and_then(State::division).map(|by| meta.with_shape(by.part(meta.shape(), ranks)));
            // The gradient of what all ranks have is the sum of theirs.
            let state = state.or_else(|| (at >= first).then_some(State::Partial));
            (part.unwrap_or_else(|| meta.clone()), state)
        });
        let results = results.collect();
        let line = BoundSymbol {
            arguments: map_arguments(&symbol.arguments, |id| now[id]),
            results: Results::new(),
            body: Some(Arc::new(inner.canonical())),
            ..symbol.clone()
        };
        self.written((source, symbol), line, results, substitution);
        // All ranks have the same loss.
        let loss = Flattener::mapped(substitution, symbol.results[0]);
        let name = format!("{}.all", self.name(loss));
        let all = self.call(Role::Mul, vec![Arg::Tensor(loss), fraction(1.0 / share)], &name, Some(symbol))?;
        substitution[symbol.results[0].index()] = Some(all);
        for id in &symbol.results[first..] {
            let now = Flattener::mapped(substitution, *id);
            if self.is_partial(now) {
                let sum = self.whole(now, Some(symbol))?;
                substitution[id.index()] = Some(sum);
            }
        }
        Ok(())
    }

    /// A function whose first result, the loss, is this rank's share of it; and that share.
    fn shared(&self, block: Block, of: &BoundSymbol) -> Result<(Block, f64)> {
        let share = 1.0 / self.strategy.ranks() as f64;
        let (flattener, mut substitution) = Flattener::new(&block);
        let mut writer = Writer::new(self.strategy, flattener);
        for symbol in &block.symbols {
            writer.copy(&block, symbol, &mut substitution);
        }
        let loss = block.results[0];
        let name = format!("{}.share", block.value(loss).name);
        let now = Flattener::mapped(&substitution, loss);
        let shared = writer.call(Role::Mul, vec![Arg::Tensor(now), fraction(share)], &name, Some(of))?;
        let mut finished = writer.flattener.finish(&block, &substitution);
        finished.results[0] = shared;
        Ok((finished, share))
    }
}

/// Whether the gradient of an operator is declared to be another one than that of its lines: its tests say that
/// differences are not compared with it.
fn has_other_gradient(def: &'static OperatorDef) -> bool {
    let of_all = |skip: &&Directive| skip.executor.is_none() && skip.sample.is_none();
    let skips = TestRules::of(def).directives.iter().filter(|directive| directive.kind == DirectiveKind::Skip);
    skips.filter(of_all).any(|skip| skip.templates.contains(&Template::Gradient))
}

fn nested(inside: &str) -> Error {
    let message = format!("takes no program with a gradient inside of {inside}");
    Error::Argument { argument: TENSOR_PARALLEL.into(), message }
}
