//! What models are built of.

mod draws;
mod logit_rows;
mod reduction;

pub(crate) use draws::draws;
pub use logit_rows::{loss_shares, reduced_losses};
pub use reduction::Reduction;

fulgurite_ops_macros::operator_files! {
    accumulate_weight_gradient,
    apply_rope,
    attention_by_hand,
    cached_attention,
    class_losses,
    class_losses_backward,
    class_losses_with_gradient,
    cross_entropy,
    dropout,
    embedding,
    fused_add_rms_norm,
    fused_linear_cross_entropy,
    geglu,
    gelu,
    gelu_backward,
    layer_norm,
    linear,
    log_softmax,
    logsumexp,
    merge_add_rms_norm,
    merge_heads,
    merge_rope,
    nll_loss,
    regularized_cross_entropy,
    relu,
    rms_norm,
    rope,
    scaled_dot_product_attention,
    sigmoid,
    silu,
    softmax,
    split_heads,
    swiglu,
}
