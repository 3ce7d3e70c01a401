//! The configuration of a decoder: its fields, what they may be, and how one is replaced.

use fulgurite_runtime::operator::nearest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rope_scaling::{RopeAdjustments, RopeScaling};
use crate::activation::Activation;

/// How a layer is normalized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NormClass {
    /// Mean 0 and deviation 1, with a gain and a bias.
    LayerNorm,
    /// Root mean square 1, with a gain.
    RMSNorm,
}

/// What a block computes of each position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MlpClass {
    /// `proj(gelu(fc(x)))`.
    #[serde(rename = "GptNeoxMLP")]
    GptNeox,
    /// SwiGLU: `proj(silu(fc_1(x)) · fc_2(x))`.
    #[serde(rename = "LLaMAMLP")]
    Llama,
    /// GeGLU: `proj(gelu(fc_1(x)) · fc_2(x))`.
    #[serde(rename = "GemmaMLP")]
    Gemma,
    /// A mixture of SwiGLUs: of each position the `n_expert_per_token` experts that `gate` prefers, weighted by the
    /// softmax over these.
    #[serde(rename = "LLaMAMoE")]
    Mixture,
}

/// How GELU is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GeluApproximate {
    /// By the error function.
    None,
    /// By the hyperbolic tangent.
    Tanh,
}

/// What the norms of queries and keys are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormQkType {
    /// Each head by itself, all with the same weights.
    #[default]
    Default,
    /// All heads together.
    Olmo2,
    /// Each head by itself, with weights of its own and no biases. LitGPT has no such norms.
    PerHead,
}

fn yes() -> bool {
    true
}

/// A decoder. The fields are LitGPT's but for those of [`OWN`], and those that LitGPT derives from a model's name and
/// from its checkpoint: `norm_add_unit_offset`, `norm_affine` and `tie_embeddings`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecoderConfig {
    /// The name in the registry.
    pub name: String,
    /// T, the longest sequence in tokens.
    pub block_size: usize,
    /// V, rows of the embedding and of the output projection.
    pub padded_vocab_size: usize,
    /// L, number of blocks.
    pub n_layer: usize,
    /// H, attention heads a block.
    pub n_head: usize,
    /// C, width of the residual stream.
    pub n_embd: usize,
    /// G, heads of keys and values, each shared by H / G heads of queries; H if absent.
    pub n_query_groups: Option<usize>,
    /// D, width of a head; C / H if absent.
    pub head_size: Option<usize>,
    /// How layers are normalized.
    pub norm_class_name: NormClass,
    /// Added to the variance, or to the mean square.
    pub norm_eps: f64,
    /// Whether an RMS norm's gain is its weight and 1, as in Gemma.
    pub norm_add_unit_offset: bool,
    /// Whether norms have weights, and LayerNorm biases; those of OLMo have none.
    #[serde(default = "yes")]
    pub norm_affine: bool,
    /// Whether queries and keys are normalized before they are rotated.
    pub norm_qk: bool,
    /// What these norms are over.
    #[serde(default)]
    pub norm_qk_type: NormQkType,
    /// Whether what attention reads is normalized.
    #[serde(default = "yes")]
    pub norm_1: bool,
    /// Whether what the feed-forward part reads is normalized.
    #[serde(default = "yes")]
    pub norm_2: bool,
    /// Whether these two normalize the sums of the residual stream after each part, in place of what a part reads.
    #[serde(default)]
    pub norm_after_sum: bool,
    /// Whether the residual stream is normalized at its end.
    #[serde(default = "yes")]
    pub final_norm: bool,
    /// Whether the result of attention is normalized before it is added.
    pub post_attention_norm: bool,
    /// Whether the result of the feed-forward part is normalized before it is added.
    pub post_mlp_norm: bool,
    /// Whether attention and the feed-forward part read the same residual stream.
    pub parallel_residual: bool,
    /// Whether the feed-forward part reads what attention reads; needs `parallel_residual`.
    pub shared_attention_norm: bool,
    /// Whether the linear layers of the blocks have biases.
    pub bias: bool,
    /// Whether the projection to queries, keys and values has one even without `bias`.
    pub attn_bias: bool,
    /// Whether the projection of what attention gives has one even without `bias`.
    #[serde(default)]
    pub attn_proj_bias: bool,
    /// Whether the linear layers of the feed-forward part have them even without `bias`.
    #[serde(default)]
    pub mlp_bias: bool,
    /// Whether the output projection has a bias.
    pub lm_head_bias: bool,
    /// Whether the output projection is the embedding.
    pub tie_embeddings: bool,
    /// Whether embeddings are multiplied by √C.
    pub scale_embeddings: bool,
    /// Embeddings are multiplied by it.
    pub embedding_multiplier: Option<f64>,
    /// E, width of the embedding; a linear layer makes C of it, and another one E of C before the output projection.
    pub embedding_width: Option<usize>,
    /// Learned embeddings of positions are added to those of tokens, after so many rows that belong to no position.
    pub learned_positions: Option<usize>,
    /// What a part of a block adds to the residual stream is multiplied by it.
    pub residual_multiplier: Option<f64>,
    /// Logits are divided by it, before they are bent.
    pub logits_divisor: Option<f64>,
    /// Queries, keys and values are clamped to stay within this, before queries and keys are normalized.
    pub attention_clip: Option<f64>,
    /// Scores are multiplied by it, in place of `attention_scores_scalar`.
    pub attention_multiplier: Option<f64>,
    /// Scores are divided by its root; D if absent.
    pub attention_scores_scalar: Option<usize>,
    /// Scores are bent to stay within this: `cap · tanh(score / cap)`.
    pub attention_logit_softcapping: Option<f64>,
    /// Logits likewise.
    pub final_logit_softcapping: Option<f64>,
    /// Number of last positions, its own included, that a position attends to; all before it if absent.
    pub sliding_window_size: Option<usize>,
    /// 1 for each block with that window, 0 for one without; all have it if absent.
    pub sliding_window_indices: Option<Vec<u8>>,
    /// The longest wavelength is about 2 π times this.
    pub rope_base: f64,
    /// The part of each head that is rotated.
    pub rotary_percentage: f64,
    /// Positions are divided by it.
    pub rope_condense_ratio: f64,
    /// Slower rotations.
    pub rope_adjustments: Option<RopeAdjustments>,
    /// Rotations for sequences that are longer than those of the first training; it excludes `rope_adjustments`.
    pub rope_scaling: Option<RopeScaling>,
    /// The base of rotations that `rope_indices` asks for, which are neither adjusted nor scaled.
    pub rope_local_base_freq: Option<f64>,
    /// 1 for each block with `rope_local_base_freq`, 0 for one with `rope_base`; all have the former if absent.
    pub rope_indices: Option<Vec<u8>>,
    /// 1 for each block whose queries and keys are rotated, 0 for one without positions; all are rotated if absent.
    pub rotated_indices: Option<Vec<u8>>,
    /// The feed-forward part.
    pub mlp_class_name: MlpClass,
    /// How its GELU is computed.
    pub gelu_approximate: GeluApproximate,
    /// The function of `GptNeoxMLP` in place of GELU.
    pub mlp_activation: Option<Activation>,
    /// Its inner width; 4 C if absent.
    pub intermediate_size: Option<usize>,
    /// Number of experts of a mixture, 0 otherwise.
    pub n_expert: usize,
    /// Number of them that a position is sent to.
    pub n_expert_per_token: usize,
    /// Inner width of an expert; that of the feed-forward part if absent.
    pub moe_intermediate_size: Option<usize>,
    /// 1 for each block with experts, 0 for one with a SwiGLU; all have experts if absent.
    pub expert_indices: Option<Vec<u8>>,
    /// Whether experts are weighted by the softmax over all of them, rather than over those that are chosen.
    #[serde(default)]
    pub expert_shares_of_all: bool,
}

/// Fields of what LitGPT does not compute, with the values of a decoder that has none of it.
pub(crate) const OWN: [(&str, &str); 16] = [
    ("norm_after_sum", "false"),
    ("final_norm", "true"),
    ("attn_proj_bias", "false"),
    ("mlp_bias", "false"),
    ("embedding_multiplier", "null"),
    ("embedding_width", "null"),
    ("learned_positions", "null"),
    ("residual_multiplier", "null"),
    ("logits_divisor", "null"),
    ("attention_clip", "null"),
    ("attention_multiplier", "null"),
    ("rope_scaling", "null"),
    ("rotated_indices", "null"),
    ("mlp_activation", "null"),
    ("expert_indices", "null"),
    ("expert_shares_of_all", "false"),
];

/// A decoder that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DecoderError {
    /// No model has this name.
    #[error("unknown model '{name}', expected one of {known}")]
    UnknownName {
        /// The requested name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A field that a configuration does not have.
    #[error("a llama has no field '{name}', {hint}")]
    UnknownField {
        /// The field.
        name: String,
        /// The field of a name that is near, or all that there are.
        hint: String,
    },
    /// Not of the form `name=value`.
    #[error("'{0}' is not of the form name=value")]
    Assignment(String),
    /// A value of another type than the field's.
    #[error("{field}: {message}")]
    Value {
        /// The field.
        field: String,
        /// The reason.
        message: String,
    },
    /// A field whose value fits neither its range nor the other fields.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        expected: String,
    },
}

/// A message of serde's about a value, with words for the names of Rust's types.
fn in_words(message: &str) -> String {
    const WORDS: [(&str, &str); 6] = [
        ("expected usize", "expected a whole number"),
        ("expected u8", "expected 0 or 1"),
        ("expected f64", "expected a number"),
        ("expected a boolean", "expected true or false"),
        ("expected struct RopeAdjustments", "expected an object such as {\"factor\": 8}"),
        ("expected internally tagged enum RopeScaling", "expected an object such as {\"rope_type\": \"yarn\"}"),
    ];
    WORDS.iter().fold(message.to_owned(), |message, (of_rust, words)| message.replace(of_rust, words))
}

/// Whether a list has a 1 for a block; without a list each block has.
fn is_one(indices: Option<&[u8]>, layer: usize) -> bool {
    indices.is_none_or(|indices| indices.get(layer) == Some(&1))
}

impl DecoderConfig {
    /// G, heads of keys and values.
    pub fn groups(&self) -> usize {
        self.n_query_groups.unwrap_or(self.n_head)
    }

    /// D, width of a head.
    pub fn head_width(&self) -> usize {
        self.head_size.unwrap_or_else(|| self.n_embd.checked_div(self.n_head).unwrap_or(0))
    }

    /// Inner width of the feed-forward part.
    pub fn inner_width(&self) -> usize {
        self.intermediate_size.unwrap_or(4 * self.n_embd)
    }

    /// Inner width of an expert.
    pub fn expert_width(&self) -> usize {
        self.moe_intermediate_size.unwrap_or_else(|| self.inner_width())
    }

    /// E, width of the embedding.
    pub fn embedding_width(&self) -> usize {
        self.embedding_width.unwrap_or(self.n_embd)
    }

    /// What scores are multiplied by.
    pub fn score_scale(&self) -> f64 {
        let of_root = || 1.0 / (self.attention_scores_scalar.unwrap_or_else(|| self.head_width()) as f64).sqrt();
        self.attention_multiplier.unwrap_or_else(of_root)
    }

    /// Whether block `layer` has experts.
    pub fn has_experts(&self, layer: usize) -> bool {
        self.mlp_class_name == MlpClass::Mixture && is_one(self.expert_indices.as_deref(), layer)
    }

    /// Whether block `layer` rotates queries and keys.
    pub fn rotates(&self, layer: usize) -> bool {
        self.rotated_width() > 0 && is_one(self.rotated_indices.as_deref(), layer)
    }

    /// Whether the rotations of block `layer` are those of `rope_local_base_freq`.
    pub fn is_local(&self, layer: usize) -> bool {
        self.rope_local_base_freq.is_some() && is_one(self.rope_indices.as_deref(), layer)
    }

    /// Number of values of each head that are rotated; the decimals of D times the share are dropped.
    pub fn rotated_width(&self) -> usize {
        (self.rotary_percentage * self.head_width() as f64) as usize
    }

    /// The window of block `layer`, if it has one.
    pub fn window(&self, layer: usize) -> Option<usize> {
        self.sliding_window_size.filter(|_| is_one(self.sliding_window_indices.as_deref(), layer))
    }

    /// Replaces one field: `n_layer=1`, `mlp_class_name=GemmaMLP`, `sliding_window_size=null`. The value is JSON, or a
    /// name without quotes.
    pub fn set(&mut self, assignment: &str) -> Result<(), DecoderError> {
        let (name, text) = assignment.split_once('=').ok_or_else(|| DecoderError::Assignment(assignment.to_owned()))?;
        let (name, text) = (name.trim(), text.trim());
        let wrong =
            |error: serde_json::Error| DecoderError::Value { field: name.to_owned(), message: error.to_string() };
        if name == "name" {
            let message = "selects a configuration of the registry: it is said as the size".to_owned();
            return Err(DecoderError::Value { field: name.to_owned(), message });
        }
        let mut fields = serde_json::to_value(&*self).map_err(wrong)?;
        let Some(field) = fields.get_mut(name) else {
            let known: Vec<&str> = fields.as_object().into_iter().flatten().map(|(known, _)| known.as_str()).collect();
            let hint = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean '{near}'?"),
                None => format!("there are: {}", known.join(", ")),
            };
            return Err(DecoderError::UnknownField { name: name.to_owned(), hint });
        };
        *field = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        *self = serde_json::from_value(fields)
            .map_err(|error| DecoderError::Value { field: name.to_owned(), message: in_words(&error.to_string()) })?;
        Ok(())
    }

    /// The fields in which `other` differs: name, own value, the other's.
    pub fn differences(&self, other: &DecoderConfig) -> Vec<[String; 3]> {
        let [own, others] = [self, other].map(|config| serde_json::to_value(config).unwrap_or_default());
        let fields = own.as_object().into_iter().flatten();
        let both = fields.map(|(name, value)| (name, value, others.get(name).unwrap_or(&Value::Null)));
        both.filter(|(_, own, other)| own != other)
            .map(|(name, own, other)| [name.clone(), own.to_string(), other.to_string()])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nano() -> DecoderConfig {
        DecoderConfig::named("nano", 256).unwrap()
    }

    #[test]
    fn fields_are_replaced_by_name() {
        let mut config = nano();
        for assignment in ["n_layer=1", "mlp_class_name=GemmaMLP", "sliding_window_size = 8", "rope_base=1e4"] {
            config.set(assignment).unwrap();
        }
        config.set("rope_adjustments={\"factor\": 2}").unwrap();
        assert_eq!((config.n_layer, config.mlp_class_name), (1, MlpClass::Gemma));
        assert_eq!((config.sliding_window_size, config.rope_base), (Some(8), 1e4));
        assert_eq!(config.rope_adjustments.unwrap().factor, 2.0);
        config.set("sliding_window_size=null").unwrap();
        assert_eq!(config.sliding_window_size, None);
        for (assignment, expected) in [
            ("n_layers=1", "a llama has no field 'n_layers', did you mean 'n_layer'?"),
            ("rope=1", "a llama has no field 'rope', there are: attention_clip, attention_logit_softcapping, "),
            ("n_layer", "'n_layer' is not of the form name=value"),
            ("n_layer=one", "n_layer: invalid type: string \"one\", expected a whole number"),
            ("n_layer=-1", "n_layer: invalid value: integer `-1`, expected a whole number"),
            ("rope_base=fast", "rope_base: invalid type: string \"fast\", expected a number"),
            ("bias=1", "bias: invalid type: integer `1`, expected true or false"),
            ("rope_adjustments=8", "rope_adjustments: invalid type: integer `8`, expected an object such as"),
            ("sliding_window_indices=[2.5]", "sliding_window_indices: invalid type: floating point `2.5`, expected 0"),
            ("mlp_class_name=MLP", "mlp_class_name: unknown variant `MLP`"),
        ] {
            let message = config.set(assignment).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn differences_name_their_fields() {
        let mut other = nano();
        other.set("rope_base=5").unwrap();
        other.set("bias=true").unwrap();
        let found: Vec<String> = nano().differences(&other).iter().map(|three| three.join(" ")).collect();
        assert_eq!(found, ["bias false true", "rope_base 10000.0 5.0"]);
    }
}
