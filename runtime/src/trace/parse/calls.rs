//! Calls: what is called, with what.

use super::super::{Callee, ValueId};
use super::attributes::fits;
use super::messages::{MAX_HINT, hint, quote};
use super::{Parser, Scope};
use crate::argument::{Arg, Attribute, Scalar};
use crate::error::Result;
use crate::operator::{OperatorDef, ParamDef, ParamKind, ResultsDef};
use crate::registry::find_operator;

impl<'a> Parser<'a> {
    /// `name=`, if that stands here.
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

    pub(super) fn argument(&mut self, scope: &Scope, param: &ParamDef) -> Result<Arg<ValueId>> {
        self.skip();
        let start = self.at;
        Ok(match param.kind {
            ParamKind::Tensor(_) => Arg::Tensor(self.value(scope)?),
            ParamKind::Optional(_) if self.eat_word("none") => Arg::Optional(None),
            ParamKind::Optional(_) => Arg::Optional(Some(self.value(scope)?)),
            ParamKind::List(_) => {
                self.expect('[', &format!("and tensors: '{}' is a list", param.name))?;
                Arg::List(self.list(']', |p| p.value(scope))?)
            }
            ParamKind::Operand(_) => match self.scalar()? {
                Some(scalar) => Arg::Attribute(Attribute::Scalar(scalar)),
                None => Arg::Tensor(self.value(scope)?),
            },
            ParamKind::Attribute => {
                let attribute = self.attribute(0)?;
                let type_name = (param.type_name)();
                if !fits(&type_name, &attribute) {
                    let given = quote(&attribute.to_string());
                    let hint = match attribute {
                        Attribute::Scalar(Scalar::Int(value)) if fits(&type_name, &Attribute::Scalar(0.0.into())) => {
                            format!(", write {value}.0")
                        }
                        _ => String::new(),
                    };
                    return self.fail(start, format!("'{}' is {type_name}, found {given}{hint}", param.name));
                }
                Arg::Attribute(attribute)
            }
        })
    }

    pub(super) fn call(&mut self, scope: &Scope, def: &'static OperatorDef, start: usize) -> Result<Vec<Arg<ValueId>>> {
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
                                "{} has no argument {}{hint}; it is {}",
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
            slots[index] = Some(p.argument(scope, param)?);
            Ok(())
        })?;
        if let Some(missing) = slots.iter().position(Option::is_none) {
            let param = &def.params[missing];
            let message = format!(
                "{} lacks argument '{}' ({}); in a trace every argument is given",
                def.name,
                param.name,
                (param.type_name)()
            );
            return self.fail(start, message);
        }
        Ok(slots.into_iter().flatten().collect())
    }

    /// A tensor or a list of tensors, of a call that no definition directs.
    pub(super) fn tensors(&mut self, scope: &Scope) -> Result<Arg<ValueId>> {
        if self.eat('[') {
            return Ok(Arg::List(self.list(']', |p| p.value(scope))?));
        }
        Ok(Arg::Tensor(self.value(scope)?))
    }

    /// What is called, with what.
    pub(super) fn callee(&mut self, scope: &Scope, results: usize) -> Result<(Callee, Vec<Arg<ValueId>>)> {
        let quoted = self.peek() == Some('"');
        let (name, start) = self.name("an operator")?;
        if !quoted && name == "value_and_grad" {
            let mut wrt = None;
            let mut arguments = Vec::new();
            self.expect('(', "and arguments after 'value_and_grad'")?;
            self.list(')', |p| {
                match p.try_label() {
                    Some(("wrt", _)) if wrt.is_none() => {
                        p.expect('[', "and indices after 'wrt='")?;
                        wrt = Some(p.list(']', |p| p.integer("an index"))?);
                    }
                    Some((name, at)) => {
                        return p.fail(at, format!("expected tensors and one 'wrt=', found {}", quote(name)));
                    }
                    None => arguments.push(p.tensors(scope)?),
                }
                Ok(())
            })?;
            return match wrt {
                Some(wrt) => Ok((Callee::ValueAndGrad { wrt }, arguments)),
                None => self.fail(start, "value_and_grad lacks argument 'wrt' (size[])"),
            };
        }
        if !quoted && name == "region" {
            let mut executor = None;
            let mut arguments = Vec::new();
            self.expect('(', "and arguments after 'region'")?;
            self.list(')', |p| {
                match p.try_label() {
                    Some(("executor", _)) if executor.is_none() => executor = Some(p.executor()?),
                    Some((name, at)) => {
                        return p.fail(at, format!("expected tensors and one 'executor=', found {}", quote(name)));
                    }
                    None => arguments.push(p.tensors(scope)?),
                }
                Ok(())
            })?;
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
        if let ResultsDef::Fixed(expected) = def.results
            && expected != results
        {
            let tensors = if expected == 1 { "tensor" } else { "tensors" };
            let message = format!("{} returns {expected} {tensors}, this line names {results}", def.name);
            return self.fail(start, message);
        }
        let arguments = self.call(scope, def, start)?;
        Ok((Callee::Operator(def), arguments))
    }
}
