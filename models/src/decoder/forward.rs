//! What a decoder computes.

use fulgurite_ops::prelude::*;
use fulgurite_runtime::Failure;

use super::config::{DecoderConfig, GeluApproximate, MlpClass, NormClass};
use super::{parameters, rope};
use crate::blocks::block;
use crate::cache::{Cached, Scores};
use crate::config::{ConfigError, Parameter};
use crate::dropout::Dropout;
use crate::head::Head;
use crate::model::Model;
use crate::parameter_list::Parameters;

impl Model for DecoderConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        Ok(DecoderConfig::validate(self)?)
    }

    fn vocabulary(&self) -> usize {
        self.padded_vocab_size
    }

    fn context(&self) -> usize {
        self.block_size
    }

    fn dropout(&self) -> f64 {
        0.0
    }

    fn sizes(&self) -> [usize; 3] {
        [self.n_layer, self.n_head, self.n_embd]
    }

    fn attention_width(&self) -> usize {
        self.n_layer * self.n_head * self.head_width()
    }

    fn used_share(&self, parameter: &str) -> f64 {
        match parameter.contains(".mlp.experts.") {
            true => self.n_expert_per_token as f64 / self.n_expert as f64,
            false => 1.0,
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        parameters::parameters(self)
    }

    #[track_caller]
    fn hidden(&self, params: &Parameters<Tensor>, tokens: Tensor, _dropout: &Dropout) -> Tensor {
        let (length, context) = (tokens.size(1), self.block_size);
        if length > context {
            let message = format!("tokens has {length} positions, the model's context (block_size) is {context}");
            fulgurite_runtime::tracer::fail("llama", Failure::new("ContextLength", message));
        }
        let table = (self.rotated_width() > 0).then(|| scope("rope", || rope::table(self, length, tokens.device())));
        Layers { config: self, params, table, cached: None }.hidden(tokens)
    }

    fn cached_heads(&self) -> [usize; 2] {
        [self.groups(), self.head_width()]
    }

    #[track_caller]
    fn hidden_after(&self, params: &Parameters<Tensor>, tokens: Tensor, cached: &Cached) -> Tensor {
        let table = (self.rotated_width() > 0).then(|| scope("rope", || rope::table_at(self, cached.positions())));
        Layers { config: self, params, table, cached: Some(cached) }.hidden(tokens)
    }

    #[track_caller]
    fn output_layer(&self, params: &Parameters<Tensor>) -> Head {
        let weight = params.tensor(if self.tie_embeddings { "wte.weight" } else { "lm_head.weight" });
        let bias = params.get("lm_head.bias").copied();
        Head { weight, bias, softcap: self.final_logit_softcapping }
    }
}

/// A decoder that is being traced.
struct Layers<'a> {
    config: &'a DecoderConfig,
    params: &'a Parameters<Tensor>,
    /// Cosines and sines, [T, n] each, or [B, 1, T, n] after a cache, where anything is rotated.
    table: Option<[Tensor; 2]>,
    /// What the tokens come after.
    cached: Option<&'a Cached>,
}

impl Layers<'_> {
    /// Token ids i64[B, T] to hidden states [B, T, C].
    #[track_caller]
    fn hidden(&self, tokens: Tensor) -> Tensor {
        let mut x = scope("wte", || embedding(tokens, self.params.tensor("wte.weight")));
        if self.config.scale_embeddings {
            x = x * (self.config.n_embd as f64).sqrt();
        }
        for layer in 0..self.config.n_layer {
            x = block(&format!("h.{layer}"), || self.block(layer, x));
        }
        scope("ln_f", || self.norm("ln_f", x))
    }

    #[track_caller]
    fn norm(&self, path: &str, x: Tensor) -> Tensor {
        let (shape, eps) = ([x.size(-1)], self.config.norm_eps);
        let weight = self.params.tensor(&format!("{path}.weight"));
        match self.config.norm_class_name {
            NormClass::LayerNorm => {
                let bias = self.params.tensor(&format!("{path}.bias"));
                layer_norm::with(x, shape).weight(weight).bias(bias).eps(eps).call()
            }
            NormClass::RMSNorm => {
                let offset = if self.config.norm_add_unit_offset { 1.0 } else { 0.0 };
                rms_norm::with(x, shape).weight(weight).eps(eps).offset(offset).call()
            }
        }
    }

    /// The linear layer `name` within `path`.
    #[track_caller]
    fn linear(&self, path: &str, name: &str, x: Tensor) -> Tensor {
        scope(name, || {
            let weight = self.params.tensor(&format!("{path}.{name}.weight"));
            let bias = self.params.get(&format!("{path}.{name}.bias")).copied();
            linear::with(x, weight).bias(bias).call()
        })
    }

    #[track_caller]
    fn block(&self, layer: usize, x: Tensor) -> Tensor {
        let config = self.config;
        let path = format!("h.{layer}");
        let norm = |name: &str, x: Tensor| scope(name, || self.norm(&format!("{path}.{name}"), x));
        let first = norm("norm_1", x);
        let mut attended = scope("attn", || self.attention(layer, &format!("{path}.attn"), first));
        if config.post_attention_norm {
            attended = norm("post_attention_norm", attended);
        }
        let sum = x + attended;
        let second = match (config.shared_attention_norm, config.parallel_residual) {
            (true, _) => first,
            (false, true) => norm("norm_2", x),
            (false, false) => norm("norm_2", sum),
        };
        let mut fed = scope("mlp", || match config.mlp_class_name {
            MlpClass::Mixture => self.mixture(&format!("{path}.mlp"), second),
            _ => self.mlp(&format!("{path}.mlp"), second),
        });
        if config.post_mlp_norm {
            fed = norm("post_mlp_norm", fed);
        }
        sum + fed
    }

    #[track_caller]
    fn mlp(&self, path: &str, x: Tensor) -> Tensor {
        let approximate = match self.config.gelu_approximate {
            GeluApproximate::None => Approximate::None,
            GeluApproximate::Tanh => Approximate::Tanh,
        };
        let fed = |name: &str| self.linear(path, name, x);
        let inner = match self.config.mlp_class_name {
            MlpClass::GptNeox => gelu::with(fed("fc")).approximate(approximate).call(),
            MlpClass::Gemma => geglu::with(fed("fc_1"), fed("fc_2")).approximate(approximate).call(),
            MlpClass::Llama | MlpClass::Mixture => swiglu(fed("fc_1"), fed("fc_2")),
        };
        self.linear(path, "proj", inner)
    }

    /// The experts that `gate` prefers, weighted by the softmax of what it says of them.
    #[track_caller]
    fn mixture(&self, path: &str, x: Tensor) -> Tensor {
        let (chosen, experts) = topk(self.linear(path, "gate", x), self.config.n_expert_per_token);
        let shares = softmax(chosen, -1);
        let matrices = |name: &str| -> Vec<Tensor> {
            let one = |expert| self.params.tensor(&format!("{path}.experts.{expert}.{name}.weight"));
            (0..self.config.n_expert).map(one).collect()
        };
        let tokens = x.shape().to_vec().iter().rev().skip(1).product::<usize>();
        let rows = |tensor: Tensor| reshape(tensor, [tokens as i64, tensor.size(-1) as i64]);
        let [gates, ups, downs] = ["fc_1", "fc_2", "proj"].map(matrices);
        let out = scope("experts", || experts_mlp(rows(x), gates, ups, downs, rows(experts), rows(shares)));
        reshape(out, x.shape().iter().map(|extent| *extent as i64).collect::<Vec<_>>())
    }

    /// `x` [B, H, T, D] with the first values of each head rotated.
    #[track_caller]
    fn rotated(&self, x: Tensor) -> Tensor {
        self.table.map_or(x, |[cos, sin]| apply_rope(x, cos, sin))
    }

    #[track_caller]
    fn attention(&self, layer: usize, path: &str, x: Tensor) -> Tensor {
        let (heads, groups, width) = (self.config.n_head, self.config.groups(), self.config.head_width());
        let (batch, length) = (x.size(0) as i64, x.size(1) as i64);
        let qkv = self.linear(path, "qkv", x);
        // Of all heads in a row: those of queries, then of keys, then of values.
        let counts = [heads, groups, groups];
        let pieces = split_with_sizes::with(qkv, counts.map(|count| count * width)).dim(-1).call();
        let part =
            |index: usize| transpose(reshape(pieces[index], [batch, length, counts[index] as i64, width as i64]), 1, 2);
        let (mut q, mut k, v) = (part(0), part(1), part(2));
        if self.config.norm_qk {
            q = scope("norm_q", || self.norm(&format!("{path}.norm_q"), q));
            k = scope("norm_k", || self.norm(&format!("{path}.norm_k"), k));
        }
        let y = self.attend(layer, q, k, v);
        self.linear(path, "proj", merge_heads(y))
    }

    /// Queries [B, H, T, D], keys and values [B, G, T, D] to [B, H, T, D], once queries and keys are rotated.
    #[track_caller]
    fn attend(&self, layer: usize, q: Tensor, k: Tensor, v: Tensor) -> Tensor {
        let config = self.config;
        let (heads, groups, length) = (config.n_head, config.groups(), q.size(2));
        let scale = 1.0 / (config.attention_scores_scalar.unwrap_or(config.head_width()) as f64).sqrt();
        if let Some(cached) = self.cached {
            let (window, cap) = (config.window(layer), config.attention_logit_softcapping);
            let scale = config.attention_scores_scalar.map(|_| scale);
            return cached.attend(layer, [q, k, v], self.table, &Scores { scale, window, cap });
        }
        let (q, k) = (self.rotated(q), self.rotated(k));
        // A window of the whole sequence is none.
        let window = config.window(layer).filter(|window| *window < length);
        let cap = config.attention_logit_softcapping;
        if window.is_none() && cap.is_none() {
            let attention = scaled_dot_product_attention::with(q, k, v).scale(scale).enable_gqa(groups != heads);
            return attention.is_causal(true).call();
        }
        let attention = windowed_attention::with(q, k, v).is_causal(true).scale(scale);
        attention.window(window.map(|window| window as i64)).cap(cap).call()
    }
}
