//! Traces as text. The grammar is in `docs/src/trace-text.md`; [`parse`](super::parse) reads it back.

use std::fmt::{self, Write};

use super::{Block, BoundSymbol, Callee, Input, InputRole, Storage, Trace, Value, ValueId};
use crate::argument::Arg;
use crate::operator::ParamKind;
use crate::transforms::donate::{Donation, donations};
use crate::transforms::plan::memory_use;

/// Version of the text format; the first line of every text names it.
pub const VERSION: u32 = 1;

/// How deep nested bodies may lie.
pub const MAX_DEPTH: usize = 64;

/// Words that no name may be without quotes.
const RESERVED: [&str; 10] = ["by", "del", "false", "inf", "nan", "none", "refused", "return", "true", "yield"];

/// Lists of parameters and results up to this length stand on one line; longer ones take one line for each item.
const INLINE: usize = 3;

/// What of a trace is printed. Only [`PrintOptions::FULL`] parses back to the same trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrintOptions {
    /// How many layers of nested bodies are shown below the program itself.
    pub depth: usize,
    /// Whether the memory plan is shown.
    pub storage: bool,
    /// Whether it is shown who refused a symbol, and why.
    pub refusals: bool,
}

impl PrintOptions {
    /// Everything.
    pub const FULL: PrintOptions = PrintOptions { depth: usize::MAX, storage: true, refusals: true };
    /// The program alone: no nested bodies, memory plan or refusals.
    pub const OUTLINE: PrintOptions = PrintOptions { depth: 0, storage: false, refusals: false };
}

impl Default for PrintOptions {
    fn default() -> PrintOptions {
        PrintOptions::FULL
    }
}

/// The text of a trace.
pub fn print(trace: &Trace, options: PrintOptions) -> String {
    let mut printer = Printer { out: String::new(), options };
    printer.trace(trace);
    printer.out
}

/// The line of a symbol, without what is nested in it.
pub fn print_symbol(block: &Block, symbol: &BoundSymbol) -> String {
    let mut printer = Printer { out: String::new(), options: PrintOptions::FULL };
    printer.head(block, symbol);
    printer.out
}

/// A value with its type and place: `name: f32[4] at arena+64`.
pub(super) fn print_typed(block: &Block, id: ValueId) -> String {
    Printer { out: String::new(), options: PrintOptions::FULL }.typed(block, id)
}

/// The line that ends a trace: `return loss = loss`.
pub(super) fn print_return(trace: &Trace) -> String {
    let items: Vec<String> = (0..trace.block.results.len()).map(|i| output(trace, i)).collect();
    if items.is_empty() { "return".into() } else { format!("return {}", items.join(", ")) }
}

/// An input as the header has it.
pub(super) fn print_input(trace: &Trace, index: usize) -> String {
    Printer { out: String::new(), options: PrintOptions::FULL }.input(trace, index)
}

impl fmt::Display for Trace {
    /// The full form, which parses back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self, PrintOptions::FULL))
    }
}

/// The bytes of `text` that are one word: letters, digits, `_`, `.`, `-` and `::`, not beginning with `.`, `-` or `:`.
pub(super) fn word_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let plain = |i: usize| bytes.get(i).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let mut end = 0;
    while end < bytes.len() {
        if plain(end) || (end > 0 && matches!(bytes[end], b'.' | b'-')) {
            end += 1;
        } else if end > 0 && bytes[end..].starts_with(b"::") && plain(end + 2) {
            end += 2;
        } else {
            break;
        }
    }
    end
}

/// Whether a word reads as a number.
pub(super) fn is_numeric(word: &str) -> bool {
    word.as_bytes().first().is_some_and(u8::is_ascii_digit) && word.parse::<f64>().is_ok()
}

/// Whether a word is a keyword or a literal, so that a name that equals it is quoted.
pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && word_length(text) == text.len()
}

/// A name that stands where a number or a keyword could: bare if possible, else quoted.
fn name(text: &str) -> String {
    if is_word(text) && !is_numeric(text) && !is_reserved(text) { text.into() } else { format!("{text:?}") }
}

/// A name that stands where nothing but a name can.
fn label(text: &str) -> String {
    if is_word(text) { text.into() } else { format!("{text:?}") }
}

fn operator_name(text: &str) -> String {
    if matches!(text, "region" | "value_and_grad") { format!("{text:?}") } else { name(text) }
}

fn value_name(block: &Block, id: ValueId) -> String {
    // A number past the end has no name; the verifier says so, and its message needs a line.
    block.values.get(id.index()).map_or_else(|| format!("?{}", id.0), |value| name(&value.name))
}

fn argument(block: &Block, argument: &Arg<ValueId>) -> String {
    match argument {
        Arg::Tensor(id) | Arg::Optional(Some(id)) => value_name(block, *id),
        Arg::Optional(None) => "none".into(),
        Arg::List(ids) => {
            let names: Vec<String> = ids.iter().map(|id| value_name(block, *id)).collect();
            format!("[{}]", names.join(", "))
        }
        Arg::Attribute(attribute) => attribute.to_string(),
    }
}

fn arguments(block: &Block, symbol: &BoundSymbol) -> Vec<String> {
    let mut positional = true;
    let mut texts: Vec<String> = Vec::with_capacity(symbol.arguments.len() + 1);
    for (i, arg) in symbol.arguments.iter().enumerate() {
        let text = argument(block, arg);
        match symbol.operator().and_then(|def| def.params.get(i)) {
            Some(param) => {
                positional &= matches!(param.kind, ParamKind::Tensor(_) | ParamKind::List(_) | ParamKind::Operand(_));
                texts.push(if positional { text } else { format!("{}={text}", param.name) });
            }
            None => texts.push(text),
        }
    }
    match &symbol.callee {
        Callee::ValueAndGrad { wrt } => texts.push(format!("wrt={wrt:?}")),
        Callee::Region { executor } => texts.push(format!("executor={}", label(executor))),
        Callee::Operator(_) | Callee::Delete => {}
    }
    texts
}

fn output(trace: &Trace, index: usize) -> String {
    let value = trace.block.results.get(index).map_or_else(String::new, |id| value_name(&trace.block, *id));
    match trace.outputs.get(index) {
        Some(output) if !output.path.is_empty() => format!("{} = {value}", label(&output.path)),
        _ => value,
    }
}

struct Printer {
    out: String,
    options: PrintOptions,
}

impl Printer {
    fn push(&mut self, text: impl fmt::Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.out, "{text}");
    }

    fn indent(&mut self, depth: usize) {
        for _ in 0..depth {
            self.out.push_str("  ");
        }
    }

    /// `name: f32[4] at arena+64`.
    fn typed(&self, block: &Block, id: ValueId) -> String {
        let Some(Value { name: text, meta, storage }) = block.values.get(id.index()) else {
            return value_name(block, id);
        };
        let mut text = format!("{}: {meta}", name(text));
        if self.options.storage {
            match storage {
                None => {}
                Some(Storage::Arena(offset)) => text += &format!(" at arena+{offset}"),
                Some(Storage::Output) => text += " at output",
                Some(Storage::Shared(id)) => text += &format!(" in {}", value_name(block, *id)),
            }
        }
        text
    }

    fn input(&self, trace: &Trace, index: usize) -> String {
        let mut text = match trace.block.parameters.get(index) {
            Some(id) => self.typed(&trace.block, *id),
            None => "?".into(),
        };
        let Some(Input { role, donated, strides }) = trace.inputs.get(index) else { return text };
        text += match role {
            InputRole::Input => "",
            InputRole::Parameter => " parameter",
            InputRole::Saved => " saved",
            InputRole::Cotangent => " cotangent",
        };
        if *donated {
            text += " donated";
        }
        if let Some(strides) = strides {
            text += &format!(" strides {strides:?}");
        }
        text
    }

    /// Items between parentheses: on one line if they are few, else each on its own.
    fn list(&mut self, depth: usize, items: &[String]) {
        if items.len() <= INLINE {
            self.push(format_args!("({})", items.join(", ")));
            return;
        }
        self.push("(\n");
        for item in items {
            self.indent(depth + 1);
            self.push(item);
            self.push(",\n");
        }
        self.indent(depth);
        self.push(")");
    }

    fn trace(&mut self, trace: &Trace) {
        self.push(format_args!("# fulgurite trace {VERSION}\n"));
        if !trace.history.is_empty() {
            let history: Vec<String> = trace.history.iter().map(|transform| label(transform)).collect();
            self.push(format_args!("# made by {}\n", history.join(", ")));
        }
        if trace.arena.is_some() && self.options.storage {
            let memory = memory_use(trace);
            self.push(format_args!(
                "# memory: {} resident ({} in inputs, {} in outputs) + {} transient = {} bytes\n",
                memory.inputs.saturating_add(memory.outputs),
                memory.inputs,
                memory.outputs,
                memory.transient,
                memory.peak()
            ));
            for Donation { input, outcome } in donations(trace) {
                if let Err(reason) = outcome {
                    let line = format!("# '{input}' is donated and not updated in place: {reason}");
                    // Names may hold anything; a comment is one line.
                    self.push(&*line.replace(char::is_control, " "));
                    self.push("\n");
                }
            }
        }
        self.push(format_args!("trace {} for {} ", label(&trace.name), trace.target));
        let inputs: Vec<String> = (0..trace.block.parameters.len()).map(|i| self.input(trace, i)).collect();
        self.list(0, &inputs);
        if let (Some(arena), true) = (trace.arena, self.options.storage) {
            self.push(format_args!(" arena {arena}"));
        }
        self.push(" {\n");
        self.symbols(&trace.block, 1);
        let outputs: Vec<String> = (0..trace.block.results.len()).map(|i| output(trace, i)).collect();
        self.end("return", 1, &outputs);
        self.push("}\n");
    }

    fn end(&mut self, keyword: &str, depth: usize, items: &[String]) {
        self.indent(depth);
        self.push(keyword);
        if items.len() > INLINE {
            self.push(" ");
            self.list(depth, items);
        } else if !items.is_empty() {
            self.push(" ");
            self.push(items.join(", "));
        }
        self.push("\n");
    }

    fn symbols(&mut self, block: &Block, depth: usize) {
        for symbol in &block.symbols {
            self.indent(depth);
            self.head(block, symbol);
            let body = symbol.body.as_deref().filter(|_| depth <= self.options.depth);
            self.push(if body.is_some() { " {\n" } else { "\n" });
            if self.options.refusals {
                for refusal in &symbol.refusals {
                    self.indent(depth + 1);
                    self.push(format_args!("refused by {}: {:?}\n", label(refusal.executor), refusal.reason));
                }
            }
            if let Some(body) = body {
                self.indent(depth + 1);
                let parameters: Vec<String> = body.parameters.iter().map(|id| self.typed(body, *id)).collect();
                self.list(depth + 1, &parameters);
                self.push("\n");
                self.symbols(body, depth + 1);
                let results: Vec<String> = body.results.iter().map(|id| value_name(body, *id)).collect();
                self.end("yield", depth + 1, &results);
                self.indent(depth);
                self.push("}\n");
            }
        }
    }

    fn head(&mut self, block: &Block, symbol: &BoundSymbol) {
        for (i, id) in symbol.results.iter().enumerate() {
            let typed = self.typed(block, *id);
            self.push(if i == 0 { "" } else { ", " });
            self.push(typed);
        }
        if !symbol.results.is_empty() {
            self.push(" = ");
        }
        let arguments = arguments(block, symbol).join(", ");
        match &symbol.callee {
            Callee::Operator(def) => self.push(format_args!("{}({arguments})", operator_name(def.name))),
            Callee::Delete => self.push(format_args!("del {arguments}")),
            Callee::ValueAndGrad { .. } | Callee::Region { .. } => {
                self.push(format_args!("{}({arguments})", symbol.name()));
            }
        }
        if let Some(executor) = symbol.executor {
            self.push(format_args!(" by {}", label(executor)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::parse;
    use crate::trace::test_support::GOOD;

    #[test]
    fn options_leave_out_what_they_say() {
        let trace = parse(GOOD).unwrap();
        assert_eq!(trace.to_string(), GOOD);
        let outline = print(&trace, PrintOptions::OUTLINE);
        assert!(!outline.contains("yield") && !outline.contains("refused") && !outline.contains("arena"), "{outline}");
        assert!(outline.contains("norm: f32[8] = tt::norm(values, weight=x, eps=1e-5)\n  h.0:"), "{outline}");
        let one = print(&trace, PrintOptions { depth: 1, ..PrintOptions::FULL });
        assert!(one.contains("identity: f32[8] = tt::identity(exp)\n    add:"), "{one}");
    }

    #[test]
    fn names_are_quoted_where_they_would_read_as_something_else() {
        for bare in ["x", "h.0.ln_1", "0.weight", "t0.2.1", "layer-1", "a::b", "infinity", "1e", "x.", "region"] {
            assert_eq!(name(bare), bare);
        }
        for quoted in ["", "0", "1.5", "1e-5", "nan", "none", "by", "a b", ".x", "-x", "x:", "é", "a:b", "\"", "\n"] {
            assert_eq!(name(quoted), format!("{quoted:?}"));
        }
    }

    #[test]
    fn broken_traces_print_too() {
        let mut trace = parse(GOOD).unwrap();
        trace.block.results.push(ValueId(u32::MAX));
        trace.block.parameters.push(ValueId(99_999));
        trace.block.symbols[3].arguments.push(Arg::Attribute(crate::argument::Attribute::None));
        trace.block.values.truncate(3);
        trace.outputs.clear();
        trace.inputs.clear();
        assert!(trace.to_string().contains("return (\n"));
        let _ = trace.block.clone().canonical();
        assert!(print_symbol(&trace.block, &trace.block.symbols[0]).contains("= tt::exp("));
    }
}
