//! Optimizers.

fulgurite_ops_macros::operator_files! {
    adamw,
    clip_grad_norm,
}
