//! One device: a program runs on the device of its target, and nothing in it copies between devices.

use rustc_hash::FxHashSet;

use super::super::print::print_input;
use super::super::{Block, BoundSymbol, Trace, ValueId};
use super::verifier::Verifier;
use crate::error::{Error, Failure, Result};
use crate::meta::Device;

/// A value that is not where the program runs.
pub struct Elsewhere<'a> {
    trace: &'a Trace,
    block: &'a Block,
    /// The line that gives it, or the number of the input.
    from: Result<&'a BoundSymbol, usize>,
    value: ValueId,
    expected: Device,
}

impl Elsewhere<'_> {
    fn message(&self) -> String {
        let (value, expected) = (self.block.value(self.value), self.expected);
        let what = if self.from.is_ok() { "create" } else { "pass" };
        format!(
            "'{}' is on {}, the program runs on {expected}; nothing in a program copies between devices, so {what} it on \
             {expected}",
            value.name,
            value.meta.device()
        )
    }

    /// As an error of the author's call or argument.
    pub fn error(&self) -> Error {
        match self.from {
            Ok(symbol) => symbol.failed(self.block, Failure::new("Device", self.message())),
            Err(_) => {
                Error::Argument { argument: self.block.value(self.value).name.to_string(), message: self.message() }
            }
        }
    }
}

/// Checks that all values of a trace and of its bodies are on one device of the target's kind.
pub fn one_device(trace: &Trace) -> Result<(), Elsewhere<'_>> {
    let kind = trace.target.kind();
    let ours = trace.block.values.iter().map(|value| value.meta.device()).find(|device| device.kind() == kind);
    let expected = if kind == "cpu" { Device::CPU } else { ours.unwrap_or_else(|| trace.target.device()) };
    let elsewhere =
        |block: &Block, id: &ValueId| block.values.get(id.index()).is_some_and(|value| value.meta.device() != expected);
    let block = &trace.block;
    if let Some(i) = block.parameters.iter().position(|id| elsewhere(block, id)) {
        return Err(Elsewhere { trace, block, from: Err(i), value: block.parameters[i], expected });
    }
    let mut seen: FxHashSet<*const Block> = FxHashSet::default();
    let mut blocks: Vec<&Block> = vec![block];
    while let Some(block) = blocks.pop() {
        for symbol in &block.symbols {
            if let Some(value) = symbol.results.iter().find(|id| elsewhere(block, id)) {
                return Err(Elsewhere { trace, block, from: Ok(symbol), value: *value, expected });
            }
            blocks.extend(symbol.body.as_deref().filter(|body| seen.insert(std::ptr::from_ref(*body))));
        }
    }
    Ok(())
}

impl Verifier<'_> {
    pub(super) fn devices(&self) -> Result<()> {
        one_device(self.trace).map_err(|elsewhere| match elsewhere.from {
            Ok(symbol) => self.broken_by(elsewhere.block, symbol, elsewhere.message()),
            Err(input) => self.broken(print_input(elsewhere.trace, input), None, elsewhere.message()),
        })
    }
}
