//! Trees of tensors: parameters, optimizer state, arguments of compiled functions. Leaves have names such as
//! `h.0.attn.c_attn.weight`, made of field names and indices.

use crate::argument::{Attribute, Scalar};
use crate::meta::TensorMeta;

/// A type of leaf; the tree of one leaf is the leaf itself.
pub trait Leaf: Tree<Leaf = Self> {}

/// A structure of leaves. `#[derive(Tree)]` makes one of a struct that is generic over its leaf.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no tree of tensors",
    label = "expected a tensor, or a tuple, a list, an option or a `#[derive(Tree)]` struct of trees",
    note = "the arguments of an operator, `with(...)`, become a call by `.call()` behind them"
)]
pub trait Tree: Sized {
    /// The type of the leaves.
    type Leaf: Leaf;
    /// The same structure over other leaves.
    type With<U: Leaf>: Tree<Leaf = U>;

    /// Calls `f` with the path and value of each leaf, in order.
    fn visit<'a>(&'a self, path: &str, f: &mut dyn FnMut(&str, &'a Self::Leaf));

    /// The same structure with each leaf replaced, in the same order.
    fn map<U: Leaf>(self, f: &mut dyn FnMut(Self::Leaf) -> U) -> Self::With<U>;

    /// Adds the parts of the key besides the leaves: attribute fields, lengths of lists, presence of options.
    fn attributes(&self, _found: &mut Vec<Attribute>) {}

    /// The leaves with their paths.
    fn leaves(&self) -> Vec<(String, &Self::Leaf)> {
        let mut leaves = Vec::new();
        self.visit("", &mut |path, leaf| leaves.push((path.to_owned(), leaf)));
        leaves
    }
}

impl Leaf for TensorMeta {}
impl Tree for TensorMeta {
    type Leaf = TensorMeta;
    type With<U: Leaf> = U;
    fn visit<'a>(&'a self, path: &str, f: &mut dyn FnMut(&str, &'a TensorMeta)) {
        f(path, self);
    }
    fn map<U: Leaf>(self, f: &mut dyn FnMut(TensorMeta) -> U) -> U {
        f(self)
    }
}

/// `path.name`, or `name` at the root.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl<T: Tree> Tree for Vec<T> {
    type Leaf = T::Leaf;
    type With<U: Leaf> = Vec<T::With<U>>;
    fn visit<'a>(&'a self, path: &str, f: &mut dyn FnMut(&str, &'a T::Leaf)) {
        for (i, item) in self.iter().enumerate() {
            item.visit(&join(path, &i.to_string()), f);
        }
    }
    fn map<U: Leaf>(self, f: &mut dyn FnMut(T::Leaf) -> U) -> Vec<T::With<U>> {
        self.into_iter().map(|item| item.map(f)).collect()
    }
    fn attributes(&self, found: &mut Vec<Attribute>) {
        // How the leaves are divided among lists decides what a function does with them.
        found.push(Attribute::Scalar(Scalar::Int(self.len() as i64)));
        self.iter().for_each(|item| item.attributes(found));
    }
}

impl<T: Tree> Tree for Option<T> {
    type Leaf = T::Leaf;
    type With<U: Leaf> = Option<T::With<U>>;
    fn visit<'a>(&'a self, path: &str, f: &mut dyn FnMut(&str, &'a T::Leaf)) {
        if let Some(item) = self {
            item.visit(path, f);
        }
    }
    fn map<U: Leaf>(self, f: &mut dyn FnMut(T::Leaf) -> U) -> Option<T::With<U>> {
        self.map(|item| item.map(f))
    }
    fn attributes(&self, found: &mut Vec<Attribute>) {
        // Which of several options has the leaf, likewise.
        found.push(Attribute::Scalar(Scalar::Bool(self.is_some())));
        if let Some(item) = self {
            item.attributes(found);
        }
    }
}

macro_rules! tuple_tree {
    ($first:ident $first_index:tt $(, $name:ident $index:tt)*) => {
        impl<$first: Tree, $($name: Tree<Leaf = $first::Leaf>),*> Tree for ($first, $($name,)*) {
            type Leaf = $first::Leaf;
            type With<Y: Leaf> = ($first::With<Y>, $($name::With<Y>,)*);
            fn visit<'a>(&'a self, path: &str, f: &mut dyn FnMut(&str, &'a Self::Leaf)) {
                self.$first_index.visit(&join(path, stringify!($first_index)), f);
                $(self.$index.visit(&join(path, stringify!($index)), f);)*
            }
            fn map<Y: Leaf>(self, f: &mut dyn FnMut(Self::Leaf) -> Y) -> Self::With<Y> {
                (self.$first_index.map(f), $(self.$index.map(f),)*)
            }
            fn attributes(&self, found: &mut Vec<Attribute>) {
                self.$first_index.attributes(found);
                $(self.$index.attributes(found);)*
            }
        }
    };
}
tuple_tree!(A 0);
tuple_tree!(A 0, B 1);
tuple_tree!(A 0, B 1, C 2);
tuple_tree!(A 0, B 1, C 2, D 3);
tuple_tree!(A 0, B 1, C 2, D 3, E 4);
tuple_tree!(A 0, B 1, C 2, D 3, E 4, F 5);
