//! Who runs a line: the executor is there, runs on the target, and is the region's.

use super::super::{BoundSymbol, Callee};
use super::{Check, Verifier};
use crate::executor::find_executor;

impl Verifier<'_> {
    fn executor(&self, executor: &str) -> Check {
        let found = find_executor(executor).map_err(|error| error.to_string())?;
        let target = self.trace.target.kind();
        if found.device != target && found.device != "any" {
            return Err(format!("executor '{executor}' runs on {}, the trace is for {target}", found.device));
        }
        Ok(())
    }

    pub(super) fn claim(&self, symbol: &BoundSymbol) -> Check {
        if let Some(executor) = symbol.executor {
            self.executor(executor)?;
        }
        if let Callee::Region { executor } = symbol.callee {
            self.executor(executor)?;
            if symbol.executor.is_some_and(|claimed| claimed != executor) {
                return Err(format!("is a region of '{executor}', but claimed by another executor"));
            }
            for inner in symbol.body.iter().flat_map(|body| &body.symbols) {
                if matches!(inner.callee, Callee::Region { .. } | Callee::ValueAndGrad { .. }) {
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
}
