//! A block that is written for one rank, and what each of its values is there.

use rustc_hash::FxHashMap;

use super::super::flatten::{Flattener, Substitution};
use super::divided::Divided;
use crate::argument::{Arg, Attribute, AttributeType, map_arguments};
use crate::error::Result;
use crate::mesh::Axis;
use crate::meta::TensorMeta;
use crate::operator::{OperatorDef, Role};
use crate::registry::role;
use crate::trace::{Block, BoundSymbol, Callee, Results, ValueId};
use crate::tracer::{infer, with_defaults};

/// What a rank has of a value that it does not have whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// A part of it.
    Divided(Divided),
    /// A part of the positions of a sequence, which lines with parts of parameters read whole.
    Sequence(Divided),
    /// A tensor of its shape; it is the sum of those of all ranks.
    Partial,
}

impl State {
    /// How the value is divided, if it is.
    pub(super) fn division(&self) -> Option<&Divided> {
        match self {
            State::Divided(by) | State::Sequence(by) => Some(by),
            State::Partial => None,
        }
    }

    /// The same kind of state with another division.
    pub(super) fn with(&self, by: Divided) -> State {
        if matches!(self, State::Sequence(_)) { State::Sequence(by) } else { State::Divided(by) }
    }
}

/// The axis that tensors are divided along, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strategy<'a> {
    pub(super) axis: &'a Axis,
    /// The dimension along which values of three dimensions are divided between lines with parts of parameters.
    pub(super) sequence: Option<usize>,
    /// Whether the lines are those of a function that is differentiated.
    pub(super) differentiated: bool,
}

impl Strategy<'_> {
    /// The number of ranks along the axis.
    pub(super) fn ranks(&self) -> usize {
        self.axis.extent()
    }

    /// How a sum of all ranks is divided, if it is one over positions.
    pub(super) fn of_sequence(&self, meta: &TensorMeta) -> Option<Divided> {
        let dim = self.sequence.filter(|_| meta.rank() == 3 && meta.dtype().is_floating())?;
        let by = Divided::whole_extent(dim, *meta.shape().get(dim)?);
        by.fits(meta.shape(), self.ranks()).then_some(by)
    }
}

/// A line of the program of whole tensors, and what its operands have become.
pub(super) struct Line<'a> {
    pub(super) source: &'a Block,
    pub(super) symbol: &'a BoundSymbol,
    pub(super) def: &'static OperatorDef,
    pub(super) now: FxHashMap<ValueId, ValueId>,
}

impl Line<'_> {
    /// The meta of the whole of an operand.
    pub(super) fn meta(&self, id: ValueId) -> &TensorMeta {
        self.source.meta(id)
    }

    /// The operand that is argument `at`, if that is a tensor.
    pub(super) fn tensor(&self, at: usize) -> Option<ValueId> {
        match self.symbol.arguments.get(at) {
            Some(Arg::Tensor(id)) => Some(*id),
            _ => None,
        }
    }

    /// The attribute that is argument `at`.
    pub(super) fn attribute<T: AttributeType>(&self, at: usize) -> Option<T> {
        match self.symbol.arguments.get(at) {
            Some(Arg::Attribute(attribute)) => T::from_attribute(attribute),
            _ => None,
        }
    }

    /// Its arguments with what operands have become.
    pub(super) fn arguments(&self) -> Vec<Arg<ValueId>> {
        map_arguments(&self.symbol.arguments, |id| self.now[id])
    }
}

/// See the module.
pub(super) struct Writer<'a> {
    pub(super) strategy: &'a Strategy<'a>,
    pub(super) flattener: Flattener,
    /// Values that this rank does not have whole.
    states: FxHashMap<ValueId, State>,
    /// The whole of such values, where it was made.
    pub(super) wholes: FxHashMap<ValueId, ValueId>,
    /// Parts of whole values, where they were made.
    pub(super) parts: FxHashMap<(ValueId, Divided), ValueId>,
    /// The lines that make values, by their places in the block.
    lines: FxHashMap<ValueId, usize>,
    /// The place of this rank.
    pub(super) place: Option<ValueId>,
    /// The indices of this rank's parts of dimensions, by their sections.
    pub(super) indices: FxHashMap<Vec<usize>, ValueId>,
    /// Whether the block asks other ranks for something.
    pub(super) asks: bool,
    /// Whether a line of the block computes with what this rank has of a value.
    pub(super) by_parts: bool,
    /// Whether a gradient may depend on what equal largest elements share.
    pub(super) ties: bool,
}

impl<'a> Writer<'a> {
    pub(super) fn new(strategy: &'a Strategy<'a>, flattener: Flattener) -> Writer<'a> {
        Writer {
            strategy,
            flattener,
            states: FxHashMap::default(),
            wholes: FxHashMap::default(),
            parts: FxHashMap::default(),
            lines: FxHashMap::default(),
            place: None,
            indices: FxHashMap::default(),
            asks: false,
            by_parts: false,
            ties: strategy.differentiated,
        }
    }

    /// What this rank has of a value; none if it has all of it.
    pub(super) fn state(&self, id: ValueId) -> Option<&State> {
        self.states.get(&id)
    }

    /// How a value is divided, if it is.
    pub(super) fn division(&self, id: ValueId) -> Option<&Divided> {
        self.state(id).and_then(State::division)
    }

    pub(super) fn is_partial(&self, id: ValueId) -> bool {
        self.state(id) == Some(&State::Partial)
    }

    pub(super) fn set(&mut self, id: ValueId, state: Option<State>) {
        if let Some(state) = state {
            self.states.insert(id, state);
        }
    }

    pub(super) fn meta(&self, id: ValueId) -> &TensorMeta {
        self.flattener.block().meta(id)
    }

    pub(super) fn name(&self, id: ValueId) -> String {
        self.flattener.block().value(id).name.to_string()
    }

    /// The line that makes a value of this block.
    pub(super) fn made_by(&self, id: ValueId) -> Option<&BoundSymbol> {
        self.lines.get(&id).map(|at| &self.flattener.block().symbols[*at])
    }

    fn push(&mut self, symbol: BoundSymbol) {
        let at = self.flattener.block().symbols.len();
        symbol.results.iter().for_each(|id| _ = self.lines.insert(*id, at));
        self.flattener.push(symbol);
    }

    /// Writes a line as it is, with what its operands have become.
    pub(super) fn copy(&mut self, source: &Block, symbol: &BoundSymbol, substitution: &mut Substitution) {
        let at = self.flattener.block().symbols.len();
        let results = self.flattener.copy(source, symbol, substitution).results.clone();
        results.iter().for_each(|id| _ = self.lines.insert(*id, at));
    }

    /// Writes the results of a line with values of these metas and states.
    pub(super) fn written(
        &mut self,
        (source, symbol): (&Block, &BoundSymbol),
        line: BoundSymbol,
        results: Vec<(TensorMeta, Option<State>)>,
        substitution: &mut Substitution,
    ) {
        let mut made = Results::new();
        for (id, (meta, state)) in symbol.results.iter().zip(results) {
            let new = self.flattener.define(source.value(*id).name.clone(), meta);
            substitution[id.index()] = Some(new);
            self.set(new, state);
            made.push(new);
        }
        self.push(BoundSymbol { results: made, ..line });
    }

    /// Writes a line with these arguments, whose results have these states. False, and nothing is written, unless its
    /// results are what such states are of the whole ones.
    pub(super) fn apply(
        &mut self,
        line: &Line<'_>,
        arguments: Vec<Arg<ValueId>>,
        states: &[Option<State>],
        substitution: &mut Substitution,
    ) -> Result<bool> {
        let metas = map_arguments(&arguments, |id| self.meta(*id).clone());
        let Ok((metas, body)) = infer(line.def, &metas) else { return Ok(false) };
        let ranks = self.strategy.ranks();
        let fits = line.symbol.results.iter().zip(&metas).zip(states).all(|((id, meta), state)| {
            let whole = line.meta(*id).shape();
            match state.as_ref().and_then(State::division) {
                Some(by) => by.fits(whole, ranks) && meta.shape() == by.part(whole, ranks),
                None => meta.shape() == whole,
            }
        });
        if !fits || metas.len() != states.len() || metas.len() != line.symbol.results.len() {
            return Ok(false);
        }
        self.by_parts |= states.iter().any(Option::is_some)
            || arguments.iter().flat_map(Arg::tensors).any(|id| self.state(*id).is_some());
        let results = metas.into_iter().zip(states.iter().cloned()).collect();
        let written = BoundSymbol { arguments, body, results: Results::new(), ..line.symbol.clone() };
        self.written((line.source, line.symbol), written, results, substitution);
        Ok(true)
    }

    /// A line that calls an operator, and its results, named after `name`.
    pub(super) fn call_operator(
        &mut self,
        def: &'static OperatorDef,
        arguments: Vec<Arg<ValueId>>,
        name: &str,
        of: Option<&BoundSymbol>,
    ) -> Result<Vec<ValueId>> {
        let arguments = with_defaults(def, arguments);
        let metas = map_arguments(&arguments, |id| self.meta(*id).clone());
        let place = of.and_then(|symbol| symbol.place);
        let (metas, body) = infer(def, &metas).map_err(|error| error.of(def.name, place))?;
        let results: Results = metas
            .into_iter()
            .map(|meta| {
                let name = self.flattener.fresh(name);
                self.flattener.define(name, meta)
            })
            .collect();
        self.push(BoundSymbol {
            callee: Callee::Operator(def),
            arguments,
            results: results.clone(),
            body,
            pass: of.map_or_else(Default::default, |symbol| symbol.pass),
            executor: None,
            schedule: Default::default(),
            refusals: Vec::new(),
            place,
        });
        Ok(results.to_vec())
    }

    /// As [`Writer::call_operator`], for the operator of a role.
    pub(super) fn call_all(
        &mut self,
        which: Role,
        arguments: Vec<Arg<ValueId>>,
        name: &str,
        of: Option<&BoundSymbol>,
    ) -> Result<Vec<ValueId>> {
        self.asks |= matches!(which, Role::AllReduce | Role::AllGather | Role::ReduceScatter);
        self.call_operator(role(which)?, arguments, name, of)
    }

    /// As [`Writer::call_all`], for a line with one result.
    pub(super) fn call(
        &mut self,
        which: Role,
        arguments: Vec<Arg<ValueId>>,
        name: &str,
        of: Option<&BoundSymbol>,
    ) -> Result<ValueId> {
        Ok(self.call_all(which, arguments, name, of)?.swap_remove(0))
    }

    /// The text of the axis, as collectives take it.
    pub(super) fn axis(&self) -> Arg<ValueId> {
        Arg::Attribute(Attribute::Text(self.strategy.axis.to_string().into()))
    }
}
