//! Trees of tensors whose form is known at run time: nested lists and dictionaries, as a file or another language gives
//! them. Where the form is known to the compiler, `#[derive(Tree)]` has fields in place of names.

use std::collections::BTreeMap;

use crate::argument::{Attribute, Scalar};
use crate::error::{Error, Result};
use crate::tree::{Leaf, Tree, join};

/// How deep lists and dictionaries nest at most.
pub const MAX_DEPTH: usize = 64;

/// A leaf, a list or a dictionary of such trees. A function compiled for one form is compiled again for another: the
/// form is a part of its key, as the lengths of lists are. The entries of a dictionary are in the order of their names.
#[derive(Debug, Clone, PartialEq)]
pub struct DynTree<L> {
    node: Node<L>,
    /// The lists and dictionaries on the longest way to a leaf.
    depth: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Node<L> {
    Leaf(L),
    List(Vec<DynTree<L>>),
    Dict(BTreeMap<String, DynTree<L>>),
}

/// The form of a tree: what is left of it without its leaves.
pub type TreeForm = DynTree<()>;

impl<L> From<L> for DynTree<L> {
    fn from(leaf: L) -> DynTree<L> {
        DynTree { node: Node::Leaf(leaf), depth: 0 }
    }
}

impl<L> DynTree<L> {
    /// A list. Its elements have the names `0`, `1`, ...
    ///
    /// # Errors
    /// If it nests deeper than [`MAX_DEPTH`].
    pub fn list(items: impl IntoIterator<Item = DynTree<L>>) -> Result<DynTree<L>> {
        let items: Vec<DynTree<L>> = items.into_iter().collect();
        let depth = above(items.iter())?;
        Ok(DynTree { node: Node::List(items), depth })
    }

    /// A dictionary.
    ///
    /// # Errors
    /// If a name is empty, has a dot, or comes twice, or if it nests deeper than [`MAX_DEPTH`].
    pub fn dict<N: Into<String>>(entries: impl IntoIterator<Item = (N, DynTree<L>)>) -> Result<DynTree<L>> {
        let mut known = BTreeMap::new();
        for (name, tree) in entries {
            let name: String = name.into();
            if name.is_empty() || name.contains('.') {
                let message = "is no name of an entry, expected one without dots: dots are between names".to_owned();
                return Err(Error::Argument { argument: format!("'{name}'"), message });
            }
            if let Some(tree) = known.insert(name.clone(), tree) {
                drop(tree);
                let message = "names two entries of one dictionary, expected each name once".to_owned();
                return Err(Error::Argument { argument: name, message });
            }
        }
        let depth = above(known.values())?;
        Ok(DynTree { node: Node::Dict(known), depth })
    }

    /// The leaf, if it is one.
    pub fn as_leaf(&self) -> Option<&L> {
        match &self.node {
            Node::Leaf(leaf) => Some(leaf),
            Node::List(_) | Node::Dict(_) => None,
        }
    }

    /// What is at a path: `h.0.weight`. The whole tree at the empty path.
    pub fn get(&self, path: &str) -> Option<&DynTree<L>> {
        path.split('.').filter(|_| !path.is_empty()).try_fold(self, |tree, name| match &tree.node {
            Node::Leaf(_) => None,
            Node::List(items) => items.get(name.parse::<usize>().ok().filter(|at| at.to_string() == name)?),
            Node::Dict(entries) => entries.get(name),
        })
    }

    /// The names of the elements of a list or of the entries of a dictionary, with what they name; none of a leaf.
    pub fn entries(&self) -> Vec<(String, &DynTree<L>)> {
        match &self.node {
            Node::Leaf(_) => Vec::new(),
            Node::List(items) => items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect(),
            Node::Dict(entries) => entries.iter().map(|(name, entry)| (name.clone(), entry)).collect(),
        }
    }

    /// The leaves in order, and the form.
    pub fn flatten(self) -> (Vec<L>, TreeForm) {
        let mut leaves = Vec::new();
        let form = self.replaced(&mut |leaf| leaves.push(leaf));
        (leaves, form)
    }

    /// The tree of this form that has these leaves.
    ///
    /// # Errors
    /// If the form has another number of leaves.
    pub fn unflatten<M>(self, leaves: impl IntoIterator<Item = M>) -> Result<DynTree<M>> {
        let mut expected = 0;
        let form = self.replaced(&mut |_| expected += 1);
        let mut leaves: Vec<M> = leaves.into_iter().collect();
        if leaves.len() != expected {
            let message = format!("are {}, the tree has {expected}", leaves.len());
            return Err(Error::Argument { argument: "leaves".into(), message });
        }
        leaves.reverse();
        Ok(form.replaced(&mut |()| leaves.pop().unwrap_or_else(|| unreachable!("counted above"))))
    }

    fn replaced<M>(self, f: &mut dyn FnMut(L) -> M) -> DynTree<M> {
        let node = match self.node {
            Node::Leaf(leaf) => Node::Leaf(f(leaf)),
            Node::List(items) => Node::List(items.into_iter().map(|item| item.replaced(f)).collect()),
            Node::Dict(entries) => {
                Node::Dict(entries.into_iter().map(|(name, entry)| (name, entry.replaced(f))).collect())
            }
        };
        DynTree { node, depth: self.depth }
    }
}

/// The depth of what holds these trees.
fn above<'t, L: 't>(trees: impl Iterator<Item = &'t DynTree<L>>) -> Result<usize> {
    let depth = trees.map(|tree| tree.depth).max().unwrap_or(0) + 1;
    if depth <= MAX_DEPTH {
        return Ok(depth);
    }
    let message = format!("nests {depth} lists and dictionaries, expected at most {MAX_DEPTH}");
    Err(Error::Argument { argument: "tree".into(), message })
}

impl<L: Leaf> Tree for DynTree<L> {
    type Leaf = L;
    type With<U: Leaf> = DynTree<U>;

    fn visit<'a>(&'a self, path: &str, f: &mut dyn FnMut(&str, &'a L)) {
        match &self.node {
            Node::Leaf(leaf) => f(path, leaf),
            Node::List(items) => {
                items.iter().enumerate().for_each(|(at, item)| item.visit(&join(path, &at.to_string()), f));
            }
            Node::Dict(entries) => entries.iter().for_each(|(name, entry)| entry.visit(&join(path, name), f)),
        }
    }

    fn map<U: Leaf>(self, f: &mut dyn FnMut(L) -> U) -> DynTree<U> {
        self.replaced(f)
    }

    fn attributes(&self, found: &mut Vec<Attribute>) {
        match &self.node {
            Node::Leaf(_) => found.push(Attribute::None),
            Node::List(items) => {
                found.push(Attribute::Scalar(Scalar::Int(items.len() as i64)));
                items.iter().for_each(|item| item.attributes(found));
            }
            Node::Dict(entries) => {
                let names = entries.keys().map(|name| Attribute::Text(name.as_str().into()));
                found.push(Attribute::List(names.collect()));
                entries.values().for_each(|entry| entry.attributes(found));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Device, TensorMeta};

    type Metas = DynTree<TensorMeta>;

    fn leaf(extent: usize) -> Metas {
        TensorMeta::new([extent], DType::F32, Device::CPU).into()
    }

    fn key(tree: &Metas) -> Vec<Attribute> {
        let mut found = Vec::new();
        tree.attributes(&mut found);
        found
    }

    #[test]
    fn leaves_have_paths_and_are_in_the_order_of_names() {
        let layers = DynTree::list((1..3).map(leaf)).unwrap();
        let tree = DynTree::dict([("w", leaf(3)), ("h", layers), ("none", DynTree::list([]).unwrap())]).unwrap();
        let leaves: Vec<(String, usize)> = tree.leaves().into_iter().map(|(path, leaf)| (path, leaf.len())).collect();
        assert_eq!(leaves, [("h.0".to_owned(), 1), ("h.1".to_owned(), 2), ("w".to_owned(), 3)]);
        let found = |path: &str| tree.get(path).and_then(DynTree::as_leaf).map(TensorMeta::len);
        assert_eq!(["h.0", "h.1", "w"].map(found), [Some(1), Some(2), Some(3)]);
        assert!(["", "h", "h.2", "h.00", "h.+1", "w.0", "x", "h.", "."].map(found).iter().all(Option::is_none));
        assert_eq!(tree.get(""), Some(&tree));
        let names: Vec<String> = tree.entries().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["h", "none", "w"]);
    }

    #[test]
    fn a_flattened_tree_is_made_again_of_its_leaves() {
        let tree = DynTree::dict([("a", DynTree::list((1..4).map(leaf)).unwrap()), ("b", leaf(7))]).unwrap();
        let (leaves, form) = tree.clone().flatten();
        assert_eq!(form.clone().unflatten(leaves.clone()).unwrap(), tree);
        for count in [0, 3, 5] {
            let wrong = leaves.iter().cycle().take(count).cloned();
            let message = form.clone().unflatten(wrong).unwrap_err().to_string();
            assert!(message.contains(&format!("are {count}, the tree has 4")), "{message}");
        }
    }

    #[test]
    fn the_key_is_that_of_the_form() {
        let list = |items: Vec<Metas>| DynTree::list(items).unwrap();
        let dict = |entries: Vec<(&str, Metas)>| DynTree::dict(entries).unwrap();
        // All have two leaves, or none.
        let forms = [
            list(vec![leaf(1), leaf(1)]),
            list(vec![list(vec![leaf(1), leaf(1)])]),
            list(vec![leaf(1), list(vec![leaf(1)])]),
            list(vec![list(vec![leaf(1)]), leaf(1)]),
            dict(vec![("a", leaf(1)), ("b", leaf(1))]),
            dict(vec![("a", leaf(1)), ("c", leaf(1))]),
            dict(vec![("0", leaf(1)), ("1", leaf(1))]),
            dict(vec![("a", dict(vec![("a", leaf(1)), ("b", leaf(1))]))]),
            list(vec![]),
            dict(vec![]),
            dict(vec![("a", list(vec![]))]),
            list(vec![list(vec![])]),
        ];
        for (i, one) in forms.iter().enumerate() {
            for (j, other) in forms.iter().enumerate() {
                assert_eq!(key(one) == key(other), i == j, "{one:?} and {other:?}");
                assert_eq!(one.clone().flatten().1 == other.clone().flatten().1, i == j, "{one:?} and {other:?}");
            }
        }
        // Leaves are no part of it.
        assert_eq!(key(&list(vec![leaf(1), leaf(2)])), key(&forms[0]));
        // The order in which entries are given neither.
        assert_eq!(key(&dict(vec![("b", leaf(1)), ("a", leaf(1))])), key(&forms[4]));
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        for (name, expected) in
            [("", "no name of an entry"), ("a.b", "no name of an entry"), ("a", "names two entries")]
        {
            let message = DynTree::dict([("a", leaf(1)), (name, leaf(1))]).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        let mut tree = leaf(1);
        for _ in 0..MAX_DEPTH {
            tree = DynTree::list([tree]).unwrap();
        }
        for refused in [DynTree::list([tree.clone()]), DynTree::dict([("a", tree)])] {
            let message = refused.unwrap_err().to_string();
            assert!(message.contains("nests 65 lists"), "{message}");
        }
    }
}
