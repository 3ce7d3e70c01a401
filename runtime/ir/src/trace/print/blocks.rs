//! Lines of blocks: symbols with what is nested in them, and the memory that values have.

use super::super::nested::Nested;
use super::super::{Block, BoundSymbol, Callee, Pass, Storage, ValueId, implied};
use super::calls::{Around, Style};
use super::fold::{self, SOFT, comma, prose};
use super::printer::{Printer, value_name};
use super::words::{label, scope_of_lines};
use crate::argument::Arg;

impl Printer<'_> {
    /// The lines of a block, the first of which are of the pass `start`; of those that are marked all results are the
    /// block's.
    pub(super) fn symbols(&mut self, style: &Style<'_>, depth: usize, yields: Option<&[bool]>, start: Pass) {
        let symbols = &style.names.block.symbols;
        let mut next = 0;
        let mut pass = start;
        while let Some(symbol) = symbols.get(next) {
            if style.nested.is_some_and(|nested| nested.contains(next)) {
                next += 1;
                continue;
            }
            if symbol.pass != pass && symbol.callee != Callee::Delete {
                pass = symbol.pass;
                self.line(depth, &format!("pass {}", pass.name()));
            }
            if let Some(each) = style.each(next) {
                let marks = yields.map_or(&[][..], |yields| &yields[next..next + each.count]);
                if marks.iter().all(|mark| *mark == marks[0]) {
                    let yields = if marks.first() == Some(&true) { "yield " } else { "" };
                    self.line(depth, &style.line_of_each(&each, symbol, yields));
                    next += each.count;
                    continue;
                }
            }
            let deletes = symbols[next + 1..].iter().take_while(|symbol| symbol.callee == Callee::Delete);
            let region = self.written_short(style, symbol, depth);
            let behind = style.of_line(symbol, region.as_ref().map(|(scope, _)| *scope));
            let deletes: Vec<String> = deletes.map(|delete| Self::deleted(&behind, delete)).collect();
            let yields = if yields.is_some_and(|yields| yields[next]) { "yield " } else { "" };
            self.symbol(style, symbol, depth, region, (yields, &deletes.concat()));
            next += 1 + deletes.len();
        }
    }

    /// Of a region that is written without its operands: the scope of its names, and what is nested in its body.
    fn written_short<'a>(&self, style: &Style<'_>, symbol: &'a BoundSymbol, depth: usize) -> Option<(&'a str, Nested)> {
        let body = symbol.body.as_deref().filter(|_| depth <= self.options.depth)?;
        let written = !style.explicit && style.around.is_none();
        let nested = written.then(|| implied::region(style.names.block, symbol, body))??;
        Some((self.scope_of(body), nested))
    }

    /// The scope that names in the body of a region are written below.
    fn scope_of<'a>(&self, body: &'a Block) -> &'a str {
        let style = self.style(body, "");
        let (mut lines, mut at) = (Vec::new(), 0);
        while let Some(symbol) = body.symbols.get(at) {
            // Lines that are written as one have names in full.
            match style.each(at) {
                Some(each) => at += each.count,
                None => {
                    lines.push(symbol);
                    at += 1;
                }
            }
        }
        scope_of_lines(body, &lines)
    }

    /// `; del a, b`, without what is written inside the line.
    fn deleted(style: &Style<'_>, delete: &BoundSymbol) -> String {
        let inside = |argument: &Arg<ValueId>| match (argument, style.nested) {
            (Arg::Tensor(id), Some(nested)) => nested.symbol_of(*id).is_some(),
            _ => false,
        };
        let shown: Vec<Arg<ValueId>> = delete.arguments.iter().filter(|argument| !inside(argument)).cloned().collect();
        if shown.is_empty() && !delete.arguments.is_empty() {
            return String::new();
        }
        format!(";{SOFT}{}", style.delete(&shown))
    }

    /// A symbol between what is written before it and behind it; `region` if it is written as one.
    fn symbol(
        &mut self,
        style: &Style<'_>,
        symbol: &BoundSymbol,
        depth: usize,
        region: Option<(&str, Nested)>,
        (before, behind): (&str, &str),
    ) {
        let block = style.names.block;
        let body = symbol.body.as_deref().filter(|_| depth <= self.options.depth);
        let by = |executor| format!("region by {}{}", label(executor), style.schedule(symbol));
        let head = match (&region, &symbol.callee) {
            (Some(("", _)), Callee::Region { executor }) => by(executor),
            (Some((scope, _)), Callee::Region { executor }) => format!("{} in {}", by(executor), label(scope)),
            _ => style.line(symbol),
        };
        match body {
            None => self.line(depth, &format!("{before}{head}{behind}")),
            Some(_) => self.line(depth, &format!("{before}{head} {{")),
        }
        if self.options.refusals {
            for refusal in &symbol.refusals {
                let reason = prose(&refusal.reason);
                self.line(depth + 1, &format!("refused by {}:{SOFT}{reason}", label(refusal.executor)));
            }
        }
        let Some(body) = body else { return };
        let none = Nested::none(block);
        let around = Around::new(block, style.nested.unwrap_or(&none), symbol, body);
        let region = region.as_ref().map(|(_, nested)| (&around, nested));
        if region.is_none() && !self.parameters_follow(block, symbol, body) {
            let style = self.style(body, "");
            self.line(depth + 1, &format!("({})", comma(&style.all_typed(&body.parameters))));
        }
        self.body(body, depth + 1, region);
        self.line(depth, &format!("}}{behind}"));
    }

    /// The lines of a body, its results and memory; of a region that is written short with what is around and in it.
    fn body(&mut self, body: &Block, depth: usize, region: Option<(&Around<'_>, &Nested)>) {
        let style = self.style(body, if region.is_some() { self.scope_of(body) } else { "" });
        let (around, nested) = region.unzip();
        let style = Style { nested, around, ..style };
        let yields = implied::yields(body).filter(|_| !style.explicit);
        self.symbols(&style, depth, yields.as_deref(), Pass::Forward);
        if yields.is_none() {
            let results = comma(&style.names.list(&body.results));
            self.line(depth, format!("yield {results}").trim_end());
        }
        self.memory(&style, depth, |_| Vec::new());
    }

    /// Whether the parameters of a body are those that the operator's declaration gives it.
    fn parameters_follow(&self, outer: &Block, symbol: &BoundSymbol, body: &Block) -> bool {
        let Some(expected) = implied::parameters(outer, symbol).filter(|_| !self.options.explicit) else {
            return false;
        };
        let same = |(id, (name, meta)): (&ValueId, &(_, _))| {
            body.values.get(id.index()).is_some_and(|value| value.name == *name && value.meta == *meta)
        };
        expected.len() == body.parameters.len() && body.parameters.iter().zip(&expected).all(same)
    }

    /// The memory that values of a block have, where it is not what `follows` says of the results of the symbol at a
    /// place.
    pub(super) fn memory(&mut self, style: &Style<'_>, depth: usize, follows: impl Fn(usize) -> Vec<Option<Storage>>) {
        let block = style.names.block;
        if !self.options.storage {
            return;
        }
        let mut values: Vec<(ValueId, Option<Storage>)> = block.parameters.iter().map(|id| (*id, None)).collect();
        for (at, symbol) in block.symbols.iter().enumerate() {
            let follows = follows(at).into_iter().chain(std::iter::repeat(None));
            values.extend(symbol.results.iter().copied().zip(follows));
        }
        let mut entries: Vec<String> = Vec::new();
        let mut previous = None;
        for (id, expected) in values {
            let storage = block.values.get(id.index()).and_then(|value| value.storage);
            if storage == expected && !(style.explicit && storage.is_some()) {
                continue;
            }
            let place = match storage {
                None => "at none".to_owned(),
                Some(Storage::Arena(offset)) => format!("at {offset}"),
                Some(Storage::Output) => "at output".to_owned(),
                Some(Storage::Shared(of)) => format!("in {}", value_name(block, of)),
            };
            entries.push(format!("{} {place}", style.names.after(previous, id)));
            previous = Some(id);
        }
        if entries.is_empty() {
            return;
        }
        self.line(depth, "memory {");
        fold::fold(&mut self.out, 2 * (depth + 1), 0, &comma(&entries));
        self.line(depth, "}");
    }
}
