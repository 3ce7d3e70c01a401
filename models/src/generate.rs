//! Sampling from a model: one token after another, over a window of the model's context.

use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, DType, Error, Result};

use crate::dropout::Dropout;
use crate::model::Model;
use crate::parameter_list::Parameters;
use crate::tokenizer::{StreamingDecoder, Tokenizer};

/// How tokens are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it, in f32; 0, and what is below the smallest normal f32, takes the most probable token.
    pub temperature: f64,
    /// Number of most probable tokens to draw from.
    pub top_k: Option<usize>,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { temperature: 0.8, top_k: Some(40), seed: 42 }
    }
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
        Ok(())
    }

    /// Whether the most probable token is taken, as the limit of ever lower temperatures.
    fn is_greedy(&self) -> bool {
        (self.temperature as f32) < f32::MIN_POSITIVE
    }
}

/// The token after position `last` i64[1] of `tokens` i64[1, T], drawn from the model's distribution, i64[1].
/// What stands after `last` does not matter.
#[track_caller]
pub fn next_token(
    config: &dyn Model,
    params: &Parameters<Tensor>,
    tokens: Tensor,
    last: Tensor,
    temperature: Tensor,
    generator: Tensor,
    (greedy, top_k): (bool, Option<usize>),
) -> Tensor {
    let hidden = config.hidden(params, tokens, &Dropout::none());
    let hidden = index_select(hidden, 1, last);
    let logits = config.head(params, hidden);
    let logits = reshape(logits, [1, config.vocabulary() as i64]);
    if greedy {
        return argmax::with(logits).dim(-1).call();
    }
    // The largest becomes 0, and what is divided by a small temperature -infinity at worst: no quotient of infinities
    // follows.
    let most = reshape(prims::amax(logits, vec![1]), [1, 1]);
    let mut logits = (logits - most) / temperature;
    if let Some(k) = top_k.filter(|k| *k < config.vocabulary()) {
        let (values, _) = topk(logits, k);
        let least = narrow(values, -1, (k - 1) as i64, 1);
        logits = masked_fill(logits, lt(logits, least), f64::NEG_INFINITY);
    }
    reshape(multinomial(softmax(logits, -1), 1, generator), [1])
}

/// Continues `prompt` by `count` tokens. `show` gets each piece of text as soon as it is complete.
pub fn generate(
    config: &dyn Model,
    tokenizer: Tokenizer,
    params: &Parameters<Array>,
    prompt: &str,
    count: usize,
    sampling: Sampling,
    show: &mut dyn FnMut(&str),
) -> Result<String> {
    sampling.validate()?;
    let wrong = |argument: &str, message: String| Error::Argument { argument: argument.into(), message };
    let mut tokens: Vec<i64> = tokenizer
        .encode(prompt)
        .map_err(|error| wrong("prompt", error.to_string()))?
        .into_iter()
        .map(i64::from)
        .collect();
    if tokens.is_empty() {
        // Something must come first: the end of the text before, or a new line.
        tokens.push(tokenizer.end_of_text().map_or(i64::from(b'\n'), i64::from));
    }
    if let Some(token) = tokens.iter().find(|token| **token as usize >= config.vocabulary()) {
        return Err(wrong(
            "prompt",
            format!("token {token} is not in the model's vocabulary of {}", config.vocabulary()),
        ));
    }
    let choice = (sampling.is_greedy(), sampling.top_k);
    // Where the parameters are.
    let device = params.leaves().first().map(|(_, array)| array.device()).filter(|device| !device.is_cpu());
    let step = fulgurite_runtime::jit(
        |(params, tokens, last, temperature, generator): (Parameters<Tensor>, Tensor, Tensor, Tensor, Tensor)| {
            next_token(config, &params, tokens, last, temperature, generator, choice)
        },
    )
    .named("next_token")
    .arguments(["params", "tokens", "last", "temperature", "generator"])
    .options(Options { device, ..Options::default() });
    let temperature = Array::scalar(sampling.temperature as f32);
    let mut decoder = StreamingDecoder::new(tokenizer);
    let mut text = String::new();
    for drawn in 0..count {
        let start = tokens.len().saturating_sub(config.context());
        let mut window = tokens[start..].to_vec();
        let last = (window.len() - 1) as i64;
        window.resize(config.context(), 0);
        let next: Array = step.call((
            params.clone(),
            Array::new([1, config.context()], &window)?,
            Array::new([1], &[last])?,
            temperature.clone(),
            Array::new([2], &[sampling.seed as i64, drawn as i64])?,
        ))?;
        let token = next.item()? as i64;
        tokens.push(token);
        if Some(token) == tokenizer.end_of_text().map(i64::from) {
            break;
        }
        // Rows beyond the tokenizer's vocabulary (padding for speed) have no text.
        let piece = u32::try_from(token).ok().and_then(|token| decoder.push(token).ok()).unwrap_or_default();
        show(&piece);
        text += &piece;
    }
    let rest = decoder.finish();
    show(&rest);
    text += &rest;
    Ok(text)
}

/// The element type of parameters.
pub const PARAMETER_DTYPE: DType = DType::F32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GptConfig;
    use crate::train::initial_parameters;

    fn sample(temperature: f64, top_k: Option<usize>) -> Result<String> {
        sample_scaled(1.0, temperature, top_k)
    }

    /// With logits that many times as large.
    fn sample_scaled(scale: f32, temperature: f64, top_k: Option<usize>) -> Result<String> {
        let config = GptConfig { vocabulary: 256, context: 8, layers: 1, heads: 1, channels: 8, dropout: 0.0 };
        let mut params = initial_parameters(&config, 3)?;
        *params.get_mut("ln_f.weight").unwrap() = Array::new([8], &[scale; 8])?;
        let sampling = Sampling { temperature, top_k, seed: 1 };
        generate(&config, Tokenizer::bytes(), &params, "abc", 12, sampling, &mut |_| {})
    }

    #[test]
    fn low_temperatures_tend_to_the_most_probable_token() {
        let greedy = sample(0.0, None).unwrap();
        assert!(!greedy.is_empty() && !greedy.contains('\0'), "{greedy:?}");
        for temperature in [5e-324, 1e-46, 1e-45, 1e-40, 1.1e-38, 1.3e-38, 1e-30, 1e-12] {
            for top_k in [None, Some(5)] {
                assert_eq!(sample(temperature, top_k).unwrap(), greedy, "{temperature:e} {top_k:?}");
            }
        }
        assert_ne!(sample(1e38, None).unwrap(), greedy);
        // Of logits that are infinite once they are divided.
        for temperature in [1.3e-38, 1e-36, 1e-30] {
            assert_eq!(sample_scaled(1e6, temperature, None).unwrap(), greedy, "{temperature:e}");
        }
    }

    #[test]
    fn temperatures_that_f32_does_not_hold_are_refused() {
        for temperature in [1e39, f64::INFINITY, f64::NAN, -1.0, -1e-50] {
            let error = sample(temperature, None).unwrap_err().to_string();
            assert!(
                error.contains("argument 'temperature'") && error.contains("expected a number from 0 to 3.4028235e38")
            );
        }
    }
}
