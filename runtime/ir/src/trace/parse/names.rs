//! Names of values and of executors.

use std::sync::Arc;

use super::super::ValueId;
use super::super::implied::scope_of;
use super::marks::{Naming, name_at};
use super::messages::{MAX_HINT, hint, quote};
use super::{MAX_KINDS, Parser, Scope, Typed};
use crate::argument::Arg;
use crate::error::Result;
use crate::executor::interned_name;

impl Parser<'_> {
    /// A value that the text defines at `typed.at`.
    pub(super) fn define(&mut self, scope: &mut Scope, typed: Typed) -> Result<ValueId> {
        let at = typed.at;
        let id = self.enter(scope, typed)?;
        if let Some(marks) = &mut self.marks {
            let value = scope.block.value(id);
            marks.define(scope.number, &value.name, &value.meta, name_at(self.text, at));
        }
        Ok(id)
    }

    /// A value that has no name of its own in the text.
    pub(super) fn enter(&mut self, scope: &mut Scope, typed: Typed) -> Result<ValueId> {
        let name: Arc<str> = typed.name.into();
        if scope.block.values.len() >= u32::MAX as usize - 1 {
            return self.fail(typed.at, "too many values");
        }
        let id = scope.block.define(name.clone(), typed.meta);
        if scope.names.insert(name.clone(), id).is_some() {
            return self.fail(typed.at, format!("{} is defined twice", quote(&name)));
        }
        Ok(id)
    }

    /// The value that `name` names: one of the block, or, in the body of a region that reads them by their names, of
    /// the block around, which then is a parameter of the body.
    pub(super) fn look_up(&mut self, scope: &mut Scope, name: &str, at: usize) -> Result<ValueId> {
        let id = self.find(scope, name, at)?;
        self.mark(scope, name, at, self.naming);
        Ok(id)
    }

    /// The text names a value at `at`.
    pub(super) fn mark(&mut self, scope: &Scope, name: &str, at: usize, naming: Naming) {
        if let Some(marks) = &mut self.marks {
            marks.name(scope.number, name, name_at(self.text, at), naming);
        }
    }

    /// As [`Parser::look_up`], of a value whose name is not in the text.
    pub(super) fn find(&mut self, scope: &mut Scope, name: &str, at: usize) -> Result<ValueId> {
        if let Some(id) = scope.names.get(name) {
            return Ok(*id);
        }
        if let Some(around) = &scope.around
            && let Some((name, outer)) = around.names.get_key_value(name)
        {
            let (name, outer, meta) = (name.clone(), *outer, around.block.meta(*outer).clone());
            let id = scope.block.define(name.clone(), meta);
            scope.block.parameters.push(id);
            if let Some(marks) = &mut self.marks {
                marks.same(scope.number, around.number, &name);
            }
            scope.names.insert(name, id);
            scope.read.push(outer);
            return Ok(id);
        }
        self.unknown(scope, name, at)
    }

    fn unknown<T>(&self, scope: &Scope, name: &str, at: usize) -> Result<T> {
        // The nearest of the latest: texts may have any number of values.
        let latest = |scope: &Scope| {
            let values = scope.block.values.iter().rev().take(1000);
            values.map(|value| value.name.clone()).collect::<Vec<Arc<str>>>()
        };
        let mut known = latest(scope);
        known.extend(scope.around.iter().flat_map(|around| latest(around)));
        let hint = hint(name, known.iter().map(|name| &**name));
        self.fail(at, format!("no value is called {} at this line{hint}", quote(name)))
    }

    /// A value of the block itself.
    pub(super) fn own(&mut self, scope: &Scope, name: &str, at: usize) -> Result<ValueId> {
        let id = scope.names.get(name).copied().map_or_else(|| self.unknown(scope, name, at), Ok)?;
        self.mark(scope, name, at, Naming::Mention);
        Ok(id)
    }

    /// A value by its name, or a view in place of one.
    pub(super) fn value(&mut self, scope: &mut Scope) -> Result<ValueId> {
        if self.at_view() {
            return self.view_around(scope);
        }
        if self.peek() == Some(':') {
            let (operator, at) = self.operator()?;
            return self.nested(scope, &operator, at);
        }
        let start = self.at;
        let (name, at) = self.name("a value")?;
        if self.peek() != Some('(') {
            let name = self.counted_for_each(name)?;
            return self.look_up(scope, &name, at);
        }
        self.at = start;
        let (operator, at) = self.operator()?;
        self.nested(scope, &operator, at)
    }

    /// The values of a list, after its `[`; `item` reads one, of the place that it is told.
    pub(super) fn values(
        &mut self,
        scope: &mut Scope,
        mut item: impl FnMut(&mut Self, &mut Scope, usize) -> Result<ValueId>,
    ) -> Result<Vec<ValueId>> {
        let outside = self.scope.clone();
        let (mut previous, mut values) = (None, Vec::new());
        self.list(']', |p| {
            if let Some(several) = p.starred(scope)? {
                values.extend(several);
                previous = values.last().copied();
                return Ok(());
            }
            p.follow_value(scope, previous, &outside);
            p.skip();
            let at = p.at;
            let defined = scope.block.symbols.len();
            let around = scope.around.as_ref().map_or(0, |around| around.block.symbols.len());
            let id = item(p, scope, values.len())?;
            values.push(id);
            // A view in place of a value has no name in the text that the next could follow.
            let named = defined == scope.block.symbols.len()
                && around == scope.around.as_ref().map_or(0, |around| around.block.symbols.len());
            if named {
                values.extend(p.values_to(scope, id, at)?);
            }
            previous = values.last().copied().filter(|_| named);
            Ok(())
        })?;
        self.scope = outside;
        Ok(values)
    }

    /// A name that begins with a dot is below the scope of the value before it in its list, or else below `outside`.
    pub(super) fn follow_value(&mut self, scope: &Scope, previous: Option<ValueId>, outside: &Arc<str>) {
        let name = previous.map(|id| scope.block.value(id).name.clone());
        self.follow_name(name.as_deref(), outside);
    }

    /// As [`Parser::follow_value`], after an argument.
    pub(super) fn follow(&mut self, scope: &Scope, previous: Option<&Arg<ValueId>>, outside: &Arc<str>) {
        let previous = if let Some(Arg::Tensor(id)) = previous { Some(*id) } else { None };
        self.follow_value(scope, previous, outside);
    }

    /// As [`Parser::follow_value`], after a name.
    pub(super) fn follow_name(&mut self, previous: Option<&str>, outside: &Arc<str>) {
        let below = previous.map_or("", scope_of);
        self.scope = if below.is_empty() { outside.clone() } else { below.into() };
    }

    pub(super) fn executor(&mut self) -> Result<&'static str> {
        self.skip();
        let at = self.at;
        let name = self.label("the name of an executor")?;
        if let Some(known) = self.executors.get(&name) {
            return Ok(known);
        }
        if name.len() > MAX_HINT || self.executors.len() >= MAX_KINDS {
            return self.fail(at, format!("{} is one executor too many, or too long a name", quote(&name)));
        }
        let interned = interned_name(&name);
        self.executors.insert(name, interned);
        Ok(interned)
    }
}
