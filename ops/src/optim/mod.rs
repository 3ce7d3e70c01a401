//! Optimizers.

mod adamw_of_trees;
mod updates;

pub use adamw_of_trees::AdamW;

fulgurite_ops_macros::operator_files! {
    adafactor,
    adam,
    adamw,
    clip_grad_norm,
    clip_grads_with_norm,
    lion,
    muon,
    rmsprop,
    sgd,
    sum_of_squares,
}
