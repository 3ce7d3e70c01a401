//! The configuration of a decoder: its fields, what they may be, and how one is replaced.

use fulgurite_runtime::operator::nearest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// Slower rotations for longer sequences than a model was first trained on. With `factor` alone all are slower by it;
/// with the other fields, as Llama 3.1 has it, those are whose wavelength is long.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RopeAdjustments {
    /// Factor by which rotations are slower.
    pub factor: f64,
    /// Rotations that turn fewer times than this within `original_max_seq_len` are slower by the whole factor.
    #[serde(default)]
    pub low_freq_factor: Option<f64>,
    /// Rotations that turn more times than this stay as they are.
    #[serde(default)]
    pub high_freq_factor: Option<f64>,
    /// The context of the first training.
    #[serde(default)]
    pub original_max_seq_len: Option<usize>,
}

/// A decoder. The fields are LitGPT's, but for `norm_add_unit_offset` and `tie_embeddings`, which LitGPT derives from a
/// model's name and from its checkpoint.
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
    /// Whether queries and keys are normalized, each head by itself, before they are rotated.
    pub norm_qk: bool,
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
    /// Whether the output projection has a bias.
    pub lm_head_bias: bool,
    /// Whether the output projection is the embedding.
    pub tie_embeddings: bool,
    /// Whether embeddings are multiplied by √C.
    pub scale_embeddings: bool,
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
    /// The feed-forward part.
    pub mlp_class_name: MlpClass,
    /// How its GELU is computed.
    pub gelu_approximate: GeluApproximate,
    /// Its inner width; 4 C if absent.
    pub intermediate_size: Option<usize>,
    /// Number of experts of a mixture, 0 otherwise.
    pub n_expert: usize,
    /// Number of them that a position is sent to.
    pub n_expert_per_token: usize,
}

/// Experts of all blocks. A small file could otherwise ask for millions of tensors; the largest published mixtures have
/// about 20,000.
const MOST_EXPERTS: usize = 1 << 16;

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
    const WORDS: [(&str, &str); 5] = [
        ("expected usize", "expected a whole number"),
        ("expected u8", "expected 0 or 1"),
        ("expected f64", "expected a number"),
        ("expected a boolean", "expected true or false"),
        ("expected struct RopeAdjustments", "expected an object such as {\"factor\": 8}"),
    ];
    WORDS.iter().fold(message.to_owned(), |message, (of_rust, words)| message.replace(of_rust, words))
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

    /// Number of values of each head that are rotated; the decimals of D times the share are dropped.
    pub fn rotated_width(&self) -> usize {
        (self.rotary_percentage * self.head_width() as f64) as usize
    }

    /// The window of block `layer`, if it has one.
    pub fn window(&self, layer: usize) -> Option<usize> {
        let has = self.sliding_window_indices.as_ref().is_none_or(|has| has.get(layer) == Some(&1));
        self.sliding_window_size.filter(|_| has)
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

    /// Checks every field, and the fields against each other. The limits keep a corrupt file from asking for absurd
    /// amounts of memory.
    pub fn validate(&self) -> Result<(), DecoderError> {
        let check = |field: &'static str, valid: bool, found: &dyn std::fmt::Display, expected: String| match valid {
            true => Ok(()),
            false => Err(DecoderError::Field { field, found: found.to_string(), expected }),
        };
        for (field, value, limit) in [
            ("block_size", self.block_size, 1 << 24),
            ("padded_vocab_size", self.padded_vocab_size, 1 << 24),
            ("n_layer", self.n_layer, 1 << 10),
            ("n_head", self.n_head, 1 << 10),
            ("n_embd", self.n_embd, 1 << 16),
            ("n_query_groups", self.n_query_groups.unwrap_or(1), 1 << 10),
            ("head_size", self.head_size.unwrap_or(1), 1 << 16),
            ("intermediate_size", self.intermediate_size.unwrap_or(1), 1 << 20),
            ("attention_scores_scalar", self.attention_scores_scalar.unwrap_or(1), 1 << 24),
            ("sliding_window_size", self.sliding_window_size.unwrap_or(1), 1 << 24),
        ] {
            check(field, (1..=limit).contains(&value), &value, format!("1 to {limit}"))?;
        }
        for (field, value) in [
            ("norm_eps", self.norm_eps),
            ("attention_logit_softcapping", self.attention_logit_softcapping.unwrap_or(1.0)),
            ("final_logit_softcapping", self.final_logit_softcapping.unwrap_or(1.0)),
            ("rope_base", self.rope_base),
            ("rope_condense_ratio", self.rope_condense_ratio),
            ("rope_adjustments.factor", self.rope_adjustments.map_or(1.0, |adjust| adjust.factor)),
        ] {
            check(field, value > 0.0 && value.is_finite(), &value, "a number above 0".into())?;
        }
        let (heads, groups, width) = (self.n_head, self.groups(), self.head_width());
        let divides = self.head_size.is_some() || self.n_embd.is_multiple_of(heads);
        check("n_embd", divides, &self.n_embd, format!("a multiple of n_head, {heads}, or head_size to be given"))?;
        check("n_query_groups", heads.is_multiple_of(groups), &groups, format!("a divisor of n_head, {heads}"))?;
        let share = self.rotary_percentage;
        check("rotary_percentage", (0.0..=1.0).contains(&share), &share, "a number from 0 to 1".into())?;
        let rotated = self.rotated_width();
        let of_heads = format!("an even number of the head's {width} values to be rotated, not {rotated}");
        check("rotary_percentage", rotated.is_multiple_of(2), &share, of_heads)?;
        let shared = !self.shared_attention_norm || self.parallel_residual;
        check("shared_attention_norm", shared, &self.shared_attention_norm, "parallel_residual with it".into())?;
        let offset = !self.norm_add_unit_offset || self.norm_class_name == NormClass::RMSNorm;
        check("norm_add_unit_offset", offset, &self.norm_add_unit_offset, "norm_class_name RMSNorm with it".into())?;
        let head_bias = !(self.lm_head_bias && self.tie_embeddings);
        check("lm_head_bias", head_bias, &self.lm_head_bias, "tie_embeddings to be false with it".into())?;
        if let Some(indices) = &self.sliding_window_indices {
            let fits = indices.len() >= self.n_layer && indices.iter().all(|has| *has <= 1);
            let found = format!("{indices:?}");
            check(
                "sliding_window_indices",
                fits,
                &found,
                format!("0 or 1 for each of n_layer = {} blocks", self.n_layer),
            )?;
            let window = self.sliding_window_size.is_some();
            check("sliding_window_indices", window, &found, "sliding_window_size with it".into())?;
        }
        if let Some(RopeAdjustments { low_freq_factor, high_freq_factor, original_max_seq_len, .. }) =
            self.rope_adjustments
        {
            let of_all = [low_freq_factor.is_some(), high_freq_factor.is_some(), original_max_seq_len.is_some()];
            let fits = match (low_freq_factor, high_freq_factor, original_max_seq_len) {
                (Some(low), Some(high), Some(length)) => low < high && length > 0,
                _ => of_all == [false; 3],
            };
            let expected = "low_freq_factor below high_freq_factor and original_max_seq_len, or factor alone".into();
            let found = serde_json::to_string(&self.rope_adjustments).unwrap_or_default();
            check("rope_adjustments", fits, &found, expected)?;
        }
        let (experts, each) = (self.n_expert, self.n_expert_per_token);
        let mixture = self.mlp_class_name == MlpClass::Mixture;
        check("bias", !(mixture && self.bias), &self.bias, "false with LLaMAMoE, whose experts have none".into())?;
        let limit = if mixture { 1..=1 << 10 } else { 0..=0 };
        let which = if mixture { "1 to 1024 for LLaMAMoE" } else { "0, as mlp_class_name is not LLaMAMoE" };
        check("n_expert", limit.contains(&experts), &experts, which.into())?;
        let blocks = self.n_layer;
        let of_all = format!("at most {MOST_EXPERTS} in all of n_layer = {blocks} blocks");
        check("n_expert", experts * blocks <= MOST_EXPERTS, &experts, of_all)?;
        let chosen = each <= experts && (each > 0) == mixture;
        check("n_expert_per_token", chosen, &each, format!("at most n_expert, {experts}, and not 0 of them"))
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
            ("rope=1", "a llama has no field 'rope', there are: attention_logit_softcapping, "),
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

    /// Every precondition of a configuration is tripped, and names its field.
    #[test]
    fn what_cannot_be_is_refused_with_its_field() {
        nano().validate().unwrap();
        for (assignments, expected) in [
            (&["n_layer=0"][..], "n_layer is 0, expected 1 to 1024"),
            (&["norm_eps=0"], "norm_eps is 0, expected a number above 0"),
            (&["rope_base=-1"], "rope_base is -1, expected a number above 0"),
            (&["n_embd=66"], "n_embd is 66, expected a multiple of n_head, 4, or head_size to be given"),
            (&["n_query_groups=3"], "n_query_groups is 3, expected a divisor of n_head, 4"),
            (&["rotary_percentage=1.5"], "rotary_percentage is 1.5, expected a number from 0 to 1"),
            (&["rotary_percentage=0.2"], "rotary_percentage is 0.2, expected an even number of the head's 16 values"),
            (&["shared_attention_norm=true"], "shared_attention_norm is true, expected parallel_residual with it"),
            (
                &["norm_class_name=LayerNorm", "norm_add_unit_offset=true"],
                "norm_add_unit_offset is true, expected norm_class_name RMSNorm with it",
            ),
            (
                &["tie_embeddings=true", "lm_head_bias=true"],
                "lm_head_bias is true, expected tie_embeddings to be false with it",
            ),
            (
                &["sliding_window_size=4", "sliding_window_indices=[1]"],
                "sliding_window_indices is [1], expected 0 or 1 for each of n_layer = 2 blocks",
            ),
            (
                &["sliding_window_indices=[1,0]"],
                "sliding_window_indices is [1, 0], expected sliding_window_size with it",
            ),
            (&["rope_adjustments={\"factor\": 2, \"low_freq_factor\": 1}"], "rope_adjustments is {\"factor\":2.0,"),
            (&["n_expert=2"], "n_expert is 2, expected 0, as mlp_class_name is not LLaMAMoE"),
            (
                &["mlp_class_name=LLaMAMoE", "n_expert=2", "n_expert_per_token=1", "bias=true"],
                "bias is true, expected false with LLaMAMoE, whose experts have none",
            ),
            (
                &["mlp_class_name=LLaMAMoE", "n_layer=1024", "n_expert=1024", "n_expert_per_token=2"],
                "n_expert is 1024, expected at most 65536 in all of n_layer = 1024 blocks",
            ),
            (
                &["mlp_class_name=LLaMAMoE", "n_expert=2", "n_expert_per_token=3"],
                "n_expert_per_token is 3, expected at most n_expert, 2, and not 0 of them",
            ),
        ] {
            let mut config = nano();
            assignments.iter().for_each(|assignment| config.set(assignment).unwrap());
            let message = config.validate().unwrap_err().to_string();
            assert!(message.starts_with(expected), "{assignments:?}: {message}");
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
