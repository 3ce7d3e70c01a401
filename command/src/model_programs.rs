//! The programs of models, by name, with the options that say which of them.

use clap::Args;
use fulgurite::DType;
use fulgurite::trace::Trace;
pub use fulgurite_models::Family;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::quantized::{Integers, Quantization};
use fulgurite_models::traces::{decode_trace, loss_trace, quantized_decode_trace, step_trace};
use fulgurite_models::vision::ImageKind;
use fulgurite_models::{Logits, ModelConfig, Tokenizer};

use super::model_options::{Activations, logits};
use super::outcome::Failed;
use super::part::Part;

/// The names of models' parts.
pub const PARTS: [(&str, Family, Part); 12] = [
    ("gpt2", Family::Gpt2, Part::Step),
    ("gpt2-loss", Family::Gpt2, Part::Loss),
    ("gpt2-decode", Family::Gpt2, Part::Decode),
    ("llama", Family::Llama, Part::Step),
    ("llama-loss", Family::Llama, Part::Loss),
    ("llama-decode", Family::Llama, Part::Decode),
    ("resnet", Family::Images(ImageKind::Resnet), Part::Step),
    ("resnet-loss", Family::Images(ImageKind::Resnet), Part::Loss),
    ("vit", Family::Images(ImageKind::Vit), Part::Step),
    ("vit-loss", Family::Images(ImageKind::Vit), Part::Loss),
    ("unet", Family::Images(ImageKind::Unet), Part::Step),
    ("unet-loss", Family::Images(ImageKind::Unet), Part::Loss),
];

/// Which program of a model.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The size of a model: nano, micro, mini, ...; 124M of gpt2; Llama-3.1-8B of llama.
    #[arg(long, default_value = "nano")]
    size: String,
    /// Layers of a model; the size's own otherwise.
    #[arg(long)]
    layers: Option<usize>,
    /// A field of a llama's configuration instead of the size's own; any number of times.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// gpt2 or bytes: the vocabulary of a size that is trained from nothing.
    #[arg(long, default_value = "bytes")]
    tokenizer: String,
    /// Sequences in a model's batch.
    #[arg(long, default_value_t = 4)]
    batch: usize,
    /// Tokens in a model's sequence; the size's own otherwise.
    #[arg(long)]
    context: Option<usize>,
    #[command(flatten)]
    activations: Activations,
    /// What of the logits exists at a time where a model's loss is computed: `whole` all of them, `chunked` those of a
    /// chunk of positions.
    #[arg(long, default_value = "whole", value_parser = Logits::ALL.map(Logits::name), value_name = "WHAT")]
    logits: String,
    /// Of `llama-decode`: int8 or int4, or int4:128, the integers that weights of its layers are rounded to.
    #[arg(long, value_name = "INTEGERS")]
    weights: Option<Integers>,
}

impl Options {
    /// Takes what `given` says was written of others.
    pub fn take(&mut self, of: Options, given: &dyn Fn(&str) -> bool) {
        macro_rules! take {
            ($($field:ident),*) => {
                $(if given(stringify!($field)) {
                    self.$field = of.$field;
                })*
            };
        }
        take!(size, layers, set, tokenizer, batch, context, logits, weights);
        self.activations.take(of.activations, given);
    }

    /// The size and the number of layers.
    pub fn in_words(&self) -> Vec<String> {
        let layers = self.layers.map(|layers| format!("{layers} {}", if layers == 1 { "layer" } else { "layers" }));
        [format!("size {}", self.size)].into_iter().chain(layers).collect()
    }

    /// Whether fields of a configuration are replaced.
    pub fn sets_fields(&self) -> bool {
        !self.set.is_empty()
    }

    /// The trace of a part of a model on the host, with parameters of `dtype`, or of f32.
    pub fn trace(
        &self,
        family: Family,
        part: Part,
        dtype: Option<DType>,
        autocast: Option<DType>,
    ) -> Result<Trace, Failed> {
        Ok(self.model_and_trace(family, part, dtype, autocast)?.1)
    }

    /// As [`Options::trace`], with the model's configuration.
    pub fn model_and_trace(
        &self,
        family: Family,
        part: Part,
        dtype: Option<DType>,
        autocast: Option<DType>,
    ) -> Result<(ModelConfig, Trace), Failed> {
        if let (Some(kind), Some(layers)) = (family.images(), self.layers) {
            return Err(Failed(format!("--layers is {layers}, a {kind} has those of its size")));
        }
        let mut set = self.set.clone();
        if let (Family::Llama, Some(layers)) = (family, self.layers) {
            set.push(format!("n_layer={layers}"));
        }
        let tokenizer = Tokenizer::from_name(&self.tokenizer).map_err(|error| Failed(error.to_string()))?;
        let mut config = ModelConfig::named(family, &self.size, &set, self.context, &tokenizer)?;
        if let (ModelConfig::Gpt2(config), Some(layers)) = (&mut config, self.layers) {
            config.layers = layers;
        }
        let model = config.model();
        model.validate().map_err(|error| Failed(error.to_string()))?;
        let dtype = dtype.unwrap_or(DType::F32);
        if !dtype.is_floating() {
            return Err(Failed(format!("--dtype is {dtype}, expected a floating-point type for a model's parameters")));
        }
        if let (Some(weights), Part::Loss | Part::Step) = (self.weights, part) {
            return Err(Failed(format!("--weights is {weights}, which programs that decode have alone")));
        }
        if self.batch == 0 {
            return Err(Failed("--batch is 0, expected at least 1".into()));
        }
        let batch = [self.batch, model.context()];
        // Copies of weights, as a run in mixed precision has them (`train` in bf16 alone).
        let halves = |low: &DType| matches!(low, DType::BF16 | DType::F16);
        let rounded = autocast.filter(halves).filter(|_| dtype == DType::F32);
        let part = || match part {
            Part::Loss => loss_trace(model, dtype, batch),
            Part::Decode => match self.weights {
                Some(blocks) => {
                    let quantization = Quantization { blocks, head: None };
                    quantized_decode_trace(model, quantization, (self.batch, 1), model.context(), dtype)
                }
                None => decode_trace(model, (self.batch, 1), model.context(), dtype),
            },
            Part::Step => step_trace(model, &OptimizerSettings::default(), (dtype, rounded), batch),
        };
        let of_logits = logits(&self.logits).unwrap_or_default();
        let trace = of_logits.within(|| self.activations.checkpointing().within(part))?;
        Ok((config, trace))
    }
}
