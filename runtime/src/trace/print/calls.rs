//! Calls: results, operator, arguments.

use super::super::nested::Nested;
use super::super::{Block, BoundSymbol, Callee, Schedule, ValueId, implied};
use super::fold::{SOFT, comma};
use super::words::{Names, label, operator_name};
use crate::argument::Arg;
use crate::meta::{Device, TensorMeta};
use crate::operator::ParamKind;
use crate::stream_kind::StreamKind;

/// How calls are written.
#[derive(Clone, Copy)]
pub(super) struct Style<'a> {
    pub(super) names: Names<'a>,
    /// The device that types do not name.
    pub(super) home: Option<Device>,
    /// Whether devices and arguments at their defaults are written too.
    pub(super) explicit: bool,
    /// Which symbols are written inside others.
    pub(super) nested: Option<&'a Nested>,
    /// In the body of a region, what is around it.
    pub(super) around: Option<Around<'a>>,
}

/// A region, in the block that it is in.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) block: &'a Block,
    pub(super) region: &'a BoundSymbol,
    /// Which symbols of the block are written inside others.
    pub(super) nested: &'a Nested,
}

impl<'a> Style<'a> {
    /// For a line by itself: names in full, and no device if it is that of all values.
    pub(super) fn alone(block: &'a Block) -> Style<'a> {
        let first = block.values.first().map(|value| value.meta.device());
        let home = first.filter(|home| block.values.iter().all(|value| value.meta.device() == *home));
        Style { names: Names::full(block), home, explicit: false, nested: None, around: None }
    }

    pub(super) fn meta(&self, meta: &TensorMeta) -> String {
        let host = meta.with_device(Device::CPU);
        match meta.device() {
            device if self.explicit => format!("{host}@{device}"),
            device if Some(device) == self.home => host.to_string(),
            // Without a home no device means the host.
            device if self.home.is_none() && device.is_cpu() => host.to_string(),
            device => format!("{host}@{device}"),
        }
    }

    /// `name: f32[4]`, after the name `previous`.
    pub(super) fn typed(&self, previous: Option<ValueId>, id: ValueId) -> String {
        let name = self.names.after(previous, id);
        match self.names.block.values.get(id.index()) {
            Some(value) => format!("{name}: {}", self.meta(&value.meta)),
            None => name,
        }
    }

    /// `a, b: f32[4], c: i64[4]`: a type stands behind the last name of those that have it.
    pub(super) fn all_typed(&self, ids: &[ValueId]) -> Vec<String> {
        let meta = |id: &ValueId| self.names.block.values.get(id.index()).map(|value| &value.meta);
        let one = |(i, id): (usize, &ValueId)| {
            let previous = i.checked_sub(1).map(|before| ids[before]);
            let goes_on = !self.explicit && ids.get(i + 1).is_some_and(|next| meta(next) == meta(id));
            if goes_on { self.names.after(previous, *id) } else { self.typed(previous, *id) }
        };
        ids.iter().enumerate().map(one).collect()
    }

    /// The call that is written in place of a value: a view that nobody else reads.
    fn inside(&self, id: ValueId) -> Option<String> {
        if let Some(at) = self.nested.and_then(|nested| nested.symbol_of(id)) {
            return Some(self.call(&self.names.block.symbols[at]));
        }
        let Around { block, region, nested } = self.around?;
        let parameter = self.names.block.parameters.iter().position(|parameter| *parameter == id)?;
        let at = nested.symbol_of(region.operands().nth(parameter)?)?;
        // What the program computes around a region is told from what the region computes.
        let style = Style { names: Names { block, ..self.names }, nested: Some(nested), around: None, ..*self };
        Some(format!("view {}", style.call(&block.symbols[at])))
    }

    fn argument(&self, argument: &Arg<ValueId>) -> String {
        match argument {
            Arg::Tensor(id) | Arg::Optional(Some(id)) => self.inside(*id).unwrap_or_else(|| self.names.one(*id)),
            Arg::Optional(None) => "none".into(),
            Arg::List(ids) => {
                let mut previous = None;
                let item = |id: &ValueId| match self.inside(*id) {
                    Some(call) => {
                        previous = None;
                        call
                    }
                    None => self.names.after(previous.replace(*id), *id),
                };
                format!("[{}]", comma(&ids.iter().map(item).collect::<Vec<String>>()))
            }
            Arg::Attribute(attribute) => attribute.to_string(),
        }
    }

    /// Operator and arguments.
    fn call(&self, symbol: &BoundSymbol) -> String {
        match &symbol.callee {
            Callee::Operator(def) => format!("{}({})", operator_name(def.name), comma(&self.arguments(symbol))),
            Callee::Delete => self.delete(&symbol.arguments),
            Callee::ValueAndGrad { wrt } => {
                let mut arguments = self.arguments(symbol);
                arguments.push(format!("wrt={wrt:?}"));
                format!("value_and_grad({})", comma(&arguments))
            }
            Callee::Region { executor } => {
                let mut arguments = self.arguments(symbol);
                arguments.push(format!("executor={}", label(executor)));
                format!("region({})", comma(&arguments))
            }
        }
    }

    /// Tensors and lists of tensors of a call that no definition directs.
    fn tensors(&self, arguments: &[Arg<ValueId>]) -> Vec<String> {
        let mut previous = None;
        let mut texts = Vec::with_capacity(arguments.len());
        for argument in arguments {
            texts.push(match argument {
                Arg::Tensor(id) => self.names.after(previous, *id),
                other => self.argument(other),
            });
            previous = if let Arg::Tensor(id) = argument { Some(*id) } else { None };
        }
        texts
    }

    fn arguments(&self, symbol: &BoundSymbol) -> Vec<String> {
        let Some(def) = symbol.operator() else { return self.tensors(&symbol.arguments) };
        let mut positional = true;
        let mut texts: Vec<String> = Vec::with_capacity(symbol.arguments.len());
        for (i, argument) in symbol.arguments.iter().enumerate() {
            let Some(param) = def.params.get(i) else {
                texts.push(self.argument(argument));
                continue;
            };
            positional &= matches!(param.kind, ParamKind::Tensor(_) | ParamKind::List(_) | ParamKind::Operand(_));
            if !self.explicit && implied::argument(param, self.home).as_ref() == Some(argument) {
                continue;
            }
            let text = self.argument(argument);
            texts.push(if positional { text } else { format!("{}={text}", param.name) });
        }
        texts
    }

    /// `del a, b`.
    pub(super) fn delete(&self, arguments: &[Arg<ValueId>]) -> String {
        format!("del {}", comma(&self.tensors(arguments)))
    }

    /// The stream, unless it is that of computation, and what the line waits for.
    pub(super) fn schedule(&self, symbol: &BoundSymbol) -> String {
        let Schedule { stream, after } = &symbol.schedule;
        let mut text = match stream {
            StreamKind::Compute => String::new(),
            _ => format!("{SOFT}on {stream}"),
        };
        if !after.is_empty() {
            text += &format!("{SOFT}after {}", comma(&self.names.list(after)));
        }
        text
    }

    /// Results, operator and arguments, who runs it, and where and when.
    pub(super) fn line(&self, symbol: &BoundSymbol) -> String {
        let mut line = comma(&self.all_typed(&symbol.results));
        if !line.is_empty() {
            line += &format!(" ={SOFT}");
        }
        line += &self.call(symbol);
        if let Some(executor) = symbol.executor {
            line += &format!("{SOFT}by {}", label(executor));
        }
        line + &self.schedule(symbol)
    }
}
