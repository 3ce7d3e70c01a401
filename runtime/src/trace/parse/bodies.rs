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

    fn bounded(&self, depth: usize) -> Result<()> {
        match depth > MAX_DEPTH {
            true => self.fail(self.at, format!("bodies nest deeper than {MAX_DEPTH}")),
            false => Ok(()),
        }
    }

    /// The body of `symbol`, a line of `outer`, after its `{` and refusals.
    pub(super) fn body(&mut self, outer: &Block, symbol: &BoundSymbol, depth: usize) -> Result<Block> {
        self.bounded(depth)?;
        let mut scope = Scope::default();
        let ending = std::mem::take(&mut self.ending);
        self.inside(Arc::from(""), None, |p| {
            let at = p.at;
            if p.eat('(') {
                for typed in p.typed_list(')')?.0 {
                    let id = p.define(&mut scope, typed)?;
                    scope.block.parameters.push(id);
                }
            } else {
                let Some(parameters) = implied::parameters(outer, symbol) else {
                    return p.expected("'(' and the body's parameters");
                };
                for (name, meta) in parameters {
                    let id = p.define(&mut scope, Typed { name: name.to_string(), at, meta })?;
                    scope.block.parameters.push(id);
                }
            }
            p.lines_of_body(&mut scope, depth)
        })?;
        self.ending = ending;
        Ok(scope.block)
    }

    /// Lines, results and memory, and the `}` behind them.
    fn lines_of_body(&mut self, scope: &mut Scope, depth: usize) -> Result<()> {
        self.symbols(scope, End::Body, depth)?;
        self.memory(scope)?;
        self.expect('}', "at the end of the body")
    }

    /// Whether a region begins here whose operands and results follow from its body.
    pub(super) fn at_region(&mut self) -> bool {
        let start = self.at;
        let here = self.eat_word("region") && self.peek_word() == "by";
        self.at = start;
        here
    }

    /// `region by fusion in scope { ... }`: reads values of `scope` by their names, and defines there what it yields.
    /// Returned with what its names are below.
    pub(super) fn region(&mut self, scope: &mut Scope, depth: usize) -> Result<(Results, Arc<str>)> {
        self.expect_word("region")?;
        self.expect_word("by")?;
        let executor = self.executor()?;
        let schedule = self.schedule(scope)?;
        let names: Arc<str> = if self.eat_word("in") { self.label("a scope")?.into() } else { Arc::from("") };
        self.expect('{', "and the lines of the region")?;
        let refusals = self.refusals()?;
        self.bounded(depth + 1)?;
        let start = self.at;
        let mut inner = Scope { around: Some(Box::new(std::mem::take(scope))), ..Scope::default() };
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
        let results = results.into_iter().map(|typed| self.define(scope, typed)).collect::<Result<Results>>()?;
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
        Ok((results, names))
    }
}
