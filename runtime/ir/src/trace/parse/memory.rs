//! The memory that values have: a section at the end of a block.

use super::super::implied::Storages;
use super::super::{Block, Input, Output, Storage, ValueId};
use super::messages::quote;
use super::{Parser, Scope};
use crate::error::Result;

impl Parser<'_> {
    /// Whether the section begins here.
    pub(super) fn at_memory(&mut self) -> bool {
        let start = self.at;
        let here = self.eat_word("memory") && self.peek() == Some('{');
        self.at = start;
        here
    }

    /// `memory { a at 64, b at output, c in a }`, if it is there. Returns whose memory it tells.
    pub(super) fn memory(&mut self, scope: &mut Scope) -> Result<Vec<bool>> {
        let mut told = vec![false; scope.block.values.len()];
        if !self.at_memory() {
            return Ok(told);
        }
        self.expect_word("memory")?;
        self.expect('{', "and values")?;
        let outside = self.scope.clone();
        let mut previous: Option<ValueId> = None;
        while !self.eat('}') {
            self.follow_value(scope, previous, &outside);
            let name = self.name("a value");
            self.scope = outside.clone();
            let (name, at) = name?;
            let id = self.own(scope, &name, at)?;
            let storage = if self.eat_word("in") {
                let (other, at) = self.name("a value")?;
                Some(Storage::Shared(self.own(scope, &other, at)?))
            } else {
                self.expect_word("at")?;
                self.place()?
            };
            if std::mem::replace(&mut told[id.index()], true) {
                return self.fail(at, format!("the memory of {} is told twice", quote(&name)));
            }
            scope.block.values[id.index()].storage = storage;
            previous = Some(id);
            if !self.eat(',') {
                self.expect('}', "or ','")?;
                break;
            }
        }
        Ok(told)
    }

    /// What follows `at`: an offset in the arena, `output` or `none`.
    fn place(&mut self) -> Result<Option<Storage>> {
        if self.eat_word("output") {
            return Ok(Some(Storage::Output));
        }
        if self.eat_word("none") {
            return Ok(None);
        }
        if !self.peek_word().starts_with(|c: char| c.is_ascii_digit()) {
            return self.expected("an offset in the arena, 'output' or 'none'");
        }
        Ok(Some(Storage::Arena(self.integer("an offset in bytes")?)))
    }
}

/// Gives the values of a planned program the memory that follows from its lines, where none was told.
pub(super) fn follow(block: &mut Block, inputs: &[Input], outputs: &[Output], told: &[bool]) {
    let storages = Storages::new(block, inputs, outputs);
    for at in 0..block.symbols.len() {
        let places = storages.of(block, at);
        for (id, place) in block.symbols[at].results.iter().zip(places).filter(|(id, _)| !told[id.index()]) {
            block.values[id.index()].storage = place;
        }
    }
}
