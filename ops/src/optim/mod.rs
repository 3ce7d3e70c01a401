//! Optimizers.

mod adamw_of_trees;

pub use adamw_of_trees::AdamW;

fulgurite_ops_macros::operator_files! {
    adamw,
    clip_grad_norm,
    clip_grads_with_norm,
    sum_of_squares,
}
