//! Traces as text. The grammar is in `docs/src/trace-text.md`; [`parse`](super::parse) reads it back.
//!
//! `words` writes names, `calls` calls, `blocks` the lines of a block and what is nested in them, `header` what is around them, `fold`
//! breaks lines.

use std::fmt;

use super::{Block, BoundSymbol, Trace, ValueId};
use calls::Style;
use words::{Names, name};

mod blocks;
mod calls;
mod fold;
mod header;
#[cfg(test)]
mod tests;
mod words;

pub(super) use words::{is_numeric, is_reserved, word_length};

/// Version of the text format; the first line of every text names it.
pub const VERSION: u32 = 2;

/// How deep nested bodies may lie.
pub const MAX_DEPTH: usize = 64;

/// Lines are folded at this many characters, at spaces between arguments.
pub const WIDTH: usize = 120;

/// What of a trace is printed. [`PrintOptions::COMPACT`] and [`PrintOptions::FULL`] parse back to the same trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrintOptions {
    /// How many layers of nested bodies are shown below the program itself.
    pub depth: usize,
    /// Whether the memory plan is shown.
    pub storage: bool,
    /// Whether it is shown who refused a symbol, and why.
    pub refusals: bool,
    /// Whether what follows from the rest is shown too: devices, arguments at their defaults, parameters of bodies, operands of regions,
    /// the storage of views; and names in full.
    pub explicit: bool,
}

impl PrintOptions {
    /// The whole trace, and nothing that follows from the rest of it.
    pub const COMPACT: PrintOptions =
        PrintOptions { depth: usize::MAX, storage: true, refusals: true, explicit: false };
    /// The whole trace, and what follows from the rest of it.
    pub const FULL: PrintOptions = PrintOptions { explicit: true, ..PrintOptions::COMPACT };
    /// The program alone: no nested bodies, memory plan or refusals.
    pub const OUTLINE: PrintOptions =
        PrintOptions { depth: 0, storage: false, refusals: false, ..PrintOptions::COMPACT };
}

impl Default for PrintOptions {
    fn default() -> PrintOptions {
        PrintOptions::COMPACT
    }
}

/// The text of a trace.
pub fn print(trace: &Trace, options: PrintOptions) -> String {
    let mut printer = Printer { out: String::new(), options, home: trace.target.device() };
    printer.trace(trace);
    printer.out
}

/// The line of a symbol, without what is nested in it: names in full, and no device if all values of the block are on it.
pub fn print_symbol(block: &Block, symbol: &BoundSymbol) -> String {
    fold::unfolded(&Style::alone(block).line(symbol))
}

/// A value with its type: `name: f32[4]`.
pub(super) fn print_typed(block: &Block, id: ValueId) -> String {
    Style::alone(block).typed(None, id)
}

/// The line that ends a trace: `return loss = loss`.
pub(super) fn print_return(trace: &Trace) -> String {
    let items: Vec<String> = (0..trace.block.results.len()).map(|i| header::output(trace, i, "")).collect();
    if items.is_empty() { "return".into() } else { format!("return {}", items.join(", ")) }
}

/// An input as the header has it.
pub(super) fn print_input(trace: &Trace, index: usize) -> String {
    header::input(trace, &Style::alone(&trace.block), index, None)
}

impl fmt::Display for Trace {
    /// The compact form, which parses back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self, PrintOptions::COMPACT))
    }
}

struct Printer {
    out: String,
    options: PrintOptions,
    /// The device of the target.
    home: crate::meta::Device,
}

impl Printer {
    /// How calls of `block` are written, with names below `scope`.
    fn style<'a>(&self, block: &'a Block, scope: &'a str) -> Style<'a> {
        let explicit = self.options.explicit;
        let names = Names { block, scope, chained: !explicit };
        Style { names, home: Some(self.home), explicit, nested: None, around: None }
    }

    /// A line of a block that is nested this deep.
    fn line(&mut self, depth: usize, text: &str) {
        fold::fold(&mut self.out, 2 * depth, fold::HANG, text);
    }
}

/// The name of a value of `block`, in full.
fn value_name(block: &Block, id: ValueId) -> String {
    block.values.get(id.index()).map_or_else(|| format!("?{}", id.0), |value| name(&value.name))
}
