//! Bodies: what is nested in a line.

use std::sync::Arc;

use super::super::print::MAX_DEPTH;
use super::super::{Block, BoundSymbol, Callee, Results, ValueId, implied};
use super::lines::End;
use super::{Parser, Scope, Typed};
use crate::argument::Arg;
use crate::error::Result;

impl Parser<'_> {
    /// Reads inside a body; names and lines are then again what they were outside.
    fn inside<T>(
        &mut self,
        scope: Arc<str>,
        region: Option<&'static str>,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let outside = (std::mem::replace(&mut self.scope, scope), std::mem::replace(&mut self.region, region));
        let around = (std::mem::replace(&mut self.views, region), self.argument.take());
        let passes = (std::mem::take(&mut self.pass), self.outer_pass);
        self.outer_pass = passes.0;
        let result = read(self);
        (self.pass, self.outer_pass) = passes;
        (self.scope, self.region) = outside;
        (self.views, self.argument) = around;
        result
    }

    /// The number of a block that begins here, among the marks.
    pub(super) fn open_marked(&mut self, around: Option<usize>, reads_around: bool) -> usize {
        let at = self.at;
        self.marks.as_mut().map_or(0, |marks| marks.open(at, around, reads_around))
    }

    fn bounded(&self, depth: usize) -> Result<()> {
        match depth > MAX_DEPTH {
            true => self.fail(self.at, format!("bodies nest deeper than {MAX_DEPTH}")),
            false => Ok(()),
        }
    }

    /// The body of `symbol`, a line of `outer`, after its `{` and refusals, and its number among the marks.
    pub(super) fn body(&mut self, outer: &Scope, symbol: &BoundSymbol, depth: usize) -> Result<(Block, usize)> {
        self.bounded(depth)?;
        let around = outer.number;
        let mut scope = Scope { number: self.open_marked(Some(around), false), ..Scope::default() };
        let ending = std::mem::take(&mut self.ending);
        self.inside(Arc::from(""), None, |p| {
            let at = p.at;
            if p.eat('(') {
                for typed in p.typed_list(')')?.0 {
                    let id = p.define(&mut scope, typed)?;
                    scope.block.parameters.push(id);
                }
            } else {
                let Some(parameters) = implied::parameters(&outer.block, symbol) else {
                    return p.expected("'(' and the body's parameters");
                };
                for (name, meta) in parameters {
                    let id = p.enter(&mut scope, Typed { name: name.to_string(), at, meta })?;
                    if let Some(marks) = &mut p.marks {
                        let value = scope.block.value(id);
                        marks.define(scope.number, &value.name, &value.meta, at..at);
                    }
                    scope.block.parameters.push(id);
                }
            }
            p.lines_of_body(&mut scope, depth)
        })?;
        self.ending = ending;
        Ok((scope.block, scope.number))
    }

    /// Lines, results and memory, and the `}` behind them.
    fn lines_of_body(&mut self, scope: &mut Scope, depth: usize) -> Result<()> {
        self.symbols(scope, End::Body, depth)?;
        self.memory(scope)?;
        self.expect('}', "at the end of the body")?;
        if let Some(marks) = &mut self.marks {
            marks.close(scope.number, self.at - 1);
        }
        Ok(())
    }

    /// Whether a region begins here whose operands and results follow from its body.
    pub(super) fn at_region(&mut self) -> bool {
        let start = self.at;
        let here = self.eat_word("region") && self.peek_word() == "by";
        self.at = start;
        here
    }

    /// `region by fusion in scope { ... }`: reads values of `scope` by their names, and defines there what it yields.
    /// Returned with what its names are below, and the number of its body among the marks.
    pub(super) fn region(&mut self, scope: &mut Scope, depth: usize) -> Result<(Results, Arc<str>, usize)> {
        self.expect_word("region")?;
        self.expect_word("by")?;
        let executor = self.executor()?;
        let schedule = self.schedule(scope)?;
        let names: Arc<str> = if self.eat_word("in") { self.label("a scope")?.into() } else { Arc::from("") };
        self.expect('{', "and the lines of the region")?;
        let refusals = self.refusals()?;
        self.bounded(depth + 1)?;
        let start = self.at;
        let number = self.open_marked(Some(scope.number), true);
        let mut inner = Scope { around: Some(Box::new(std::mem::take(scope))), number, ..Scope::default() };
        self.inside(names.clone(), Some(executor), |p| p.lines_of_body(&mut inner, depth + 1))?;
        if let Some(around) = inner.around {
            *scope = *around;
        }
        let body = inner.block.canonical();
        let typed = |id: &ValueId| {
            let value = body.value(*id);
            Typed { name: value.name.to_string(), at: start, meta: value.meta.clone() }
        };
        let results: Vec<Typed> = body.results.iter().map(typed).collect();
        let results = results.into_iter().map(|typed| self.enter(scope, typed)).collect::<Result<Results>>()?;
        if let Some(marks) = &mut self.marks {
            results.iter().for_each(|id| marks.same(number, scope.number, &scope.block.value(*id).name));
        }
        scope.block.symbols.push(BoundSymbol {
            callee: Callee::Region { executor },
            arguments: vec![Arg::List(inner.read)],
            results: results.clone(),
            body: Some(Arc::new(body)),
            pass: self.pass,
            executor: Some(executor),
            schedule,
            refusals,
            place: None,
        });
        Ok((results, names, number))
    }
}
