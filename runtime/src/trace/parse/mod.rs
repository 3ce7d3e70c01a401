//! Text back into traces. Any input gives a trace or an [`Error::Parse`](crate::Error::Parse) with a line and a column.
//!
//! `messages` says what is wrong, `words` reads characters, words and lists; `attributes`, `types` and `names` what
//! lines are made of, `calls` and `lines` the lines, `header` all around them.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Block, Storage, Trace, ValueId};
use crate::error::Result;
use crate::meta::{Device, TensorMeta};

mod attributes;
mod calls;
mod header;
mod lines;
mod messages;
mod names;
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
    let mut parser = Parser { text, at: 0, devices: HashMap::new(), executors: HashMap::new() };
    parser.trace()
}

/// A block that is being read.
#[derive(Default)]
struct Scope {
    block: Block,
    names: HashMap<Arc<str>, ValueId>,
    /// Storage shared with a value that may be defined further below: (value, whose, where it says so).
    shared: Vec<(ValueId, String, usize)>,
}

/// Name, type and storage of a value, before it is defined.
struct Typed {
    name: String,
    at: usize,
    meta: TensorMeta,
    storage: Option<Storage>,
    shared: Option<(String, usize)>,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    devices: HashMap<String, Device>,
    executors: HashMap<String, &'static str>,
}
