//! Arithmetic of models, for the part of a device that a run uses.

use crate::model::Model;

/// Floating-point operations of a training step for each token of sequences of `length` tokens: 6 for each weight of a
/// matrix that a token is multiplied with, and 12 · T · width for the scores and sums of each attention layer, in full,
/// not the causal half of them (Chowdhery et al., PaLM, 2022, appendix B). What is computed again for the backward pass
/// does not count.
pub fn of_token(model: &dyn Model, length: usize) -> f64 {
    let parameters = model.parameters();
    let own_head = parameters.iter().any(|parameter| parameter.name == "lm_head.weight");
    // Rows that are looked up are no products.
    let looked_up = |name: &str| name == "wpe.weight" || (name == "wte.weight" && own_head);
    let matrices = parameters.iter().filter(|parameter| parameter.shape.len() == 2 && !looked_up(&parameter.name));
    let weights: f64 = matrices.map(|parameter| parameter.elements() as f64 * model.used_share(&parameter.name)).sum();
    6.0 * weights + 12.0 * model.attention_width() as f64 * length as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GptConfig;
    use crate::decoder::DecoderConfig;

    #[test]
    fn a_token_costs_what_its_matrices_cost() {
        // nanoGPT's count for 124M without biases and gains: 6 · 123.7M + 12 · 12 · 768 · 1024.
        let gpt2 = GptConfig::named("124M", 50257).unwrap();
        let matrices = 50257 * 768 + 12 * 12 * 768 * 768;
        assert_eq!(of_token(&gpt2, 1024), (6 * matrices + 12 * 12 * 768 * 1024) as f64);
        // The embedding is looked up, the head is a product; two of eight experts count, and the gate.
        let mixtral = DecoderConfig::named("Mixtral-8x7B-v0.1", 0).unwrap();
        let (c, inner, heads, groups, width) = (4096_u64, 14336, 32, 8, 128);
        let attention = c * (heads + 2 * groups) * width + heads * width * c;
        let layer = attention + 2 * 3 * c * inner + 8 * c;
        let weights: u64 = 32 * layer + 32000 * c;
        assert_eq!(of_token(&mixtral, 512), (6 * weights + 12 * 32 * 4096 * 512) as f64);
    }
}
