//! What is around the lines of a trace: version, history, inputs, outputs.

use super::super::implied::{self, Storages, scope_of};
use super::super::nested::Nested;
use super::super::{Input, InputRole, Trace, ValueId};
use super::calls::Style;
use super::fold::{HANG, WIDTH, fold};
use super::printer::{Printer, VERSION, value_name};
use super::words::{below, label};
use crate::executor::VIEW;
use crate::transforms::donate::{Donation, donations};
use crate::transforms::plan::memory_use;

/// Input `index`, after the input `previous`.
pub(super) fn input(trace: &Trace, style: &Style<'_>, index: usize, previous: Option<ValueId>) -> String {
    let mut text = match trace.block.parameters.get(index) {
        Some(id) => style.typed(previous, *id),
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

/// Output `index`, its path below `scope`.
pub(super) fn output(trace: &Trace, index: usize, scope: &str) -> String {
    let value = trace.block.results.get(index).map_or_else(String::new, |id| value_name(&trace.block, *id));
    match trace.outputs.get(index) {
        Some(output) if !output.path.is_empty() => match below(&output.path, scope) {
            Some(rest) => format!(".{rest} = {value}"),
            None => format!("{} = {value}", label(&output.path)),
        },
        _ => value,
    }
}

/// Items of a list, those of one scope on one line.
fn by_scope(items: Vec<String>, name: impl Fn(usize) -> String) -> Vec<Vec<String>> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut last = String::new();
    for (i, item) in items.into_iter().enumerate() {
        let scope = scope_of(&name(i)).to_owned();
        match lines.last_mut() {
            Some(line) if !scope.is_empty() && scope == last => line.push(item),
            _ => lines.push(vec![item]),
        }
        last = scope;
    }
    lines
}

impl Printer {
    pub(super) fn trace(&mut self, trace: &Trace) {
        let style = self.style(&trace.block, "");
        self.out += &format!("# fulgurite trace {VERSION}\n");
        if !trace.history.is_empty() {
            let history: Vec<String> = trace.history.iter().map(|transform| label(transform)).collect();
            self.out += &format!("# made by {}\n", history.join(", "));
        }
        self.predictions(trace);
        let name = |i: usize| {
            let value = trace.block.parameters.get(i).and_then(|id| trace.block.values.get(id.index()));
            value.map_or_else(String::new, |value| value.name.to_string())
        };
        let inputs = (0..trace.block.parameters.len()).map(|i| {
            let before = i.checked_sub(1).filter(|before| scope_of(&name(*before)) == scope_of(&name(i)));
            input(trace, &style, i, before.map(|before| trace.block.parameters[before]))
        });
        let inputs = by_scope(inputs.collect(), name);
        let arena =
            trace.arena.filter(|_| self.options.storage).map_or_else(String::new, |bytes| format!(" arena {bytes}"));
        self.list(
            0,
            &format!("trace {} for {} ", label(&trace.name), trace.target),
            &inputs,
            &format!("{arena} {{"),
            true,
        );
        let nested = self.nested(trace);
        self.symbols(&Style { nested: nested.as_ref(), ..style }, 1, None);
        let path = |i: usize| trace.outputs.get(i).map_or_else(String::new, |output| output.path.clone());
        let outputs = (0..trace.block.results.len()).map(|i| {
            let own = path(i);
            let before = i.checked_sub(1).map(path).filter(|before| scope_of(before) == scope_of(&own));
            output(trace, i, if self.options.explicit { "" } else { before.as_deref().map_or("", scope_of) })
        });
        let outputs = by_scope(outputs.collect(), path);
        let end = if outputs.is_empty() { "return" } else { "return " };
        self.list(1, end, &outputs, "", false);
        let storages = trace.arena.map(|_| Storages::new(&trace.block, &trace.inputs, &trace.outputs));
        self.memory(&style, 1, |symbol, id| storages.as_ref()?.of(&trace.block, symbol, id));
        self.out += "}\n";
    }

    /// What is written inside lines of the program; nothing where the text does not read back.
    fn nested(&self, trace: &Trace) -> Option<Nested> {
        if self.options.explicit || self.options.depth == 0 {
            return None;
        }
        let regions = implied::regions(&trace.block);
        Some(Nested::new(&trace.block, VIEW, &regions, implied::deletes(&trace.history)))
    }

    /// What the memory plan predicts, as comments.
    fn predictions(&mut self, trace: &Trace) {
        if trace.arena.is_none() || !self.options.storage {
            return;
        }
        let memory = memory_use(trace);
        self.out += &format!(
            "# memory: {} resident ({} in inputs, {} in outputs) + {} transient = {} bytes\n",
            memory.inputs.saturating_add(memory.outputs),
            memory.inputs,
            memory.outputs,
            memory.transient,
            memory.peak()
        );
        for Donation { input, outcome } in donations(trace) {
            if let Err(reason) = outcome {
                let line = format!("# '{input}' is donated and not updated in place: {reason}");
                // Names may hold anything; a comment is one line.
                self.out += &line.replace(char::is_control, " ");
                self.out.push('\n');
            }
        }
    }

    /// Items between two texts: all on one line if they fit, else the items of each scope on a line of their own,
    /// between parentheses.
    fn list(&mut self, depth: usize, before: &str, lines: &[Vec<String>], behind: &str, parentheses: bool) {
        let (open, close) = if parentheses { ("(", ")") } else { ("", "") };
        let items: Vec<String> = lines.iter().map(|line| line.join(", ")).collect();
        let one = format!("{}{before}{open}{}{close}{behind}", "  ".repeat(depth), items.join(", "));
        if one.chars().count() <= WIDTH || items.is_empty() {
            self.out += &one;
            self.out.push('\n');
            return;
        }
        self.out += &format!("{}{before}(\n", "  ".repeat(depth));
        for line in lines {
            fold(&mut self.out, 2 * (depth + 1), HANG, &format!("{},", super::fold::comma(line)));
        }
        self.out += &format!("{}){behind}\n", "  ".repeat(depth));
    }
}
