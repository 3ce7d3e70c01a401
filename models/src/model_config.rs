//! The families of models, and a configuration of any of them.

use std::fmt;

use fulgurite_ops::prelude::{Tensor, TensorMeta};
use fulgurite_runtime::Error;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::argument_error::wrong;
use crate::batch_tensors::{BatchTensors, Reads};
use crate::cache::Cached;
use crate::config::{ConfigError, GptConfig, Parameter};
use crate::decoder::DecoderConfig;
use crate::dropout::Dropout;
use crate::head::Head;
use crate::model::Model;
use crate::parameter_list::Parameters;
use crate::tokenizer::Tokenizer;
use crate::vision::{ImageConfig, ImageKind};

/// A family of models, by the name that the command line has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// GPT-2.
    #[default]
    Gpt2,
    /// Llama and its relatives: every decoder of [`DecoderConfig`].
    Llama,
    /// A kind of model of images.
    Images(ImageKind),
}

impl Family {
    /// The size that is meant where none is named.
    pub const fn usual_size(self) -> &'static str {
        match self {
            Family::Gpt2 => "micro",
            Family::Llama => "nano",
            Family::Images(ImageKind::Resnet) => "18-small",
            Family::Images(ImageKind::Vit | ImageKind::Unet) => "micro",
        }
    }

    /// What its models read.
    pub const fn reads(self) -> Reads {
        match self {
            Family::Images(_) => Reads::Images,
            Family::Gpt2 | Family::Llama => Reads::Tokens,
        }
    }

    /// The kind of model of images, if it is one.
    pub const fn images(self) -> Option<ImageKind> {
        match self {
            Family::Images(kind) => Some(kind),
            Family::Gpt2 | Family::Llama => None,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Gpt2 => "gpt2",
            Family::Llama => "llama",
            Family::Images(kind) => kind.name(),
        })
    }
}

/// A configuration of any family, as checkpoints hold it. In JSON it is the configuration itself; a decoder's has the
/// field `n_layer`, and that of a model of images is below the name of its kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ModelConfig {
    /// GPT-2.
    Gpt2(GptConfig),
    /// Llama and its relatives.
    Decoder(Box<DecoderConfig>),
    /// A model of images.
    Images(ImageConfig),
}

impl ModelConfig {
    /// The model itself.
    pub fn model(&self) -> &dyn Model {
        match self {
            ModelConfig::Gpt2(config) => config,
            ModelConfig::Decoder(config) => &**config,
            ModelConfig::Images(config) => config,
        }
    }

    /// A named size of a family, with `context` instead of its own if that is given, and the fields of `set`
    /// (`name=value` each) instead of its own. Sizes for training from nothing get the vocabulary of `tokenizer`.
    pub fn named(
        family: Family,
        size: &str,
        set: &[String],
        context: Option<usize>,
        tokenizer: &Tokenizer,
    ) -> Result<Self, Error> {
        match family {
            Family::Gpt2 => {
                if !set.is_empty() {
                    return Err(wrong("set", "is given for gpt2, whose sizes have no fields to replace"));
                }
                let named = GptConfig::named(size, tokenizer.vocabulary()).map_err(|error| wrong("size", error))?;
                Ok(GptConfig { context: context.unwrap_or(named.context), ..named }.into())
            }
            Family::Llama => {
                let mut named =
                    DecoderConfig::named(size, tokenizer.vocabulary()).map_err(|error| wrong("size", error))?;
                named.block_size = context.unwrap_or(named.block_size);
                set.iter().try_for_each(|field| named.set(field)).map_err(|error| wrong("set", error))?;
                Ok(named.into())
            }
            Family::Images(kind) => {
                if !set.is_empty() {
                    return Err(wrong("set", format!("is given for {kind}, whose sizes have no fields to replace")));
                }
                if context.is_some() {
                    return Err(wrong("context", format!("is given for {kind}, which reads images, and no tokens")));
                }
                Ok(ModelConfig::Images(ImageConfig::named(kind, size).map_err(|error| wrong("size", error))?))
            }
        }
    }

    /// Sets the probability of dropping a value.
    ///
    /// # Errors
    /// A model that drops no values, and a probability other than 0.
    pub fn set_dropout(&mut self, probability: f64) -> Result<(), String> {
        match self {
            ModelConfig::Gpt2(config) => config.dropout = probability,
            ModelConfig::Decoder(_) if probability == 0.0 => {}
            ModelConfig::Decoder(_) => return Err(format!("is {probability}, a llama has no dropout")),
            ModelConfig::Images(config) => return config.set_dropout(probability),
        }
        Ok(())
    }

    /// The family.
    pub fn family(&self) -> Family {
        match self {
            ModelConfig::Gpt2(_) => Family::Gpt2,
            ModelConfig::Decoder(_) => Family::Llama,
            ModelConfig::Images(config) => Family::Images(config.kind()),
        }
    }
}

impl From<GptConfig> for ModelConfig {
    fn from(config: GptConfig) -> Self {
        ModelConfig::Gpt2(config)
    }
}

impl From<DecoderConfig> for ModelConfig {
    fn from(config: DecoderConfig) -> Self {
        ModelConfig::Decoder(Box::new(config))
    }
}

impl<'de> Deserialize<'de> for ModelConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let has = |field| value.get(field).is_some();
        let read = if has("n_layer") {
            serde_json::from_value(value).map(|config| ModelConfig::Decoder(Box::new(config)))
        } else if ["resnet", "vit", "unet"].into_iter().any(has) {
            serde_json::from_value(value).map(ModelConfig::Images)
        } else {
            serde_json::from_value(value).map(ModelConfig::Gpt2)
        };
        read.map_err(D::Error::custom)
    }
}

impl Model for ModelConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        self.model().validate()
    }
    fn vocabulary(&self) -> usize {
        self.model().vocabulary()
    }
    fn context(&self) -> usize {
        self.model().context()
    }
    fn dropout(&self) -> f64 {
        self.model().dropout()
    }
    fn sizes(&self) -> [usize; 3] {
        self.model().sizes()
    }
    fn attention_width(&self) -> usize {
        self.model().attention_width()
    }
    fn used_share(&self, parameter: &str) -> f64 {
        self.model().used_share(parameter)
    }
    fn parameters(&self) -> Vec<Parameter> {
        self.model().parameters()
    }
    fn may_be_quantized(&self, parameter: &str) -> bool {
        self.model().may_be_quantized(parameter)
    }
    #[track_caller]
    fn hidden(&self, params: &Parameters<Tensor>, tokens: Tensor, dropout: &Dropout) -> Tensor {
        self.model().hidden(params, tokens, dropout)
    }
    fn cached_heads(&self) -> [usize; 2] {
        self.model().cached_heads()
    }
    #[track_caller]
    fn hidden_after(&self, params: &Parameters<Tensor>, tokens: Tensor, cached: &Cached) -> Tensor {
        self.model().hidden_after(params, tokens, cached)
    }
    #[track_caller]
    fn output_layer(&self, params: &Parameters<Tensor>) -> Head {
        self.model().output_layer(params)
    }
    #[track_caller]
    fn loss(&self, params: &Parameters<Tensor>, tokens: Tensor, targets: Tensor, dropout: &Dropout) -> Tensor {
        self.model().loss(params, tokens, targets, dropout)
    }
    fn buffers(&self) -> Vec<Parameter> {
        self.model().buffers()
    }
    fn batch(&self, rows: usize, length: usize) -> BatchTensors<TensorMeta> {
        self.model().batch(rows, length)
    }
    #[track_caller]
    fn training_loss(
        &self,
        params: &Parameters<Tensor>,
        buffers: &Parameters<Tensor>,
        batch: &BatchTensors<Tensor>,
        dropout: &Dropout,
    ) -> (Tensor, Parameters<Tensor>) {
        self.model().training_loss(params, buffers, batch, dropout)
    }
    #[track_caller]
    fn evaluation(
        &self,
        params: &Parameters<Tensor>,
        buffers: &Parameters<Tensor>,
        batch: &BatchTensors<Tensor>,
    ) -> Tensor {
        self.model().evaluation(params, buffers, batch)
    }
}
