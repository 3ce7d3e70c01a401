//! Parsing of the lines of a block.

use std::sync::Arc;

use super::super::implied::{result_metas, scope_of_line};
use super::super::{BoundSymbol, Callee, Pass, Results, Schedule, ValueId};
use super::marks::{MarkedLine, Naming, name_at};
use super::{Parser, Scope, Typed};
use crate::argument::Arg;
use crate::error::Result;
use crate::meta::TensorMeta;
use crate::refusal::Refusal;
use crate::stream_kind::StreamKind;

/// What ends the lines of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// `return`, which is read.
    Program,
    /// `yield` and results, which are read, or the results' marks at their lines.
    Body,
}

/// What a line defines: names, where they are in the text, and the types if the text has them.
pub(super) struct Heads {
    names: Vec<(String, usize)>,
    metas: Option<Vec<TensorMeta>>,
}

impl Heads {
    /// Whether the line defines nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// The end of its arguments' lives.
fn delete(arguments: Vec<Arg<ValueId>>, pass: Pass) -> BoundSymbol {
    BoundSymbol {
        callee: Callee::Delete,
        arguments,
        results: Results::new(),
        body: None,
        pass,
        executor: None,
        schedule: Default::default(),
        refusals: Vec::new(),
        place: None,
    }
}

impl Parser<'_> {
    pub(super) fn refusals(&mut self) -> Result<Vec<Refusal>> {
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
        Ok(refusals)
    }

    /// `on copy after a, b`: both may be left out.
    pub(super) fn schedule(&mut self, scope: &mut Scope) -> Result<Schedule> {
        let mut schedule = Schedule::default();
        // A value may be called as these words: its type, an equals sign or a counter follows then.
        let here = |p: &mut Self, word: &str| {
            let start = p.at;
            let mut here =
                p.eat_word(word) && !matches!(p.peek(), None | Some(':' | ',' | '=' | '(' | ';' | '{' | '}'));
            // Or names that count on from it.
            let behind = p.at;
            here &= !(p.eat_word("to") && p.peek() == Some('.'));
            p.at = behind;
            if !here {
                p.at = start;
            }
            here
        };
        if here(self, "on") {
            let word = self.peek_word();
            let Some(stream) = StreamKind::ALL.into_iter().find(|stream| stream.name() == word) else {
                return self.expected("'compute', 'copy' or 'communication'");
            };
            self.at += word.len();
            schedule.stream = stream;
        }
        if here(self, "after") {
            let outside = self.scope.clone();
            let mut previous = None;
            loop {
                self.follow_value(scope, previous, &outside);
                let name = self.name("a value");
                self.scope = outside.clone();
                let (name, at) = name?;
                let id = self.own(scope, &name, at)?;
                schedule.after.push(id);
                previous = Some(id);
                if !self.eat(',') {
                    break;
                }
            }
        }
        Ok(schedule)
    }

    /// One line after its results: the call, the claim, the stream, what it reads last, the refusals, the body.
    pub(super) fn symbol(&mut self, scope: &mut Scope, heads: Heads, depth: usize) -> Result<Results> {
        let outside = self.scope.clone();
        if self.scope.is_empty() {
            self.scope = scope_of_line(heads.names.first().map(|(name, _)| name.as_str())).into();
        }
        self.skip();
        let operator = self.at;
        let (callee, arguments) = self.callee(scope, &heads.names)?;
        let executor = if self.eat_word("by") { Some(self.executor()?) } else { self.region };
        let schedule = self.schedule(scope)?;
        let mut symbol = BoundSymbol {
            callee,
            arguments,
            results: Results::new(),
            body: None,
            pass: self.pass,
            executor,
            schedule,
            refusals: Vec::new(),
            place: None,
        };
        // Behind the views inside the line.
        let at = scope.block.symbols.len();
        let mut body = None;
        if self.each.is_some() && self.peek() == Some('{') {
            return self.fail(self.at, "a line for each input has no body");
        }
        if self.eat('{') {
            symbol.refusals = self.refusals()?;
            let (block, number) = self.body(scope, &symbol, depth + 1)?;
            symbol.body = Some(Arc::new(block));
            body = Some(number);
        }
        let metas = match heads.metas {
            Some(metas) => Some(metas),
            None => symbol.operator().and_then(|_| result_metas(&scope.block, &symbol.arguments, heads.names.len())),
        };
        let Some(metas) = metas else {
            return self
                .fail(heads.names[0].1, "expected ':' and a type after the name: no type follows from what is read");
        };
        let start = heads.names.first().map_or(operator, |(_, at)| *at);
        let typed = heads.names.into_iter().zip(metas).map(|((name, at), meta)| Typed { name, at, meta });
        let ids = typed.map(|typed| self.define(scope, typed)).collect::<Result<Results>>()?;
        let open = symbol.body.is_none();
        scope.block.symbols.push(BoundSymbol { results: ids.clone(), ..symbol });
        self.deletes(scope)?;
        self.scope = outside;
        if open {
            scope.block.symbols[at].refusals = self.refusals()?;
        }
        self.mark_line(scope.number, at, (start, operator), body);
        Ok(ids)
    }

    /// Line `symbol` of `block`, whose text and whose operator begin at `starts`, ends here.
    fn mark_line(&mut self, block: usize, symbol: usize, starts: (usize, usize), body: Option<usize>) {
        let end = self.text[..self.at].trim_end().len();
        if let Some(marks) = &mut self.marks {
            let operator = name_at(self.text, starts.1);
            marks.lines.push(MarkedLine { range: starts.0..end, operator, block, symbol, body });
        }
    }

    /// `; del a, b`, as often as it is there. Behind a line of a program, views inside the line end with the first.
    fn deletes(&mut self, scope: &mut Scope) -> Result<()> {
        let mut ending = match self.region.is_none() && scope.around.is_none() {
            true => std::mem::take(&mut self.ending),
            false => Vec::new(),
        };
        if !self.deletes {
            ending.clear();
        }
        if !ending.is_empty() && self.peek() != Some(';') {
            ending.sort_unstable();
            scope.block.symbols.push(delete(ending.into_iter().map(Arg::Tensor).collect(), self.pass));
            return Ok(());
        }
        while self.eat(';') {
            self.expect_word("del")?;
            self.delete(scope, std::mem::take(&mut ending))?;
        }
        Ok(())
    }

    /// Values after `del`, and the views that end with them.
    fn delete(&mut self, scope: &mut Scope, ending: Vec<ValueId>) -> Result<()> {
        self.naming = Naming::End;
        let deleted = self.deleted(scope, ending);
        self.naming = Naming::Read;
        deleted
    }

    fn deleted(&mut self, scope: &mut Scope, ending: Vec<ValueId>) -> Result<()> {
        let mut arguments: Vec<Arg<ValueId>> = Vec::new();
        let mut in_order = !ending.is_empty();
        loop {
            self.skip();
            let at = self.at;
            if let Some(several) = self.starred(scope)? {
                arguments.extend(several.into_iter().map(Arg::Tensor));
                in_order = true;
            } else {
                let argument = self.tensors_after(scope, arguments.last())?;
                arguments.push(argument);
                if let Some(Arg::Tensor(id)) = arguments.last() {
                    let counted = self.values_to(scope, *id, at)?;
                    arguments.extend(counted.into_iter().map(Arg::Tensor));
                }
            }
            if !self.eat(',') {
                break;
            }
        }
        if in_order {
            arguments.extend(ending.into_iter().map(Arg::Tensor));
            // In the order of their definition, as the transform has them.
            arguments.sort_by_key(|argument| argument.tensors().first().copied());
        }
        scope.block.symbols.push(delete(arguments, self.pass));
        Ok(())
    }

    /// Whether a line's results come after a `yield`, not a list of values.
    fn at_results(&mut self) -> bool {
        if self.at_region() {
            return true;
        }
        let start = self.at;
        let mut typed = false;
        loop {
            // Names below a scope are read when it is known.
            self.eat('.');
            if self.label("a name").is_err() {
                break;
            }
            if self.eat_word("to") && self.eat('.') {
                self.at += self.peek_word().len();
            }
            typed = matches!(self.peek(), Some(':' | '='));
            if !self.eat(',') {
                break;
            }
        }
        self.at = start;
        typed
    }

    /// Lines up to `end`.
    pub(super) fn symbols(&mut self, scope: &mut Scope, end: End, depth: usize) -> Result<()> {
        loop {
            let quoted = self.peek() == Some('"');
            let mut yields = false;
            if !quoted {
                let start = self.at;
                if let Some(pass) = self.pass_of_lines() {
                    self.pass = pass;
                    continue;
                }
                if let Some(each) = self.at_each() {
                    self.lines_of_each(scope, each, end, depth)?;
                    continue;
                }
                if end == End::Program && self.eat_word("return") {
                    return Ok(());
                }
                if end == End::Body {
                    if self.peek() == Some('}') || self.at_memory() {
                        return Ok(());
                    }
                    yields = self.eat_word("yield");
                    if yields && !self.at_results() {
                        if !scope.block.results.is_empty() {
                            return self.fail(start, "results are marked at their lines or listed here, not both");
                        }
                        let outside = self.scope.clone();
                        scope.block.results = self.results(|p, previous| {
                            p.follow_value(scope, previous.copied(), &outside);
                            let value = p.name("a value").and_then(|(name, at)| p.look_up(scope, &name, at));
                            p.scope = outside.clone();
                            value
                        })?;
                        return Ok(());
                    }
                }
                if self.eat_word("del") {
                    if !scope.block.symbols.is_empty() {
                        return self.fail(start, "'del' ends the line that reads last: write '; del' behind it");
                    }
                    self.delete(scope, Vec::new())?;
                    self.deletes(scope)?;
                    continue;
                }
                if matches!(self.peek(), None | Some('}')) {
                    return self.expected(if end == End::Program { "a line or 'return'" } else { "a line or 'yield'" });
                }
            }
            let results = if !quoted && self.at_region() {
                self.skip();
                let start = self.at;
                let (results, names, body) = self.region(scope, depth)?;
                let line = scope.block.symbols.len() - 1;
                let outside = self.scope.clone();
                if self.scope.is_empty() {
                    self.scope = names;
                }
                self.deletes(scope)?;
                self.scope = outside;
                self.mark_line(scope.number, line, (start, start), Some(body));
                results
            } else {
                let results = self.results_of_line(end)?;
                self.symbol(scope, results, depth)?
            };
            if yields {
                scope.block.results.extend(results);
            }
        }
    }

    /// `pass backward`: the pass of the lines that follow.
    fn pass_of_lines(&mut self) -> Option<Pass> {
        let start = self.at;
        let found = match self.eat_word("pass") {
            true => Pass::ALL.into_iter().find(|pass| self.eat_word(pass.name())),
            false => None,
        };
        if found.is_none() {
            self.at = start;
        }
        found
    }

    /// `name: type, ... =`, or names alone, or nothing before a call.
    pub(super) fn results_of_line(&mut self, end: End) -> Result<Heads> {
        let start = self.at;
        let bare = self.peek() == Some(':') || {
            self.name(if end == End::Program { "a line or 'return'" } else { "a line or 'yield'" })?;
            self.peek() == Some('(')
        };
        self.at = start;
        if bare {
            return Ok(Heads { names: Vec::new(), metas: Some(Vec::new()) });
        }
        let (typed, names) = self.typed_list('=')?;
        if typed.is_empty() {
            return Ok(Heads { names, metas: None });
        }
        let (names, metas) = typed.into_iter().map(|typed| ((typed.name, typed.at), typed.meta)).unzip();
        Ok(Heads { names, metas: Some(metas) })
    }

    /// Values after `return` or `yield`, each perhaps with a path; several lines are between parentheses. An item is
    /// given the item before it.
    pub(super) fn results<T: Clone>(
        &mut self,
        mut item: impl FnMut(&mut Self, Option<&T>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let closed = self.eat('(');
        let mut items: Vec<T> = Vec::new();
        loop {
            let end = match closed {
                true => self.eat(')'),
                // The end of the block, or its memory.
                false => items.is_empty() && (self.peek() == Some('}') || self.at_memory()),
            };
            if end {
                return Ok(items);
            }
            let next = item(self, items.last())?;
            items.push(next);
            if !self.eat(',') {
                if closed {
                    self.expect(')', "or ','")?;
                }
                return Ok(items);
            }
        }
    }
}
