//! YAML as settings have it: maps, lists and scalars, each with its line. `saphyr-parser` reads the syntax.
//!
//! The reader of a scalar decides whether it is a number or a word: `seed: no` is an error
//! about a number, and `model_name: 1e3` a name. Anchors, tags and several documents, which no settings need, are
//! refused: an alias of an alias of a list makes gigabytes of a few lines.

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// Lists and maps in each other.
const DEEPEST: usize = 32;

/// A value, and where it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    /// The line that it begins on, from 1.
    pub(crate) line: usize,
    pub(crate) value: Value,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// Anything else that is one word or text.
    Scalar(String),
    List(Vec<Node>),
    /// The keys in their order, each with its line.
    Map(Vec<(String, usize, Node)>),
}

/// The one document of a text; what is wrong with it and on which line otherwise. An empty text is null.
pub(crate) fn parse(text: &str) -> Result<Node, (usize, String)> {
    let mut events = Events(Parser::new_from_str(text));
    let mut document = Node { line: 1, value: Value::Null };
    let mut documents = 0;
    loop {
        let (event, span) = events.next()?;
        match event {
            Event::StreamEnd => return Ok(document),
            Event::DocumentStart(_) if documents > 0 => {
                return Err((span.start.line(), "a second document, expected one".into()));
            }
            Event::DocumentStart(_) => {
                documents += 1;
                let (event, span) = events.next()?;
                document = events.node(event, span, 0)?;
            }
            _ => {}
        }
    }
}

struct Events<'a>(Parser<'a, saphyr_parser::StrInput<'a>>);

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), (usize, String)> {
        match self.0.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err((error.marker().line(), error.info().to_owned())),
            None => Err((1, "the text ends too early".into())),
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, (usize, String)> {
        let line = span.start.line();
        if depth > DEEPEST {
            return Err((line, format!("values are more than {DEEPEST} deep in each other")));
        }
        let (anchor, tagged) = match &event {
            Event::Scalar(_, _, anchor, tag) => (*anchor, tag.is_some()),
            Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => (*anchor, tag.is_some()),
            Event::Alias(anchor) => (*anchor, false),
            _ => (0, false),
        };
        if anchor > 0 || tagged {
            let what = if tagged { "a tag" } else { "an anchor or an alias" };
            return Err((line, format!("has {what}, which settings do not have")));
        }
        let value = match event {
            Event::Scalar(text, style, ..) => {
                let empty = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                if empty { Value::Null } else { Value::Scalar(text.into_owned()) }
            }
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break Value::List(items),
                        (event, span) => items.push(self.node(event, span, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut fields: Vec<(String, usize, Node)> = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    if event == Event::MappingEnd {
                        break Value::Map(fields);
                    }
                    let key = self.node(event, span, depth + 1)?;
                    let Value::Scalar(name) = key.value else {
                        return Err((key.line, "a key is no word".into()));
                    };
                    if fields.iter().any(|(known, ..)| *known == name) {
                        return Err((key.line, format!("the key '{name}' is there twice")));
                    }
                    let (event, span) = self.next()?;
                    let value = self.node(event, span, depth + 1)?;
                    fields.push((name, key.line, value));
                }
            }
            _ => return Err((line, "expected a value".into())),
        };
        Ok(Node { line, value })
    }
}
