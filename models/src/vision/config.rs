//! A configuration of any model of images, and what training asks of it.

use std::fmt;

use fulgurite_ops::core::promotion::cast;
use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::operator::nearest;
use fulgurite_runtime::{Failure, tracer};
use serde::{Deserialize, Serialize};

use super::images::{Labels, normalized};
use super::parts::{List, Pass};
use super::resnet::ResnetConfig;
use super::unet::UnetConfig;
use super::vit::VitConfig;
use crate::batch_tensors::BatchTensors;
use crate::cache::Cached;
use crate::config::{ConfigError, Parameter};
use crate::dropout::Dropout;
use crate::head::Head;
use crate::layer_weight::LayerWeight;
use crate::model::Model;
use crate::parameter_list::Parameters;

/// A kind of model of images, by the name that the command line has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// Residual networks.
    Resnet,
    /// Vision transformers.
    Vit,
    /// U-Nets.
    Unet,
}

impl ImageKind {
    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            ImageKind::Resnet => "resnet",
            ImageKind::Vit => "vit",
            ImageKind::Unet => "unet",
        }
    }

    /// What a target of the model is of.
    pub const fn labels(self) -> Labels {
        match self {
            ImageKind::Resnet | ImageKind::Vit => Labels::Image,
            ImageKind::Unet => Labels::Pixels,
        }
    }

    /// The named sizes.
    fn sizes(self) -> Vec<(&'static str, ImageConfig)> {
        match self {
            ImageKind::Resnet => ResnetConfig::SIZES.map(|(name, own)| (name, ImageConfig::Resnet(own))).to_vec(),
            ImageKind::Vit => VitConfig::SIZES.map(|(name, own)| (name, ImageConfig::Vit(own))).to_vec(),
            ImageKind::Unet => UnetConfig::SIZES.map(|(name, own)| (name, ImageConfig::Unet(own))).to_vec(),
        }
    }
}

impl fmt::Display for ImageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A configuration of a model of images, as checkpoints hold it: in JSON, the configuration below the kind's name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageConfig {
    /// A residual network.
    Resnet(ResnetConfig),
    /// A vision transformer.
    Vit(VitConfig),
    /// A U-Net.
    Unet(UnetConfig),
}

impl ImageConfig {
    /// A named size.
    ///
    /// # Errors
    /// Another name, with those that there are.
    pub fn named(kind: ImageKind, size: &str) -> Result<Self, String> {
        let sizes = kind.sizes();
        if let Some((_, found)) = sizes.iter().find(|(name, _)| *name == size) {
            return Ok(found.clone());
        }
        let names: Vec<&str> = sizes.iter().map(|(name, _)| *name).collect();
        let there = format!("is '{size}', a {kind} has {}", names.join(", "));
        let near = nearest(size, names.into_iter()).map(|near| format!("; did you mean {near}?"));
        Err(there + &near.unwrap_or_default())
    }

    /// The kind.
    pub fn kind(&self) -> ImageKind {
        match self {
            ImageConfig::Resnet(_) => ImageKind::Resnet,
            ImageConfig::Vit(_) => ImageKind::Vit,
            ImageConfig::Unet(_) => ImageKind::Unet,
        }
    }

    /// The name of the size, if it is a named one with any number of classes.
    pub fn size(&self) -> Option<&'static str> {
        let like =
            |(_, named): &(&str, ImageConfig)| named.clone().with_classes(self.classes()) == self.clone().plain();
        self.kind().sizes().into_iter().find(like).map(|(name, _)| name)
    }

    /// The size in words: `nano`, or the numbers of blocks and channels.
    pub fn in_words(&self) -> String {
        let [blocks, _, width] = self.sizes();
        self.size().map_or_else(|| format!("{blocks} blocks, {width} channels"), str::to_owned)
    }

    /// Without dropout.
    fn plain(mut self) -> Self {
        if let ImageConfig::Vit(own) = &mut self {
            own.dropout = 0.0;
        }
        self
    }

    /// With another number of classes.
    #[must_use]
    pub fn with_classes(mut self, count: usize) -> Self {
        *match &mut self {
            ImageConfig::Resnet(own) => &mut own.classes,
            ImageConfig::Vit(own) => &mut own.classes,
            ImageConfig::Unet(own) => &mut own.classes,
        } = count;
        self
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        match self {
            ImageConfig::Resnet(own) => own.classes,
            ImageConfig::Vit(own) => own.classes,
            ImageConfig::Unet(own) => own.classes,
        }
    }

    /// Channels, height and width of images.
    pub fn image(&self) -> [usize; 3] {
        let (channels, side) = match self {
            ImageConfig::Resnet(own) => (own.channels, own.image),
            ImageConfig::Vit(own) => (own.channels, own.image),
            ImageConfig::Unet(own) => (own.channels, own.image),
        };
        [channels, side, side]
    }

    /// Sets the probability of dropping a value.
    ///
    /// # Errors
    /// A model that drops no values, and a probability other than 0.
    pub fn set_dropout(&mut self, probability: f64) -> Result<(), String> {
        match self {
            ImageConfig::Vit(own) => own.dropout = probability,
            _ if probability == 0.0 => {}
            _ => return Err(format!("is {probability}, a {} has no dropout", self.kind())),
        }
        Ok(())
    }

    fn list(&self) -> List {
        match self {
            ImageConfig::Resnet(own) => own.list(),
            ImageConfig::Vit(own) => own.list(),
            ImageConfig::Unet(own) => own.list(),
        }
    }

    #[track_caller]
    fn pass(&self, pass: &Pass<'_>, images: Tensor) -> Tensor {
        let (shape, expected) = (images.meta().shape().to_vec(), self.image());
        let found = shape.get(1..).unwrap_or_default();
        if found != expected {
            let message = format!("images are {found:?}, expected {expected:?}: channels, height, width");
            tracer::fail(self.kind().name(), Failure::new("ImageShape", message));
        }
        match self {
            ImageConfig::Resnet(own) => own.logits(pass, images),
            ImageConfig::Vit(own) => own.logits(pass, images),
            ImageConfig::Unet(own) => own.logits(pass, images),
        }
    }

    /// Logits of `images` [N, C, H, W] outside of training, with the running statistics of `buffers`: [N, classes], or
    /// [N, classes, H, W] of a model that tells the classes of pixels.
    #[track_caller]
    pub fn logits(&self, params: &Parameters<Tensor>, buffers: &Parameters<Tensor>, images: Tensor) -> Tensor {
        self.pass(&Pass::new(params, buffers, false, &Dropout::none()), images)
    }

    /// Ends the trace: models of images compute nothing of tokens.
    #[track_caller]
    fn no_text(&self) -> Tensor {
        let message = format!("a {} reads images, and no tokens", self.kind());
        tracer::fail(self.kind().name(), Failure::new("Tokens", message));
        // Within a trace that has failed, every result is a placeholder.
        full([0_usize; 0], 0.0)
    }
}

/// Mean cross entropy of logits [N, classes, ...] against classes i64[N, ...], in f32 (f64 of f64).
#[track_caller]
fn class_loss(logits: Tensor, targets: Tensor) -> Tensor {
    scope("loss", || cross_entropy(cast(logits, logits.dtype().accumulator()), targets))
}

impl Model for ImageConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        match self {
            ImageConfig::Resnet(own) => own.validate(),
            ImageConfig::Vit(own) => own.validate(),
            ImageConfig::Unet(own) => own.validate(),
        }
    }

    /// The number of classes.
    fn vocabulary(&self) -> usize {
        self.classes()
    }

    /// An image is one item.
    fn context(&self) -> usize {
        1
    }

    fn dropout(&self) -> f64 {
        match self {
            ImageConfig::Vit(own) => own.dropout,
            ImageConfig::Resnet(_) | ImageConfig::Unet(_) => 0.0,
        }
    }

    fn sizes(&self) -> [usize; 3] {
        match self {
            ImageConfig::Resnet(own) => [own.blocks.iter().sum(), 0, own.width],
            ImageConfig::Vit(own) => [own.layers, own.heads, own.width],
            ImageConfig::Unet(own) => [own.depth, 0, own.width],
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.list().parameters
    }

    fn buffers(&self) -> Vec<Parameter> {
        self.list().buffers
    }

    fn batch(&self, rows: usize, _length: usize) -> BatchTensors<TensorMeta> {
        let [channels, height, width] = self.image();
        let of = |shape: &[usize], dtype| TensorMeta::new(shape, dtype, Device::CPU);
        let targets = match self.kind().labels() {
            Labels::Image => of(&[rows], DType::I64),
            Labels::Pixels => of(&[rows, height, width], DType::I64),
        };
        BatchTensors::of_images(of(&[rows, channels, height, width], DType::U8), targets)
    }

    #[track_caller]
    fn training_loss(
        &self,
        params: &Parameters<Tensor>,
        buffers: &Parameters<Tensor>,
        batch: &BatchTensors<Tensor>,
        dropout: &Dropout,
    ) -> (Tensor, Parameters<Tensor>) {
        let pass = Pass::new(params, buffers, true, dropout);
        // Parameters of 16 bits have activations of 16 bits.
        let like = params.first().map_or(DType::F32, |first| first.dtype());
        let loss = class_loss(self.pass(&pass, cast(normalized(batch.inputs), like)), batch.targets);
        (loss, pass.into_buffers())
    }

    /// The loss, and the share of classes that have the largest logit.
    #[track_caller]
    fn evaluation(
        &self,
        params: &Parameters<Tensor>,
        buffers: &Parameters<Tensor>,
        batch: &BatchTensors<Tensor>,
    ) -> Tensor {
        let like = params.first().map_or(DType::F32, |first| first.dtype());
        let logits = self.logits(params, buffers, cast(normalized(batch.inputs), like));
        let right = scope("accuracy", || {
            let right = eq(argmax::with(logits).dim(1).call(), batch.targets);
            mean(cast(right, DType::F32))
        });
        let loss = cast(class_loss(logits, batch.targets), DType::F32);
        prims::cat(vec![reshape(loss, [1]), reshape(right, [1])], 0)
    }

    #[track_caller]
    fn hidden(&self, _params: &Parameters<Tensor>, _tokens: Tensor, _dropout: &Dropout) -> Tensor {
        self.no_text()
    }

    /// No heads: no token follows another.
    fn cached_heads(&self) -> [usize; 2] {
        [0, 0]
    }

    #[track_caller]
    fn hidden_after(&self, _params: &Parameters<Tensor>, _tokens: Tensor, _cached: &Cached) -> Tensor {
        self.no_text()
    }

    #[track_caller]
    fn output_layer(&self, _params: &Parameters<Tensor>) -> Head {
        Head { weight: LayerWeight::plain(self.no_text()), bias: None, divisor: None, softcap: None }
    }

    #[track_caller]
    fn loss(&self, params: &Parameters<Tensor>, images: Tensor, targets: Tensor, dropout: &Dropout) -> Tensor {
        self.training_loss(params, &Parameters::none(), &BatchTensors::of_images(images, targets), dropout).0
    }
}
