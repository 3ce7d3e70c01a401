//! A compilation that ends early: in which stage, and at which line.

use std::fmt;

use crate::error::Error;
use crate::trace::print::print_symbol;
use crate::trace::{Block, BoundSymbol, Callee, Input, InputRole, Output, Trace, ValueId};

/// Why a compilation ended before its last stage.
#[derive(Debug, Clone)]
pub struct Ending {
    /// The stage that could not be made, or that was made and is not valid.
    pub stage: String,
    /// The line that it ended at, of the trace that the stage starts from; `None` if that is not known, or if the error
    /// says it itself.
    pub line: Option<String>,
    /// The error of the compilation.
    pub error: Error,
}

impl Ending {
    /// The stage and the line in words, without the error.
    pub fn place(&self) -> String {
        match &self.line {
            Some(line) => format!("compilation ends in stage '{}', at line '{line}'", self.stage),
            None => format!("compilation ends in stage '{}'", self.stage),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.error)
    }
}

/// The first line of `trace` that `fails` by itself. A transform that takes line after line meets the same line first,
/// and need not keep count of them for its errors.
pub(super) fn failing_line(trace: &Trace, fails: impl Fn(&Trace) -> bool) -> Option<String> {
    let block = &trace.block;
    let called = block.symbols.iter().filter(|symbol| symbol.callee != Callee::Delete);
    called.into_iter().find(|symbol| fails(&alone(trace, symbol))).map(|symbol| print_symbol(block, symbol))
}

/// A trace of one line.
fn alone(trace: &Trace, symbol: &BoundSymbol) -> Trace {
    let mut parameters: Vec<ValueId> = Vec::new();
    for id in symbol.operands() {
        if !parameters.contains(&id) {
            parameters.push(id);
        }
    }
    let input = Input { role: InputRole::Input, donated: false, strides: None };
    Trace {
        inputs: vec![input; parameters.len()],
        outputs: vec![Output { path: String::new() }; symbol.results.len()],
        arena: None,
        block: Block {
            values: trace.block.values.clone(),
            parameters,
            symbols: vec![symbol.clone()],
            results: symbol.results.to_vec(),
        }
        .canonical(),
        ..trace.clone()
    }
}
