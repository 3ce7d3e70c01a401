//! What training, sampling and files ask of a model.

use fulgurite_ops::prelude::*;

use crate::batch_tensors::BatchTensors;
use crate::cache::Cached;
use crate::config::{ConfigError, Parameter};
use crate::dropout::Dropout;
use crate::head::Head;
use crate::parameter_list::Parameters;

/// A configuration of a model: its parameters, and what it computes of them. Most of it is about tokens; a model of
/// images has classes in place of a vocabulary, a context of 1, and no part that generates text.
pub trait Model {
    /// Checks that such a model can be.
    fn validate(&self) -> Result<(), ConfigError>;

    /// V, number of token ids the model has rows for.
    fn vocabulary(&self) -> usize;

    /// T, the longest sequence in tokens.
    fn context(&self) -> usize;

    /// Probability of dropping a value in training.
    fn dropout(&self) -> f64;

    /// L, H and C: blocks, attention heads a block, width of the residual stream.
    fn sizes(&self) -> [usize; 3];

    /// The widths of the queries of a position, of all blocks together.
    fn attention_width(&self) -> usize {
        let [layers, _, width] = self.sizes();
        layers * width
    }

    /// The part of the positions that a parameter is used for, by its name: less than all for the experts of a mixture.
    fn used_share(&self, _parameter: &str) -> f64 {
        1.0
    }

    /// Every parameter in the order in which the model meets them; one that is used twice is there once.
    fn parameters(&self) -> Vec<Parameter>;

    /// Number of parameter values.
    fn parameter_count(&self) -> usize {
        self.parameters().iter().map(Parameter::elements).sum()
    }

    /// Whether the layer of this parameter may have a weight of 8 or 4 bits ([`crate::quantized`]).
    fn may_be_quantized(&self, _parameter: &str) -> bool {
        false
    }

    /// Token ids i64[B, T] to hidden states [B, T, C] after the final normalization.
    fn hidden(&self, params: &Parameters<Tensor>, tokens: Tensor, dropout: &Dropout) -> Tensor;

    /// G and D: heads of keys and values of a block, and their width.
    fn cached_heads(&self) -> [usize; 2];

    /// Blocks, and [`Model::cached_heads`]: what a cache of keys and values is made for.
    fn cache_sizes(&self) -> [usize; 3] {
        let ([layers, ..], [groups, width]) = (self.sizes(), self.cached_heads());
        [layers, groups, width]
    }

    /// As [`Model::hidden`] without dropout, of tokens that come after those in a cache.
    fn hidden_after(&self, params: &Parameters<Tensor>, tokens: Tensor, cached: &Cached) -> Tensor;

    /// The layer that makes logits of hidden states.
    fn output_layer(&self, params: &Parameters<Tensor>) -> Head;

    /// Hidden states [.., C] to logits [.., V].
    #[track_caller]
    fn head(&self, params: &Parameters<Tensor>, hidden: Tensor) -> Tensor {
        self.output_layer(params).logits(hidden)
    }

    /// Mean cross entropy of predicting `targets` i64[B, T] from `tokens` i64[B, T]; targets of -100 do not count.
    /// [`Logits::within`](crate::head::Logits::within) says whether all logits exist.
    #[track_caller]
    fn loss(&self, params: &Parameters<Tensor>, tokens: Tensor, targets: Tensor, dropout: &Dropout) -> Tensor {
        self.output_layer(params).loss(self.hidden(params, tokens, dropout), targets)
    }

    /// Tensors in f32 that a training step changes beside the parameters, and that have no gradients: the running
    /// statistics of normalizations. Most models have none.
    fn buffers(&self) -> Vec<Parameter> {
        Vec::new()
    }

    /// What a batch of `rows` sequences of `length` tokens consists of.
    fn batch(&self, rows: usize, length: usize) -> BatchTensors<TensorMeta> {
        let ids = TensorMeta::new([rows, length], DType::I64, Device::CPU);
        BatchTensors::of_tokens(ids.clone(), ids)
    }

    /// The loss of a batch in training, and the buffers after it; no buffers, where those before are not given.
    #[track_caller]
    fn training_loss(
        &self,
        params: &Parameters<Tensor>,
        buffers: &Parameters<Tensor>,
        batch: &BatchTensors<Tensor>,
        dropout: &Dropout,
    ) -> (Tensor, Parameters<Tensor>) {
        (self.loss(params, batch.inputs, batch.targets, dropout), buffers.clone())
    }

    /// What is told of a validation batch: its loss, or f32\[2\] of its loss and the share of right answers.
    #[track_caller]
    fn evaluation(
        &self,
        params: &Parameters<Tensor>,
        _buffers: &Parameters<Tensor>,
        batch: &BatchTensors<Tensor>,
    ) -> Tensor {
        self.loss(params, batch.inputs, batch.targets, &Dropout::none())
    }
}
