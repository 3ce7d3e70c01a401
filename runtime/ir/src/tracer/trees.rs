//! Trees of tensors in traced code.

use super::fail;
use super::tensor::Tensor;
use crate::failure::Failure;
use crate::tree::{self, Tree};

/// As [`tree::map_trees`], in traced code: trees of several structures are an error of the traced function, as a
/// failing call is, and the first trees come back.
///
/// ```
/// # use fulgurite_ir as fulgurite;
/// use fulgurite::Tensor;
/// use fulgurite::tracer::map_trees;
///
/// /// Plain gradient descent over a whole tree of parameters.
/// fn descend(params: Vec<Tensor>, gradients: Vec<Tensor>) -> Vec<Tensor> {
///     let [next] = map_trees([params, gradients], |_, [parameter, gradient]| [*parameter - *gradient]);
///     next
/// }
/// ```
#[track_caller]
pub fn map_trees<T, const N: usize, const M: usize>(
    trees: [T; N],
    f: impl FnMut(&str, [&Tensor; N]) -> [Tensor; M],
) -> [T; M]
where
    T: Tree<Leaf = Tensor, With<Tensor> = T> + Clone,
{
    let kept: [T; M] = std::array::from_fn(|at| trees[at].clone());
    tree::map_trees(trees, f).unwrap_or_else(|error| {
        fail("map_trees", Failure::new("SameStructure", error.to_string()));
        kept
    })
}
