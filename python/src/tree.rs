//! Arguments and results of a traced Python function: leaves with their paths, and what Python knows of the rest.

use std::sync::Arc;

use fulgurite::argument::Attribute;
use fulgurite::tree::{Leaf, Tree};
use pyo3::prelude::*;

/// The paths of the leaves, and Python's object for the structure around them.
#[derive(Debug)]
pub(crate) struct Structure {
    /// One for each leaf.
    pub paths: Vec<String>,
    /// Tells structures of one function apart.
    pub key: String,
    /// What Python makes the tree of its leaves with.
    pub object: Py<PyAny>,
}

/// A tree that Python flattened.
#[derive(Debug, Clone)]
pub(crate) struct Flat<L> {
    /// The leaves, in the order in which Python visits the tree.
    pub leaves: Vec<L>,
    /// Paths of the leaves, and what Python makes the tree of them with.
    pub structure: Arc<Structure>,
}

impl<L: Leaf> Tree for Flat<L> {
    type Leaf = L;
    type With<U: Leaf> = Flat<U>;

    fn visit<'a>(&'a self, _path: &str, f: &mut dyn FnMut(&str, &'a L)) {
        self.structure.paths.iter().zip(&self.leaves).for_each(|(path, leaf)| f(path, leaf));
    }

    fn map<U: Leaf>(self, f: &mut dyn FnMut(L) -> U) -> Flat<U> {
        Flat { leaves: self.leaves.into_iter().map(f).collect(), structure: self.structure }
    }

    fn attributes(&self, found: &mut Vec<Attribute>) {
        found.push(Attribute::Text(self.structure.key.as_str().into()));
    }
}
