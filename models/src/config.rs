//! The GPT-2 family: sizes by name, the parameters of a size in order, and their names.

use serde::{Deserialize, Serialize};

use crate::activation::Activation;

/// A GPT-2 that may differ from OpenAI's in its functions; the fields are those of `transformers`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Between the two layers of the feed-forward part.
    pub activation_function: Activation,
    /// Added to the variance in each normalization.
    pub layer_norm_epsilon: f64,
    /// Whether scores of attention are divided by the root of a head's channels.
    pub scale_attn_weights: bool,
    /// Whether scores of block `i` are divided by `i + 1`, too.
    pub scale_attn_by_inverse_layer_idx: bool,
    /// The inner width of the feed-forward part; 4 C if absent.
    pub n_inner: Option<usize>,
}

impl Variant {
    /// OpenAI's.
    pub const OPENAI: Variant = Variant {
        activation_function: Activation::GeluNew,
        layer_norm_epsilon: 1e-5,
        scale_attn_weights: true,
        scale_attn_by_inverse_layer_idx: false,
        n_inner: None,
    };

    fn is_openai(&self) -> bool {
        *self == Variant::OPENAI
    }
}

impl Default for Variant {
    fn default() -> Self {
        Variant::OPENAI
    }
}

/// The shape of a GPT-2.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GptConfig {
    /// V, number of token ids the embedding has rows for; at least the tokenizer's.
    pub vocabulary: usize,
    /// T, the longest sequence in tokens.
    pub context: usize,
    /// L, number of blocks.
    pub layers: usize,
    /// H, attention heads a block; divides `channels`.
    pub heads: usize,
    /// C, width of the residual stream.
    pub channels: usize,
    /// Probability in [0, 1) of dropping a value after the embeddings, attention weights and residual branches.
    pub dropout: f64,
    /// Its functions. Checkpoints name them where they are not OpenAI's.
    #[serde(default, skip_serializing_if = "Variant::is_openai")]
    pub variant: Variant,
}

/// A named size: everything but vocabulary and dropout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The name, as in `--size 124M`.
    pub name: &'static str,
    /// T, the longest sequence in tokens.
    pub context: usize,
    /// L, number of blocks.
    pub layers: usize,
    /// H, attention heads a block.
    pub heads: usize,
    /// C, width of the residual stream.
    pub channels: usize,
}

const fn size(name: &'static str, context: usize, layers: usize, heads: usize, channels: usize) -> Size {
    Size { name, context, layers, heads, channels }
}

/// The named sizes: four small ones for CPUs and quick looks, then OpenAI's.
pub const SIZES: [Size; 8] = [
    size("nano", 64, 2, 2, 64),
    size("micro", 64, 4, 4, 128),
    size("mini", 128, 6, 6, 192),
    size("small", 256, 6, 6, 384),
    size("124M", 1024, 12, 12, 768),
    size("355M", 1024, 24, 16, 1024),
    size("774M", 1024, 36, 20, 1280),
    size("1558M", 1024, 48, 25, 1600),
];

/// Other names in use for the same sizes.
const ALIASES: [(&str, &str); 8] = [
    ("gpt2", "124M"),
    ("350M", "355M"),
    ("gpt2-medium", "355M"),
    ("gpt2-large", "774M"),
    ("1.5B", "1558M"),
    ("1.6B", "1558M"),
    ("gpt2-xl", "1558M"),
    ("1.558B", "1558M"),
];

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Initial {
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
}

/// One parameter of a model, in f32.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name in checkpoints, as nanoGPT and Hugging Face call it: `h.0.attn.c_attn.weight`.
    pub name: String,
    /// Its shape; weights of linear layers are [out, in].
    pub shape: Vec<usize>,
    /// Whether weight decay applies: to matrices, not to biases and gains.
    pub decays: bool,
    /// Whether it is a weight or a bias of a linear layer, and nothing else: in mixed precision these are rounded to
    /// 16 bits.
    pub is_linear: bool,
    /// The distribution of its initial values.
    pub initial: Initial,
}

impl Parameter {
    /// Number of values.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A configuration that makes no model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// No size has this name.
    #[error("unknown model size '{name}', expected one of {}", SIZES.map(|size| size.name).join(", "))]
    UnknownSize {
        /// The requested name.
        name: String,
    },
    /// A size of 0, or one beyond what any machine holds.
    #[error("{field} is {value}, expected 1 to {limit}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: usize,
        /// The largest value accepted.
        limit: usize,
    },
    /// Channels that the heads cannot share.
    #[error("{channels} channels do not divide among {heads} heads")]
    Heads {
        /// C.
        channels: usize,
        /// H.
        heads: usize,
    },
    /// Images that patches do not cover, or whose extents cannot be halved so often.
    #[error("images of {image} x {image} are no whole number of patches of {patch} x {patch}")]
    Patch {
        /// Height and width of images.
        image: usize,
        /// Those of a patch.
        patch: usize,
    },
    /// Channels that groups cannot share.
    #[error("{channels} channels do not divide among {groups} groups")]
    Groups {
        /// Channels.
        channels: usize,
        /// Groups.
        groups: usize,
    },
    /// A number that is added to variances, which must keep them above 0.
    #[error("layer_norm_epsilon is {0}, expected a number above 0")]
    Epsilon(f64),
    /// A decoder that cannot be.
    #[error(transparent)]
    Decoder(#[from] crate::decoder::DecoderError),
    /// A dropout that is no probability below 1.
    #[error("dropout is {0}, expected a number from 0 to below 1")]
    Dropout(f64),
}

impl GptConfig {
    /// The published `gpt2`, whose fields other configurations take where they do not say their own.
    pub const GPT2: GptConfig = GptConfig {
        vocabulary: 50_257,
        context: 1024,
        layers: 12,
        heads: 12,
        channels: 768,
        dropout: 0.0,
        variant: Variant::OPENAI,
    };

    /// A named size without dropout. `vocabulary` is the number of embedding rows: the tokenizer's, or a little more
    /// for speed (50304 for GPT-2, a multiple of 128).
    pub fn named(name: &str, vocabulary: usize) -> Result<Self, ConfigError> {
        let canonical =
            ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name)).map_or(name, |(_, size)| size);
        let size = SIZES
            .iter()
            .find(|size| size.name.eq_ignore_ascii_case(canonical))
            .ok_or_else(|| ConfigError::UnknownSize { name: name.to_owned() })?;
        let Size { context, layers, heads, channels, .. } = *size;
        let config = GptConfig { vocabulary, context, layers, heads, channels, ..GptConfig::GPT2 };
        config.validate()?;
        Ok(config)
    }

    /// Checks every field. The limits keep a corrupt file from asking for absurd amounts of memory.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (field, value, limit) in [
            ("vocabulary", self.vocabulary, 1 << 24),
            ("context", self.context, 1 << 24),
            ("layers", self.layers, 1 << 10),
            ("heads", self.heads, 1 << 10),
            ("channels", self.channels, 1 << 16),
            ("n_inner", self.inner_width(), 1 << 20),
        ] {
            if value == 0 || value > limit {
                return Err(ConfigError::OutOfRange { field, value, limit });
            }
        }
        if !self.channels.is_multiple_of(self.heads) {
            return Err(ConfigError::Heads { channels: self.channels, heads: self.heads });
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(ConfigError::Dropout(self.dropout));
        }
        let epsilon = self.variant.layer_norm_epsilon;
        if !(epsilon > 0.0 && epsilon.is_finite()) {
            return Err(ConfigError::Epsilon(epsilon));
        }
        Ok(())
    }

    /// D, channels a head.
    pub fn head_channels(&self) -> usize {
        self.channels / self.heads
    }

    /// Inner width of the feed-forward part.
    pub fn inner_width(&self) -> usize {
        self.variant.n_inner.unwrap_or(self.channels.saturating_mul(4))
    }

    /// The factor of the scores of attention of block `layer`, where it is not `1 / √D`.
    pub(crate) fn score_scale(&self, layer: usize) -> Option<f64> {
        let Variant { scale_attn_weights, scale_attn_by_inverse_layer_idx, .. } = self.variant;
        let of_heads = if scale_attn_weights { 1.0 / (self.head_channels() as f64).sqrt() } else { 1.0 };
        let of_layer = if scale_attn_by_inverse_layer_idx { 1.0 / (layer + 1) as f64 } else { 1.0 };
        (!scale_attn_weights || scale_attn_by_inverse_layer_idx).then_some(of_heads * of_layer)
    }

    /// Every parameter in the order in which the model meets them. The output projection is `wte.weight` again, and not
    /// listed.
    ///
    /// As in GPT-2: matrices start normal with deviation 0.02, projections into the residual stream with 0.02 / sqrt(2
    /// L) since 2 L of them add up, biases at 0 and gains at 1.
    pub fn parameters(&self) -> Vec<Parameter> {
        let (channels, inner) = (self.channels, self.inner_width());
        let into_residual = 0.02 / (2.0 * self.layers as f64).sqrt();
        let mut list = Vec::with_capacity(4 + 12 * self.layers);
        let mut push = |name: String, shape: Vec<usize>, initial: Initial| {
            let is_linear = name.contains(".attn.") || name.contains(".mlp.");
            list.push(Parameter { name, decays: shape.len() > 1, is_linear, shape, initial });
        };
        push("wte.weight".to_owned(), vec![self.vocabulary, channels], Initial::Normal(0.02));
        push("wpe.weight".to_owned(), vec![self.context, channels], Initial::Normal(0.02));
        for layer in 0..self.layers {
            for (part, outputs, inputs, deviation) in [
                ("ln_1", channels, None, 0.0),
                ("attn.c_attn", 3 * channels, Some(channels), 0.02),
                ("attn.c_proj", channels, Some(channels), into_residual),
                ("ln_2", channels, None, 0.0),
                ("mlp.c_fc", inner, Some(channels), 0.02),
                ("mlp.c_proj", channels, Some(inner), into_residual),
            ] {
                let weight = format!("h.{layer}.{part}.weight");
                match inputs {
                    Some(inputs) => push(weight, vec![outputs, inputs], Initial::Normal(deviation)),
                    None => push(weight, vec![outputs], Initial::Ones),
                }
                push(format!("h.{layer}.{part}.bias"), vec![outputs], Initial::Zeros);
            }
        }
        push("ln_f.weight".to_owned(), vec![channels], Initial::Ones);
        push("ln_f.bias".to_owned(), vec![channels], Initial::Zeros);
        list
    }

    /// Number of parameter values, the tied output projection counted once.
    pub fn parameter_count(&self) -> usize {
        let (c, inner) = (self.channels, self.inner_width());
        let of_block = 4 * c * c + 9 * c + inner * (2 * c + 1);
        (self.vocabulary + self.context) * c + self.layers * of_block + 2 * c
    }

    /// Floating-point operations of forward and backward for one token at full context: 6 per parameter, and 12 L C T
    /// for attention (not halved for the causal mask, as is the custom).
    pub fn operations_per_token(&self) -> f64 {
        6.0 * self.parameter_count() as f64 + 12.0 * (self.layers * self.channels * self.context) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_published_parameter_counts() {
        for (name, count) in
            [("124M", 124_439_808), ("350M", 354_823_168), ("774M", 774_030_080), ("1558M", 1_557_611_200)]
        {
            assert_eq!(GptConfig::named(name, 50_257).unwrap().parameter_count(), count, "{name}");
        }
        for size in SIZES {
            let config = GptConfig::named(size.name, 300).unwrap();
            let listed: usize = config.parameters().iter().map(Parameter::elements).sum();
            assert_eq!(listed, config.parameter_count(), "{}", size.name);
        }
        for (alias, _) in ALIASES {
            GptConfig::named(alias, 300).unwrap();
        }
    }

    #[test]
    fn parameters_are_named_as_elsewhere() {
        let list = GptConfig::named("nano", 256).unwrap().parameters();
        let line = |p: &Parameter| format!("{} {:?} {}", p.name, p.shape, p.decays);
        let lines: Vec<String> = list.iter().take(14).map(line).collect();
        assert_eq!(
            lines.join("\n"),
            "wte.weight [256, 64] true\n\
             wpe.weight [64, 64] true\n\
             h.0.ln_1.weight [64] false\n\
             h.0.ln_1.bias [64] false\n\
             h.0.attn.c_attn.weight [192, 64] true\n\
             h.0.attn.c_attn.bias [192] false\n\
             h.0.attn.c_proj.weight [64, 64] true\n\
             h.0.attn.c_proj.bias [64] false\n\
             h.0.ln_2.weight [64] false\n\
             h.0.ln_2.bias [64] false\n\
             h.0.mlp.c_fc.weight [256, 64] true\n\
             h.0.mlp.c_fc.bias [256] false\n\
             h.0.mlp.c_proj.weight [64, 256] true\n\
             h.0.mlp.c_proj.bias [64] false"
        );
        assert_eq!(list.len(), 28);
        assert_eq!(line(&list[27]), "ln_f.bias [64] false");
    }

    #[test]
    fn scores_are_divided_as_the_variant_says() {
        let scale = |scale_attn_weights, scale_attn_by_inverse_layer_idx, layer| {
            let variant = Variant { scale_attn_weights, scale_attn_by_inverse_layer_idx, ..Variant::OPENAI };
            GptConfig { channels: 64, heads: 4, variant, ..GptConfig::GPT2 }.score_scale(layer)
        };
        assert_eq!([scale(true, false, 0), scale(true, false, 1)], [None, None], "1 / √D is attention's own");
        assert_eq!([scale(false, false, 0), scale(false, false, 1)], [Some(1.0), Some(1.0)]);
        assert_eq!([scale(true, true, 0), scale(true, true, 1)], [Some(0.25), Some(0.125)]);
        assert_eq!([scale(false, true, 0), scale(false, true, 3)], [Some(1.0), Some(0.25)]);
    }

    #[test]
    fn nonsense_is_refused() {
        let good = GptConfig::named("nano", 256).unwrap();
        assert!(GptConfig::named("huge", 256).unwrap_err().to_string().contains("124M"));
        assert!(matches!(GptConfig::named("nano", 0), Err(ConfigError::OutOfRange { field: "vocabulary", .. })));
        assert!(GptConfig { heads: 3, ..good.clone() }.validate().is_err());
        assert!(GptConfig { layers: usize::MAX, ..good.clone() }.validate().is_err());
        assert!(GptConfig { dropout: 1.0, ..good.clone() }.validate().is_err());
        assert!(GptConfig { dropout: f64::NAN, ..good }.validate().is_err());
    }
}
