//! Traces as text. The grammar is in `docs/src/trace-text.md`; [`parse`](super::parse()) reads it back.
//!
//! `words` writes names, `calls` calls, `each` and `together` lines that are alike, `blocks` the lines of a block and
//! what is nested in them, `header` what is around them, `fold` breaks lines.

use std::fmt;

use super::trees::Trees;
use super::{Block, BoundSymbol, Trace, ValueId};
use calls::Style;
use printer::Printer;

mod blocks;
mod calls;
mod each;
#[cfg(test)]
mod each_tests;
mod fold;
mod header;
mod printer;
#[cfg(test)]
mod tests;
mod together;
mod words;

pub use fold::WIDTH;
pub use printer::{MAX_DEPTH, PrintOptions, VERSION, first_line};
pub(super) use words::{MAX_RUN, is_numeric, is_reserved};

/// The text of a trace.
pub fn print(trace: &Trace, options: PrintOptions) -> String {
    let names = trace.block.parameters.iter().map_while(|id| trace.block.values.get(id.index()));
    let trees = Trees::of(names.map(|value| &value.name));
    let text = |trees: &Trees| {
        let mut printer = Printer::new(options, trace.target.device(), trees);
        printer.trace(trace);
        printer.out
    };
    let together = text(&trees);
    // What no parser takes is written name by name.
    if trees.told_too_many() { text(&Trees::apart()) } else { together }
}

/// The line of a symbol, without what is nested in it: names in full, and no device if all values of the block are on
/// it.
pub fn print_symbol(block: &Block, symbol: &BoundSymbol) -> String {
    fold::unfolded(&Style::alone(block).line(symbol))
}

/// A name where a number or a keyword is allowed: as it is if it reads as a name there, else in quotes.
pub fn print_name(name: &str) -> String {
    words::name(name)
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
