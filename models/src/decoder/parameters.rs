//! The parameters of a decoder, in the order in which it meets them. Their names are LitGPT's without its prefix
//! `transformer.`.

use super::config::{DecoderConfig, MlpClass, NormClass, NormQkType};
use crate::config::{Initial, Parameter};

/// A list of parameters that is being made.
struct List<'a> {
    config: &'a DecoderConfig,
    made: Vec<Parameter>,
}

impl List<'_> {
    fn push(&mut self, name: String, shape: &[usize], initial: Initial, is_linear: bool) {
        self.made.push(Parameter { name, decays: shape.len() > 1, is_linear, shape: shape.to_vec(), initial });
    }

    fn norm(&mut self, path: &str, width: usize) {
        if !self.config.norm_affine {
            return;
        }
        let gain = if self.config.norm_add_unit_offset { Initial::Zeros } else { Initial::Ones };
        self.push(format!("{path}.weight"), &[width], gain, false);
        if self.config.norm_class_name == NormClass::LayerNorm {
            self.push(format!("{path}.bias"), &[width], Initial::Zeros, false);
        }
    }

    fn linear(&mut self, path: &str, [outputs, inputs]: [usize; 2], bias: bool) {
        // Of the projections into the residual stream 2 L add up.
        let into_residual = path.ends_with(".proj");
        let shrink = if into_residual { (2.0 * self.config.n_layer as f64).sqrt() } else { 1.0 };
        self.push(format!("{path}.weight"), &[outputs, inputs], Initial::Normal(0.02 / shrink), true);
        if bias {
            self.push(format!("{path}.bias"), &[outputs], Initial::Zeros, true);
        }
    }

    /// A feed-forward part, or an expert, of this inner width.
    fn mlp(&mut self, path: &str, inner: usize) {
        let (width, bias) = (self.config.n_embd, self.config.bias || self.config.mlp_bias);
        let inputs: &[&str] = match self.config.mlp_class_name {
            MlpClass::GptNeox => &["fc"],
            MlpClass::Llama | MlpClass::Gemma | MlpClass::Mixture => &["fc_1", "fc_2"],
        };
        inputs.iter().for_each(|input| self.linear(&format!("{path}.{input}"), [inner, width], bias));
        self.linear(&format!("{path}.proj"), [width, inner], bias);
    }

    /// The norms of queries and keys, of heads that are so wide.
    fn norms_of_heads(&mut self, path: &str, head: usize) {
        for (name, heads) in [("norm_q", self.config.n_head), ("norm_k", self.config.groups())] {
            let path = format!("{path}.{name}");
            match self.config.norm_qk_type {
                NormQkType::Default => self.norm(&path, head),
                NormQkType::Olmo2 => self.norm(&path, heads * head),
                NormQkType::PerHead => self.push(format!("{path}.weight"), &[heads * head], Initial::Ones, false),
            }
        }
    }

    fn block(&mut self, layer: usize) {
        let (config, path) = (self.config, format!("h.{layer}"));
        let (width, head) = (config.n_embd, config.head_width());
        let (queries, shared) = (config.n_head * head, config.groups() * head);
        if config.norm_1 {
            self.norm(&format!("{path}.norm_1"), width);
        }
        self.linear(&format!("{path}.attn.qkv"), [queries + 2 * shared, width], config.bias || config.attn_bias);
        if config.norm_qk {
            self.norms_of_heads(&format!("{path}.attn"), head);
        }
        self.linear(&format!("{path}.attn.proj"), [width, queries], config.bias || config.attn_proj_bias);
        if config.post_attention_norm {
            self.norm(&format!("{path}.post_attention_norm"), width);
        }
        if config.norm_2 && !config.shared_attention_norm {
            self.norm(&format!("{path}.norm_2"), width);
        }
        if config.has_experts(layer) {
            self.linear(&format!("{path}.mlp.gate"), [config.n_expert, width], false);
            (0..config.n_expert)
                .for_each(|expert| self.mlp(&format!("{path}.mlp.experts.{expert}"), config.expert_width()));
        } else {
            self.mlp(&format!("{path}.mlp"), config.inner_width());
        }
        if config.post_mlp_norm {
            self.norm(&format!("{path}.post_mlp_norm"), width);
        }
    }
}

/// Every parameter of a decoder. Matrices start normal with deviation 0.02, projections into the residual stream with
/// 0.02 / √(2 L), gains at 1 (or at 0, where 1 is added to them), biases at 0.
pub(super) fn parameters(config: &DecoderConfig) -> Vec<Parameter> {
    let mut list = List { config, made: Vec::new() };
    let embedding = [config.padded_vocab_size, config.embedding_width()];
    list.push("wte.weight".to_owned(), &embedding, Initial::Normal(0.02), false);
    if let Some(width) = config.embedding_width {
        list.linear("wte_proj", [config.n_embd, width], false);
    }
    if let Some(rows) = config.learned_positions {
        list.push("wpe.weight".to_owned(), &[rows + config.block_size, config.n_embd], Initial::Normal(0.02), false);
    }
    (0..config.n_layer).for_each(|layer| list.block(layer));
    if config.final_norm {
        list.norm("ln_f", config.n_embd);
    }
    if let Some(width) = config.embedding_width {
        list.linear("head_proj", [width, config.n_embd], false);
    }
    if !config.tie_embeddings {
        list.linear("lm_head", embedding, config.lm_head_bias);
    }
    list.made
}
