//! What models are built of.

mod draws;
mod reduction;

pub(crate) use draws::draws;
pub use reduction::Reduction;

fulgurite_ops_macros::operator_files! {
    apply_rope,
    attention_by_hand,
    cached_attention,
    cross_entropy,
    dropout,
    embedding,
    fused_add_rms_norm,
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
