//! What a model gets of a batch.

use fulgurite_runtime::argument::{Attribute, Scalar};
use fulgurite_runtime::tree::{Leaf, Tree, join};

/// What a model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reads {
    /// Tokens.
    #[default]
    Tokens,
    /// Images.
    Images,
}

impl Reads {
    /// The name of the items, which traces, lines of progress and reports have.
    pub const fn name(self) -> &'static str {
        match self {
            Reads::Tokens => "tokens",
            Reads::Images => "images",
        }
    }
}

/// One batch. In traces the inputs have the name of what they are.
#[derive(Debug, Clone)]
pub struct BatchTensors<T> {
    /// Token ids i64[B, T], or images f32[B, C, H, W].
    pub inputs: T,
    /// Next tokens i64[B, T], classes of images i64\[B\], or classes of their pixels i64[B, H, W].
    pub targets: T,
    /// What the inputs are.
    pub reads: Reads,
}

impl<T> BatchTensors<T> {
    /// Token ids and next tokens, i64[B, T] each.
    pub fn of_tokens(tokens: T, targets: T) -> Self {
        BatchTensors { inputs: tokens, targets, reads: Reads::Tokens }
    }

    /// Images f32[B, C, H, W] and their classes, or those of their pixels.
    pub fn of_images(images: T, targets: T) -> Self {
        BatchTensors { inputs: images, targets, reads: Reads::Images }
    }
}

impl<T: Leaf> Tree for BatchTensors<T> {
    type Leaf = T;
    type With<U: Leaf> = BatchTensors<U>;

    fn visit<'a>(&'a self, path: &str, f: &mut dyn FnMut(&str, &'a T)) {
        f(&join(path, self.reads.name()), &self.inputs);
        f(&join(path, "targets"), &self.targets);
    }

    fn map<U: Leaf>(self, f: &mut dyn FnMut(T) -> U) -> BatchTensors<U> {
        BatchTensors { inputs: f(self.inputs), targets: f(self.targets), reads: self.reads }
    }

    fn attributes(&self, found: &mut Vec<Attribute>) {
        // The name of a leaf is part of a program.
        found.push(Attribute::Scalar(Scalar::Int(self.reads as i64)));
    }
}
