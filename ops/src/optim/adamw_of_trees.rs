//! AdamW over whole trees of parameters.

use fulgurite_runtime::Tensor;
use fulgurite_runtime::tracer::{map_trees, scope};
use fulgurite_runtime::tree::Tree;

use super::adamw;

/// The numbers of AdamW that stay the same from step to step, with PyTorch's defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct AdamW {
    /// Decay of the running mean of the gradients.
    pub beta1: f64,
    /// Decay of the running mean of their squares.
    pub beta2: f64,
    /// What is added to the root of the mean of squares.
    pub eps: f64,
    /// By which part, times the learning rate, a step shrinks every parameter.
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> AdamW {
        AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 }
    }
}

impl AdamW {
    /// One update of every parameter of a tree by [`mod@adamw`]. The state is the parameters and the running means of
    /// their gradients and of the squares, three trees of one structure; the means begin as zeros. `lr` and `step`
    /// (from 1) are zero-dimensional f32 tensors. Lines of the trace have names such as `optim.layers.0.weight`.
    #[track_caller]
    pub fn update<T>(&self, state: (T, T, T), gradients: T, lr: Tensor, step: Tensor) -> (T, T, T)
    where
        T: Tree<Leaf = Tensor, With<Tensor> = T> + Clone,
    {
        let (params, means, squares) = state;
        let [params, means, squares] =
            map_trees([params, means, squares, gradients], |path, [param, mean, square, grad]| {
                let name = if path.is_empty() { "optim".to_owned() } else { format!("optim.{path}") };
                let (param, mean, square) = scope(&name, || {
                    adamw::with(*param, *grad, *mean, *square, lr, step)
                        .beta1(self.beta1)
                        .beta2(self.beta2)
                        .eps(self.eps)
                        .weight_decay(self.weight_decay)
                        .call()
                });
                [param, mean, square]
            });
        (params, means, squares)
    }
}
