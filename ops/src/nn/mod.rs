//! What models are built of.

mod reduction;

pub use reduction::Reduction;

fulgurite_ops_macros::operator_files! {
    apply_rope,
    cross_entropy,
    dropout,
    embedding,
    linear,
    merge_heads,
    nll_loss,
    scaled_dot_product_attention,
    split_heads,
}
