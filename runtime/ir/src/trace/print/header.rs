//! What is around the lines of a trace: version, history, inputs, outputs.

use super::super::donations::{Donation, donations};
use super::super::implied::{self, Storages, scope_of};
use super::super::memory_use::memory_use;
use super::super::nested::Nested;
use super::super::trees::Trees;
use super::super::{Input, InputRole, Trace, ValueId};
use super::calls::Style;
use super::each::around_rests;
use super::fold::{HANG, SOFT, WIDTH, comment, fold};
use super::printer::first_line;
use super::printer::{Printer, value_name};
use super::words::{below, label};
use crate::executor::VIEW;

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

/// An item of a list that has two long names may end a line between them.
fn soft_at_equals(item: &str, width: usize) -> String {
    // Quoted names may hold anything.
    match item.chars().count() < width || item.contains('"') {
        true => item.to_owned(),
        false => item.replacen(" = ", &format!(" ={SOFT}"), 1),
    }
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

/// What is written of some inputs or outputs, and the scope that they are in.
type Item = (String, String);

/// Items of a list, those of one scope on one line.
fn by_scope(items: Vec<Item>) -> Vec<Vec<String>> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut last = None;
    for (item, scope) in items {
        match lines.last_mut().filter(|_| last.as_ref() == Some(&scope)) {
            Some(line) => line.push(item),
            None => lines.push(vec![item]),
        }
        last = Some(scope);
    }
    lines
}

/// The inputs; those that are as others above are one item: `state.mean.* like params.*`.
fn inputs(trace: &Trace, style: &Style<'_>) -> Vec<Item> {
    let parameters = &trace.block.parameters;
    let value = |i: usize| parameters.get(i).and_then(|id| trace.block.values.get(id.index()));
    let name = |i: usize| value(i).map_or("", |value| &*value.name);
    let same = |a: usize, b: usize| {
        value(a).map(|value| &value.meta) == value(b).map(|value| &value.meta)
            && trace.inputs.get(a) == trace.inputs.get(b)
    };
    let models = style.names.trees.map(Trees::models);
    let (mut items, mut at) = (Vec::new(), 0);
    while at < parameters.len() {
        if let Some((root, model, count)) = models.as_ref().and_then(|models| models.alike(at, same)) {
            items.push((format!("{root}.* like {model}.*"), root.to_owned()));
            style.names.trees.inspect(|trees| trees.tell(count));
            at += count;
            continue;
        }
        let before = at.checked_sub(1).filter(|before| scope_of(name(*before)) == scope_of(name(at)));
        let text = input(trace, style, at, before.map(|before| parameters[before]));
        items.push((text, scope_of(name(at)).to_owned()));
        at += 1;
    }
    items
}

/// The outputs; those whose paths are the inputs below a name are one item: `params.* = sgd.*.new`.
fn outputs(trace: &Trace, trees: Option<&Trees>) -> Vec<Item> {
    let path = |i: usize| trace.outputs.get(i).map_or("", |output| &*output.path);
    let (mut items, mut at) = (Vec::new(), 0);
    while at < trace.block.results.len() {
        if let Some((text, count)) = trees.and_then(|trees| outputs_below(trace, trees, at)) {
            items.push((text, path(at).to_owned()));
            at += count;
            continue;
        }
        let scope = scope_of(path(at));
        let before = at.checked_sub(1).filter(|before| trees.is_some() && scope_of(path(*before)) == scope);
        items.push((output(trace, at, before.map_or("", |_| scope)), scope.to_owned()));
        at += 1;
    }
    items
}

/// The outputs from `at` on that are one item, and how many they are.
fn outputs_below(trace: &Trace, trees: &Trees, at: usize) -> Option<(String, usize)> {
    let path = |i: usize| trace.outputs.get(at + i).map_or("", |output| &*output.path);
    let value = |i: usize| trace.block.values.get(trace.block.results[at + i].index()).map(|value| &*value.name);
    let mut around = None;
    let fits = |root: &str, count: usize| {
        let rest = |i: usize| &path(i)[root.len() + 1..];
        around = around_rests(count, rest, value);
        around.is_some()
    };
    let (root, count) = trees.pattern_where(trace.block.results.len() - at, path, fits)?;
    let (before, behind) = around?;
    trees.tell(count);
    Some((format!("{root}.* = {before}*{behind}"), count))
}

impl Printer<'_> {
    pub(super) fn trace(&mut self, trace: &Trace) {
        let style = self.style(&trace.block, "");
        self.out += &format!("{}\n", first_line());
        if !trace.history.is_empty() {
            let history: Vec<String> = trace.history.iter().map(|transform| label(transform)).collect();
            let last = history.len() - 1;
            let item = |(i, name): (usize, &String)| if i == last { name.clone() } else { format!("{name},") };
            let items: Vec<String> = history.iter().enumerate().map(item).collect();
            comment(&mut self.out, ["made", "by"].into_iter().chain(items.iter().map(String::as_str)));
        }
        self.predictions(trace);
        let inputs = by_scope(inputs(trace, &style));
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
        let first = implied::first_pass(&trace.inputs);
        self.symbols(&Style { nested: nested.as_ref(), ..style }, 1, None, first);
        let outputs = by_scope(outputs(trace, style.names.trees));
        let end = if outputs.is_empty() { "return" } else { "return " };
        self.list(1, end, &outputs, "", false);
        let storages = trace.arena.map(|_| Storages::new(&trace.block, &trace.inputs, &trace.outputs));
        let follows = |at| storages.as_ref().map_or_else(Vec::new, |storages| storages.of(&trace.block, at));
        self.memory(&style, 1, follows);
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
        let predicted = format!(
            "memory: {} resident ({} in inputs, {} in outputs) + {} transient = {} bytes",
            memory.inputs.saturating_add(memory.outputs),
            memory.inputs,
            memory.outputs,
            memory.transient,
            memory.peak()
        );
        comment(&mut self.out, predicted.split(' '));
        for Donation { input, outcome } in donations(trace) {
            if let Err(reason) = outcome {
                let text = format!("'{input}' is donated and not updated in place: {reason}");
                // Names may hold anything, such as ends of lines, which end a comment.
                comment(&mut self.out, text.replace(char::is_control, " ").split(' '));
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
        let indent = 2 * (depth + 1);
        for line in lines {
            let items: Vec<String> = line.iter().map(|item| soft_at_equals(item, WIDTH - indent - HANG)).collect();
            fold(&mut self.out, indent, HANG, &format!("{},", super::fold::comma(&items)));
        }
        self.out += &format!("{}){behind}\n", "  ".repeat(depth));
    }
}
