//! Structs that are no trees.
use fulgurite_ops_macros::Tree;

#[derive(Tree)]
pub struct Flat {
    weight: f32,
}

#[derive(Tree)]
pub struct Mixed<T> {
    weight: T,
    heads: usize,
    #[tree(attribute)]
    bias: Option<T>,
    #[tree(attributes)]
    layers: usize,
}

#[derive(Tree)]
pub struct Unnamed<T>(T);

#[derive(Tree)]
pub enum Choice<T> {
    One(T),
}

fn main() {}
