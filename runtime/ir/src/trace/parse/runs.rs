//! Names that are written together: `params.*` and `mul to .9`.

use super::super::implied::MAX_RELATIVE;
use super::super::print::MAX_RUN;
use super::super::trees::counted;
use super::messages::quote;
use super::{Parser, Scope};
use crate::error::Result;
use crate::trace::ValueId;

impl<'a> Parser<'a> {
    /// `params.*`: what is before the star.
    pub(super) fn star(&mut self) -> Option<(&'a str, usize)> {
        // In a line for each input, a star is part of a name.
        if self.each.is_some() {
            return None;
        }
        let word = self.peek_word();
        let start = self.at;
        let pattern = word.strip_suffix('.').filter(|_| self.rest()[word.len()..].starts_with('*'))?;
        self.at += word.len() + 1;
        Some((pattern, start))
    }

    /// Bounds what a text names together.
    pub(super) fn expands(&mut self, names: usize, at: usize) -> Result<()> {
        self.trees.tell(names);
        match self.trees.told_too_many() {
            true => self.fail(at, "the text names too many values together"),
            false => Ok(()),
        }
    }

    /// The names that `pattern.*` stands for.
    pub(super) fn names_of(&mut self, pattern: &str, at: usize) -> Result<Vec<String>> {
        let Some(names) = self.trees.names(pattern) else {
            return self.fail(at, format!("no inputs that follow one another are below {}", quote(pattern)));
        };
        self.expands(names.len(), at)?;
        Ok(names)
    }

    /// The values that `params.*` stands for, if it is here.
    pub(super) fn starred(&mut self, scope: &mut Scope) -> Result<Option<Vec<ValueId>>> {
        let Some((pattern, at)) = self.star() else { return Ok(None) };
        let names = self.names_of(pattern, at)?;
        names.iter().map(|name| self.look_up(scope, name, at)).collect::<Result<_>>().map(Some)
    }

    /// `to .9` behind `name`: the names that count on from it.
    pub(super) fn names_to(&mut self, name: &str) -> Result<Vec<String>> {
        let Some((first, last)) = self.counter_to(name)? else { return Ok(Vec::new()) };
        self.expands((last - first) as usize, self.at)?;
        let base = counted(name).0;
        Ok((first + 1..=last).map(|count| format!("{base}.{count}")).collect())
    }

    /// `to .9` behind `name`: the counters of `name` and of the last name that counts on from it.
    pub(super) fn counter_to(&mut self, name: &str) -> Result<Option<(u32, u32)>> {
        self.skip();
        let start = self.at;
        if !self.eat_to() {
            return Ok(None);
        }
        let last: u32 = self.integer("a counter")?;
        let (base, first) = counted(name);
        let count = last.saturating_sub(first) as usize;
        if count == 0 || count >= MAX_RUN || base.len() > MAX_RELATIVE {
            return self.fail(start, format!("names count from {} up to at most {MAX_RUN} more", quote(name)));
        }
        Ok(Some((first, last)))
    }

    /// `to .`, before a counter. A value may be called `to`: the next line may begin with it.
    pub(super) fn eat_to(&mut self) -> bool {
        let start = self.at;
        let here = self.eat_word("to") && self.eat('.');
        if !here {
            self.at = start;
        }
        here
    }

    /// The values behind `id`, at `at`, that `to .9` stands for, if it is here.
    pub(super) fn values_to(&mut self, scope: &mut Scope, id: ValueId, at: usize) -> Result<Vec<ValueId>> {
        let name = scope.block.value(id).name.clone();
        self.names_to(&name)?.iter().map(|name| self.look_up(scope, name, at)).collect()
    }
}
