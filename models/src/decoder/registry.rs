//! Decoders by name. The values are LitGPT's; whether the output projection is the embedding is as in the published
//! checkpoints.

use super::config::{DecoderConfig, DecoderError, GeluApproximate, MlpClass, NormClass, NormQkType};
use super::rope_scaling::RopeAdjustments;
use crate::activation::Activation;

/// The names of small sizes for CPUs and quick looks, with the vocabulary of the tokenizer.
pub const SMALL_SIZES: [&str; 3] = ["nano", "micro", "mini"];

/// The names of published models.
pub const NAMES: [&str; 37] = [
    "Llama-2-7b",
    "Llama-2-13b",
    "Llama-3-8B",
    "Llama-3.1-8B",
    "Llama-3.2-1B",
    "Llama-3.2-3B",
    "TinyLlama-1.1B",
    "Mistral-7B-v0.1",
    "Mistral-7B-v0.3",
    "Mixtral-8x7B-v0.1",
    "Qwen2.5-0.5B",
    "Qwen2.5-1.5B",
    "Qwen2.5-3B",
    "Qwen2.5-7B",
    "Qwen3-0.6B",
    "Qwen3-1.7B",
    "Qwen3-4B",
    "Qwen3-8B",
    "Gemma-2b",
    "Gemma-2-2b",
    "pythia-70m",
    "pythia-160m",
    "pythia-410m",
    "pythia-1b",
    "pythia-1.4b",
    "Gemma-3-1b-it",
    "Qwen3-30B-A3B",
    "phi-2",
    "Phi-3-mini-4k-instruct",
    "OLMo-1B-hf",
    "OLMo-2-1124-7B",
    "SmolLM3-3B",
    "granite-3.1-2b-base",
    "starcoder2-3b",
    "stablelm-3b-4e1t",
    "falcon-7b",
    "opt-125m",
];

/// Other names in use.
const ALIASES: [(&str, &str); 5] = [
    ("Llama-2-7b-hf", "Llama-2-7b"),
    ("Llama-2-13b-hf", "Llama-2-13b"),
    ("tiny-llama-1.1b", "TinyLlama-1.1B"),
    ("Mistral-7B", "Mistral-7B-v0.3"),
    ("Mixtral-8x7B", "Mixtral-8x7B-v0.1"),
];

/// L, H and C.
type Sizes = [usize; 3];

/// GPT-NeoX as Pythia has it: layer norms, biases, a quarter of each head rotated, both parts of a block read the same.
fn neox([n_layer, n_head, n_embd]: Sizes) -> DecoderConfig {
    DecoderConfig {
        name: String::new(),
        block_size: 2048,
        padded_vocab_size: 50_304,
        n_layer,
        n_head,
        n_embd,
        n_query_groups: None,
        head_size: None,
        norm_class_name: NormClass::LayerNorm,
        norm_eps: 1e-5,
        norm_add_unit_offset: false,
        norm_affine: true,
        norm_qk: false,
        norm_qk_type: NormQkType::Default,
        norm_1: true,
        norm_2: true,
        norm_after_sum: false,
        final_norm: true,
        post_attention_norm: false,
        post_mlp_norm: false,
        parallel_residual: true,
        shared_attention_norm: false,
        bias: true,
        attn_bias: false,
        attn_proj_bias: false,
        mlp_bias: false,
        lm_head_bias: false,
        tie_embeddings: false,
        scale_embeddings: false,
        embedding_multiplier: None,
        embedding_width: None,
        learned_positions: None,
        residual_multiplier: None,
        logits_divisor: None,
        attention_clip: None,
        attention_multiplier: None,
        attention_scores_scalar: None,
        attention_logit_softcapping: None,
        final_logit_softcapping: None,
        sliding_window_size: None,
        sliding_window_indices: None,
        rope_base: 10_000.0,
        rotary_percentage: 0.25,
        rope_condense_ratio: 1.0,
        rope_adjustments: None,
        rope_scaling: None,
        rope_local_base_freq: None,
        rope_indices: None,
        rotated_indices: None,
        mlp_class_name: MlpClass::GptNeox,
        gelu_approximate: GeluApproximate::None,
        mlp_activation: None,
        intermediate_size: None,
        n_expert: 0,
        n_expert_per_token: 0,
        moe_intermediate_size: None,
        expert_indices: None,
        expert_shares_of_all: false,
    }
}

/// A Llama of 32,000 tokens and a context of 4096.
fn llama(sizes: Sizes, intermediate_size: usize) -> DecoderConfig {
    DecoderConfig {
        block_size: 4096,
        padded_vocab_size: 32_000,
        norm_class_name: NormClass::RMSNorm,
        parallel_residual: false,
        bias: false,
        rotary_percentage: 1.0,
        mlp_class_name: MlpClass::Llama,
        intermediate_size: Some(intermediate_size),
        ..neox(sizes)
    }
}

/// A Llama 3; from 3.1 on with rotations that are slower by `factor`.
fn llama3(sizes: Sizes, intermediate_size: usize, factor: Option<f64>) -> DecoderConfig {
    let adjustments = |factor| RopeAdjustments {
        factor,
        low_freq_factor: Some(1.0),
        high_freq_factor: Some(4.0),
        original_max_seq_len: Some(8192),
    };
    DecoderConfig {
        block_size: if factor.is_some() { 131_072 } else { 8192 },
        padded_vocab_size: 128_256,
        n_query_groups: Some(8),
        rope_base: 500_000.0,
        rope_adjustments: factor.map(adjustments),
        ..llama(sizes, intermediate_size)
    }
}

/// A Mistral, with eight heads of keys and values.
fn mistral() -> DecoderConfig {
    DecoderConfig { n_query_groups: Some(8), ..llama([32, 32, 4096], 14_336) }
}

/// A Qwen 2.5: a Llama with biases of queries, keys and values.
fn qwen25(sizes: Sizes, groups: usize, intermediate_size: usize, block_size: usize) -> DecoderConfig {
    DecoderConfig {
        block_size,
        padded_vocab_size: 151_936,
        n_query_groups: Some(groups),
        attn_bias: true,
        norm_eps: 1e-6,
        rope_base: 1e6,
        ..llama(sizes, intermediate_size)
    }
}

/// A Qwen 3: a Llama with norms of queries and keys.
fn qwen3(sizes: Sizes, intermediate_size: usize) -> DecoderConfig {
    DecoderConfig {
        attn_bias: false,
        norm_qk: true,
        head_size: Some(128),
        ..qwen25(sizes, 8, intermediate_size, 40_960)
    }
}

fn gemma(sizes: Sizes, groups: usize, intermediate_size: usize) -> DecoderConfig {
    DecoderConfig {
        padded_vocab_size: 256_000,
        n_query_groups: Some(groups),
        head_size: Some(256),
        norm_add_unit_offset: true,
        scale_embeddings: true,
        tie_embeddings: true,
        mlp_class_name: MlpClass::Gemma,
        gelu_approximate: GeluApproximate::Tanh,
        ..llama(sizes, intermediate_size)
    }
}

/// A Gemma 3: norms of queries and keys, and of what each part adds; windows, with rotations of their own, in all but
/// every sixth block.
fn gemma3(sizes: Sizes, groups: usize, intermediate_size: usize, window: usize) -> DecoderConfig {
    let local: Vec<u8> = (1..=sizes[0]).map(|number| u8::from(number % 6 != 0)).collect();
    DecoderConfig {
        block_size: 131_072,
        padded_vocab_size: 262_144,
        norm_eps: 1e-6,
        norm_qk: true,
        post_attention_norm: true,
        post_mlp_norm: true,
        attention_scores_scalar: Some(256),
        sliding_window_size: Some(window),
        sliding_window_indices: Some(local.clone()),
        rope_base: 1e6,
        rope_local_base_freq: Some(10_000.0),
        rope_indices: Some(local),
        ..gemma(sizes, groups, intermediate_size)
    }
}

/// A Phi: Pythia's blocks with one norm for both parts.
fn phi(sizes: Sizes, rotary_percentage: f64) -> DecoderConfig {
    DecoderConfig {
        padded_vocab_size: 51_200,
        shared_attention_norm: true,
        lm_head_bias: true,
        rotary_percentage,
        gelu_approximate: GeluApproximate::Tanh,
        ..neox(sizes)
    }
}

/// A mixture with Qwen 3's attention.
fn qwen3_moe(sizes: Sizes, groups: usize, experts: [usize; 3]) -> DecoderConfig {
    let [n_expert, n_expert_per_token, width] = experts;
    DecoderConfig {
        n_query_groups: Some(groups),
        mlp_class_name: MlpClass::Mixture,
        moe_intermediate_size: Some(width),
        n_expert,
        n_expert_per_token,
        ..qwen3(sizes, 3 * sizes[2])
    }
}

/// An OLMo: a Llama whose layer norms have no weights.
fn olmo(sizes: Sizes, intermediate_size: usize) -> DecoderConfig {
    DecoderConfig {
        block_size: 2048,
        padded_vocab_size: 50_304,
        norm_class_name: NormClass::LayerNorm,
        norm_affine: false,
        ..llama(sizes, intermediate_size)
    }
}

/// An OLMo 2: norms of what each part adds in place of what it reads, and of all queries and all keys.
fn olmo2(sizes: Sizes, intermediate_size: usize) -> DecoderConfig {
    DecoderConfig {
        padded_vocab_size: 100_352,
        norm_eps: 1e-6,
        norm_qk: true,
        norm_qk_type: NormQkType::Olmo2,
        norm_1: false,
        norm_2: false,
        post_attention_norm: true,
        post_mlp_norm: true,
        rope_base: 500_000.0,
        ..llama(sizes, intermediate_size)
    }
}

/// A SmolLM 3: a Llama that rotates nothing in every fourth block.
fn smollm3(sizes: Sizes, groups: usize, intermediate_size: usize) -> DecoderConfig {
    DecoderConfig {
        block_size: 65_536,
        padded_vocab_size: 128_256,
        n_query_groups: Some(groups),
        norm_eps: 1e-6,
        tie_embeddings: true,
        rope_base: 5e6,
        rotated_indices: Some((1..=sizes[0]).map(|number| u8::from(number % 4 != 0)).collect()),
        ..llama(sizes, intermediate_size)
    }
}

/// A Granite: a Llama with four factors.
fn granite(sizes: Sizes, groups: usize, intermediate_size: usize) -> DecoderConfig {
    DecoderConfig {
        block_size: 131_072,
        padded_vocab_size: 49_152,
        n_query_groups: Some(groups),
        tie_embeddings: true,
        embedding_multiplier: Some(12.0),
        residual_multiplier: Some(0.22),
        logits_divisor: Some(8.0),
        attention_multiplier: Some(0.015_625),
        rope_base: 5e6,
        ..llama(sizes, intermediate_size)
    }
}

/// A StarCoder 2: layer norms, biases and GELU in Llama's order.
fn starcoder2(sizes: Sizes, groups: usize, intermediate_size: usize) -> DecoderConfig {
    DecoderConfig {
        block_size: 16_384,
        padded_vocab_size: 49_152,
        n_query_groups: Some(groups),
        tie_embeddings: true,
        sliding_window_size: Some(4096),
        rope_base: 999_999.442_035_881_3,
        gelu_approximate: GeluApproximate::Tanh,
        parallel_residual: false,
        rotary_percentage: 1.0,
        intermediate_size: Some(intermediate_size),
        ..neox(sizes)
    }
}

/// A StableLM: layer norms, SwiGLU, a quarter of each head rotated.
fn stablelm(sizes: Sizes, intermediate_size: usize) -> DecoderConfig {
    DecoderConfig {
        block_size: 4096,
        padded_vocab_size: 50_304,
        parallel_residual: false,
        bias: false,
        mlp_class_name: MlpClass::Llama,
        intermediate_size: Some(intermediate_size),
        ..neox(sizes)
    }
}

/// A Falcon: one head of keys and values, one norm for both parts, no biases.
fn falcon(sizes: Sizes) -> DecoderConfig {
    DecoderConfig {
        padded_vocab_size: 65_024,
        n_query_groups: Some(1),
        shared_attention_norm: true,
        bias: false,
        tie_embeddings: true,
        rotary_percentage: 1.0,
        ..neox(sizes)
    }
}

/// An OPT: learned positions, ReLU. Two rows come before that of position 0.
fn opt(sizes: Sizes) -> DecoderConfig {
    DecoderConfig {
        padded_vocab_size: 50_272,
        parallel_residual: false,
        tie_embeddings: true,
        learned_positions: Some(2),
        rotary_percentage: 0.0,
        mlp_activation: Some(Activation::Relu),
        ..neox(sizes)
    }
}

/// A size for training from nothing.
fn small(sizes: Sizes, intermediate_size: usize, block_size: usize, vocabulary: usize) -> DecoderConfig {
    DecoderConfig {
        block_size,
        padded_vocab_size: vocabulary,
        n_query_groups: Some(sizes[1] / 2),
        ..llama(sizes, intermediate_size)
    }
}

fn tied(config: DecoderConfig) -> DecoderConfig {
    DecoderConfig { tie_embeddings: true, ..config }
}

impl DecoderConfig {
    /// The decoder of this name, whose case does not matter. `vocabulary` is what the sizes of [`SMALL_SIZES`] get.
    pub fn named(name: &str, vocabulary: usize) -> Result<Self, DecoderError> {
        let canonical = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name)).map_or(name, |(_, own)| own);
        let known = SMALL_SIZES.into_iter().chain(NAMES).find(|known| known.eq_ignore_ascii_case(canonical));
        let unknown = || DecoderError::UnknownName {
            name: name.to_owned(),
            known: [&SMALL_SIZES[..], &NAMES].concat().join(", "),
        };
        let known = known.ok_or_else(unknown)?;
        let config = match known {
            "nano" => small([2, 4, 64], 176, 64, vocabulary),
            "micro" => small([4, 4, 128], 352, 64, vocabulary),
            "mini" => small([6, 6, 192], 512, 128, vocabulary),
            "Llama-2-7b" => llama([32, 32, 4096], 11_008),
            "Llama-2-13b" => llama([40, 40, 5120], 13_824),
            "Llama-3-8B" => llama3([32, 32, 4096], 14_336, None),
            "Llama-3.1-8B" => llama3([32, 32, 4096], 14_336, Some(8.0)),
            "Llama-3.2-1B" => tied(llama3([16, 32, 2048], 8192, Some(32.0))),
            "Llama-3.2-3B" => tied(llama3([28, 24, 3072], 8192, Some(32.0))),
            "TinyLlama-1.1B" => {
                DecoderConfig { block_size: 2048, n_query_groups: Some(4), ..llama([22, 32, 2048], 5632) }
            }
            "Mistral-7B-v0.1" => DecoderConfig { sliding_window_size: Some(4096), ..mistral() },
            "Mistral-7B-v0.3" => {
                DecoderConfig { padded_vocab_size: 32_768, block_size: 32_768, rope_base: 1e6, ..mistral() }
            }
            "Mixtral-8x7B-v0.1" => DecoderConfig {
                block_size: 32_768,
                rope_base: 1e6,
                mlp_class_name: MlpClass::Mixture,
                n_expert: 8,
                n_expert_per_token: 2,
                ..mistral()
            },
            "Qwen2.5-0.5B" => tied(qwen25([24, 14, 896], 2, 4864, 32_768)),
            "Qwen2.5-1.5B" => tied(qwen25([28, 12, 1536], 2, 8960, 131_072)),
            "Qwen2.5-3B" => tied(qwen25([36, 16, 2048], 2, 11_008, 32_768)),
            "Qwen2.5-7B" => DecoderConfig { padded_vocab_size: 152_064, ..qwen25([28, 28, 3584], 4, 18_944, 131_072) },
            "Qwen3-0.6B" => tied(qwen3([28, 16, 1024], 3072)),
            "Qwen3-1.7B" => tied(qwen3([28, 16, 2048], 6144)),
            "Qwen3-4B" => tied(qwen3([36, 32, 2560], 9728)),
            "Qwen3-8B" => qwen3([36, 32, 4096], 12_288),
            "Gemma-2b" => gemma([18, 8, 2048], 1, 16_384),
            "Gemma-2-2b" => DecoderConfig {
                block_size: 8192,
                post_attention_norm: true,
                post_mlp_norm: true,
                attention_scores_scalar: Some(256),
                attention_logit_softcapping: Some(50.0),
                final_logit_softcapping: Some(30.0),
                sliding_window_size: Some(4096),
                // Every other block, the first one included.
                sliding_window_indices: Some([1, 0].repeat(13)),
                ..gemma([26, 8, 2304], 4, 9216)
            },
            "pythia-70m" => neox([6, 8, 512]),
            "pythia-160m" => neox([12, 12, 768]),
            "pythia-410m" => neox([24, 16, 1024]),
            "pythia-1b" => neox([16, 8, 2048]),
            "pythia-1.4b" => neox([24, 16, 2048]),
            "Gemma-3-1b-it" => gemma3([26, 4, 1152], 1, 6912, 512),
            "Qwen3-30B-A3B" => qwen3_moe([48, 32, 2048], 4, [128, 8, 768]),
            "phi-2" => phi([32, 32, 2560], 0.4),
            // The file of transformers has a window that is shorter by one.
            "Phi-3-mini-4k-instruct" => DecoderConfig {
                padded_vocab_size: 32_064,
                sliding_window_size: Some(2048),
                ..llama([32, 32, 3072], 8192)
            },
            "OLMo-1B-hf" => tied(olmo([16, 16, 2048], 8192)),
            "OLMo-2-1124-7B" => olmo2([32, 32, 4096], 11_008),
            "SmolLM3-3B" => smollm3([36, 16, 2048], 4, 11_008),
            "granite-3.1-2b-base" => granite([40, 32, 2048], 8, 8192),
            "starcoder2-3b" => starcoder2([30, 24, 3072], 2, 12_288),
            "stablelm-3b-4e1t" => stablelm([32, 32, 2560], 6912),
            "falcon-7b" => falcon([32, 71, 4544]),
            "opt-125m" => opt([12, 12, 768]),
            _ => return Err(unknown()),
        };
        let config = DecoderConfig { name: known.to_owned(), ..config };
        config.validate()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    /// As published with the checkpoints, an output projection that is the embedding counted once.
    #[test]
    fn models_have_the_published_parameter_counts() {
        let counts: [usize; 37] = [
            6_738_415_616,
            13_015_864_320,
            8_030_261_248,
            8_030_261_248,
            1_235_814_400,
            3_212_749_824,
            1_100_048_384,
            7_241_732_096,
            7_248_023_552,
            46_702_792_704,
            494_032_768,
            1_543_714_304,
            3_085_938_688,
            7_615_616_512,
            596_049_920,
            1_720_574_976,
            4_022_468_096,
            8_190_735_360,
            2_506_172_416,
            2_614_341_888,
            70_426_624,
            162_322_944,
            405_334_016,
            1_011_781_632,
            1_414_647_808,
            999_885_952,
            30_532_122_624,
            2_779_683_840,
            3_821_079_552,
            1_176_764_416,
            7_298_617_344,
            3_075_098_624,
            2_533_525_504,
            3_030_371_328,
            2_795_443_200,
            6_921_720_704,
            125_239_296,
        ];
        for (name, count) in NAMES.into_iter().zip(counts) {
            assert_eq!(DecoderConfig::named(name, 256).unwrap().parameter_count(), count, "{name}");
        }
    }

    #[test]
    fn every_name_and_alias_is_known_in_any_case() {
        for name in SMALL_SIZES.into_iter().chain(NAMES).chain(ALIASES.map(|(alias, _)| alias)) {
            let config = DecoderConfig::named(&name.to_uppercase(), 300).unwrap();
            assert_eq!(config, DecoderConfig::named(name, 300).unwrap());
            // What is stored in a checkpoint is read back.
            let stored = serde_json::to_string(&crate::ModelConfig::from(config.clone())).unwrap();
            assert_eq!(serde_json::from_str::<crate::ModelConfig>(&stored).unwrap(), config.into());
        }
        let message = DecoderConfig::named("124M", 256).unwrap_err().to_string();
        assert!(
            message.starts_with("unknown model '124M', expected one of nano, micro, mini, Llama-2-7b"),
            "{message}"
        );
    }
}
