//! Elements that indices name, of tensors of which each rank has a part.

use super::super::flatten::Substitution;
use super::meet::number;
use super::writer::{Line, State, Writer};
use crate::DType;
use crate::argument::{Arg, Attribute, Scalar};
use crate::error::Result;
use crate::operator::Role;
use crate::trace::ValueId;

impl Writer<'_> {
    /// The parts along a dimension that one-dimensional indices name. If that dimension is divided, each is on one
    /// rank, and the sum over the ranks with zeros elsewhere.
    pub(super) fn index_selected(&mut self, line: &Line<'_>, substitution: &mut Substitution) -> Result<bool> {
        let (Some(input), Some(dim), Some(index)) = (line.tensor(0), line.attribute::<usize>(1), line.tensor(2)) else {
            return Ok(false);
        };
        let (now, index) = (line.now[&input], line.now[&index]);
        let mut arguments = line.arguments();
        match (self.state(now).cloned(), self.state(index).cloned()) {
            (Some(State::Divided(by)), _) if by.dim == dim => self.own_elements(line, (dim, index), substitution),
            (Some(state @ (State::Divided(_) | State::Sequence(_))), _) => {
                if state.division().is_none_or(|by| by.dim == dim) {
                    return Ok(false);
                }
                arguments[2] = Arg::Tensor(self.whole(index, Some(line.symbol))?);
                self.apply(line, arguments, &[Some(state)], substitution)
            }
            (None, Some(state)) => match state.division() {
                Some(by) => {
                    let state = state.with(by.at(dim));
                    self.apply(line, arguments, &[Some(state)], substitution)
                }
                None => Ok(false),
            },
            _ => Ok(false),
        }
    }

    /// One element along a dimension for each index, of indices of the operand's rank.
    pub(super) fn elements_gathered(&mut self, line: &Line<'_>, substitution: &mut Substitution) -> Result<bool> {
        let (Some(input), Some(dim), Some(index)) = (line.tensor(0), line.attribute::<usize>(1), line.tensor(2)) else {
            return Ok(false);
        };
        let now = [line.now[&input], line.now[&index]];
        if self.division(now[0]).is_some_and(|by| by.dim == dim) {
            return match self.state(now[0]) {
                Some(State::Divided(_)) => self.own_elements(line, (dim, now[1]), substitution),
                _ => Ok(false),
            };
        }
        let Some(state) = now.iter().find_map(|id| self.state(*id)).cloned() else { return Ok(false) };
        let Some(by) = state.division().filter(|by| by.dim != dim) else { return Ok(false) };
        let ranks = self.strategy.ranks();
        if [input, index].iter().any(|id| !by.fits(line.meta(*id).shape(), ranks)) {
            return Ok(false);
        }
        let mut arguments = line.arguments();
        for (at, id) in [(0, now[0]), (2, now[1])] {
            arguments[at] = Arg::Tensor(self.divided(id, by, Some(line.symbol))?);
        }
        self.apply(line, arguments, &[Some(state)], substitution)
    }

    /// The elements of a line that are in this rank's part of dimension `dim`, and zero for all others. An index that
    /// no rank has is out of range on each.
    fn own_elements(
        &mut self,
        line: &Line<'_>,
        (dim, index): (usize, ValueId),
        substitution: &mut Substitution,
    ) -> Result<bool> {
        let (Some(input), Some(result)) = (line.tensor(0), line.symbol.results.first()) else { return Ok(false) };
        let now = line.now[&input];
        let (dtype, of) = (line.meta(input).dtype(), Some(line.symbol));
        let Some([extent]) = self
            .division(now)
            .map(|by| by.sections.clone())
            .as_deref()
            .map(<[usize; 1]>::try_from)
            .and_then(Result::ok)
        else {
            return Ok(false);
        };
        if dtype == DType::Bool {
            return Ok(false);
        }
        let index = self.whole(index, of)?;
        // Where a part begins, and what is before it, may be no number of a narrow type.
        let index = match self.meta(index).dtype() {
            dtype if dtype.is_unsigned() || dtype.size() < 4 => {
                self.converted(index, DType::I64, &format!("{}.i64", self.name(index)), of)?
            }
            _ => index,
        };
        let meta = self.meta(index).clone();
        let (own, all) = ((extent / self.strategy.ranks()) as i64, extent as i64);
        let tensor = Arg::Tensor;
        let place = self.own_place(index, of)?;
        let name = format!("{}.own", line.source.value(*result).name);
        let first = self.call(Role::Mul, vec![tensor(place), number(own)], &format!("{name}.first"), of)?;
        let first = match meta.dtype() {
            DType::I64 => first,
            dtype => self.converted(first, dtype, &format!("{name}.first"), of)?,
        };
        let spread = vec![tensor(first), Arg::value(meta.shape().to_vec()), Arg::value(Vec::<usize>::new())];
        let first = self.call(Role::Broadcast, spread, &format!("{name}.first"), of)?;
        let mut call = |which: Role, arguments: Vec<Arg<ValueId>>, part: &str| {
            self.call(which, arguments, &format!("{name}.{part}"), of)
        };
        // Below 0 is behind the last one, as anything that no rank has.
        let below = call(Role::Less, vec![tensor(index), number(0)], "below")?;
        let known = call(Role::Where, vec![tensor(below), number(all), tensor(index)], "known")?;
        let valid = call(Role::Less, vec![tensor(known), number(all)], "valid")?;
        let moved = call(Role::Sub, vec![tensor(known), tensor(first)], "moved")?;
        let before = call(Role::Less, vec![tensor(moved), number(0)], "before")?;
        let moved = call(Role::Where, vec![tensor(before), number(own), tensor(moved)], "moved")?;
        let here = call(Role::Less, vec![tensor(moved), number(own)], "here")?;
        let own_index = call(Role::Where, vec![tensor(here), tensor(moved), number(0)], "index")?;
        let own_index = call(Role::Where, vec![tensor(valid), tensor(own_index), tensor(known)], "index")?;
        let mut arguments = line.arguments();
        (arguments[0], arguments[2]) = (tensor(now), tensor(own_index));
        let found = self.call_operator(line.def, arguments, &format!("{name}.found"), of)?.swap_remove(0);
        let shape = self.meta(found).shape().to_vec();
        let here = if self.meta(here).shape() == shape {
            here
        } else {
            let spread = vec![tensor(here), Arg::value(shape), Arg::value(vec![dim])];
            self.call(Role::Broadcast, spread, &format!("{name}.here"), of)?
        };
        let zero = match dtype.is_floating() {
            true => Arg::Attribute(Attribute::Scalar(Scalar::Float(0.0))),
            false => number(0),
        };
        let out = self.call(Role::Where, vec![tensor(here), tensor(found), zero], &name, of)?;
        self.by_parts = true;
        self.set(out, Some(State::Partial));
        substitution[result.index()] = Some(out);
        Ok(true)
    }
}
