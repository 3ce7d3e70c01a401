//! Lines, and the blocks that they stand in.

use std::sync::Arc;

use super::super::print::MAX_DEPTH;
use super::super::{Block, BoundSymbol, Callee, Results, Storage};
use super::{Parser, Scope, Typed};
use crate::error::Result;
use crate::refusal::Refusal;

impl Parser<'_> {
    /// One line after its results: the call, the claim, the refusals, the body.
    pub(super) fn symbol(&mut self, scope: &mut Scope, results: Vec<Typed>, depth: usize) -> Result<()> {
        let (callee, arguments) = self.callee(scope, results.len())?;
        let executor = if self.eat_word("by") { Some(self.executor()?) } else { None };
        let open = self.eat('{');
        let mut refusals = Vec::new();
        while self.eat_word("refused") {
            self.expect_word("by")?;
            let executor = self.executor()?;
            self.expect(':', "and the reason after the executor")?;
            if self.peek() != Some('"') {
                return self.expected("the reason in double quotes");
            }
            refusals.push(Refusal { executor, reason: self.string()? });
        }
        let body = if open { Some(Arc::new(self.body(depth + 1)?)) } else { None };
        let mut ids = Results::with_capacity(results.len());
        for typed in results {
            ids.push(self.define(scope, typed)?);
        }
        let place = None;
        scope.block.symbols.push(BoundSymbol { callee, arguments, results: ids, body, executor, refusals, place });
        Ok(())
    }

    /// Lines up to the keyword `end`.
    pub(super) fn symbols(&mut self, scope: &mut Scope, end: &str, depth: usize) -> Result<()> {
        loop {
            let quoted = self.peek() == Some('"');
            if !quoted && self.eat_word(end) {
                return Ok(());
            }
            if !quoted && self.eat_word("del") {
                let mut arguments = vec![self.tensors(scope)?];
                while self.eat(',') {
                    arguments.push(self.tensors(scope)?);
                }
                scope.block.symbols.push(BoundSymbol {
                    callee: Callee::Delete,
                    arguments,
                    results: Results::new(),
                    body: None,
                    executor: None,
                    refusals: Vec::new(),
                    place: None,
                });
                continue;
            }
            if !quoted && matches!(self.peek(), None | Some('}')) {
                return self.expected(&format!("a line or '{end}'"));
            }
            // `name: type, ... = call` or just a call.
            let start = self.at;
            self.name(&format!("a line or '{end}'"))?;
            let bare = self.peek() == Some('(');
            self.at = start;
            let mut results = Vec::new();
            if !bare {
                loop {
                    results.push(self.typed()?);
                    if !self.eat(',') {
                        break;
                    }
                }
                self.expect('=', "and a call after the results")?;
            }
            self.symbol(scope, results, depth)?;
        }
    }

    /// Values after `return` or `yield`, each perhaps with a path; several lines stand between parentheses.
    pub(super) fn results<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut item = item;
        if self.eat('(') {
            return self.list(')', item);
        }
        let mut items = Vec::new();
        if self.peek() != Some('}') {
            items.push(item(self)?);
            while self.eat(',') {
                items.push(item(self)?);
            }
        }
        Ok(items)
    }

    pub(super) fn finish(&self, mut scope: Scope) -> Result<Block> {
        for (id, other, at) in std::mem::take(&mut scope.shared) {
            let other = self.look_up(&scope, &other, at)?;
            scope.block.values[id.index()].storage = Some(Storage::Shared(other));
        }
        Ok(scope.block)
    }

    /// A nested block after its `{` and refusals.
    pub(super) fn body(&mut self, depth: usize) -> Result<Block> {
        if depth > MAX_DEPTH {
            return self.fail(self.at, format!("bodies nest deeper than {MAX_DEPTH}"));
        }
        let mut scope = Scope::default();
        self.expect('(', "and the body's parameters")?;
        let parameters = self.list(')', Self::typed)?;
        for typed in parameters {
            let id = self.define(&mut scope, typed)?;
            scope.block.parameters.push(id);
        }
        self.symbols(&mut scope, "yield", depth)?;
        scope.block.results = self.results(|p| p.value(&scope))?;
        self.expect('}', "after 'yield'")?;
        self.finish(scope)
    }
}
