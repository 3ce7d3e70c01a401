//! Calls: what is called, with what.

use super::super::{Callee, ValueId, implied};
use super::attributes::fits;
use super::messages::{MAX_HINT, hint, quote};
use super::{Parser, Scope};
use crate::argument::{Arg, Attribute, Scalar};
use crate::error::Result;
use crate::operator::{OperatorDef, ParamDef, ParamKind};
use crate::registry::find_operator;

impl<'a> Parser<'a> {
    /// `name=`, if that is next.
    pub(super) fn try_label(&mut self) -> Option<(&'a str, usize)> {
        let word = self.peek_word();
        let start = self.at;
        self.at += word.len();
        if !word.is_empty() && self.eat('=') {
            return Some((word, start));
        }
        self.at = start;
        None
    }

    fn argument(&mut self, scope: &mut Scope, param: &ParamDef, reader: Option<&str>) -> Result<Arg<ValueId>> {
        Ok(match param.kind {
            ParamKind::Tensor(_) => Arg::Tensor(self.argument_of(reader, param, None, |p| p.value(scope))?),
            ParamKind::Optional(_) if self.eat_word("none") => Arg::Optional(None),
            ParamKind::Optional(_) => Arg::Optional(Some(self.argument_of(reader, param, None, |p| p.value(scope))?)),
            ParamKind::List(_) => {
                self.expect('[', &format!("and tensors: '{}' is a list", param.name))?;
                Arg::List(
                    self.values(scope, |p, scope, item| p.argument_of(reader, param, Some(item), |p| p.value(scope)))?,
                )
            }
            ParamKind::Operand(_) => match self.scalar()? {
                Some(scalar) => Arg::Attribute(self.attribute_for_each(param, Attribute::Scalar(scalar))?),
                None => Arg::Tensor(self.argument_of(reader, param, None, |p| p.value(scope))?),
            },
            ParamKind::Attribute => {
                let attribute = self.attribute_of(param)?;
                Arg::Attribute(self.attribute_for_each(param, attribute)?)
            }
        })
    }

    /// The attribute of a parameter.
    pub(super) fn attribute_of(&mut self, param: &ParamDef) -> Result<Attribute> {
        self.skip();
        let start = self.at;
        let attribute = self.attribute(0)?;
        let type_name = (param.type_name)();
        if fits(&type_name, &attribute) {
            return Ok(attribute);
        }
        let given = quote(&attribute.to_string());
        let hint = match attribute {
            Attribute::Scalar(Scalar::Int(value)) if fits(&type_name, &Attribute::Scalar(0.0.into())) => {
                format!(", write {value}.0")
            }
            _ => String::new(),
        };
        self.fail(start, format!("'{}' is {type_name}, found {given}{hint}", param.name))
    }

    /// The arguments of a call at `start`, whose first result is `reader`.
    pub(super) fn call(
        &mut self,
        scope: &mut Scope,
        def: &'static OperatorDef,
        start: usize,
        reader: Option<&str>,
    ) -> Result<Vec<Arg<ValueId>>> {
        let mut slots: Vec<Option<Arg<ValueId>>> = vec![None; def.params.len()];
        let mut position = Some(0);
        self.expect('(', "and arguments after the operator")?;
        self.list(')', |p| {
            p.skip();
            let at = p.at;
            let index = match (p.try_label(), position) {
                (Some((name, at)), _) => {
                    position = None;
                    match def.param(name) {
                        Some(index) => index,
                        None => {
                            let hint = hint(name, def.params.iter().map(|param| param.name));
                            let message = format!(
                                "{} has no argument {}{hint} (it is {})",
                                def.name,
                                quote(name),
                                def.signature()
                            );
                            return p.fail(at, message);
                        }
                    }
                }
                (None, None) => {
                    return p.fail(at, "expected 'name=': arguments after a named one are named too");
                }
                (None, Some(index)) => match def.params.get(index) {
                    Some(param) if matches!(param.kind, ParamKind::Attribute | ParamKind::Optional(_)) => {
                        return p.fail(at, format!("argument '{0}' is named, write '{0}=...'", param.name));
                    }
                    Some(_) => {
                        position = Some(index + 1);
                        index
                    }
                    None => {
                        let message = format!("{} takes {} arguments: {}", def.name, index, def.signature());
                        return p.fail(at, message);
                    }
                },
            };
            let param = &def.params[index];
            if slots[index].is_some() {
                return p.fail(at, format!("argument '{}' is given twice", param.name));
            }
            slots[index] = Some(p.argument(scope, param, reader)?);
            Ok(())
        })?;
        for (slot, param) in slots.iter_mut().zip(def.params).filter(|(slot, _)| slot.is_none()) {
            *slot = implied::argument(param, Some(self.home));
            if slot.is_none() {
                let message = format!(
                    "{} lacks argument '{}' ({}), which has no default",
                    def.name,
                    param.name,
                    (param.type_name)()
                );
                return self.fail(start, message);
            }
        }
        Ok(slots.into_iter().flatten().collect())
    }

    /// A tensor or a list of tensors, of a call that no definition directs.
    pub(super) fn tensors(&mut self, scope: &mut Scope) -> Result<Arg<ValueId>> {
        if self.eat('[') {
            return Ok(Arg::List(self.values(scope, |p, scope, _| p.value(scope))?));
        }
        Ok(Arg::Tensor(self.value(scope)?))
    }

    /// As [`Parser::tensors`], behind the argument `previous`, whose scope names without one are below.
    pub(super) fn tensors_after(&mut self, scope: &mut Scope, previous: Option<&Arg<ValueId>>) -> Result<Arg<ValueId>> {
        let outside = self.scope.clone();
        self.follow(scope, previous, &outside);
        let tensors = self.tensors(scope);
        self.scope = outside;
        tensors
    }

    /// The arguments of a call of no operator: tensors, and the one that is called `label`, unless that is empty.
    fn tensors_and<T>(
        &mut self,
        scope: &mut Scope,
        called: &str,
        label: &str,
        mut read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<(Vec<Arg<ValueId>>, Option<T>)> {
        let (mut arguments, mut labelled) = (Vec::new(), None);
        self.expect('(', &format!("and arguments after '{called}'"))?;
        self.list(')', |p| {
            match p.try_label() {
                Some((name, _)) if name == label && labelled.is_none() => labelled = Some(read(p)?),
                Some((name, at)) => {
                    let one = if label.is_empty() { String::new() } else { format!(" and one '{label}='") };
                    return p.fail(at, format!("expected tensors{one}, found {}", quote(name)));
                }
                None => {
                    let argument = p.tensors_after(scope, arguments.last())?;
                    arguments.push(argument);
                }
            }
            Ok(())
        })?;
        Ok((arguments, labelled))
    }

    /// The full name of an operator: a bare word calls a prim where there is one, a quoted name and one behind `::` is
    /// the operator's own.
    pub(super) fn operator(&mut self) -> Result<(String, usize)> {
        match self.peek() {
            Some(':') => {
                let at = self.at;
                self.expect(':', "")?;
                self.expect(':', "and the name of an operator")?;
                Ok((self.label("the name of an operator")?, at))
            }
            Some('"') => self.name("an operator"),
            _ => self.name("an operator").map(|(word, at)| (implied::operator_of(&word), at)),
        }
    }

    /// What is called, with what, by a line that defines the names `results`.
    pub(super) fn callee(
        &mut self,
        scope: &mut Scope,
        results: &[(String, usize)],
    ) -> Result<(Callee, Vec<Arg<ValueId>>)> {
        let quoted = matches!(self.peek(), Some('"' | ':'));
        let (name, start) = self.operator()?;
        if !quoted && name == "value_and_grad" {
            let (arguments, wrt) = self.tensors_and(scope, &name, "wrt", |p| {
                p.expect('[', "and indices after 'wrt='")?;
                p.list(']', |p| p.integer("an index"))
            })?;
            return match wrt {
                Some(wrt) => Ok((Callee::ValueAndGrad { wrt }, arguments)),
                None => self.fail(start, "value_and_grad lacks argument 'wrt' (size[])"),
            };
        }
        if !quoted && name == "checkpoint" {
            let (arguments, _) = self.tensors_and(scope, &name, "", |_| Ok(()))?;
            return Ok((Callee::Checkpoint, arguments));
        }
        if !quoted && name == "region" {
            let (arguments, executor) = self.tensors_and(scope, &name, "executor", |p| p.executor())?;
            return match executor {
                Some(executor) => Ok((Callee::Region { executor }, arguments)),
                None => self.fail(start, "region lacks argument 'executor'"),
            };
        }
        let found = if name.len() > MAX_HINT { None } else { Some(find_operator(&name)) };
        let def = match found {
            Some(Ok(def)) => def,
            Some(Err(error)) => return self.fail(start, error.to_string()),
            None => return self.fail(start, format!("no operator is called {}", quote(&name))),
        };
        if let Some(expected) = def.results.count()
            && expected != results.len()
        {
            let tensors = if expected == 1 { "tensor" } else { "tensors" };
            let message = format!("{} returns {expected} {tensors}, this line names {}", def.name, results.len());
            return self.fail(start, message);
        }
        let reader = results.first().map(|(name, _)| name.as_str());
        let arguments = self.call(scope, def, start, reader)?;
        Ok((Callee::Operator(def), arguments))
    }
}
