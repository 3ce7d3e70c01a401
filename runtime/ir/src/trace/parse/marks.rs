//! Where the names and lines of a text are: what an editor needs to know besides the trace.
//!
//! The parser tells what it reads as it reads it. A text with an error has the marks of what is before the error.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::super::word::word_length;
use crate::meta::TensorMeta;

/// What a text does with a value where it names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Naming {
    /// Defines it.
    Definition,
    /// Reads it, as an argument or as a result.
    Read,
    /// Ends it: `del`.
    End,
    /// Says something else of it: what waits for it (`after`), its memory.
    Mention,
}

/// A place in the text that names a value. A tree such as `params.*` is one place that names several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedName {
    /// The bytes of the text. They are none where the text implies the name, as for the parameters of most bodies.
    pub range: Range<usize>,
    /// The value, an index into [`Marks::values`].
    pub value: usize,
    /// What the text does with the value.
    pub naming: Naming,
}

/// A value that the text defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedValue {
    /// Its whole name.
    pub name: Arc<str>,
    /// Its type.
    pub meta: TensorMeta,
    /// The block that has it, an index into [`Marks::blocks`]. What a region yields is in the block around.
    pub block: usize,
}

/// A line: a call with its results, and everything about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedLine {
    /// From its results, or its operator, to the end of its refusals, its body and its ends. Several lines have one
    /// range if the text writes them once.
    pub range: Range<usize>,
    /// The name of the operator, or `region`.
    pub operator: Range<usize>,
    /// The block that has the line.
    pub block: usize,
    /// Its number in the block, an index into [`Block::symbols`](crate::trace::Block::symbols).
    pub symbol: usize,
    /// The block of its body.
    pub body: Option<usize>,
}

/// The program, number 0, or a body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MarkedBlock {
    /// From behind its `{` to its `}`; to the end of the text if an error is in it.
    pub range: Range<usize>,
    /// The block around.
    pub around: Option<usize>,
    /// Whether its lines may name the values of the block around: in a region.
    pub reads_around: bool,
}

/// Where the names and lines of a text are.
#[derive(Debug, Clone, Default)]
pub struct Marks {
    /// The values, in the order of their definition.
    pub values: Vec<MarkedValue>,
    /// The names, in the order in which they are read.
    pub names: Vec<MarkedName>,
    /// The lines, in the order of their ends.
    pub lines: Vec<MarkedLine>,
    /// The program and the bodies, in the order of their beginnings.
    pub blocks: Vec<MarkedBlock>,
    known: HashMap<(usize, Arc<str>), usize>,
}

impl Marks {
    /// A block that begins at `at`. Returns its number.
    pub(super) fn open(&mut self, at: usize, around: Option<usize>, reads_around: bool) -> usize {
        self.blocks.push(MarkedBlock { range: at..usize::MAX, around, reads_around });
        self.blocks.len() - 1
    }

    /// The end of a block.
    pub(super) fn close(&mut self, block: usize, at: usize) {
        self.blocks[block].range.end = at;
    }

    /// A value of `block`, defined at `range`.
    pub(super) fn define(&mut self, block: usize, name: &Arc<str>, meta: &TensorMeta, range: Range<usize>) {
        let value = self.values.len();
        self.values.push(MarkedValue { name: name.clone(), meta: meta.clone(), block });
        self.known.insert((block, name.clone()), value);
        self.names.push(MarkedName { range, value, naming: Naming::Definition });
    }

    /// `name` of `block`, named at `range`.
    pub(super) fn name(&mut self, block: usize, name: &str, range: Range<usize>, naming: Naming) {
        if let Some(value) = self.known.get(&(block, Arc::from(name))) {
            self.names.push(MarkedName { range, value: *value, naming });
        }
    }

    /// `name` of the block `inner` is the value of this name of the block `outer`, which is around it.
    pub(super) fn same(&mut self, inner: usize, outer: usize, name: &Arc<str>) {
        let (inner, outer) = ((inner, name.clone()), (outer, name.clone()));
        if let Some(value) = self.known.get(&outer).copied() {
            self.known.insert(inner, value);
        } else if let Some(value) = self.known.get(&inner).copied() {
            self.values[value].block = outer.0;
            self.known.insert(outer, value);
        }
    }

    /// After the end of the text, or an error.
    pub(super) fn finish(mut self, text: &str) -> Marks {
        for block in &mut self.blocks {
            block.range.end = block.range.end.min(text.len());
        }
        self.known = HashMap::new();
        self
    }
}

/// The bytes of the name that begins at `at`.
pub(super) fn name_at(text: &str, at: usize) -> Range<usize> {
    let rest = text.get(at..).unwrap_or("");
    let length = match rest.strip_prefix('"') {
        Some(string) => {
            let mut escaped = false;
            let end = string.bytes().position(|byte| {
                let ends = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                ends
            });
            end.map_or(rest.len(), |end| end + 2)
        }
        None => {
            let sign = rest.len() - rest.trim_start_matches(['.', ':']).len();
            let word = sign + word_length(&rest[sign..]);
            match rest[word..].strip_prefix('*') {
                Some(behind) => {
                    let below = behind.strip_prefix('.').map_or(0, |below| 1 + word_length(below));
                    word + 1 + below
                }
                None => word,
            }
        }
    };
    at..at + length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::test_support::{GOOD, Generator, Random};
    use crate::trace::{Block, Callee, Trace, parse, parse_marked};

    /// The blocks of a trace by their numbers among the marks.
    fn blocks<'a>(trace: &'a Trace, marks: &Marks) -> HashMap<usize, &'a Block> {
        let mut found = HashMap::from([(0, &trace.block)]);
        for line in marks.lines.iter().rev() {
            let block: &Block = found[&line.block];
            if let (Some(number), Some(body)) = (line.body, &block.symbols[line.symbol].body) {
                found.insert(number, body);
            }
        }
        found
    }

    fn check(text: &str) {
        let (trace, marks) = parse_marked(text);
        let trace = trace.unwrap();
        assert_eq!(trace, parse(text).unwrap());
        let blocks = blocks(&trace, &marks);
        assert_eq!(blocks.len(), marks.blocks.len(), "{text}");
        for (number, block) in &blocks {
            let outer = marks.blocks[*number].around.filter(|_| marks.blocks[*number].reads_around);
            for value in &block.values {
                let of = |number| marks.values.iter().find(|of| of.block == number && of.name == value.name);
                let marked = of(*number).or_else(|| of(outer?));
                let marked = marked.unwrap_or_else(|| panic!("{} in\n{text}", value.name));
                assert_eq!(marked.meta, value.meta, "{text}");
            }
        }
        for name in &marks.names {
            let (written, whole) = (&text[name.range.clone()], &*marks.values[name.value].name);
            let written = written.trim_start_matches('.').trim_start_matches("::");
            let fits = whole.ends_with(written) || written.starts_with('"') || written.contains('*');
            // A view inside a line is named by its operator, and names that count on by the first of them.
            let [base, first] = [whole, written].map(|name| super::super::super::trees::counted(name).0);
            assert!(
                fits || text[name.range.end..].starts_with('(') || base.ends_with(first),
                "{written}: {whole}\n{text}"
            );
        }
        for line in &marks.lines {
            let symbol = &blocks[&line.block].symbols[line.symbol];
            let operator = text[line.operator.clone()].trim_start_matches("::").trim_matches('"');
            assert!(symbol.name().ends_with(operator), "{operator}: {}\n{text}", symbol.name());
            assert!(line.range.start <= line.operator.start && line.operator.end <= line.range.end, "{text}");
        }
        let lines = |block: &&Block| block.symbols.iter().filter(|symbol| symbol.callee != Callee::Delete).count();
        // Views inside lines have none of their own.
        assert!(marks.lines.len() <= blocks.values().map(lines).sum(), "{text}");
    }

    #[test]
    fn marks_are_those_of_the_trace() {
        check(GOOD);
        for seed in 0..500 {
            check(&Generator { random: Random(seed) }.trace().to_string());
        }
    }

    #[test]
    fn names_are_where_they_are_written() {
        let text = GOOD;
        let (_, marks) = parse_marked(text);
        let at = |word: &str, behind: usize| text.find(word).unwrap() + behind;
        let named = |start: usize| {
            let name = marks.names.iter().find(|name| name.range.start == start).unwrap();
            (&*marks.values[name.value].name, name.naming, marks.values[name.value].block)
        };
        assert_eq!(named(at("exp: f32[8] = tt::exp(x)", 0)), ("exp", Naming::Definition, 0));
        assert_eq!(named(at("del exp, view", 4)), ("exp", Naming::End, 0));
        // What a region yields is the program's, and what it reads too.
        assert_eq!(named(at(".add: f32", 0)), ("block.1.add", Naming::Definition, 0));
        assert_eq!(named(at("tt::exp(h.0)", 8)), ("h.0", Naming::Read, 0));
        assert_ne!(named(at(".exp: f32", 0)).2, 0);
        // A parameter that the text implies is where its body begins.
        let (name, naming, block) = named(at("yield input", 0));
        assert_eq!((name, naming), ("input", Naming::Definition));
        assert_eq!(named(at("yield input", 6)), ("input", Naming::Read, block));
    }

    #[test]
    fn before_an_error_there_are_marks() {
        let at = GOOD.find("tt::topk").unwrap();
        let text = format!("{}?{}", &GOOD[..at], &GOOD[at..]);
        let (trace, marks) = parse_marked(&text);
        assert!(trace.is_err());
        let names: Vec<&str> = marks.values.iter().map(|value| &*value.name).collect();
        assert_eq!(names, ["params.w", "x", "saved", "dy", "exp", "view"]);
        assert_eq!(marks.blocks[0].range.end, text.len());
    }
}
