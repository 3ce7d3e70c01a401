//! Calls: results, operator, arguments.

use rustc_hash::FxHashMap;

use super::super::nested::Nested;
use super::super::{Block, BoundSymbol, Callee, Schedule, ValueId, implied};
use super::each::Each;
use super::fold::{SOFT, comma, soft_at_type};
use super::words::{Called, Names, label, operator_name};
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
    pub(super) around: Option<&'a Around<'a>>,
    /// The lines that are written as one.
    pub(super) each: Option<&'a Each<'a>>,
}

/// The block that a region is in.
pub(super) struct Around<'a> {
    block: &'a Block,
    /// Which symbols of the block are written inside others.
    nested: &'a Nested,
    /// The symbols that are written in place of parameters of the region's body.
    views: FxHashMap<ValueId, usize>,
}

impl<'a> Around<'a> {
    /// What is around `region`, whose body is `body`.
    pub(super) fn new(block: &'a Block, nested: &'a Nested, region: &BoundSymbol, body: &Block) -> Around<'a> {
        let pairs = body.parameters.iter().zip(region.operands());
        let views = pairs.filter_map(|(parameter, id)| Some((*parameter, nested.symbol_of(id)?))).collect();
        Around { block, nested, views }
    }
}

impl<'a> Style<'a> {
    /// For a line by itself: names in full, and no device if it is that of all values.
    pub(super) fn alone(block: &'a Block) -> Style<'a> {
        let first = block.values.first().map(|value| value.meta.device());
        let home = first.filter(|home| block.values.iter().all(|value| value.meta.device() == *home));
        Style { names: Names::full(block), home, explicit: false, nested: None, around: None, each: None }
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

    /// `a, b: f32[4], c: i64[4]`: a type follows the last name of those that have it.
    pub(super) fn all_typed(&self, ids: &[ValueId]) -> Vec<String> {
        let meta = |id: &ValueId| self.names.block.values.get(id.index()).map(|value| &value.meta);
        let (mut texts, mut at, mut end) = (Vec::with_capacity(ids.len()), 0, 0);
        while at < ids.len() {
            let previous = at.checked_sub(1).map(|before| ids[before]);
            if at == end {
                let of_type = ids[at..].iter().take_while(|id| !self.explicit && meta(id) == meta(&ids[at]));
                end += of_type.count().max(1);
            }
            let (mut text, count) = self.names.run(previous, &ids[at..end], None);
            at += count;
            if at == end {
                text += &meta(&ids[at - 1]).map_or_else(String::new, |meta| format!(": {}", self.meta(meta)));
            }
            texts.push(text);
        }
        texts
    }

    /// The call that is written in place of a value: a view that nobody else reads.
    fn inside(&self, id: ValueId) -> Option<String> {
        if let Some(at) = self.nested.and_then(|nested| nested.symbol_of(id)) {
            return Some(self.call(&self.names.block.symbols[at]));
        }
        let Around { block, nested, views } = self.around?;
        let at = *views.get(&id)?;
        // What the program computes around a region is told from what the region computes.
        let style = Style { names: Names { block, ..self.names }, nested: Some(nested), around: None, ..*self };
        Some(format!("view {}", style.call(&block.symbols[at])))
    }

    /// Whether a call is written in place of a value.
    pub(super) fn is_inside(&self, id: ValueId) -> bool {
        self.nested.is_some_and(|nested| nested.symbol_of(id).is_some())
            || self.around.is_some_and(|around| around.views.contains_key(&id))
    }

    fn argument(&self, argument: &Arg<ValueId>) -> String {
        match argument {
            Arg::Tensor(id) | Arg::Optional(Some(id)) => match self.each.and_then(|each| each.operands.get(id)) {
                Some(text) => text.clone(),
                None => self.inside(*id).unwrap_or_else(|| self.names.one(*id)),
            },
            Arg::Optional(None) => "none".into(),
            Arg::List(ids) => format!("[{}]", comma(&self.items(ids))),
            Arg::Attribute(attribute) => attribute.to_string(),
        }
    }

    /// The items of a list of operands.
    fn items(&self, ids: &[ValueId]) -> Vec<String> {
        let calls: Vec<Option<String>> = ids.iter().map(|id| self.inside(*id)).collect();
        let (mut texts, mut at, mut end) = (Vec::with_capacity(ids.len()), 0, 0);
        let mut previous = None;
        while at < ids.len() {
            if let Some(call) = &calls[at] {
                texts.push(call.clone());
                (previous, at) = (None, at + 1);
                continue;
            }
            if at >= end {
                end = at + calls[at..].iter().take_while(|call| call.is_none()).count();
            }
            // In a line for each input, `params.*` and `mul to .9` are one value.
            let (text, count) = match self.each {
                Some(_) => (self.names.after(previous, ids[at]), 1),
                None => self.names.run(previous, &ids[at..end], self.names.trees),
            };
            texts.push(text);
            at += count;
            previous = Some(ids[at - 1]);
        }
        texts
    }

    fn call(&self, symbol: &BoundSymbol) -> String {
        match &symbol.callee {
            Callee::Operator(def) => {
                let called = match (self.explicit, self.names.short()) {
                    (true, _) => Called::InFull,
                    (_, true) => Called::Shortly,
                    _ => Called::Plainly,
                };
                let name = operator_name(def.name, called);
                format!("{name}({})", comma(&self.arguments(symbol)))
            }
            Callee::Delete => self.delete(&symbol.arguments),
            Callee::ValueAndGrad { wrt } => {
                let mut arguments = self.arguments(symbol);
                arguments.push(format!("wrt={wrt:?}"));
                format!("value_and_grad({})", comma(&arguments))
            }
            Callee::Checkpoint => format!("checkpoint({})", comma(&self.arguments(symbol))),
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
            let text = match self.each.and_then(|each| each.attributes.get(&i)) {
                Some(text) => text.clone(),
                None if !self.explicit && implied::argument(param, self.home).as_ref() == Some(argument) => continue,
                None => self.argument(argument),
            };
            texts.push(if positional { text } else { format!("{}={text}", param.name) });
        }
        texts
    }

    /// `del a, b`. Values in the order of their definition may be listed in another.
    pub(super) fn delete(&self, arguments: &[Arg<ValueId>]) -> String {
        let plain = |argument: &Arg<ValueId>| if let Arg::Tensor(id) = argument { Some(*id) } else { None };
        let ids: Option<Vec<ValueId>> = arguments.iter().map(plain).collect();
        let (Some(ids), Some(trees)) = (ids, self.names.trees) else {
            return format!("del {}", comma(&self.tensors(arguments)));
        };
        let name = |id: &ValueId| self.names.block.values.get(id.index()).map_or("", |value| &*value.name);
        let patterns = match ids.is_sorted_by(|a, b| a < b) {
            true => trees.scattered(&ids.iter().map(name).collect::<Vec<&str>>()),
            false => Vec::new(),
        };
        let mut alone = vec![true; ids.len()];
        patterns.iter().flat_map(|(_, places)| places).for_each(|place| alone[*place] = false);
        let alone = ids.iter().zip(alone).filter(|(_, alone)| *alone).map(|(id, _)| *id);
        let mut texts = self.names.runs(&alone.collect::<Vec<ValueId>>());
        for (pattern, places) in patterns {
            trees.tell(places.len());
            texts.push(format!("{pattern}.*"));
        }
        format!("del {}", comma(&texts))
    }

    /// How a line is written, and what ends with it: with names below the scope of its first result, or below `scope`,
    /// which its body has, if names are below none.
    pub(super) fn of_line(&self, symbol: &BoundSymbol, scope: Option<&'a str>) -> Style<'a> {
        if !self.names.short() || !self.names.scope.is_empty() {
            return *self;
        }
        let first = symbol.results.first().and_then(|id| self.names.block.values.get(id.index()));
        let scope = scope.unwrap_or_else(|| implied::scope_of_line(first.map(|value| &*value.name)));
        Style { names: Names { scope, ..self.names }, ..*self }
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

    /// Results, operator and arguments, executor, and schedule.
    pub(super) fn line(&self, symbol: &BoundSymbol) -> String {
        let follow = self.names.short() && implied::results_follow(self.names.block, symbol);
        let results = if follow { self.names.runs(&symbol.results) } else { self.all_typed(&symbol.results) };
        self.of_line(symbol, None).line_after(&results, symbol) + &self.schedule(symbol)
    }

    /// The line of a symbol behind what is written of its results, without its stream.
    pub(super) fn line_after(&self, results: &[String], symbol: &BoundSymbol) -> String {
        let results: Vec<String> = results.iter().map(|result| soft_at_type(result)).collect();
        let mut line = comma(&results);
        if !line.is_empty() {
            line += &format!(" ={SOFT}");
        }
        line += &self.call(symbol);
        // All lines of a region are its executor's.
        if let Some(executor) = symbol.executor.filter(|_| self.around.is_none()) {
            line += &format!("{SOFT}by {}", label(executor));
        }
        line
    }
}
