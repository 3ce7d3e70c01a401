//! The families of models, and a configuration of any of them.

use std::fmt;

use fulgurite_ops::prelude::Tensor;
use fulgurite_runtime::Error;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::argument_error::wrong;
use crate::cache::Cached;
use crate::config::{ConfigError, GptConfig, Parameter};
use crate::decoder::DecoderConfig;
use crate::dropout::Dropout;
use crate::head::Head;
use crate::model::Model;
use crate::parameter_list::Parameters;
use crate::tokenizer::Tokenizer;

/// A family of models, by the name that the command line has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// GPT-2.
    #[default]
    Gpt2,
    /// Llama and its relatives: every decoder of [`DecoderConfig`].
    Llama,
}

impl Family {
    /// The size that is meant where none is named.
    pub const fn usual_size(self) -> &'static str {
        match self {
            Family::Gpt2 => "micro",
            Family::Llama => "nano",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Gpt2 => "gpt2",
            Family::Llama => "llama",
        })
    }
}

/// A configuration of any family, as checkpoints hold it. In JSON it is the configuration itself; a decoder's has the
/// field `n_layer`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ModelConfig {
    /// GPT-2.
    Gpt2(GptConfig),
    /// Llama and its relatives.
    Decoder(Box<DecoderConfig>),
}

impl ModelConfig {
    /// The model itself.
    pub fn model(&self) -> &dyn Model {
        match self {
            ModelConfig::Gpt2(config) => config,
            ModelConfig::Decoder(config) => &**config,
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
        }
        Ok(())
    }

    /// The family.
    pub fn family(&self) -> Family {
        match self {
            ModelConfig::Gpt2(_) => Family::Gpt2,
            ModelConfig::Decoder(_) => Family::Llama,
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
        let read = match value.get("n_layer") {
            Some(_) => serde_json::from_value(value).map(|config| ModelConfig::Decoder(Box::new(config))),
            None => serde_json::from_value(value).map(ModelConfig::Gpt2),
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
}
