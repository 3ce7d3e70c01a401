//! Text from a model: one token after another, over a window of the model's context.

use fulgurite_ops::prelude::*;
use fulgurite_ops_macros::Tree;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::tree::{Leaf, Tree};
use fulgurite_runtime::{Array, DType, Error, Result};

use crate::dropout::Dropout;
use crate::model::Model;
use crate::parameter_list::Parameters;
use crate::sampling::{Rules, Sampling, Settings, count_tokens, occurrences, sample};
use crate::tokenizer::{StreamingDecoder, Tokenizer};

/// What the next token is drawn from.
#[derive(Debug, Clone, Tree)]
pub struct Context<T: Leaf> {
    /// Token ids i64[1, T].
    pub tokens: T,
    /// The position of the last of them that counts, i64[1].
    pub last: T,
    /// The numbers of the rules of sampling.
    pub settings: Settings<T>,
    /// How often each token has occurred, i32[1, V], if there is a penalty for that.
    pub occurrences: Option<T>,
    /// Seed and offset of the draw, i64[2].
    pub generator: T,
}

/// The token after the last one that counts, drawn by [`sample`], i64[1]; and the occurrences with it.
#[track_caller]
pub fn next_token(
    config: &dyn Model,
    params: &Parameters<Tensor>,
    rules: Rules,
    context: &Context<Tensor>,
) -> (Tensor, Option<Tensor>) {
    let hidden = config.hidden(params, context.tokens, &Dropout::none());
    let hidden = index_select(hidden, 1, context.last);
    let logits = config.head(params, hidden);
    let logits = reshape(logits, [1, config.vocabulary() as i64]);
    let next = sample(rules, &context.settings, logits, context.occurrences, context.generator);
    (next, context.occurrences.map(|occurrences| count_tokens(occurrences, next)))
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
    let (rules, settings) = (sampling.rules(), sampling.settings()?);
    // Where the parameters are.
    let device = params.leaves().first().map(|(_, array)| array.device()).filter(|device| !device.is_cpu());
    let step = fulgurite_runtime::jit(|(params, context): (Parameters<Tensor>, Context<Tensor>)| {
        next_token(config, &params, rules, &context)
    })
    .named("next_token")
    .arguments(["params", "context"])
    .options(Options { device, ..Options::default() });
    let counted = rules.repetition_penalty.then(|| occurrences(std::slice::from_ref(&tokens), config.vocabulary()));
    let mut counted = counted.transpose()?;
    let mut decoder = StreamingDecoder::new(tokenizer);
    let mut text = String::new();
    for drawn in 0..count {
        let start = tokens.len().saturating_sub(config.context());
        let mut window = tokens[start..].to_vec();
        let last = (window.len() - 1) as i64;
        window.resize(config.context(), 0);
        let context = Context {
            tokens: Array::new([1, config.context()], &window)?,
            last: Array::new([1], &[last])?,
            settings: settings.clone(),
            occurrences: counted,
            generator: Array::new([2], &[sampling.seed as i64, drawn as i64])?,
        };
        let (next, again): (Array, Option<Array>) = step.call((params.clone(), context))?;
        counted = again;
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
        let sampling = Sampling { temperature, top_k, seed: 1, ..Sampling::default() };
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
