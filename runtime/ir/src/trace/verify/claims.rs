//! The executor of a line is there, runs on the target, takes the call, and is the region's; and that a planned
//! trace lacks nothing that running it needs.

use crate::kernel::KernelRules;
use crate::operator::RuleSet;
use crate::strided::LayoutRules;

use super::super::layouts::layouts;
use super::super::{Block, BoundSymbol, Callee, StageName};
use super::places::can_join;
use super::verifier::{Check, Verifier, name};
use crate::error::Result;
use crate::executor::{ExecutorDef, JOIN, VIEW, find_executor, find_implementation};
use crate::meta::Device;
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
        if let OperatorKind::Symbol(owners) = def.kind {
            let is_own = owners.contains(&name);
            return match is_own && KernelRules::of(def).runs_on(target) {
                true => Ok(()),
                false if !is_own => {
                    Err(format!("'{}' belongs to '{}', not to '{name}'", def.name, owners.join("' and '")))
                }
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

    /// What is claimed as a view or as a join is one in the layouts that a program of the trace has, and a planned
    /// trace gives to each kernel the strides that it takes.
    pub(super) fn views(&self) -> Result<()> {
        let block = &self.trace.block;
        let planned = block.values.iter().any(|value| value.storage.is_some());
        if !planned && block.symbols.iter().all(|symbol| !matches!(symbol.executor, Some(VIEW | JOIN))) {
            return Ok(());
        }
        let layouts = layouts(self.trace);
        self.places(&layouts)?;
        if planned { self.operand_strides(&layouts) } else { Ok(()) }
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
            let runs = match Device::is_host(found.device) {
                true => found.prepare_region.is_some(),
                false => found.plan_region.is_some(),
            };
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
