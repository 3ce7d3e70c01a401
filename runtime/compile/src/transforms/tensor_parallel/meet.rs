//! Where ranks meet: the whole of a value of which each has a part or a term of a sum, and parts of whole values.

use super::divided::Divided;
use super::writer::{State, Writer};
use crate::DType;
use crate::argument::{Arg, Attribute, Scalar};
use crate::arithmetic::{Arithmetic, Elements};
use crate::error::Result;
use crate::operator::{Role, RuleSet};
use crate::trace::{BoundSymbol, ValueId};

type Of<'a> = Option<&'a BoundSymbol>;

pub(super) fn number(value: impl Into<i64>) -> Arg<ValueId> {
    Arg::Attribute(Attribute::Scalar(Scalar::Int(value.into())))
}

pub(super) fn fraction(value: f64) -> Arg<ValueId> {
    Arg::Attribute(Attribute::Scalar(Scalar::Float(value)))
}

fn text(text: &str) -> Arg<ValueId> {
    Arg::Attribute(Attribute::Text(text.into()))
}

impl Writer<'_> {
    /// The whole of a value: itself, the sum of what the ranks have, or their parts together.
    pub(super) fn whole(&mut self, id: ValueId, of: Of<'_>) -> Result<ValueId> {
        let Some(state) = self.state(id).cloned() else { return Ok(id) };
        if let Some(whole) = self.wholes.get(&id) {
            return Ok(*whole);
        }
        let whole = match &state {
            State::Partial => self.reduced(id, "sum", of)?,
            State::Divided(by) | State::Sequence(by) => self.gathered(id, by, of)?,
        };
        self.wholes.insert(id, whole);
        Ok(whole)
    }

    /// What the ranks have of a value, together by an operation: their sum, or the largest or smallest elements.
    pub(super) fn reduced(&mut self, id: ValueId, by: &str, of: Of<'_>) -> Result<ValueId> {
        let name = format!("{}.{by}", self.name(id));
        let arguments = vec![Arg::List(vec![id]), self.axis(), text(by)];
        self.call(Role::AllReduce, arguments, &name, of)
    }

    fn gathered(&mut self, id: ValueId, by: &Divided, of: Of<'_>) -> Result<ValueId> {
        let name = format!("{}.whole", self.name(id));
        // Collectives are of numbers.
        let truth = self.meta(id).dtype() == DType::Bool;
        let part = if truth { self.converted(id, DType::U8, &format!("{name}.u8"), of)? } else { id };
        let ranks = self.strategy.ranks();
        let pieces = if by.sections.len() == 1 { vec![part] } else { self.sections(part, by, &name, of)? };
        let arguments = vec![Arg::List(pieces), self.axis(), Arg::value(by.dim)];
        debug_assert!(by.sections.iter().all(|section| section.is_multiple_of(ranks)));
        let mut wholes = self.call_all(Role::AllGather, arguments, &name, of)?;
        let whole = if wholes.len() == 1 {
            wholes.swap_remove(0)
        } else {
            self.call(Role::Cat, vec![Arg::List(wholes), Arg::value(by.dim)], &name, of)?
        };
        if truth { self.converted(whole, DType::Bool, &name, of) } else { Ok(whole) }
    }

    /// A part, section by section.
    fn sections(&mut self, part: ValueId, by: &Divided, name: &str, of: Of<'_>) -> Result<Vec<ValueId>> {
        let shape = self.meta(part).shape().to_vec();
        let mut start = 0;
        let mut pieces = Vec::with_capacity(by.sections.len());
        for section in &by.sections {
            let (mut starts, mut ends) = (vec![0_usize; shape.len()], shape.clone());
            (starts[by.dim], ends[by.dim]) = (start, start + section / self.strategy.ranks());
            start = ends[by.dim];
            let arguments =
                vec![Arg::Tensor(part), Arg::value(starts), Arg::value(ends), Arg::value(vec![1_usize; shape.len()])];
            pieces.push(self.call(Role::Slice, arguments, &format!("{name}.section"), of)?);
        }
        Ok(pieces)
    }

    pub(super) fn converted(&mut self, id: ValueId, dtype: DType, name: &str, of: Of<'_>) -> Result<ValueId> {
        self.call(Role::Convert, vec![Arg::Tensor(id), Arg::value(dtype)], name, of)
    }

    /// This rank's part of a value that is divided like this. A sum over the ranks along one section is scattered.
    pub(super) fn divided(&mut self, id: ValueId, by: &Divided, of: Of<'_>) -> Result<ValueId> {
        if self.division(id) == Some(by) {
            return Ok(id);
        }
        if let Some(part) = self.parts.get(&(id, by.clone())) {
            return Ok(*part);
        }
        let sum = self.is_partial(id) && by.sections.len() == 1 && !self.wholes.contains_key(&id);
        let part = if sum {
            let name = format!("{}.part", self.name(id));
            let arguments = vec![Arg::List(vec![id]), self.axis(), Arg::value(by.dim), text("sum")];
            self.call(Role::ReduceScatter, arguments, &name, of)?
        } else {
            let whole = self.whole(id, of)?;
            match self.made_divided(whole, by)? {
                Some(part) => part,
                None => self.selected(whole, by, of)?,
            }
        };
        self.parts.insert((id, by.clone()), part);
        Ok(part)
    }

    /// A part of a value that lines make of numbers or repeat along the dimension, by such lines of fewer elements.
    fn made_divided(&mut self, id: ValueId, by: &Divided) -> Result<Option<ValueId>> {
        if let Some(part) = self.parts.get(&(id, by.clone())) {
            return Ok(Some(*part));
        }
        let Some(line) = self.made_by(id).cloned() else { return Ok(None) };
        let (Some(def), [_], None) = (line.operator(), &line.results[..], &line.body) else { return Ok(None) };
        let part = by.part(self.meta(id).shape(), self.strategy.ranks());
        let arithmetic = Arithmetic::of(def);
        let name = format!("{}.part", self.name(id));
        let made = match (arithmetic.elements, def.overload) {
            (Some(Elements::Broadcast), _) => {
                let (Some(Arg::Tensor(operand)), Some(shape), Some(dims)) =
                    (line.arguments.first(), def.param("shape"), def.param("dims"))
                else {
                    return Ok(None);
                };
                let Some(Arg::Attribute(attribute)) = line.arguments.get(dims) else { return Ok(None) };
                let places: Vec<usize> = crate::argument::AttributeType::from_attribute(attribute).unwrap_or_default();
                let own = places.iter().position(|dim| *dim == by.dim);
                let own = own.filter(|own| self.meta(*operand).shape()[*own] == by.extent());
                let operand = match own {
                    Some(dim) => match self.made_divided(*operand, &by.at(dim))? {
                        Some(part) => part,
                        None => return Ok(None),
                    },
                    None => *operand,
                };
                let mut arguments = line.arguments.clone();
                (arguments[0], arguments[shape]) = (Arg::Tensor(operand), Arg::value(part));
                self.call_operator(def, arguments, &name, Some(&line))?.swap_remove(0)
            }
            (_, Some(Role::Full)) => {
                let mut arguments = line.arguments.clone();
                arguments[0] = Arg::value(part);
                self.call_operator(def, arguments, &name, Some(&line))?.swap_remove(0)
            }
            (elements, _) if arithmetic.scalar.is_some() || elements == Some(Elements::Convert) => {
                let shape = self.meta(id).shape().to_vec();
                let mut arguments = line.arguments.clone();
                for argument in &mut arguments {
                    let operand = match argument {
                        Arg::Tensor(operand) => operand,
                        Arg::Attribute(_) => continue,
                        _ => return Ok(None),
                    };
                    if self.meta(*operand).rank() == 0 {
                        continue;
                    }
                    if self.meta(*operand).shape() != shape {
                        return Ok(None);
                    }
                    let Some(part) = self.made_divided(*operand, by)? else { return Ok(None) };
                    *operand = part;
                }
                self.call_operator(def, arguments, &name, Some(&line))?.swap_remove(0)
            }
            _ => return Ok(None),
        };
        self.parts.insert((id, by.clone()), made);
        Ok(Some(made))
    }

    /// The parts along the dimension that are this rank's.
    fn selected(&mut self, whole: ValueId, by: &Divided, of: Of<'_>) -> Result<ValueId> {
        let index = self.own_indices(whole, &by.sections, of)?;
        let name = format!("{}.part", self.name(whole));
        self.call(Role::IndexSelect, vec![Arg::Tensor(whole), Arg::value(by.dim), Arg::Tensor(index)], &name, of)
    }

    /// The indices of this rank's parts of a dimension with these sections, i64.
    fn own_indices(&mut self, beside: ValueId, sections: &[usize], of: Of<'_>) -> Result<ValueId> {
        if let Some(known) = self.indices.get(sections) {
            return Ok(*known);
        }
        let place = self.own_place(beside, of)?;
        let device = Arg::value(self.meta(beside).device().to_string());
        let (mut start, mut pieces) = (0, Vec::new());
        for section in sections {
            let own = section / self.strategy.ranks();
            let arguments =
                vec![Arg::value(own), number(start as i64), number(1), Arg::value(DType::I64), device.clone()];
            let counted = self.call(Role::Iota, arguments, "own.count", of)?;
            let first = self.call(Role::Mul, vec![Arg::Tensor(place), number(own as i64)], "own.first", of)?;
            let spread = vec![Arg::Tensor(first), Arg::value(vec![own]), Arg::value(Vec::<usize>::new())];
            let first = self.call(Role::Broadcast, spread, "own.first", of)?;
            pieces.push(self.call(Role::Add, vec![Arg::Tensor(counted), Arg::Tensor(first)], "own.index", of)?);
            start += section;
        }
        let index = match pieces[..] {
            [index] => index,
            _ => self.call(Role::Cat, vec![Arg::List(pieces), Arg::value(0_usize)], "own.index", of)?,
        };
        self.indices.insert(sections.to_vec(), index);
        Ok(index)
    }

    /// The place of this rank along the axis, i64, on the device of a value.
    pub(super) fn own_place(&mut self, beside: ValueId, of: Of<'_>) -> Result<ValueId> {
        if let Some(place) = self.place {
            return Ok(place);
        }
        let device = self.meta(beside).device().to_string();
        let name = format!("{}.place", self.strategy.axis.name());
        let place = self.call(Role::Place, vec![self.axis(), Arg::value(device)], &name, of)?;
        self.place = Some(place);
        Ok(place)
    }
}
