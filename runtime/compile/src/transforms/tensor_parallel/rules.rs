//! What a line without a decomposition makes of parts of its operands, and of terms of sums: by its declared
//! arithmetic, and by its role.

use fulgurite_kernels::scalar::ScalarProgram;

use super::super::flatten::Substitution;
use super::divided::Divided;
use super::meet::fraction;
use super::writer::{Line, State, Writer};
use crate::argument::{Arg, Attribute};
use crate::arithmetic::{Arithmetic, Elements};
use crate::error::Result;
use crate::mesh::Axis;
use crate::operator::{Role, RuleSet};
use crate::trace::ValueId;

impl Writer<'_> {
    /// Writes a line with what this rank has of its operands. False, where no rule says how: it needs them whole.
    pub(super) fn by_rule(&mut self, line: &Line<'_>, substitution: &mut Substitution) -> Result<bool> {
        let arithmetic = Arithmetic::of(line.def);
        match (arithmetic.elements, line.def.overload) {
            (Some(Elements::Broadcast), _) => self.repeated(line, substitution),
            (Some(Elements::Reshape), _) => self.reshaped(line, substitution),
            (Some(Elements::Sum), _) => self.over_dims(line, None, substitution),
            (Some(Elements::Max), _) => self.over_dims(line, Some("max"), substitution),
            (Some(Elements::Min), _) => self.over_dims(line, Some("min"), substitution),
            (_, Some(Role::Permute)) => self.permuted(line, substitution),
            (_, Some(Role::Slice)) => self.sliced(line, substitution),
            (_, Some(Role::Pad)) => self.padded(line, substitution),
            (_, Some(Role::Cat)) => self.joined(line, substitution),
            (_, Some(Role::Matmul)) => self.product(line, substitution),
            (_, Some(Role::IndexSelect)) => self.index_selected(line, substitution),
            (_, Some(Role::Gather)) => self.elements_gathered(line, substitution),
            (_, Some(Role::Scatter)) => self.scattered(line, substitution),
            (_, Some(Role::AllReduce)) => self.along_another_axis(line, substitution),
            (Some(Elements::Convert), _) | (_, Some(Role::Contiguous)) => self.elementwise(line, substitution),
            _ if arithmetic.scalar.is_some() => self.elementwise(line, substitution),
            _ => Ok(false),
        }
    }

    /// Each element of one of each operand.
    fn elementwise(&mut self, line: &Line<'_>, substitution: &mut Substitution) -> Result<bool> {
        if self.linear(line, substitution)? {
            return Ok(true);
        }
        let [result, ..] = line.symbol.results[..] else { return Ok(false) };
        let whole = line.meta(result).clone();
        let now: Vec<ValueId> = line.symbol.operands().map(|id| line.now[&id]).collect();
        let states: Vec<&State> = now.iter().filter_map(|id| self.state(*id)).collect();
        let divided = states.iter().find(|state| matches!(state, State::Divided(_)));
        let state = divided.or_else(|| states.iter().find(|state| matches!(state, State::Sequence(_))));
        let state = match state {
            Some(state) => Some((*state).clone()),
            // The sum is made here, and may be scattered along a sequence.
            None => self.strategy.of_sequence(&whole).map(State::Sequence),
        };
        let mut arguments = line.symbol.arguments.clone();
        for argument in &mut arguments {
            let id = match argument {
                Arg::Tensor(id) => id,
                Arg::Attribute(_) => continue,
                _ => return Ok(false),
            };
            let (meta, now) = (line.meta(*id), line.now[id]);
            *id = match state.as_ref().and_then(State::division) {
                Some(by) if meta.rank() > 0 => {
                    if meta.shape() != whole.shape() {
                        return Ok(false);
                    }
                    self.divided(now, by, Some(line.symbol))?
                }
                _ => self.whole(now, Some(line.symbol))?,
            };
        }
        let states = vec![state; line.symbol.results.len()];
        self.apply(line, arguments, &states, substitution)
    }

    /// What is linear in sums over the ranks, and stays one: sums and differences of them.
    fn linear(&mut self, line: &Line<'_>, substitution: &mut Substitution) -> Result<bool> {
        let [Arg::Tensor(one), others @ ..] = &line.symbol.arguments[..] else { return Ok(false) };
        let is_sum = |argument: &Arg<ValueId>| matches!(argument, Arg::Tensor(id) if self.is_partial(line.now[id]));
        let first = self.is_partial(line.now[one]);
        let rule = Arithmetic::of(line.def).scalar;
        let computes = |program: ScalarProgram| {
            rule.is_some_and(|rule| rule(&line.source.argument_metas(line.symbol)).0 == program)
        };
        let adds = computes(ScalarProgram::record(2, 0, |operands, _| vec![operands[0] + operands[1]]));
        let subtracts = || computes(ScalarProgram::record(2, 0, |operands, _| vec![operands[0] - operands[1]]));
        let keeps = matches!(others, [other] if first && is_sum(other)) && (adds || subtracts());
        if keeps {
            return self.apply(line, line.arguments(), &[Some(State::Partial)], substitution);
        }
        // A rank's share of what all have: a number, or what is added before a sum is scattered.
        let [Arg::Tensor(other)] = others else { return Ok(false) };
        let (one, other) = (*one, *other);
        let whole = |id: ValueId| self.state(line.now[&id]).is_none();
        let mixed = (first && whole(other)) || (whole(one) && self.is_partial(line.now[&other]));
        let meta = line.meta(line.symbol.results[0]);
        let shared =
            meta.dtype().is_floating() && (meta.rank() == 0 || (self.strategy.sequence.is_some() && meta.rank() == 2));
        if !adds || !mixed || !shared {
            return Ok(false);
        }
        let mut arguments = Vec::with_capacity(2);
        for id in [one, other] {
            let mut now = line.now[&id];
            if self.state(now).is_none() {
                let share = fraction(1.0 / self.strategy.ranks() as f64);
                let name = format!("{}.share", self.name(now));
                now = self.call(Role::Mul, vec![Arg::Tensor(now), share], &name, Some(line.symbol))?;
            }
            arguments.push(Arg::Tensor(now));
        }
        self.apply(line, arguments, &[Some(State::Partial)], substitution)
    }

    /// The only operand of a line, as it is now, and its state.
    fn only(&self, line: &Line<'_>) -> Option<(ValueId, ValueId, State)> {
        let id = line.tensor(0)?;
        let now = line.now[&id];
        Some((id, now, self.state(now)?.clone()))
    }

    /// Elements repeated along new dimensions.
    fn repeated(&mut self, line: &Line<'_>, substitution: &mut Substitution) -> Result<bool> {
        let (Some((_, _, state)), Some(shape), Some(dims)) =
            (self.only(line), line.def.param("shape"), line.def.param("dims"))
        else {
            return Ok(false);
        };
        let (Some(to), Some(dims)) = (line.attribute::<Vec<usize>>(shape), line.attribute::<Vec<usize>>(dims)) else {
            return Ok(false);
        };
        let mut arguments = line.arguments();
        let state = match state.division() {
            Some(by) => {
                let by = by.at(dims[by.dim]);
                arguments[shape] = Arg::value(by.part(&to, self.strategy.ranks()));
                state.with(by)
            }
            None => state,
        };
        self.apply(line, arguments, &[Some(state)], substitution)
    }

    /// All elements in their order, with other extents.
    fn reshaped(&mut self, line: &Line<'_>, substitution: &mut Substitution) -> Result<bool> {
        let (Some((id, _, state)), Some(to)) = (self.only(line), line.attribute::<Vec<usize>>(1)) else {
            return Ok(false);
        };
        let mut arguments = line.arguments();
        let ranks = self.strategy.ranks();
        let state = match state.division() {
            Some(by) => match by.reshaped(line.meta(id).shape(), &to, ranks) {
                Some(by) => {
                    arguments[1] = Arg::value(by.part(&to, ranks));
                    state.with(by)
                }
                None => return Ok(false),
            },
            None => state,
        };
        self.apply(line, arguments, &[Some(state)], substitution)
    }

    /// Sums, the largest or the smallest elements over dimensions. The sum over a divided dimension is one over the
    /// ranks; of the others the ranks' results are compared.
    fn over_dims(&mut self, line: &Line<'_>, compared: Option<&str>, substitution: &mut Substitution) -> Result<bool> {
        let (Some((_, _, state)), Some(dims)) = (self.only(line), line.def.param("dims")) else { return Ok(false) };
        let Some(dims) = line.attribute::<Vec<usize>>(dims) else { return Ok(false) };
        let Some(by) = state.division() else {
            return if compared.is_some() {
                Ok(false)
            } else {
                self.apply(line, line.arguments(), &[Some(state)], substitution)
            };
        };
        if !dims.contains(&by.dim) {
            let dim = by.dim - dims.iter().filter(|dim| **dim < by.dim).count();
            let state = state.with(by.at(dim));
            return self.apply(line, line.arguments(), &[Some(state)], substitution);
        }
        // Equal largest elements share the gradient: how many there are on other ranks is seen in the whole alone.
        if compared.is_some() && self.ties && line.meta(line.symbol.results[0]).dtype().is_floating() {
            return Ok(false);
        }
        // Whether it is a sum in fact is said below.
        if !self.apply(line, line.arguments(), &[Some(State::Partial)], substitution)? {
            return Ok(false);
        }
        if let (Some(by), [result]) = (compared, &line.symbol.results[..]) {
            let own = super::super::flatten::Flattener::mapped(substitution, *result);
            let best = self.reduced(own, by, Some(line.symbol))?;
            self.wholes.insert(own, best);
            substitution[result.index()] = Some(best);
        }
        Ok(true)
    }

    fn permuted(&mut self, line: &Line<'_>, substitution: &mut Substitution) -> Result<bool> {
        let (Some((_, _, state)), Some(dims)) = (self.only(line), line.attribute::<Vec<usize>>(1)) else {
            return Ok(false);
        };
        let state = match state.division() {
            Some(by) => match dims.iter().position(|dim| *dim == by.dim) {
                Some(dim) => state.with(by.at(dim)),
                None => return Ok(false),
            },
            None => state,
        };
        self.apply(line, line.arguments(), &[Some(state)], substitution)
    }

    /// A part of each dimension: all of a divided one, or whole sections of it.
    fn sliced(&mut self, line: &Line<'_>, substitution: &mut Substitution) -> Result<bool> {
        let Some((_, _, state)) = self.only(line) else { return Ok(false) };
        let [Some(mut starts), Some(mut ends), Some(steps)] = [1, 2, 3].map(|at| line.attribute::<Vec<usize>>(at))
        else {
            return Ok(false);
        };
        let mut arguments = line.arguments();
        let state = match state.division() {
            Some(by) => {
                let dim = by.dim;
                match by.selected(starts[dim], ends[dim], self.strategy.ranks()) {
                    Some((selected, [start, end])) if steps[dim] == 1 => {
                        (starts[dim], ends[dim]) = (start, end);
                        (arguments[1], arguments[2]) = (Arg::value(starts), Arg::value(ends));
                        state.with(selected)
                    }
                    _ => return Ok(false),
                }
            }
            None => state,
        };
        self.apply(line, arguments, &[Some(state)], substitution)
    }

    fn padded(&mut self, line: &Line<'_>, substitution: &mut Substitution) -> Result<bool> {
        let Some((_, _, state)) = self.only(line) else { return Ok(false) };
        let [Some(low), Some(high)] = [1, 2].map(|at| line.attribute::<Vec<usize>>(at)) else { return Ok(false) };
        match state.division() {
            Some(by) if low[by.dim] == 0 && high[by.dim] == 0 => {
                self.apply(line, line.arguments(), &[Some(state)], substitution)
            }
            _ => Ok(false),
        }
    }

    /// Tensors one after another: along a divided dimension their sections are.
    fn joined(&mut self, line: &Line<'_>, substitution: &mut Substitution) -> Result<bool> {
        let (Some(Arg::List(list)), Some(dim)) = (line.symbol.arguments.first(), line.attribute::<usize>(1)) else {
            return Ok(false);
        };
        let now: Vec<ValueId> = list.iter().map(|id| line.now[id]).collect();
        let mut arguments = line.arguments();
        if now.iter().all(|id| self.is_partial(*id)) {
            return self.apply(line, arguments, &[Some(State::Partial)], substitution);
        }
        let Some(state) = now.iter().find_map(|id| self.state(*id).filter(|state| state.division().is_some())).cloned()
        else {
            return Ok(false);
        };
        let Some(by) = state.division() else { return Ok(false) };
        if by.dim == dim {
            let mut sections = Vec::new();
            for id in &now {
                match self.division(*id) {
                    Some(own) if own.dim == dim => sections.extend(&own.sections),
                    _ => return Ok(false),
                }
            }
            let joined = state.with(Divided { dim, sections });
            return self.apply(line, arguments, &[Some(joined)], substitution);
        }
        let mut parts = Vec::with_capacity(now.len());
        for id in now {
            parts.push(self.divided(id, by, Some(line.symbol))?);
        }
        arguments[0] = Arg::List(parts);
        self.apply(line, arguments, &[Some(state)], substitution)
    }

    /// The product of the last two dimensions. Of parts of what is summed over it is a sum over the ranks.
    fn product(&mut self, line: &Line<'_>, substitution: &mut Substitution) -> Result<bool> {
        let (Some(left), Some(right)) = (line.tensor(0), line.tensor(1)) else { return Ok(false) };
        let rank = line.meta(left).rank();
        let of = Some(line.symbol);
        let mut now = [line.now[&left], line.now[&right]];
        for id in &mut now {
            if self.is_partial(*id) {
                *id = self.whole(*id, of)?;
            }
        }
        let states = now.map(|id| self.state(id).cloned());
        let divisions = states.each_ref().map(|state| state.as_ref().and_then(State::division).cloned());
        let parts = |state: &Option<State>| matches!(state, Some(State::Divided(_)));
        let leading = |by: &Option<Divided>| by.as_ref().is_some_and(|by| by.dim + 2 < rank);
        let summed = |at: usize| divisions[at].as_ref().is_some_and(|by| by.dim == rank - 1 - at);
        let result = if let Some(at) = [0, 1].into_iter().find(|at| leading(&divisions[*at])) {
            let Some(by) = &divisions[at] else { return Ok(false) };
            now[1 - at] = self.divided(now[1 - at], by, of)?;
            states[at].clone()
        } else if let Some(at) = [0, 1].into_iter().find(|at| summed(*at) && parts(&states[*at])) {
            let Some(by) = &divisions[at] else { return Ok(false) };
            now[1 - at] = self.divided(now[1 - at], &by.at(rank - 2 + at), of)?;
            Some(State::Partial)
        } else {
            // Rows of the one, or columns of the other.
            let at = usize::from(parts(&states[1]) || divisions[0].is_none());
            if summed(at) {
                return Ok(false);
            }
            now[1 - at] = self.whole(now[1 - at], of)?;
            states[at].clone()
        };
        let mut arguments = line.arguments();
        (arguments[0], arguments[1]) = (Arg::Tensor(now[0]), Arg::Tensor(now[1]));
        self.apply(line, arguments, &[result], substitution)
    }

    /// Elements of one dimension replaced by others, of tensors divided along another one.
    fn scattered(&mut self, line: &Line<'_>, substitution: &mut Substitution) -> Result<bool> {
        let Some(dim) = line.attribute::<usize>(1) else { return Ok(false) };
        let [Some(input), Some(index), Some(source)] = [0, 2, 3].map(|at| line.tensor(at)) else { return Ok(false) };
        let Some(state) = [input, source, index].iter().find_map(|id| self.state(line.now[id])).cloned() else {
            return Ok(false);
        };
        let Some(by) = state.division().filter(|by| by.dim != dim) else { return Ok(false) };
        let mut arguments = line.arguments();
        for (at, id) in [(0, input), (2, index), (3, source)] {
            if !by.fits(line.meta(id).shape(), self.strategy.ranks()) {
                return Ok(false);
            }
            arguments[at] = Arg::Tensor(self.divided(line.now[&id], by, Some(line.symbol))?);
        }
        self.apply(line, arguments, &[Some(state)], substitution)
    }

    /// What the ranks along another axis have, by an operation on elements.
    fn along_another_axis(&mut self, line: &Line<'_>, substitution: &mut Substitution) -> Result<bool> {
        let (Some(Arg::List(list)), Some(Arg::Attribute(Attribute::Text(axis)))) =
            (line.symbol.arguments.first(), line.symbol.arguments.get(1))
        else {
            return Ok(false);
        };
        if axis.parse::<Axis>().is_ok_and(|axis| axis.name() == self.strategy.axis.name()) {
            return Ok(false);
        }
        let mut now = Vec::with_capacity(list.len());
        for id in list {
            let id = line.now[id];
            now.push(if self.is_partial(id) { self.whole(id, Some(line.symbol))? } else { id });
        }
        let states: Vec<Option<State>> = now.iter().map(|id| self.state(*id).cloned()).collect();
        let mut arguments = line.arguments();
        arguments[0] = Arg::List(now);
        self.apply(line, arguments, &states, substitution)
    }
}
