//! The keys of a map, each read once; what is not read is not known.

use std::cell::RefCell;
use std::path::PathBuf;

use fulgurite_runtime::operator::nearest;

use super::yaml::{Node, Value};

/// A line, and what is wrong with it.
pub(super) type Fault = (usize, String);

/// A map that is being read.
pub(super) struct Fields<'a> {
    /// The line that it begins on.
    pub(super) line: usize,
    /// What it is called in messages.
    path: String,
    entries: &'a [(String, usize, Node)],
    /// The keys that were asked for.
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Fields<'a> {
    /// The map that `node` is.
    pub(super) fn of(node: &'a Node, path: &str) -> Result<Fields<'a>, Fault> {
        let Value::Map(entries) = &node.value else {
            return Err((node.line, format!("{path} has no keys, expected some")));
        };
        Ok(Fields { line: node.line, path: path.to_owned(), entries, known: RefCell::default() })
    }

    pub(super) fn entries(&self) -> &'a [(String, usize, Node)] {
        self.entries
    }

    /// The value of a key, unless it is null or absent.
    pub(super) fn take(&self, name: &'static str) -> Option<&'a Node> {
        self.known.borrow_mut().push(name);
        let found = self.entries.iter().find(|(key, ..)| key == name).map(|(.., node)| node);
        found.filter(|node| node.value != Value::Null)
    }

    /// The map that a key has.
    pub(super) fn map(&self, name: &'static str) -> Result<Option<Fields<'a>>, Fault> {
        self.take(name).map(|node| Fields::of(node, name)).transpose()
    }

    /// The word or text that a key has.
    pub(super) fn text(&self, name: &'static str) -> Result<Option<String>, Fault> {
        self.take(name).map(|node| scalar(node, name).map(str::to_owned)).transpose()
    }

    /// The number that a key has. Whole numbers may be written as `1e3`.
    pub(super) fn number<T: Number>(&self, name: &'static str) -> Result<Option<T>, Fault> {
        self.take(name).map(|node| number(node, name)).transpose()
    }

    /// What `read` makes of the word that a key has, or says that is wrong with it.
    pub(super) fn one_of<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Fault> {
        let Some(node) = self.take(name) else { return Ok(None) };
        let word = scalar(node, name)?;
        read(word).map(Some).map_err(|message| (node.line, format!("{name} is '{word}': {message}")))
    }

    /// A key of LitGPT that may have one value alone, and why.
    pub(super) fn only(&self, name: &'static str, value: &str, why: &str) -> Result<(), Fault> {
        match self.take(name) {
            None => Ok(()),
            Some(node) => match scalar(node, name)? {
                word if word == value => Ok(()),
                word => Err((node.line, format!("{name} is '{word}', expected {value}: {why}"))),
            },
        }
    }

    /// That there is no key which was not asked for.
    pub(super) fn end(self) -> Result<(), Fault> {
        let known = self.known.into_inner();
        let Some((name, line, _)) = self.entries.iter().find(|(name, ..)| !known.contains(&name.as_str())) else {
            return Ok(());
        };
        let hint = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("there are: {}", known.join(", ")),
        };
        Err((*line, format!("{} has no key '{name}', {hint}", self.path)))
    }
}

fn scalar<'a>(node: &'a Node, name: &str) -> Result<&'a str, Fault> {
    match &node.value {
        Value::Scalar(text) => Ok(text),
        _ => Err((node.line, format!("{name} is no single value"))),
    }
}

/// Types of numbers that settings have.
pub(super) trait Number: Sized {
    /// The number of a text that is also this finite f64, if it is one of the type's.
    fn of(text: &str, number: f64) -> Option<Self>;
}

impl Number for f64 {
    fn of(_text: &str, number: f64) -> Option<f64> {
        Some(number)
    }
}

/// 2⁵³: up to here each whole number is an f64.
const LARGEST_WHOLE: f64 = 9_007_199_254_740_992.0;

impl Number for u64 {
    fn of(text: &str, number: f64) -> Option<u64> {
        let whole = (0.0..=LARGEST_WHOLE).contains(&number) && number.fract() == 0.0;
        text.parse().ok().or_else(|| whole.then_some(number as u64))
    }
}

impl Number for usize {
    fn of(text: &str, number: f64) -> Option<usize> {
        u64::of(text, number).and_then(|number| number.try_into().ok())
    }
}

fn number<T: Number>(node: &Node, name: &str) -> Result<T, Fault> {
    let text = scalar(node, name)?;
    let number: Option<f64> = text.parse().ok().filter(|number: &f64| number.is_finite());
    let read = number.and_then(|number| T::of(text, number));
    read.ok_or_else(|| (node.line, format!("{name} is '{text}', expected a number")))
}

pub(super) fn numbers(node: &Node, name: &str) -> Result<Vec<f64>, Fault> {
    match &node.value {
        Value::List(items) => items.iter().map(|item| number(item, name)).collect(),
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
pub(super) fn json(node: &Node) -> Result<String, Fault> {
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
