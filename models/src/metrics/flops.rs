//! Arithmetic of models and devices, for the part of a device that a run uses.

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

/// The first entry whose name is a part of the device's, by whole words.
pub(super) fn named<T>(model: &str, devices: impl IntoIterator<Item = (&'static str, T)>) -> Option<(&'static str, T)> {
    let words = |name: &str| name.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_owned).collect::<Vec<_>>();
    let own = words(model);
    let holds = |name: &str| own.windows(words(name).len()).any(|part| part == words(name));
    devices.into_iter().find(|(name, _)| holds(name))
}

/// Operations a second of dense products in `dtype` (`bf16`, `tf32`, `f32`) by a device that is called `model`, as its
/// maker says; `None` for a device that is not in this list.
pub fn of_device(model: &str, dtype: &str) -> Option<f64> {
    // In units of 10¹². NVIDIA's data sheets, without sparsity. The first name that is a part of the device's decides:
    // `H200 NVL` comes before `H200`.
    const DEVICES: [(&str, [f64; 3]); 9] = [
        ("H200 NVL", [835.5, 417.5, 60.0]),
        ("H200", [989.4, 494.7, 66.9]),
        ("H100 PCIe", [756.0, 378.0, 51.2]),
        ("H100 NVL", [835.5, 417.5, 60.0]),
        ("H100", [989.4, 494.7, 66.9]),
        ("A100", [312.0, 156.0, 19.5]),
        ("L40S", [362.05, 183.2, 91.6]),
        ("L4", [121.0, 60.0, 30.3]),
        ("A10", [125.0, 62.5, 31.2]),
    ];
    let (_, [bf16, tf32, f32]) = named(model, DEVICES)?;
    let unit = match dtype {
        "bf16" => bf16,
        "tf32" => tf32,
        "f32" => f32,
        _ => return None,
    };
    Some(unit * 1e12)
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

    #[test]
    fn devices_are_known_by_whole_words() {
        assert_eq!(of_device("NVIDIA H200, 132 multiprocessors", "bf16"), Some(989.4e12));
        assert_eq!(of_device("NVIDIA H200 NVL", "bf16"), Some(835.5e12));
        assert_eq!(of_device("NVIDIA H100 80GB HBM3", "tf32"), Some(494.7e12));
        assert_eq!(of_device("NVIDIA H100 PCIe", "bf16"), Some(756e12));
        assert_eq!(of_device("NVIDIA L40S", "f32"), Some(91.6e12));
        assert_eq!(of_device("NVIDIA A100-SXM4-80GB", "bf16"), Some(312e12));
        for (name, dtype) in [("NVIDIA GeForce", "bf16"), ("NVIDIA L400", "bf16"), ("NVIDIA H200", "f16")] {
            assert_eq!(of_device(name, dtype), None);
        }
    }
}
