//! What a decoder computes.

use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::Failure;

use super::config::{DecoderConfig, GeluApproximate, MlpClass, NormClass, NormQkType};
use super::parameters;
use super::rope::Rotations;
use crate::blocks::block;
use crate::cache::{Cached, Scores};
use crate::config::{ConfigError, Parameter};
use crate::dropout::Dropout;
use crate::head::Head;
use crate::layer_weight::{HEAD, LayerWeight};
use crate::model::Model;
use crate::parameter_list::Parameters;

/// The layers of a block.
const LAYERS: [&str; 6] = ["attn.qkv", "attn.proj", "mlp.fc", "mlp.fc_1", "mlp.fc_2", "mlp.proj"];

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

    fn may_be_quantized(&self, parameter: &str) -> bool {
        let of_block = parameter.strip_prefix("h.").and_then(|rest| rest.split_once('.')).map(|(_, own)| own);
        // What chooses experts is small, and other layers' errors are averaged where it decides.
        of_block.is_some_and(|own| LAYERS.iter().any(|layer| own.strip_suffix(".weight") == Some(*layer)))
    }

    #[track_caller]
    fn hidden(&self, params: &Parameters<Tensor>, tokens: Tensor, _dropout: &Dropout) -> Tensor {
        let (length, context) = (tokens.size(1), self.block_size);
        if length > context {
            let message = format!("tokens has {length} positions, the model's context (block_size) is {context}");
            fulgurite_runtime::tracer::fail("llama", Failure::new("ContextLength", message));
        }
        let tables = tables(self, length, &|rotations| rotations.table(tokens.device()));
        Layers { config: self, params, tables, cached: None }.hidden(tokens)
    }

    fn cached_heads(&self) -> [usize; 2] {
        [self.groups(), self.head_width()]
    }

    #[track_caller]
    fn hidden_after(&self, params: &Parameters<Tensor>, tokens: Tensor, cached: &Cached) -> Tensor {
        // What depends on the length of a sequence is that of one that fills the cache: keys that are in it already
        // cannot be rotated again as it grows.
        let tables = tables(self, cached.max_seq_length(), &|rotations| rotations.table_at(cached.positions()));
        Layers { config: self, params, tables, cached: Some(cached) }.hidden(tokens)
    }

    #[track_caller]
    fn output_layer(&self, params: &Parameters<Tensor>) -> Head {
        // Embeddings stay as they are where the same matrix is quantized to make logits.
        let own = !self.tie_embeddings || params.get(HEAD).is_some();
        let weight = LayerWeight::of(params, if own { HEAD } else { "wte.weight" });
        let bias = params.get("lm_head.bias").copied();
        Head { weight, bias, divisor: self.logits_divisor, softcap: self.final_logit_softcapping }
    }
}

/// Cosines and sines [T, n] each, or [B, 1, T, n] after a cache.
type Table = [Tensor; 2];

/// The tables of the blocks that have the model's base, and of those that have its local base, if there are such. The
/// sequences have `length` positions.
#[track_caller]
fn tables(config: &DecoderConfig, length: usize, make: &dyn Fn(Rotations<'_>) -> Table) -> [Option<Table>; 2] {
    [("rope", false), ("rope_local", true)].map(|(name, is_local)| {
        let mut blocks = 0..config.n_layer;
        let needed = blocks.any(|layer| config.rotates(layer) && config.is_local(layer) == is_local);
        needed.then(|| scope(name, || make(Rotations::of(config, is_local, length))))
    })
}

/// A decoder that is being traced.
struct Layers<'a> {
    config: &'a DecoderConfig,
    params: &'a Parameters<Tensor>,
    /// Of blocks with the model's base, and of those with its local base.
    tables: [Option<Table>; 2],
    /// What the tokens come after.
    cached: Option<&'a Cached>,
}

impl Layers<'_> {
    /// Token ids i64[B, T] to hidden states [B, T, C].
    #[track_caller]
    fn hidden(&self, tokens: Tensor) -> Tensor {
        let config = self.config;
        let mut x = scope("wte", || embedding(tokens, self.params.tensor("wte.weight")));
        if config.scale_embeddings {
            x = x * (config.n_embd as f64).sqrt();
        }
        if let Some(multiplier) = config.embedding_multiplier {
            x = x * multiplier;
        }
        if config.embedding_width.is_some() {
            x = self.linear("", "wte_proj", x);
        }
        if let Some(rows) = config.learned_positions {
            x = x + scope("wpe", || self.positions(tokens.size(1), rows));
        }
        for layer in 0..config.n_layer {
            x = block(&format!("h.{layer}"), || self.block(layer, x));
        }
        if config.final_norm {
            x = scope("ln_f", || self.norm("ln_f", x));
        }
        if config.embedding_width.is_some() {
            x = self.linear("", "head_proj", x);
        }
        x
    }

    /// Embeddings of the positions of `length` tokens, [T, C], or [B, T, C] after a cache, in a table that has so many
    /// rows before them.
    #[track_caller]
    fn positions(&self, length: usize, rows: usize) -> Tensor {
        let weight = self.params.tensor("wpe.weight");
        match self.cached {
            None => prims::slice(weight, [rows, 0], [rows + length, weight.size(1)], [1, 1]),
            Some(cached) => embedding(cached.positions() + rows as i64, weight),
        }
    }

    #[track_caller]
    fn norm(&self, path: &str, x: Tensor) -> Tensor {
        let (shape, eps) = ([x.size(-1)], self.config.norm_eps);
        let parameter = |name: &str| self.params.get(&format!("{path}.{name}")).copied();
        match self.config.norm_class_name {
            NormClass::LayerNorm => {
                layer_norm::with(x, shape).weight(parameter("weight")).bias(parameter("bias")).eps(eps).call()
            }
            NormClass::RMSNorm => {
                let offset = if self.config.norm_add_unit_offset { 1.0 } else { 0.0 };
                rms_norm::with(x, shape).weight(parameter("weight")).eps(eps).offset(offset).call()
            }
        }
    }

    /// Heads [B, H, T, D], each normalized by itself.
    #[track_caller]
    fn norm_of_heads(&self, path: &str, x: Tensor) -> Tensor {
        if self.config.norm_qk_type != NormQkType::PerHead {
            return self.norm(path, x);
        }
        let (shape, eps) = ([x.size(-1)], self.config.norm_eps);
        let normalized = match self.config.norm_class_name {
            NormClass::LayerNorm => layer_norm::with(x, shape).eps(eps).call(),
            NormClass::RMSNorm => rms_norm::with(x, shape).eps(eps).call(),
        };
        let weight = self.params.tensor(&format!("{path}.weight"));
        normalized * reshape(weight, [x.size(1) as i64, 1, x.size(-1) as i64])
    }

    /// The linear layer `name` within `path`.
    #[track_caller]
    fn linear(&self, path: &str, name: &str, x: Tensor) -> Tensor {
        let own = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        scope(name, || {
            let bias = self.params.get(&format!("{own}.bias")).copied();
            LayerWeight::of(self.params, &format!("{own}.weight")).of_input(x, bias)
        })
    }

    #[track_caller]
    fn block(&self, layer: usize, x: Tensor) -> Tensor {
        let config = self.config;
        let path = format!("h.{layer}");
        let norm = |name: &str, x: Tensor| scope(name, || self.norm(&format!("{path}.{name}"), x));
        let before = |has: bool, name: &str, x: Tensor| {
            if has && !config.norm_after_sum { norm(name, x) } else { x }
        };
        // What a part adds to the residual stream.
        let sum = |x: Tensor, added: Tensor, name: &str| {
            let added = config.residual_multiplier.map_or(added, |multiplier| added * multiplier);
            if config.norm_after_sum { norm(name, x + added) } else { x + added }
        };
        let first = before(config.norm_1, "norm_1", x);
        let mut attended = scope("attn", || self.attention(layer, &format!("{path}.attn"), first));
        if config.post_attention_norm {
            attended = norm("post_attention_norm", attended);
        }
        let after = sum(x, attended, "norm_1");
        let second = match (config.shared_attention_norm, config.parallel_residual) {
            (true, _) => first,
            (false, true) => before(config.norm_2, "norm_2", x),
            (false, false) => before(config.norm_2, "norm_2", after),
        };
        let mut fed = scope("mlp", || match config.has_experts(layer) {
            true => self.mixture(&format!("{path}.mlp"), second),
            false => self.mlp(&format!("{path}.mlp"), second),
        });
        if config.post_mlp_norm {
            fed = norm("post_mlp_norm", fed);
        }
        sum(after, fed, "norm_2")
    }

    #[track_caller]
    fn mlp(&self, path: &str, x: Tensor) -> Tensor {
        let approximate = match self.config.gelu_approximate {
            GeluApproximate::None => Approximate::None,
            GeluApproximate::Tanh => Approximate::Tanh,
        };
        let fed = |name: &str| self.linear(path, name, x);
        let inner = match self.config.mlp_class_name {
            MlpClass::GptNeox => match self.config.mlp_activation {
                Some(activation) => activation.of(fed("fc")),
                None => gelu::with(fed("fc")).approximate(approximate).call(),
            },
            MlpClass::Gemma => geglu::with(fed("fc_1"), fed("fc_2")).approximate(approximate).call(),
            MlpClass::Llama | MlpClass::Mixture => swiglu(fed("fc_1"), fed("fc_2")),
        };
        self.linear(path, "proj", inner)
    }

    /// The experts that `gate` prefers, weighted by the softmax of what it says of them, or of all.
    #[track_caller]
    fn mixture(&self, path: &str, x: Tensor) -> Tensor {
        let (said, count) = (self.linear(path, "gate", x), self.config.n_expert_per_token);
        let (shares, experts) = match self.config.expert_shares_of_all {
            true => topk(softmax(said, -1), count),
            false => {
                let (chosen, experts) = topk(said, count);
                (softmax(chosen, -1), experts)
            }
        };
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

    /// The table of a block, if it rotates anything.
    fn table(&self, layer: usize) -> Option<Table> {
        self.tables[usize::from(self.config.is_local(layer))].filter(|_| self.config.rotates(layer))
    }

    #[track_caller]
    fn attention(&self, layer: usize, path: &str, x: Tensor) -> Tensor {
        let (heads, groups, width) = (self.config.n_head, self.config.groups(), self.config.head_width());
        let (batch, length) = (x.size(0) as i64, x.size(1) as i64);
        let mut qkv = self.linear(path, "qkv", x);
        if let Some(most) = self.config.attention_clip {
            qkv = clamp::with(qkv).min(-most).max(most).call();
        }
        // Of all heads in a row: those of queries, then of keys, then of values.
        let counts = [heads, groups, groups];
        let mut pieces = split_with_sizes::with(qkv, counts.map(|count| count * width)).dim(-1).call();
        let norm_qk = self.config.norm_qk.then_some(self.config.norm_qk_type);
        let norms = ["norm_q", "norm_k"];
        if norm_qk == Some(NormQkType::Olmo2) {
            for (piece, name) in pieces.iter_mut().zip(norms) {
                *piece = scope(name, || self.norm(&format!("{path}.{name}"), *piece));
            }
        }
        let part =
            |index: usize| transpose(reshape(pieces[index], [batch, length, counts[index] as i64, width as i64]), 1, 2);
        let (mut q, mut k, v) = (part(0), part(1), part(2));
        if norm_qk.is_some_and(|of| of != NormQkType::Olmo2) {
            let norm = |name: &str, x: Tensor| scope(name, || self.norm_of_heads(&format!("{path}.{name}"), x));
            (q, k) = (norm("norm_q", q), norm("norm_k", k));
        }
        let y = self.attend(layer, q, k, v);
        self.linear(path, "proj", merge_heads(y))
    }

    /// Queries [B, H, T, D], keys and values [B, G, T, D] to [B, H, T, D], once queries and keys are rotated.
    #[track_caller]
    fn attend(&self, layer: usize, q: Tensor, k: Tensor, v: Tensor) -> Tensor {
        let config = self.config;
        let (heads, groups, length) = (config.n_head, config.groups(), q.size(2));
        let (scale, table) = (config.score_scale(), self.table(layer));
        if let Some(cached) = self.cached {
            let (window, cap) = (config.window(layer), config.attention_logit_softcapping);
            let usual = config.attention_scores_scalar.is_none() && config.attention_multiplier.is_none();
            let scale = (!usual).then_some(scale);
            return cached.attend(layer, [q, k, v], table, &Scores { scale, window, cap });
        }
        let [q, k] = [q, k].map(|x| table.map_or(x, |[cos, sin]| apply_rope(x, cos, sin)));
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
