//! What a program costs, counted from its text: lines, launches, bytes moved, arithmetic. Nothing is measured.

use fulgurite_kernels::scalar::ScalarNode;
use serde_json::{Value, json};

use crate::argument::Arg;
use crate::arithmetic::Arithmetic;
use crate::executor::{JOIN, VIEW};
use crate::meta::TensorMeta;
use crate::operator::{OperatorKind, RuleSet};
use crate::trace::memory_use::memory_use;
use crate::trace::{Block, BoundSymbol, Callee, Trace};
use crate::tracer::infer;
use crate::traffic::Traffic;

/// How many floating-point (or integer) operations a call takes.
pub type FlopsRule = &'static (dyn Fn(&[Arg<TensorMeta>]) -> u64 + Send + Sync);

/// What is asked of an operator to count its cost.
#[derive(Clone, Copy)]
pub struct CostRules {
    /// Its operations. Absent where they follow from its arithmetic or its decomposition, and where it only moves data.
    pub flops: Option<FlopsRule>,
}

impl CostRules {
    /// The operations follow from other rules.
    pub const EMPTY: CostRules = CostRules { flops: None };
}

impl RuleSet for CostRules {
    const NONE: &'static CostRules = &CostRules::EMPTY;
}

/// The cost of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Lines of the program itself, without bodies and without `del`.
    pub symbols: u64,
    /// Lines that an executor runs: claimed, and no view. A region is one. (A kernel symbol may need several launches.)
    pub launches: u64,
    /// Bytes that these lines read and write: each value once, and of a view no more than what is behind it.
    pub bytes: u64,
    /// Additions, multiplications, comparisons and function values: a product of `m × k` and `k × n` has `2 m k n`.
    pub flops: u64,
    /// The predicted peak of memory in bytes, once memory is planned.
    pub peak: Option<u64>,
}

impl Totals {
    /// The cost of a trace, of any stage.
    pub fn of(trace: &Trace) -> Totals {
        let mut totals = Totals { peak: trace.arena.map(|_| memory_use(trace).peak()), ..Totals::default() };
        let traffic = Traffic::of(&trace.block);
        for symbol in trace.block.symbols.iter().filter(|symbol| symbol.callee != Callee::Delete) {
            totals.symbols += 1;
            totals.flops = totals.flops.saturating_add(flops(&trace.block, symbol));
            if symbol.executor.is_some_and(|executor| executor != VIEW && executor != JOIN) {
                totals.launches += 1;
                totals.bytes = totals.bytes.saturating_add(traffic.bytes(symbol));
            }
        }
        totals
    }

    /// Name and number of each total, in the order in which people read them.
    pub fn rows(&self) -> [(&'static str, Option<u64>); 5] {
        [
            ("symbols", Some(self.symbols)),
            ("launches", Some(self.launches)),
            ("bytes", Some(self.bytes)),
            ("FLOPs", Some(self.flops)),
            ("peak memory", self.peak),
        ]
    }

    /// As an object with a number for each total; `peak_memory` is null where nothing is planned.
    pub fn to_json(&self) -> Value {
        json!({
            "symbols": self.symbols,
            "launches": self.launches,
            "bytes": self.bytes,
            "flops": self.flops,
            "peak_memory": self.peak,
        })
    }
}

/// The bytes that the lines of a block read and write.
pub fn bytes_of(block: &Block) -> u64 {
    let traffic = Traffic::of(block);
    block.symbols.iter().fold(0, |sum: u64, symbol| sum.saturating_add(traffic.bytes(symbol)))
}

/// As [`flops`]; `None` where a line calls a kernel whose operator has no rule for them.
pub fn known_flops(block: &Block, symbol: &BoundSymbol) -> Option<u64> {
    let known = match (symbol.operator(), symbol.body.as_deref()) {
        (Some(def), _) => !matches!(def.kind, OperatorKind::Symbol(_)) || CostRules::of(def).flops.is_some(),
        (None, Some(body)) => body.symbols.iter().all(|line| known_flops(body, line).is_some()),
        (None, None) => true,
    };
    known.then(|| flops(block, symbol))
}

/// The operations of a line: additions, multiplications, comparisons and function values. A line that its operator
/// refuses, in a trace that was not verified, has none: rules rely on what the operator asks of its arguments.
pub fn flops(block: &Block, symbol: &BoundSymbol) -> u64 {
    let whole = |body: &Block| body.symbols.iter().fold(0u64, |sum, line| sum.saturating_add(flops(body, line)));
    let Some(def) = symbol.operator() else { return symbol.body.as_deref().map_or(0, whole) };
    let arguments = block.argument_metas(symbol);
    let Ok((_, stands_for)) = infer(def, &arguments) else { return 0 };
    if let Some(rule) = CostRules::of(def).flops {
        return rule(&arguments);
    }
    if let Some(scalar) = Arithmetic::of(def).scalar {
        let steps = scalar(&arguments).0.nodes.iter().filter(|node| matches!(node, ScalarNode::Apply(..))).count();
        let elements = symbol.results.first().map_or(0, |id| block.meta(*id).len() as u64);
        return elements.saturating_mul(steps as u64);
    }
    match &symbol.body {
        Some(body) => whole(body),
        None => stands_for.map_or(0, |body| whole(&body)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::parse;
    use crate::trace::test_support::GOOD;

    #[test]
    fn lines_and_bytes_are_counted() {
        let totals = Totals::of(&parse(GOOD).unwrap());
        let trace = parse(GOOD).unwrap();
        let run: Vec<&BoundSymbol> =
            trace.block.symbols.iter().filter(|s| s.executor.is_some_and(|e| e != VIEW && e != JOIN)).collect();
        assert_eq!(totals.launches, run.len() as u64);
        assert!(totals.bytes > 0 && totals.symbols >= totals.launches, "{totals:?}");
        assert!(totals.peak.is_some());
    }
}
