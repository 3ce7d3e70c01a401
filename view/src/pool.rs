//! What stages share, written once: strings, types, lines, bodies. The data refers to them by number.

use std::sync::Arc;

use fulgurite_runtime::TensorMeta;
use fulgurite_runtime::trace::Block;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

/// The parts of a page's data so far.
#[derive(Default)]
pub struct Pool {
    strings: Table,
    lines: Table,
    blocks: Table,
    types: Vec<Value>,
    type_numbers: FxHashMap<TensorMeta, usize>,
    /// Bodies by their address, with the body: an address is not given again as long as it lives.
    bodies: FxHashMap<*const Block, (usize, Arc<Block>)>,
}

/// Texts, each with its number.
#[derive(Default)]
struct Table {
    texts: Vec<Arc<str>>,
    numbers: FxHashMap<Arc<str>, usize>,
}

impl Table {
    fn number(&mut self, text: &str) -> usize {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        self.numbers.insert(text, self.texts.len() - 1);
        self.texts.len() - 1
    }

    /// A list of texts that are JSON themselves.
    fn list(&self) -> String {
        format!("[{}]", self.texts.join(","))
    }
}

impl Pool {
    /// The number of a string.
    pub fn string(&mut self, text: &str) -> usize {
        self.strings.number(text)
    }

    /// The number of a type.
    pub fn meta(&mut self, meta: &TensorMeta) -> usize {
        if let Some(number) = self.type_numbers.get(meta) {
            return *number;
        }
        self.types.push(json!([meta.to_string(), meta.bytes()]));
        self.type_numbers.insert(meta.clone(), self.types.len() - 1);
        self.types.len() - 1
    }

    /// The number of a line.
    pub fn line(&mut self, line: &Value) -> usize {
        self.lines.number(&line.to_string())
    }

    /// The number of a block.
    pub fn block(&mut self, block: &Value) -> usize {
        self.blocks.number(&block.to_string())
    }

    /// The number of a body that was made data before.
    pub fn known(&self, body: &Arc<Block>) -> Option<usize> {
        self.bodies.get(&Arc::as_ptr(body)).map(|(number, _)| *number)
    }

    /// Keeps the number of a body.
    pub fn keep(&mut self, body: &Arc<Block>, number: usize) {
        self.bodies.insert(Arc::as_ptr(body), (number, body.clone()));
    }

    /// All parts as members of a JSON object, without the braces.
    pub fn members(&self) -> String {
        let strings: Vec<&str> = self.strings.texts.iter().map(|text| &**text).collect();
        format!(
            "\"strings\":{},\"types\":{},\"lines\":{},\"blocks\":{}",
            json!(strings),
            json!(self.types),
            self.lines.list(),
            self.blocks.list()
        )
    }
}
