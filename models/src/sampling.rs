//! How the next token is drawn from logits, as a traced function: repetition penalty, temperature, top-k, top-p and
//! min-p, in this order, which is that of `transformers`. The numbers are run-time tensors; only which of the rules
//! apply is compiled.
//!
//! Ties: of equal logits the lower id counts as the larger, so exactly `top_k` tokens are left, and greedy sampling
//! takes the lowest id. A row of logits whose largest is NaN, infinite or absent (all are -infinity) is an error when
//! the program runs; -infinity alone excludes a token.

use fulgurite_kernels::scratch::try_zeroed;
use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_ops_macros::Tree;
use fulgurite_runtime::tree::Leaf;
use fulgurite_runtime::{Array, Error, Result};

/// More than the tokens of any vocabulary: a larger `top_k` means the same.
const MOST_TOP_K: usize = 1 << 32;

/// How tokens are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it, in f32; 0, and what is below the smallest normal f32, takes the most probable token.
    pub temperature: f64,
    /// Number of most probable tokens to draw from.
    pub top_k: Option<usize>,
    /// Draws from the fewest most probable tokens that together have at least this probability; 1 draws from all.
    pub top_p: f64,
    /// Draws from tokens at least this many times as probable as the most probable one; 0 draws from all.
    pub min_p: f64,
    /// Positive logits of tokens that have occurred are divided by it, negative ones multiplied; 1 changes nothing.
    pub repetition_penalty: f64,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { temperature: 0.8, top_k: Some(40), top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 42 }
    }
}

/// Which rules apply: what a program is compiled for. Programs for the same rules are the same, whatever the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Whether the most probable token is taken. Only the repetition penalty matters then.
    pub greedy: bool,
    /// The largest `top_k` that the program takes, a power of two.
    pub top_k: Option<usize>,
    /// Whether there is a `top_p`.
    pub top_p: bool,
    /// Whether there is a `min_p`.
    pub min_p: bool,
    /// Whether tokens that have occurred become less probable.
    pub repetition_penalty: bool,
}

/// The numbers of the rules, run-time tensors. Each has no dimensions, or the shape [B, 1] with a number for each row.
#[derive(Debug, Clone, Tree)]
pub struct Settings<T: Leaf> {
    /// f32, above 0.
    pub temperature: T,
    /// i64, 1 to the `top_k` of the rules.
    pub top_k: T,
    /// f32, 0 to 1.
    pub top_p: T,
    /// f32, 0 to 1.
    pub min_p: T,
    /// f32, above 0.
    pub repetition_penalty: T,
}

impl Sampling {
    /// Checks the fields.
    pub fn validate(&self) -> Result<()> {
        let wrong = |argument: &str, message: String| Err(Error::Argument { argument: argument.into(), message });
        // In the type that is computed in: 1e39 would be infinite there.
        if !(self.temperature >= 0.0 && (self.temperature as f32).is_finite()) {
            let message =
                format!("is {:e}, expected a number from 0 to {:e}, the largest f32", self.temperature, f32::MAX);
            return wrong("temperature", message);
        }
        if self.top_k == Some(0) {
            return wrong("top_k", "is 0, expected at least 1".into());
        }
        for (name, value) in [("top_p", self.top_p), ("min_p", self.min_p)] {
            if !(0.0..=1.0).contains(&value) {
                return wrong(name, format!("is {value}, expected a number from 0 to 1"));
            }
        }
        let penalty = self.repetition_penalty as f32;
        if !(penalty.is_normal() && penalty > 0.0) {
            let message = format!("is {:e}, expected a number above 0 that f32 can hold", self.repetition_penalty);
            return wrong("repetition_penalty", message);
        }
        Ok(())
    }

    /// Whether the most probable token is taken, as the limit of ever lower temperatures.
    fn is_greedy(&self) -> bool {
        (self.temperature as f32) < f32::MIN_POSITIVE
    }

    /// The rules that apply. A `top_k` of any size up to the next power of two has the same rules.
    pub fn rules(&self) -> Rules {
        let greedy = self.is_greedy();
        Rules {
            greedy,
            top_k: self.top_k.filter(|_| !greedy).map(|k| k.min(MOST_TOP_K).next_power_of_two()),
            top_p: !greedy && self.top_p < 1.0,
            min_p: !greedy && self.min_p > 0.0,
            repetition_penalty: self.repetition_penalty != 1.0,
        }
    }

    /// The numbers, on the host, without dimensions.
    pub fn settings(&self) -> Result<Settings<Array>> {
        Ok(Settings {
            temperature: Array::scalar(self.temperature as f32),
            top_k: Array::new([0_usize; 0], &[self.top_k.map_or(i64::MAX, |k| k.min(MOST_TOP_K) as i64)])?,
            top_p: Array::scalar(self.top_p as f32),
            min_p: Array::scalar(self.min_p as f32),
            repetition_penalty: Array::scalar(self.repetition_penalty as f32),
        })
    }
}

/// How often each token has occurred in each sequence, i32[B, V] on the host: `occurrences[b][v]`. Tokens beyond the
/// vocabulary are an error.
pub fn occurrences(sequences: &[Vec<i64>], vocabulary: usize) -> Result<Array> {
    let mut counts = try_zeroed::<i32>(sequences.len() * vocabulary)?;
    for (row, sequence) in sequences.iter().enumerate() {
        for token in sequence {
            let place = usize::try_from(*token).ok().filter(|token| *token < vocabulary);
            let place = place.ok_or_else(|| Error::Argument {
                argument: "sequences".into(),
                message: format!("token {token} of row {row} is not in the vocabulary of {vocabulary}"),
            })?;
            counts[row * vocabulary + place] += 1;
        }
    }
    Array::new([sequences.len(), vocabulary], &counts)
}

/// `occurrences` `i32[B, V]` with `tokens` `i64[B]` counted once more.
#[track_caller]
pub fn count_tokens(occurrences: Tensor, tokens: Tensor) -> Tensor {
    let rows = tokens.size(0);
    let ones = full::with([rows, 1], 1_i64).dtype(occurrences.dtype()).device(tokens.device()).call();
    scatter_add(occurrences, 1, reshape(tokens, [rows as i64, 1]), ones)
}

/// Draws a token for each row of `logits` `[B, V]`, `i64[B]`. `occurrences` `i32[B, V]` is how often each token has
/// occurred, for the repetition penalty; without it there is none. `generator` `i64[2]` holds seed and offset; rows
/// draw different numbers, and a row's does not depend on how many rows there are.
#[track_caller]
pub fn sample(
    rules: Rules,
    settings: &Settings<Tensor>,
    logits: Tensor,
    occurrences: Option<Tensor>,
    generator: Tensor,
) -> Tensor {
    scope("sampling", || {
        let logits = penalized(rules, settings, logits, occurrences);
        if rules.greedy {
            return most_probable(logits);
        }
        let Candidates { weights, tokens } = candidates(rules, settings, logits);
        let place = multinomial(weights, 1, generator);
        let token = match tokens {
            Some(tokens) => {
                // Weights are 0 from some place on. Partial sums that were added in another order may still grow there
                // by a rounding; what they lead to is the last of the others.
                let kept = sum::with(to(gt(weights, 0.0), DType::I64)).dim([-1]).keepdim(true).call();
                gather(tokens, 1, minimum(place, kept - 1))
            }
            None => place,
        };
        reshape(token, [-1])
    })
}

/// The probabilities that [`sample`] draws by, f32[B, V]: 0 for tokens that are left out. `rules` must not be greedy.
#[track_caller]
pub fn probabilities(rules: Rules, settings: &Settings<Tensor>, logits: Tensor, occurrences: Option<Tensor>) -> Tensor {
    let Candidates { weights, tokens } = candidates(rules, settings, penalized(rules, settings, logits, occurrences));
    let shares = weights / sum::with(weights).dim([-1]).keepdim(true).call();
    match tokens {
        Some(tokens) => scatter_add(zeros_like(logits), 1, tokens, shares),
        None => shares,
    }
}

/// Zeros of the shape of `logits`, in f32.
#[track_caller]
fn zeros_like(logits: Tensor) -> Tensor {
    full::with(logits.shape(), 0.0).device(logits.device()).call()
}

/// Logits in f32, those of tokens that have occurred brought down. C. f. Keskar et al., "CTRL", 2019, section 4.1, with
/// the rule of `transformers` for negative logits.
#[track_caller]
fn penalized(rules: Rules, settings: &Settings<Tensor>, logits: Tensor, occurrences: Option<Tensor>) -> Tensor {
    let logits = to(logits, DType::F32);
    let Some(occurrences) = occurrences.filter(|_| rules.repetition_penalty) else { return logits };
    let penalty = settings.repetition_penalty;
    let lower = where_(lt(logits, 0.0), logits * penalty, logits / penalty);
    where_(gt(occurrences, 0), lower, logits)
}

/// The first of the largest logits of each row.
#[track_caller]
fn most_probable(logits: Tensor) -> Tensor {
    let most = prims::amax(logits, vec![1]);
    // 1, or NaN where the largest is no number or infinite, which is an error here as it is where tokens are drawn.
    let checked = prims::check_weights(unsqueeze(most * 0.0 + 1.0, 1));
    argmax::with(logits).dim(-1).call() * to(reshape(checked, [-1]), DType::I64)
}

/// What may be drawn, and by which weights.
struct Candidates {
    /// f32[B, N], 0 for those that are left out; the largest is 1.
    weights: Tensor,
    /// The tokens that weights belong to, most probable first, i64[B, N]; without them N is V and the place is the
    /// token.
    tokens: Option<Tensor>,
}

#[track_caller]
fn candidates(rules: Rules, settings: &Settings<Tensor>, logits: Tensor) -> Candidates {
    let vocabulary = logits.size(-1);
    let count = match rules.top_k {
        Some(most) if most < vocabulary => Some(most),
        // Tokens are put in order where a rule asks for their places.
        Some(_) => Some(vocabulary),
        None => rules.top_p.then_some(vocabulary),
    };
    let (logits, tokens) = match count {
        Some(count) => {
            let (values, tokens) = topk(logits, count);
            (values, Some(tokens))
        }
        None => (logits, None),
    };
    // The largest becomes 0, and what is divided by a small temperature -infinity at worst: no quotient of infinities
    // follows.
    let most = match tokens {
        Some(_) => narrow(logits, 1, 0, 1),
        None => unsqueeze(prims::amax(logits, vec![1]), 1),
    };
    let mut weights = exp((logits - most) / settings.temperature);
    let count = logits.size(-1) as i64;
    let places = || arange::with(0_i64, count).device(logits.device()).call();
    if rules.top_k.is_some() {
        weights = masked_fill(weights, ge(places(), settings.top_k), 0.0);
    }
    if rules.top_p {
        // Those before a token already have the probability: it is not needed. The first always is.
        let sums = cumsum(weights, 1);
        let total = narrow(sums, 1, count - 1, 1);
        let enough = ge(sums - weights, total * settings.top_p);
        weights = masked_fill(weights, logical_and(enough, gt(places(), 0)), 0.0);
    }
    if rules.min_p {
        weights = masked_fill(weights, lt(weights, settings.min_p), 0.0);
    }
    Candidates { weights, tokens }
}

/// What the next tokens are drawn by, beside their logits.
#[derive(Debug, Clone, Tree)]
pub struct Draw<T: Leaf> {
    /// The numbers of the rules of sampling.
    pub settings: Settings<T>,
    /// How often each token has occurred, i32[B, V], if there is a penalty for that.
    pub occurrences: Option<T>,
    /// Seed and offset of the draws, `i64[2]`.
    pub generator: T,
}

impl Draw<Tensor> {
    /// Tokens `i64[B]` drawn by logits `[B, V]`, and the occurrences with them.
    #[track_caller]
    pub fn tokens(&self, rules: Rules, logits: Tensor) -> (Tensor, Option<Tensor>) {
        let next = sample(rules, &self.settings, logits, self.occurrences, self.generator);
        (next, self.occurrences.map(|occurrences| count_tokens(occurrences, next)))
    }
}

#[cfg(test)]
#[path = "sampling_tests.rs"]
mod tests;
