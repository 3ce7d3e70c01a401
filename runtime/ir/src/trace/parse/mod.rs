//! Text back into traces. Any input gives a trace or an [`Error::Parse`](crate::Error::Parse) with a line and a column.
//!
//! `messages` says what is wrong, `words` reads characters, words and lists; `attributes`, `types`, `names` and `runs`
//! (of names) what lines are made of, `calls`, `nested` and `lines` the lines, `each` those that are written once for
//! several, `bodies` what is in their braces, `memory` the memory that values have, `header` all around them. `marks`
//! remembers where all of that is in the text.

use std::collections::HashMap;
use std::sync::Arc;

use super::trees::Trees;
use super::{Block, Pass, Trace, ValueId};
use crate::argument::Attribute;
use crate::error::Result;
use crate::executor::VIEW;
use crate::meta::{Device, TensorMeta};
use marks::{Marks, Naming};

pub mod attributes;
mod bodies;
mod calls;
mod each;
mod header;
mod lines;
pub mod marks;
mod memory;
mod messages;
mod names;
mod nested;
mod runs;
mod types;
mod words;

#[cfg(test)]
mod mutations;
#[cfg(test)]
mod tests;

/// Names of executors and kinds of devices live as long as the process, so a text may bring only so many new ones.
const MAX_KINDS: usize = 64;

/// Reads the text of a trace. The result is canonical: values are numbered in the order of their definition.
pub fn parse(text: &str) -> Result<Trace> {
    Parser::new(text).trace()
}

/// Reads the text of a trace, and tells where in it the names and lines are. If there is an error, the marks are those
/// of the text before it.
pub fn parse_marked(text: &str) -> (Result<Trace>, Marks) {
    let mut parser = Parser { marks: Some(Box::default()), ..Parser::new(text) };
    let trace = parser.trace();
    (trace, parser.marks.map(|marks| marks.finish(text)).unwrap_or_default())
}

/// Reads an attribute, as traces print it.
pub fn attribute_from_text(text: &str) -> Result<Attribute> {
    let mut parser = Parser::new(text);
    parser.skip();
    let attribute = parser.attribute(0)?;
    parser.skip();
    if parser.at < text.len() { parser.expected("nothing more") } else { Ok(attribute) }
}

/// A block that is being read.
#[derive(Default)]
struct Scope {
    block: Block,
    names: HashMap<Arc<str>, ValueId>,
    /// The block around the body of a region that reads its values by their names.
    around: Option<Box<Scope>>,
    /// Those that it has read: values of the block around.
    read: Vec<ValueId>,
    /// Its number among the marks.
    number: usize,
}

/// Name and type of a value, before it is defined.
struct Typed {
    name: String,
    at: usize,
    meta: TensorMeta,
}

/// The inputs for which a line is read that is written once, and the one that it is read for.
struct Each {
    /// What is left of the inputs' names.
    rests: Vec<String>,
    /// Position of the input.
    at: usize,
    /// Values of attributes that are not those of all inputs, by where they are in the text. They are read once.
    exceptions: HashMap<usize, Exceptions>,
}

/// An attribute's values for some inputs, and where the text of them ends.
struct Exceptions {
    of: HashMap<String, Attribute>,
    end: usize,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    devices: HashMap<String, Device>,
    executors: HashMap<String, &'static str>,
    /// The device of types that name none: that of the target.
    home: Device,
    /// What names that begin with a dot are below; empty if such names have no place here.
    scope: Arc<str>,
    /// The executor of lines that name none: that of the region whose body is read.
    region: Option<&'static str>,
    /// The pass of the lines that are read, and of the line that they are the body of.
    pass: Pass,
    outer_pass: Pass,
    /// The executor of calls inside lines; none where lines hold no calls.
    views: Option<&'static str>,
    /// What the next argument of a call is called, if it is a call itself.
    argument: Option<Arc<str>>,
    /// How many calls the one that is read is inside of.
    inside: usize,
    /// Whether views end behind the line that they are in.
    deletes: bool,
    /// The views inside the line that is read.
    ending: Vec<ValueId>,
    /// The inputs of the program.
    trees: Trees,
    /// In a line that is written once for several inputs, these.
    each: Option<Box<Each>>,
    /// Where the names and lines are, if that is asked for.
    marks: Option<Box<Marks>>,
    /// What the names that are read do.
    naming: Naming,
}

impl Parser<'_> {
    fn new(text: &str) -> Parser<'_> {
        Parser {
            text,
            at: 0,
            devices: HashMap::new(),
            executors: HashMap::new(),
            home: Device::CPU,
            scope: Arc::from(""),
            region: None,
            pass: Pass::Forward,
            outer_pass: Pass::Forward,
            views: Some(VIEW),
            argument: None,
            inside: 0,
            deletes: false,
            ending: Vec::new(),
            trees: Trees::default(),
            each: None,
            marks: None,
            naming: Naming::Read,
        }
    }
}
