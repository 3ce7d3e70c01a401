//! Views inside the line that reads them.

use super::super::nested::{DEEPEST, is_view, name_of};
use super::super::{BoundSymbol, Callee, Results, ValueId};
use super::messages::{MAX_HINT, quote};
use super::{Parser, Scope, Typed};
use crate::argument::map_arguments;
use crate::error::Result;
use crate::executor::VIEW;
use crate::operator::{OperatorDef, ParamDef};
use crate::registry::find_operator;
use crate::tracer::{InferError, infer};

impl Parser<'_> {
    /// Reads an argument of a call whose first result is `reader`; calls in it are called after both.
    pub(super) fn argument_of<T>(
        &mut self,
        reader: Option<&str>,
        param: &ParamDef,
        item: Option<usize>,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let name = reader.map(|reader| name_of(reader, param.name, item));
        let outside = std::mem::replace(&mut self.argument, name);
        let result = read(self);
        self.argument = outside;
        result
    }

    /// `view f(x)` in a region: a call of the program around it. In `view to .3` a value is called `view`, and in
    /// `del view`, which calls nothing.
    pub(super) fn at_view(&mut self) -> bool {
        let start = self.at;
        let here = self.region.is_some()
            && self.argument.is_some()
            && self.eat_word("view")
            && !self.eat_to()
            && matches!(self.peek(), Some(c) if matches!(c, '"' | '_' | ':') || c.is_ascii_alphanumeric());
        if !here {
            self.at = start;
        }
        here
    }

    /// A call of the block around the region whose body is read, after `view`.
    pub(super) fn view_around(&mut self, scope: &mut Scope) -> Result<ValueId> {
        let (name, at) = self.operator()?;
        let Some(mut around) = scope.around.take() else {
            return self.fail(at, "'view' is for the lines of a region in a program");
        };
        let outside = (self.region.take(), self.views.replace(VIEW));
        let pass = std::mem::replace(&mut self.pass, self.outer_pass);
        let view = self.nested(&mut around, &name, at);
        self.pass = pass;
        (self.region, self.views) = outside;
        let view = view.map(|id| around.block.value(id).name.clone());
        scope.around = Some(around);
        self.find(scope, &view?, at)
    }

    /// A call inside a line, after its name.
    pub(super) fn nested(&mut self, scope: &mut Scope, operator: &str, at: usize) -> Result<ValueId> {
        let (Some(name), Some(executor)) = (self.argument.clone(), self.views) else {
            return self.fail(at, "calls are inside lines of programs and regions that have results, and there alone");
        };
        if self.inside >= DEEPEST {
            return self.fail(at, format!("calls inside lines nest deeper than {DEEPEST}"));
        }
        let found = if operator.len() > MAX_HINT { None } else { Some(find_operator(operator)) };
        let def: &'static OperatorDef = match found {
            Some(Ok(def)) if is_view(def) => def,
            Some(Ok(_)) => return self.fail(at, format!("{operator} is no view: it takes a line of its own")),
            Some(Err(error)) => return self.fail(at, error.to_string()),
            None => return self.fail(at, format!("no operator is called {}", quote(operator))),
        };
        self.inside += 1;
        let arguments = self.call(scope, def, at, Some(&name));
        self.inside -= 1;
        let arguments = arguments?;
        let metas = map_arguments(&arguments, |id| scope.block.meta(*id).clone());
        let meta = match infer(def, &metas).map(|(metas, _)| metas) {
            Ok(metas) if metas.len() == 1 => metas[0].clone(),
            Ok(_) => return self.fail(at, format!("{operator} gives no one tensor: it takes a line of its own")),
            Err(InferError::Failure(failure)) => return self.fail(at, format!("{operator}: {}", failure.message)),
            Err(InferError::Inner(error)) => return self.fail(at, format!("{operator}: {error}")),
        };
        let id = self.define(scope, Typed { name: name.to_string(), at, meta })?;
        scope.block.symbols.push(BoundSymbol {
            callee: Callee::Operator(def),
            arguments,
            results: std::iter::once(id).collect::<Results>(),
            body: None,
            pass: self.pass,
            executor: Some(executor),
            schedule: Default::default(),
            refusals: Vec::new(),
            place: None,
        });
        if self.region.is_none() {
            self.ending.push(id);
        }
        Ok(id)
    }
}
