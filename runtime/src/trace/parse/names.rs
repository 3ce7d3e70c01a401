//! Names of values and of executors.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::super::ValueId;
use super::messages::{MAX_HINT, hint, quote};
use super::{MAX_KINDS, Parser, Scope, Typed};
use crate::error::Result;
use crate::executor::EXECUTORS;

/// The executor's own name, or a copy that lives forever: who refused a symbol need not be linked into this program.
fn intern_executor(name: &str) -> &'static str {
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    if let Some(executor) = EXECUTORS.iter().find(|executor| executor.name == name) {
        return executor.name;
    }
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(known) = names.get(name) {
        return known;
    }
    let leaked: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(leaked);
    leaked
}

impl Parser<'_> {
    pub(super) fn define(&mut self, scope: &mut Scope, typed: Typed) -> Result<ValueId> {
        let name: Arc<str> = typed.name.into();
        if scope.block.values.len() >= u32::MAX as usize - 1 {
            return self.fail(typed.at, "too many values");
        }
        let id = scope.block.define(name.clone(), typed.meta);
        scope.block.values[id.index()].storage = typed.storage;
        if let Some((other, at)) = typed.shared {
            scope.shared.push((id, other, at));
        }
        if scope.names.insert(name.clone(), id).is_some() {
            return self.fail(typed.at, format!("{} is defined twice", quote(&name)));
        }
        Ok(id)
    }

    pub(super) fn look_up(&self, scope: &Scope, name: &str, at: usize) -> Result<ValueId> {
        match scope.names.get(name) {
            Some(id) => Ok(*id),
            None => {
                // The nearest of the latest: texts may have any number of values.
                let hint = hint(name, scope.block.values.iter().rev().take(1000).map(|value| &*value.name));
                self.fail(at, format!("no value is called {} at this line{hint}", quote(name)))
            }
        }
    }

    pub(super) fn value(&mut self, scope: &Scope) -> Result<ValueId> {
        let (name, at) = self.name("a value")?;
        self.look_up(scope, &name, at)
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
        let interned = intern_executor(&name);
        self.executors.insert(name, interned);
        Ok(interned)
    }
}
