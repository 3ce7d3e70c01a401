//! What models are built of.

pub mod attention_changes;
mod chunked_linear;
pub mod convolved;
mod divergence;
mod draws;
mod logit_rows;
pub mod placed_windows;
mod placement;
mod pooling;
mod preference;
mod reduction;
mod tiled_mlp;

pub use convolved::ConvPadding;
pub use divergence::DivergenceReduction;
pub use draws::draws;
pub use logit_rows::{loss_shares, reduced_losses};
pub use placement::Placement;
pub use reduction::Reduction;
pub use tiled_mlp::tiled_mlp;

fulgurite_ops_macros::operator_files! {
    accumulate_weight_gradient,
    activations,
    adaptive_pools,
    apply_rope,
    attention_by_hand,
    batch_norm,
    cached_attention,
    class_losses,
    class_losses_backward,
    class_losses_with_gradient,
    class_margins,
    convolutions,
    cross_entropy,
    ctc_loss,
    delayed_linear,
    distances,
    dropout,
    dropouts,
    dyt,
    embedding,
    embedding_bag,
    experts_mlp,
    extend_and_attend,
    folding,
    fuse_linear_cross_entropy,
    fused_add_rms_norm,
    fused_linear_cpo,
    fused_linear_cross_entropy,
    fused_linear_dpo,
    fused_linear_grpo,
    fused_linear_jsd,
    fused_linear_kto,
    fused_linear_orpo,
    fused_linear_simpo,
    gates,
    geglu,
    gelu,
    gelu_backward,
    grids,
    group_norm,
    grouped_linear,
    gumbel_softmax,
    interpolate,
    jsd,
    kl_div,
    layer_norm,
    linear,
    linear_quantized,
    local_response_norm,
    log_softmax,
    logsigmoid,
    logsumexp,
    losses,
    margin_losses,
    merge_add_rms_norm,
    merge_heads,
    merge_rope,
    multi_head_attention_forward,
    nll_loss,
    poly_norm,
    pools,
    quantized_weights,
    recurrent_cells,
    recurrent_networks,
    regularized_cross_entropy,
    relu,
    relu_squared,
    rms_norm,
    rope,
    rrelu,
    scaled_dot_product_attention,
    sigmoid,
    silu,
    softmax,
    sparsemax,
    split_heads,
    swiglu,
    triplet_losses,
    tvd,
    unpools,
    window_maxima,
    windowed_attention,
}
