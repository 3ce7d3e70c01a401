//! The keys of a map, each read once; what is not read is not known.

use std::cell::RefCell;
use std::path::PathBuf;

use fulgurite_runtime::operator::nearest;

use super::yaml::{Node, Value};

/// A line, and what is wrong with it.
pub(crate) type Fault = (usize, String);

/// A map that is being read.
pub(crate) struct Fields<'a> {
    /// The keys that lead to it, with dots; empty for the whole file.
    path: String,
    entries: &'a [(String, usize, Node)],
    /// The keys that were asked for.
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Fields<'a> {
    /// The map that `node` is.
    pub(crate) fn of(node: &'a Node, path: &str) -> Result<Fields<'a>, Fault> {
        let Value::Map(entries) = &node.value else {
            let what = if path.is_empty() { "the file" } else { path };
            return Err((node.line, format!("{what} has no keys, expected some")));
        };
        Ok(Fields { path: path.to_owned(), entries, known: RefCell::default() })
    }

    pub(crate) fn entries(&self) -> &'a [(String, usize, Node)] {
        self.entries
    }

    /// The value of a key, unless it is null or absent.
    pub(crate) fn take(&self, name: &'static str) -> Option<&'a Node> {
        self.known.borrow_mut().push(name);
        let found = self.entries.iter().find(|(key, ..)| key == name).map(|(.., node)| node);
        found.filter(|node| node.value != Value::Null)
    }

    /// A key with those that lead to it: `train.max_steps`.
    pub(crate) fn dotted(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The map that a key has.
    pub(crate) fn map(&self, name: &'static str) -> Result<Option<Fields<'a>>, Fault> {
        self.take(name).map(|node| Fields::of(node, &self.dotted(name))).transpose()
    }

    /// The word or text that a key has.
    pub(crate) fn text(&self, name: &'static str) -> Result<Option<String>, Fault> {
        self.take(name).map(|node| scalar(node, &self.dotted(name)).map(str::to_owned)).transpose()
    }

    /// The number within `range` that a key has. Whole numbers may be written as `1e3`.
    pub(crate) fn number<T: Number>(&self, name: &'static str, range: Range) -> Result<Option<T>, Fault> {
        self.take(name).map(|node| number(node, &self.dotted(name), range)).transpose()
    }

    /// The numbers within `range` that a key has as a list.
    pub(crate) fn numbers(&self, name: &'static str, range: Range) -> Result<Option<Vec<f64>>, Fault> {
        let name_of = self.dotted(name);
        self.take(name).map(|node| numbers(node, &name_of, range)).transpose()
    }

    /// The path, or the paths, that a key has.
    pub(crate) fn paths(&self, name: &'static str) -> Result<Vec<PathBuf>, Fault> {
        self.take(name).map_or(Ok(Vec::new()), |node| paths(node, &self.dotted(name)))
    }

    /// What `read` makes of the word that a key has, or says that is wrong with it.
    pub(crate) fn one_of<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Fault> {
        let Some(node) = self.take(name) else { return Ok(None) };
        let name = self.dotted(name);
        let word = scalar(node, &name)?;
        read(word).map(Some).map_err(|message| (node.line, format!("{name} is '{word}': {message}")))
    }

    /// A key of LitGPT that may have one value alone, and why.
    pub(crate) fn only(&self, name: &'static str, value: &str, why: &str) -> Result<(), Fault> {
        match self.take(name) {
            None => Ok(()),
            Some(node) => match scalar(node, &self.dotted(name))? {
                word if word == value => Ok(()),
                word => Err((node.line, format!("{} is '{word}', expected {value}: {why}", self.dotted(name)))),
            },
        }
    }

    /// That there is no key which was not asked for.
    pub(crate) fn end(self) -> Result<(), Fault> {
        let known = self.known.into_inner();
        let Some((name, line, _)) = self.entries.iter().find(|(name, ..)| !known.contains(&name.as_str())) else {
            return Ok(());
        };
        let hint = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("there are: {}", known.join(", ")),
        };
        let what = if self.path.is_empty() { "the file" } else { &self.path };
        Err((*line, format!("{what} has no key '{name}', {hint}")))
    }
}

fn scalar<'a>(node: &'a Node, name: &str) -> Result<&'a str, Fault> {
    match &node.value {
        Value::Scalar(text) => Ok(text),
        _ => Err((node.line, format!("{name} is no single value"))),
    }
}

/// Which numbers a setting may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Range {
    /// 0 and above.
    NotNegative,
    /// Above 0.
    Positive,
    /// 0 up to, not including, 1.
    BelowOne,
}

impl Range {
    fn holds(self, number: f64) -> bool {
        match self {
            Range::NotNegative => number >= 0.0,
            Range::Positive => number > 0.0,
            Range::BelowOne => (0.0..1.0).contains(&number),
        }
    }

    /// In words, of numbers of a kind.
    fn describe(self, kind: &str) -> String {
        match self {
            Range::NotNegative => format!("a {kind} of at least 0"),
            Range::Positive if kind == f64::KIND => format!("a {kind} above 0"),
            Range::Positive => format!("a {kind} of at least 1"),
            Range::BelowOne => format!("a {kind} from 0 to below 1"),
        }
    }
}

/// Types of numbers that settings have.
pub(crate) trait Number: Sized {
    /// What such a number is called.
    const KIND: &'static str;

    /// The number of a text that is also this finite f64, if it is one of the type's.
    fn of(text: &str, number: f64) -> Option<Self>;
}

impl Number for f64 {
    const KIND: &'static str = "finite number";

    fn of(_text: &str, number: f64) -> Option<f64> {
        Some(number)
    }
}

/// 2⁵³: up to here each whole number is an f64.
const LARGEST_WHOLE: f64 = 9_007_199_254_740_992.0;

impl Number for u64 {
    const KIND: &'static str = "whole number";

    fn of(text: &str, number: f64) -> Option<u64> {
        let whole = (0.0..=LARGEST_WHOLE).contains(&number) && number.fract() == 0.0;
        text.parse().ok().or_else(|| whole.then_some(number as u64))
    }
}

impl Number for usize {
    const KIND: &'static str = u64::KIND;

    fn of(text: &str, number: f64) -> Option<usize> {
        u64::of(text, number).and_then(|number| number.try_into().ok())
    }
}

fn number<T: Number>(node: &Node, name: &str, range: Range) -> Result<T, Fault> {
    let text = scalar(node, name)?;
    let number: Option<f64> = text.parse().ok().filter(|number: &f64| number.is_finite());
    let read = number.filter(|number| range.holds(*number)).and_then(|number| T::of(text, number));
    read.ok_or_else(|| (node.line, format!("{name} is '{text}', expected {}", range.describe(T::KIND))))
}

fn numbers(node: &Node, name: &str, range: Range) -> Result<Vec<f64>, Fault> {
    match &node.value {
        Value::List(items) => items.iter().map(|item| number(item, name, range)).collect(),
        _ => Err((node.line, format!("{name} is no list"))),
    }
}

/// A path, or a list of paths.
pub(super) fn paths(node: &Node, name: &str) -> Result<Vec<PathBuf>, Fault> {
    match &node.value {
        Value::List(items) => items.iter().map(|item| scalar(item, name).map(PathBuf::from)).collect(),
        _ => Ok(vec![PathBuf::from(scalar(node, name)?)]),
    }
}

/// A value as JSON, for a field of a model's configuration. Words stay as they are.
pub(crate) fn json(node: &Node) -> Result<String, Fault> {
    match &node.value {
        Value::Null => Ok("null".into()),
        Value::Scalar(text) => Ok(text.clone()),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(json).collect::<Result<_, _>>()?;
            Ok(format!("[{}]", items.join(", ")))
        }
        Value::Map(fields) => {
            let field = |(name, _, value): &(String, usize, Node)| {
                json(value).map(|value| format!("{}: {value}", serde_json::Value::from(name.as_str())))
            };
            let fields: Vec<String> = fields.iter().map(field).collect::<Result<_, _>>()?;
            Ok(format!("{{{}}}", fields.join(", ")))
        }
    }
}
