//! GPT-2 in traced Rust. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; pre-norm blocks,
//! learned positions, tied embeddings, tanh-GELU; models of others may compute a [`Variant`](crate::config::Variant).
//! Parameters are named as in Hugging Face's checkpoints, with the layout of `torch.nn.Linear` (out, in).

use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_ops_macros::Tree;

use fulgurite_runtime::tree::Leaf;

use crate::blocks::block;
use crate::cache::{Cached, Scores};
use crate::config::{ConfigError, GptConfig, Parameter};
use crate::dropout::Dropout;
use crate::head::Head;
use crate::layer_weight::LayerWeight;
use crate::model::Model;
use crate::parameter_list::Parameters;

/// Embedding table.
#[derive(Debug, Clone, Tree)]
pub struct Embedding<T: Leaf> {
    /// [rows, C].
    pub weight: T,
}

/// Layer normalization over the channels.
#[derive(Debug, Clone, Tree)]
pub struct LayerNorm<T: Leaf> {
    /// `[C]`.
    pub weight: T,
    /// `[C]`.
    pub bias: T,
}

/// `x Wᵀ + b`.
#[derive(Debug, Clone, Tree)]
pub struct Linear<T: Leaf> {
    /// `[out, in]`.
    pub weight: T,
    /// `[out]`.
    pub bias: T,
}

/// Causal self-attention.
#[derive(Debug, Clone, Tree)]
pub struct Attention<T: Leaf> {
    /// Queries, keys and values of all heads in one product: C to 3 C.
    pub c_attn: Linear<T>,
    /// Back into the residual stream.
    pub c_proj: Linear<T>,
}

/// The feed-forward part.
#[derive(Debug, Clone, Tree)]
pub struct Mlp<T: Leaf> {
    /// C to the inner width, 4 C if the configuration has no other.
    pub c_fc: Linear<T>,
    /// The inner width to C.
    pub c_proj: Linear<T>,
}

/// One block.
#[derive(Debug, Clone, Tree)]
pub struct Block<T: Leaf> {
    /// Before attention.
    pub ln_1: LayerNorm<T>,
    /// Attention.
    pub attn: Attention<T>,
    /// Before the feed-forward part.
    pub ln_2: LayerNorm<T>,
    /// Feed-forward.
    pub mlp: Mlp<T>,
}

/// All parameters; the output projection is `wte.weight`.
#[derive(Debug, Clone, Tree)]
pub struct Gpt2<T: Leaf> {
    /// Token embeddings [V, C].
    pub wte: Embedding<T>,
    /// Position embeddings [T, C].
    pub wpe: Embedding<T>,
    /// Blocks.
    pub h: Vec<Block<T>>,
    /// Final normalization.
    pub ln_f: LayerNorm<T>,
}

impl<T: Leaf> Gpt2<T> {
    /// Builds the tree for `config`; `make` gets each parameter's name and shape, in the order of
    /// [`GptConfig::parameters`].
    pub fn build<E>(config: &GptConfig, make: &mut dyn FnMut(&str, &[usize]) -> Result<T, E>) -> Result<Gpt2<T>, E> {
        let (c, inner) = (config.channels, config.inner_width());
        fn norm<T: Leaf, E>(
            path: &str,
            c: usize,
            make: &mut dyn FnMut(&str, &[usize]) -> Result<T, E>,
        ) -> Result<LayerNorm<T>, E> {
            Ok(LayerNorm { weight: make(&format!("{path}.weight"), &[c])?, bias: make(&format!("{path}.bias"), &[c])? })
        }
        fn linear<T: Leaf, E>(
            path: &str,
            outputs: usize,
            inputs: usize,
            make: &mut dyn FnMut(&str, &[usize]) -> Result<T, E>,
        ) -> Result<Linear<T>, E> {
            let weight = make(&format!("{path}.weight"), &[outputs, inputs])?;
            Ok(Linear { weight, bias: make(&format!("{path}.bias"), &[outputs])? })
        }
        Ok(Gpt2 {
            wte: Embedding { weight: make("wte.weight", &[config.vocabulary, c])? },
            wpe: Embedding { weight: make("wpe.weight", &[config.context, c])? },
            h: (0..config.layers)
                .map(|i| {
                    Ok(Block {
                        ln_1: norm(&format!("h.{i}.ln_1"), c, make)?,
                        attn: Attention {
                            c_attn: linear(&format!("h.{i}.attn.c_attn"), 3 * c, c, make)?,
                            c_proj: linear(&format!("h.{i}.attn.c_proj"), c, c, make)?,
                        },
                        ln_2: norm(&format!("h.{i}.ln_2"), c, make)?,
                        mlp: Mlp {
                            c_fc: linear(&format!("h.{i}.mlp.c_fc"), inner, c, make)?,
                            c_proj: linear(&format!("h.{i}.mlp.c_proj"), c, inner, make)?,
                        },
                    })
                })
                .collect::<Result<_, E>>()?,
            ln_f: norm("ln_f", c, make)?,
        })
    }
}

impl Gpt2<Tensor> {
    /// The traced parameters of `config` as its tree. A list of another model's ends the trace with an error.
    #[track_caller]
    pub fn of(config: &GptConfig, params: &Parameters<Tensor>) -> Self {
        let built: Result<_, std::convert::Infallible> = Gpt2::build(config, &mut |name, _| Ok(params.tensor(name)));
        let Ok(tree) = built;
        tree
    }
}

fn norm(config: &GptConfig, x: Tensor, parameters: &LayerNorm<Tensor>) -> Tensor {
    let normalized = layer_norm::with(x, [x.size(-1)]).weight(parameters.weight).bias(parameters.bias);
    normalized.eps(config.variant.layer_norm_epsilon).call()
}

fn project(x: Tensor, parameters: &Linear<Tensor>) -> Tensor {
    linear::with(x, parameters.weight).bias(parameters.bias).call()
}

/// Attention of a block: queries, keys and values [B, H, T, D] to [B, H, T, D].
type Attend<'a> = &'a dyn Fn(usize, [Tensor; 3]) -> Tensor;

impl Gpt2<Tensor> {
    /// Token ids i64[B, T] to hidden states [B, T, C] after the final normalization.
    #[track_caller]
    pub fn hidden(&self, config: &GptConfig, tokens: Tensor, dropout: &Dropout) -> Tensor {
        let length = tokens.size(1);
        if length > config.context {
            fulgurite_runtime::tracer::fail(
                "gpt2",
                fulgurite_runtime::Failure::new(
                    "ContextLength",
                    format!("tokens has {length} positions, the model's context is {}", config.context),
                ),
            );
        }
        // The first positions are the first rows, which nothing needs to select.
        let positions = scope("wpe", || {
            let width = self.wpe.weight.size(1);
            prims::slice(self.wpe.weight, [0, 0], [length, width], [1, 1])
        });
        let attend = |layer: usize, [q, k, v]: [Tensor; 3]| {
            let attention = scaled_dot_product_attention::with(q, k, v).is_causal(true);
            attention.scale(config.score_scale(layer)).call()
        };
        self.layers(config, [tokens, positions], dropout, &attend)
    }

    /// As [`Gpt2::hidden`], of tokens that come after those in a cache.
    #[track_caller]
    fn hidden_after(&self, config: &GptConfig, tokens: Tensor, cached: &Cached) -> Tensor {
        let attend = |layer, heads| {
            let scores = Scores { scale: config.score_scale(layer), window: None, cap: None };
            cached.attend(layer, heads, None, &scores)
        };
        let positions = scope("wpe", || embedding(cached.positions(), self.wpe.weight));
        self.layers(config, [tokens, positions], &Dropout::none(), &attend)
    }

    /// Hidden states of tokens i64[B, T] and the embeddings of their positions, [T, C] or [B, T, C], whose blocks
    /// attend by `attend`.
    #[track_caller]
    fn layers(
        &self,
        config: &GptConfig,
        [tokens, positions]: [Tensor; 2],
        dropout: &Dropout,
        attend: Attend,
    ) -> Tensor {
        let token_embedding = scope("wte", || embedding(tokens, self.wte.weight));
        let mut x = dropout.apply(token_embedding + positions);
        for (i, layer) in self.h.iter().enumerate() {
            x = block(&format!("h.{i}"), || layer.forward(config, x, dropout, &|heads| attend(i, heads)));
        }
        scope("ln_f", || norm(config, x, &self.ln_f))
    }

    /// Token ids i64[B, T] to logits [B, T, V].
    #[track_caller]
    pub fn logits(&self, config: &GptConfig, tokens: Tensor, dropout: &Dropout) -> Tensor {
        self.output_layer().logits(self.hidden(config, tokens, dropout))
    }

    /// The layer that makes logits of hidden states: the embedding.
    fn output_layer(&self) -> Head {
        Head { weight: LayerWeight::plain(self.wte.weight), bias: None, divisor: None, softcap: None }
    }

    /// Mean cross entropy of predicting `targets` i64[B, T] from `tokens` i64[B, T]; targets of -100 do not count.
    #[track_caller]
    pub fn loss(&self, config: &GptConfig, tokens: Tensor, targets: Tensor, dropout: &Dropout) -> Tensor {
        self.output_layer().loss(self.hidden(config, tokens, dropout), targets)
    }
}

impl Model for GptConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        GptConfig::validate(self)
    }
    fn vocabulary(&self) -> usize {
        self.vocabulary
    }
    fn context(&self) -> usize {
        self.context
    }
    fn dropout(&self) -> f64 {
        self.dropout
    }
    fn sizes(&self) -> [usize; 3] {
        [self.layers, self.heads, self.channels]
    }
    fn parameters(&self) -> Vec<Parameter> {
        GptConfig::parameters(self)
    }
    #[track_caller]
    fn hidden(&self, params: &Parameters<Tensor>, tokens: Tensor, dropout: &Dropout) -> Tensor {
        Gpt2::of(self, params).hidden(self, tokens, dropout)
    }
    fn cached_heads(&self) -> [usize; 2] {
        [self.heads, self.channels / self.heads]
    }
    #[track_caller]
    fn hidden_after(&self, params: &Parameters<Tensor>, tokens: Tensor, cached: &Cached) -> Tensor {
        Gpt2::of(self, params).hidden_after(self, tokens, cached)
    }
    #[track_caller]
    fn output_layer(&self, params: &Parameters<Tensor>) -> Head {
        Gpt2::of(self, params).output_layer()
    }
}

impl Block<Tensor> {
    #[track_caller]
    fn forward(
        &self,
        config: &GptConfig,
        x: Tensor,
        dropout: &Dropout,
        attend: &dyn Fn([Tensor; 3]) -> Tensor,
    ) -> Tensor {
        let attended = scope("attn", || {
            let x = scope("ln_1", || norm(config, x, &self.ln_1));
            let qkv = scope("c_attn", || project(x, &self.attn.c_attn));
            let (q, k, v) = split_heads(qkv, config.heads);
            let y = attend([q, k, v]);
            let y = scope("c_proj", || project(merge_heads(y), &self.attn.c_proj));
            dropout.apply(y)
        });
        let x = x + attended;
        let fed = scope("mlp", || {
            let x = scope("ln_2", || norm(config, x, &self.ln_2));
            let x = scope("c_fc", || project(x, &self.mlp.c_fc));
            let x = config.variant.activation_function.of(x);
            dropout.apply(scope("c_proj", || project(x, &self.mlp.c_proj)))
        });
        x + fed
    }
}
