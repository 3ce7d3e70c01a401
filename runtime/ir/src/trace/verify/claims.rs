//! The executor of a line is there, runs on the target, takes the call, and is the region's; and that a planned
//! trace lacks nothing that running it needs.

use crate::kernel::KernelRules;
use crate::operator::RuleSet;
use crate::strided::LayoutRules;
use fulgurite_kernels::view::is_contiguous;

use super::super::joins::{can_join, is_free, parts, takes_any_strides, writers, writes};
use super::super::layouts::{Layout, layouts};
use super::super::{Block, BoundSymbol, Callee, StageName, ValueId};
use super::verifier::{Check, Verifier, name};
use crate::error::Result;
use crate::executor::{ExecutorDef, JOIN, VIEW, find_executor, find_implementation};
use crate::operator::{OperatorDef, OperatorKind};

impl<'t> Verifier<'t> {
    fn executor(&self, executor: &str) -> Check<&'static ExecutorDef> {
        let found = find_executor(executor).map_err(|error| error.to_string())?;
        let target = self.trace.target.kind();
        if !found.runs_on(target) && ![VIEW, JOIN].contains(&found.name) {
            return Err(format!("executor '{executor}' runs on {}, the trace is for {target}", found.device));
        }
        Ok(found)
    }

    /// Whether `executor` runs the call as it is: programs trust claims, also those of stored texts.
    fn taken(&self, block: &Block, symbol: &BoundSymbol, def: &'static OperatorDef, executor: &ExecutorDef) -> Check {
        let (target, name) = (self.trace.target.kind(), executor.name);
        if name == VIEW {
            return if LayoutRules::of(def).view.is_some() {
                Ok(())
            } else {
                Err(format!("'{}' is not a view", def.name))
            };
        }
        if name == JOIN {
            return match can_join(def) {
                true => Ok(()),
                false => Err(format!("'{}' does not join tensors", def.name)),
            };
        }
        if let OperatorKind::Symbol(owner) = def.kind {
            return match owner == name && KernelRules::of(def).runs_on(target) {
                true => Ok(()),
                false if owner != name => Err(format!("'{}' belongs to '{owner}', not to '{name}'", def.name)),
                false => Err(format!("'{}' has no kernel for {target}", def.name)),
            };
        }
        let refused = |reason: String| Err(format!("is claimed by '{name}', which does not take it: {reason}"));
        let metas = block.argument_metas(symbol);
        if let Some(implementation) = find_implementation(def.name, name) {
            if !implementation.kernel.runs_on(target) {
                return refused(format!("it has no kernel of its own for {target}"));
            }
            return implementation.accepts(&metas).or_else(refused);
        }
        match executor.claims {
            Some(claims) => claims(def, &metas).or_else(refused),
            None => refused("it has no implementation of it".into()),
        }
    }

    /// A trace with a memory plan is compiled no further: each of its lines has an executor, and each value a place.
    pub(super) fn planned(&self) -> Result<()> {
        let block = &self.trace.block;
        if !self.trace.has_been_through(StageName::PlanMemory) {
            return Ok(());
        }
        for symbol in block.symbols.iter().filter(|symbol| symbol.callee != Callee::Delete) {
            let taken = symbol.executor.is_some() || matches!(symbol.callee, Callee::Region { .. });
            let unplaced = symbol.results.iter().find(|id| block.value(**id).storage.is_none());
            let missing = match unplaced {
                _ if !taken => "no executor has taken this line".to_owned(),
                Some(id) => format!("{} has no place in memory", name(block, *id)),
                None => continue,
            };
            let message = format!("was made by '{}', but {missing}", StageName::PlanMemory);
            return Err(self.broken_by(block, symbol, message));
        }
        Ok(())
    }

    /// The operands of a line that joins are where they belong in the result, and the kernels of all lines write their
    /// results in their layouts.
    fn parts(&self, symbol: &'t BoundSymbol, layouts: &[Layout]) -> Result<()> {
        let block = &self.trace.block;
        if symbol.executor == Some(JOIN)
            && let Some(message) = joined_elsewhere(block, symbol, layouts)
        {
            return Err(self.broken_by(block, symbol, message));
        }
        if matches!(symbol.executor, Some(VIEW)) || symbol.callee == Callee::Delete {
            return Ok(());
        }
        for id in &symbol.results {
            let (shape, layout) = (block.meta(*id).shape(), &layouts[id.index()]);
            if layout.root != *id && !writes(symbol, shape, &layout.strides)? {
                let whole = name(block, layout.root);
                let message = format!("its kernel does not write {} at its place in {whole}", name(block, *id));
                return Err(self.broken_by(block, symbol, message));
            }
        }
        Ok(())
    }

    /// What is claimed as a view is one in the layouts at hand: nothing runs for it. And what a planned trace gives to
    /// a kernel has the strides that the kernel takes.
    pub(super) fn views(&self) -> Result<()> {
        let block = &self.trace.block;
        let planned = block.values.iter().any(|value| value.storage.is_some());
        if !planned && block.symbols.iter().all(|symbol| !matches!(symbol.executor, Some(VIEW | JOIN))) {
            return Ok(());
        }
        let layouts = layouts(self.trace);
        for symbol in &block.symbols {
            self.parts(symbol, &layouts)?;
            let message = if symbol.executor == Some(VIEW) {
                if symbol.results.iter().all(|id| layouts[id.index()].root != *id) {
                    continue;
                }
                "is claimed by 'view', but its operand's memory cannot be looked at in that way".to_owned()
            } else {
                let strided = |id: &ValueId| !is_contiguous(block.meta(*id).shape(), &layouts[id.index()].strides);
                let Some(operand) = symbol.operands().find(strided).filter(|_| planned) else { continue };
                if symbol.callee == Callee::Delete || takes_any_strides(symbol)? {
                    continue;
                }
                format!("its kernel takes contiguous operands, and {} is not contiguous", name(block, operand))
            };
            return Err(self.broken_by(block, symbol, message));
        }
        Ok(())
    }

    pub(super) fn claim(&self, block: &Block, symbol: &BoundSymbol, depth: usize) -> Check {
        if let Some(executor) = symbol.executor {
            let executor = self.executor(executor)?;
            // Lines of a region are run by its kernel, not each by one of its own.
            if let (0, Callee::Operator(def)) = (depth, &symbol.callee) {
                self.taken(block, symbol, def, executor)?;
            }
        }
        if let Callee::Region { executor } = symbol.callee {
            let found = self.executor(executor)?;
            let runs = if found.device == "cpu" { found.prepare_region.is_some() } else { found.plan_region.is_some() };
            if !runs {
                return Err(format!("is a region of '{executor}', which runs no regions"));
            }
            if symbol.executor.is_some_and(|claimed| claimed != executor) {
                return Err(format!("is a region of '{executor}', but claimed by another executor"));
            }
            for inner in symbol.body.iter().flat_map(|body| &body.symbols) {
                if !matches!(inner.callee, Callee::Operator(_)) {
                    return Err(format!("a region holds operators, not '{}'", inner.name()));
                }
                if let Some(other) = inner.executor.filter(|other| *other != executor) {
                    return Err(format!(
                        "is a region of '{executor}', but '{}' in it is claimed by '{other}'",
                        inner.name()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether the executor of a region computes it as its operators define, whatever the origin of the region. The
    /// body is known to be valid.
    pub(super) fn admitted(&self, symbol: &BoundSymbol, body: &Block) -> Check {
        let Callee::Region { executor } = symbol.callee else { return Ok(()) };
        match self.executor(executor)?.admits_region {
            None => Ok(()),
            Some(admits) => admits(body).map_err(|reason| format!("'{executor}' does not run this region: {reason}")),
        }
    }
}

/// Why the operands of a line that joins are not where they belong in its result, which may itself be a part of a
/// larger one; `None` if they are.
fn joined_elsewhere(block: &Block, symbol: &BoundSymbol, layouts: &[Layout]) -> Option<String> {
    let twice = symbol.operands().enumerate().find(|(at, id)| symbol.operands().take(*at).any(|other| other == *id));
    if let Some((_, id)) = twice {
        return Some(format!("is claimed by 'join', and reads {} twice", name(block, id)));
    }
    let elsewhere =
        |id: ValueId| Some(format!("is claimed by 'join', but {} cannot be written in its result", name(block, id)));
    let whole = symbol.results.first().map(|id| &layouts[id.index()])?;
    let writers = writers(block);
    let Some(parts) = parts(block, symbol, &writers) else { return elsewhere(symbol.operands().next()?) };
    if let Some((part, _)) = parts.iter().find(|(part, _)| !is_free(block, *part, &writers)) {
        return elsewhere(*part);
    }
    let lies = |(part, laid): &(ValueId, Layout)| {
        let own = &layouts[part.index()];
        (own.root, own.offset, &own.strides) == (whole.root, whole.offset + laid.offset, &laid.strides)
    };
    // A value of which two lines would have a part is where the last of them has it.
    let written = |(at, part): (usize, &(ValueId, Layout))| parts[..at].iter().any(|(own, _)| own == &part.0);
    let wrong = parts.iter().enumerate().find(|(at, part)| !lies(part) || written((*at, part)));
    wrong.and_then(|(_, (part, _))| elsewhere(*part))
}
