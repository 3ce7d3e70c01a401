//! What is written, how much of it, and its lines.

use super::super::trees::Trees;
use super::super::{Block, ValueId};
use super::calls::Style;
use super::fold;
use super::words::{Names, name};
use crate::meta::Device;

/// Version of the text format; the first line of every text names it.
pub const VERSION: u32 = 2;

/// Deepest nesting of bodies.
pub const MAX_DEPTH: usize = 64;

/// What of a trace is printed. [`PrintOptions::COMPACT`] and [`PrintOptions::FULL`] parse back to the same trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrintOptions {
    /// How many layers of nested bodies are shown below the program itself.
    pub depth: usize,
    /// Whether the memory plan is shown.
    pub storage: bool,
    /// Whether refusals of a symbol are shown, with their reasons.
    pub refusals: bool,
    /// Whether what follows from the rest is shown too: devices, arguments at their defaults, parameters of bodies,
    /// operands of regions, the storage of views; and names in full.
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

/// A text that is being written.
pub(super) struct Printer<'t> {
    pub(super) out: String,
    pub(super) options: PrintOptions,
    /// The device of the target.
    home: Device,
    /// The inputs.
    pub(super) trees: &'t Trees,
}

impl<'t> Printer<'t> {
    /// An empty text, of a trace for the device `home`.
    pub(super) fn new(options: PrintOptions, home: Device, trees: &'t Trees) -> Printer<'t> {
        Printer { out: String::new(), options, home, trees }
    }

    /// How calls of `block` are written, with names below `scope`.
    pub(super) fn style<'a>(&self, block: &'a Block, scope: &'a str) -> Style<'a>
    where
        't: 'a,
    {
        let explicit = self.options.explicit;
        let names = Names { block, scope, trees: (!explicit).then_some(self.trees) };
        Style { names, home: Some(self.home), explicit, nested: None, around: None, each: None }
    }

    /// A line of a block that is nested this deep.
    pub(super) fn line(&mut self, depth: usize, text: &str) {
        fold::fold(&mut self.out, 2 * depth, fold::HANG, text);
    }
}

/// The name of a value of `block`, in full.
pub(super) fn value_name(block: &Block, id: ValueId) -> String {
    block.values.get(id.index()).map_or_else(|| format!("?{}", id.0), |value| name(&value.name))
}

/// The first line of a text, which names the version.
pub fn first_line() -> String {
    format!("# fulgurite trace {VERSION}")
}
