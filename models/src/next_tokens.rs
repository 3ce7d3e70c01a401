//! How the tokens after those of a batch are computed: with a cache of keys and values, or by computing the end of each
//! text again, which has no limit.

use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::jit::Jit;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, Result, jit};

use crate::decode::Decoding;
use crate::dropout::Dropout;
use crate::model::Model;
use crate::parameter_list::Parameters;
use crate::sampling::{Draw, Rules};
use crate::tensor_parallel::generating;

/// The shortest window that a program is compiled for.
const SHORTEST_WINDOW: usize = 16;

/// Tokens i64[B], and the occurrences with them if these are counted.
type Drawn<T> = (T, Option<T>);
type WindowArguments<T> = (Parameters<T>, T, T, Draw<T>);
type WindowFunction<'a> = Box<dyn Fn(WindowArguments<Tensor>) -> Drawn<Tensor> + 'a>;
type WindowProgram<'a> = Jit<WindowArguments<Array>, Drawn<Tensor>, WindowFunction<'a>>;

/// A model that draws the next tokens of a batch.
pub(crate) enum NextTokens<'a> {
    /// With a cache of this many positions.
    Cached(Box<Decoding<'a, Draw<Array>, Drawn<Tensor>>>, usize),
    /// Over a window of the model's context.
    Windowed(Box<WindowProgram<'a>>, Parameters<Array>, usize),
}

impl<'a> NextTokens<'a> {
    /// For a batch of `batch` texts. With a `cache` of some positions each text has at most as many tokens; without
    /// one, only the last tokens of a long text count, as many as the context holds.
    pub(crate) fn new(
        config: &'a dyn Model,
        params: &Parameters<Array>,
        rules: Rules,
        (batch, cache): (usize, Option<usize>),
        compile: &Options,
    ) -> Result<Self> {
        let device = params.leaves().first().map(|(_, array)| array.device()).filter(|device| !device.is_cpu());
        let options = generating(config, Options { device, ..compile.clone() }, cache.is_some())?;
        let choose = move |logits: Tensor, draw: Draw<Tensor>| draw.tokens(rules, logits);
        if let Some(positions) = cache {
            let mut decoding = Decoding::new(config, params.clone(), options, choose);
            decoding.set_kv_cache(batch, positions)?;
            return Ok(NextTokens::Cached(Box::new(decoding), positions));
        }
        let step = move |(params, tokens, last, draw): WindowArguments<Tensor>| {
            choose(last_logits(config, &params, tokens, last), draw)
        };
        let program = jit(Box::new(step) as WindowFunction<'a>)
            .named("next_token")
            .arguments(["params", "tokens", "last", "draw"])
            .options(options);
        Ok(NextTokens::Windowed(Box::new(program), params.clone(), config.context()))
    }

    /// The number of positions that a text cannot go beyond, if it has reached it: its last token has no place.
    pub(crate) fn full(&self, row: &[i64]) -> Option<usize> {
        match self {
            NextTokens::Cached(_, positions) => Some(*positions).filter(|positions| row.len() > *positions),
            NextTokens::Windowed(..) => None,
        }
    }

    /// The tokens after all of `rows`. What is drawn for rows that are not `live` means nothing; each was once.
    pub(crate) fn draw(&mut self, rows: &[Vec<i64>], live: &[bool], draw: Draw<Array>) -> Result<Drawn<Array>> {
        match self {
            NextTokens::Cached(decoding, _) => {
                let cached = decoding.sequences().iter().map(Vec::len).zip(rows).zip(live);
                let new: Vec<&[i64]> =
                    cached.map(|((cached, row), live)| if *live { &row[cached..] } else { &[] }).collect();
                decoding.extend(&new, draw)
            }
            NextTokens::Windowed(program, params, context) => {
                let [tokens, last] = window(rows, *context)?;
                program.call((params.clone(), tokens, last, draw))
            }
        }
    }
}

/// Logits [B, V] after a position of each row of `tokens` i64[B, T]. `last` i64[B] holds these positions as places
/// among all B · T; what comes after them does not matter.
#[track_caller]
fn last_logits(config: &dyn Model, params: &Parameters<Tensor>, tokens: Tensor, last: Tensor) -> Tensor {
    let hidden = config.hidden(params, tokens, &Dropout::none());
    let hidden = index_select(reshape(hidden, [-1, hidden.size(-1) as i64]), 0, last);
    config.head(params, hidden)
}

/// The last tokens of each row, as many as the context holds, padded to one of a few lengths, i64[B, T]; and where each
/// row ends in them, as places among all B · T, i64[B].
fn window(rows: &[Vec<i64>], context: usize) -> Result<[Array; 2]> {
    let longest = rows.iter().map(Vec::len).max().unwrap_or(1);
    let length = longest.next_power_of_two().max(SHORTEST_WINDOW).min(context);
    let (mut tokens, mut last) = (Vec::new(), Vec::new());
    for row in rows {
        let start = row.len().saturating_sub(length);
        tokens.extend_from_slice(&row[start..]);
        last.push(tokens.len() as i64 - 1);
        tokens.resize(last.len() * length, 0);
    }
    Ok([Array::new([rows.len(), length], &tokens)?, Array::new([rows.len()], &last)?])
}
