//! The parameters of a decoder, in the order in which it meets them. Their names are LitGPT's without its prefix
//! `transformer.`.

use super::config::{DecoderConfig, MlpClass, NormClass};
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

    fn mlp(&mut self, path: &str) {
        let (width, inner, bias) = (self.config.n_embd, self.config.inner_width(), self.config.bias);
        let inputs: &[&str] = match self.config.mlp_class_name {
            MlpClass::GptNeox => &["fc"],
            MlpClass::Llama | MlpClass::Gemma | MlpClass::Mixture => &["fc_1", "fc_2"],
        };
        inputs.iter().for_each(|input| self.linear(&format!("{path}.{input}"), [inner, width], bias));
        self.linear(&format!("{path}.proj"), [width, inner], bias);
    }

    fn block(&mut self, path: &str) {
        let config = self.config;
        let (width, head) = (config.n_embd, config.head_width());
        let (queries, shared) = (config.n_head * head, config.groups() * head);
        self.norm(&format!("{path}.norm_1"), width);
        self.linear(&format!("{path}.attn.qkv"), [queries + 2 * shared, width], config.bias || config.attn_bias);
        if config.norm_qk {
            self.norm(&format!("{path}.attn.norm_q"), head);
            self.norm(&format!("{path}.attn.norm_k"), head);
        }
        self.linear(&format!("{path}.attn.proj"), [width, queries], config.bias);
        if config.post_attention_norm {
            self.norm(&format!("{path}.post_attention_norm"), width);
        }
        if !config.shared_attention_norm {
            self.norm(&format!("{path}.norm_2"), width);
        }
        match config.mlp_class_name {
            MlpClass::Mixture => {
                self.linear(&format!("{path}.mlp.gate"), [config.n_expert, width], false);
                (0..config.n_expert).for_each(|expert| self.mlp(&format!("{path}.mlp.experts.{expert}")));
            }
            _ => self.mlp(&format!("{path}.mlp")),
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
    let embedding = [config.padded_vocab_size, config.n_embd];
    list.push("wte.weight".to_owned(), &embedding, Initial::Normal(0.02), false);
    (0..config.n_layer).for_each(|layer| list.block(&format!("h.{layer}")));
    list.norm("ln_f", config.n_embd);
    if !config.tie_embeddings {
        list.linear("lm_head", embedding, config.lm_head_bias);
    }
    list.made
}
