//! Trees of tensors: parameters, optimizer state, arguments of compiled functions. Leaves have names such as
//! `h.0.attn.c_attn.weight`, made of field names and indices.

use crate::argument::{Attribute, Scalar};
use crate::error::{Error, Result};
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

/// Makes `M` trees of `N` trees of one structure: `f` gets the path of a leaf and the leaves there of all trees, and
/// gives the leaves there of the results. Parameters, their gradients and a momentum become the next parameters and the
/// next momentum. There are at most as many results as trees, because the n-th result has the attributes of the n-th
/// tree.
///
/// ```
/// use fulgurite_base::Array;
/// use fulgurite_base::tree::map_trees;
///
/// let tree = |value: f32| vec![Array::scalar(value), Array::scalar(2.0 * value)];
/// let [sums] = map_trees([tree(1.0), tree(10.0)], |_, [a, b]| [Array::scalar((a.item().unwrap() + b.item().unwrap()) as f32)])?;
/// assert_eq!(sums[1].item()?, 22.0);
/// # Ok::<(), fulgurite_base::Error>(())
/// ```
///
/// # Errors
/// If the trees differ in structure, with the first path that one of them lacks: lists of other lengths, options of
/// which one is none, attributes.
pub fn map_trees<T: Tree, U: Leaf, const N: usize, const M: usize>(
    trees: [T; N],
    mut f: impl FnMut(&str, [&T::Leaf; N]) -> [U; M],
) -> Result<[T::With<U>; M]> {
    const { assert!(0 < M && M <= N, "as many results as trees at most, and one at least") };
    let mut columns: [Vec<U>; M] = std::array::from_fn(|_| Vec::new());
    {
        let leaves: [Vec<(String, &T::Leaf)>; N] = trees.each_ref().map(Tree::leaves);
        for other in 1..N {
            expect_one_structure(&trees[0], &trees[other], other)?;
        }
        for (at, (path, _)) in leaves[0].iter().enumerate() {
            let results = f(path, std::array::from_fn(|tree| leaves[tree][at].1));
            columns.iter_mut().zip(results).for_each(|(column, leaf)| column.push(leaf));
        }
    }
    let mut trees = trees.into_iter();
    Ok(columns.map(|column| {
        let mut leaves = column.into_iter();
        let tree = trees.next().unwrap_or_else(|| unreachable!("as many results as trees at most"));
        tree.map(&mut |_| leaves.next().unwrap_or_else(|| unreachable!("one for each leaf")))
    }))
}

/// Fails unless tree `number` has the paths and attributes of the first one.
fn expect_one_structure<T: Tree>(first: &T, other: &T, number: usize) -> Result<()> {
    let differ = |message: String| Err(Error::Argument { argument: "trees".into(), message });
    let [paths, others] =
        [first, other].map(|tree| tree.leaves().into_iter().map(|(path, _)| path).collect::<Vec<_>>());
    for (lacking, lacks, has, there) in [(number, &others, 0, &paths), (0, &paths, number, &others)] {
        if let Some(path) = there.iter().find(|path| !lacks.contains(path)) {
            return differ(format!(
                "tree {has} has '{path}', which tree {lacking} lacks; their structures must be the same"
            ));
        }
    }
    // Leaves are taken by their places: a path that one tree has twice, or another order, would mix them up.
    if paths != others {
        return differ(format!(
            "tree 0 has the paths {paths:?}, tree {number} {others:?}; their structures must be the same"
        ));
    }
    let [attributes, other_attributes] = [first, other].map(|tree| {
        let mut found = Vec::new();
        tree.attributes(&mut found);
        found
    });
    match attributes == other_attributes {
        true => Ok(()),
        false => differ(format!(
            "tree 0 has the attributes {attributes:?}, tree {number} {other_attributes:?}; their structures must be the same"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Array;

    /// A list of layers, each of a weight and perhaps a bias.
    type Layers = Vec<(Array, Option<Array>)>;

    fn layers(values: &[(f32, Option<f32>)]) -> Layers {
        values.iter().map(|(weight, bias)| (Array::scalar(*weight), bias.map(Array::scalar))).collect()
    }

    fn value(array: &Array) -> f32 {
        array.item().unwrap() as f32
    }

    /// Leaves of any paths, also of equal ones.
    #[derive(Debug)]
    struct Named<T>(Vec<(&'static str, T)>);

    impl<T: Leaf> Tree for Named<T> {
        type Leaf = T;
        type With<Y: Leaf> = Named<Y>;
        fn visit<'a>(&'a self, path: &str, f: &mut dyn FnMut(&str, &'a T)) {
            self.0.iter().for_each(|(name, leaf)| f(&join(path, name), leaf));
        }
        fn map<Y: Leaf>(self, f: &mut dyn FnMut(T) -> Y) -> Named<Y> {
            Named(self.0.into_iter().map(|(name, leaf)| (name, f(leaf))).collect())
        }
        fn attributes(&self, _found: &mut Vec<Attribute>) {}
    }

    #[test]
    fn leaves_of_one_path_or_in_another_order_are_told() {
        let named = |names: &[&'static str]| Named(names.iter().map(|name| (*name, Array::scalar(1.0_f32))).collect());
        for other in [&["a", "b"][..], &["b", "a", "a"]] {
            let mapped = map_trees([named(&["a", "a", "b"]), named(other)], |_, [a, _]| [a.clone()]);
            let message = mapped.unwrap_err().to_string();
            assert!(message.contains(r#"tree 0 has the paths ["a", "a", "b"], tree 1"#), "{message}");
        }
        assert!(map_trees([named(&["a", "a"]), named(&["a", "a"])], |_, [a, _]| [a.clone()]).is_ok());
    }

    #[test]
    fn several_trees_become_several_trees() {
        let params = layers(&[(1.0, Some(2.0)), (3.0, None)]);
        let grads = layers(&[(10.0, Some(20.0)), (30.0, None)]);
        let scales = layers(&[(2.0, Some(2.0)), (2.0, None)]);
        let mut paths = Vec::new();
        let [sums, products] = map_trees([params, grads, scales], |path, [p, g, s]| {
            paths.push(path.to_owned());
            [Array::scalar(value(p) + value(g)), Array::scalar(value(g) * value(s))]
        })
        .unwrap();
        assert_eq!(paths, ["0.0", "0.1", "1.0"]);
        let values = |tree: &Layers| tree.leaves().into_iter().map(|(_, leaf)| value(leaf)).collect::<Vec<_>>();
        assert_eq!((values(&sums), values(&products)), (vec![11.0, 22.0, 33.0], vec![20.0, 40.0, 60.0]));
        assert!(sums[1].1.is_none());
    }

    #[test]
    fn trees_of_other_structures_are_refused() {
        let fails = |a: Layers, b: Layers| {
            let added = map_trees([a, b], |_, [a, b]| [Array::scalar(value(a) + value(b))]);
            added.map(drop).unwrap_err().to_string()
        };
        let one = || layers(&[(1.0, Some(2.0))]);
        let two = || layers(&[(1.0, Some(2.0)), (3.0, None)]);
        assert!(fails(two(), one()).contains("tree 0 has '1.0', which tree 1 lacks"), "{}", fails(two(), one()));
        assert!(fails(one(), two()).contains("tree 1 has '1.0', which tree 0 lacks"));
        assert!(fails(one(), layers(&[(1.0, None)])).contains("tree 0 has '0.1', which tree 1 lacks"));
        // The paths are the same: an empty list is an attribute.
        let nested = |lists: usize| vec![Vec::<Array>::new(); lists];
        let differ = map_trees([nested(1), nested(2)], |_, [a, _]| [a.clone()]).unwrap_err().to_string();
        assert!(differ.contains("attributes"), "{differ}");
    }
}
