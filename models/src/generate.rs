//! Text from a model: a batch of prompts is continued, one token after another.

use fulgurite_runtime::compile::Options;
use fulgurite_runtime::{Array, Result};

use crate::argument_error::wrong;
use crate::model::Model;
use crate::next_tokens::NextTokens;
use crate::parameter_list::Parameters;
use crate::sampling::{Draw, Sampling, occurrences};
use crate::streaming::{StopTexts, StreamingDecoder};
use crate::tokenizer::Tokenizer;

/// The smallest cache that is made without being asked for.
const SMALLEST_CACHE: usize = 16;

/// The settings of a generation.
#[derive(Debug, Clone)]
pub struct Request {
    /// The texts to continue.
    pub prompts: Vec<String>,
    /// Whether special tokens in prompts, such as `<|endoftext|>`, are plain text. Nothing is put before prompts then.
    pub plain: bool,
    /// The most tokens for each prompt.
    pub count: usize,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Tokens that end a text, beside those of the tokenizer. Their text is not shown.
    pub stop_tokens: Vec<u32>,
    /// Texts that end a text where they begin. They are not shown.
    pub stop_texts: Vec<String>,
    /// Positions of the cache of keys and values for each text; with 0 there is none, and texts may be longer than the
    /// model's context, of which only the end counts then. `None` is a cache for prompts and tokens if the context is
    /// as long, and otherwise none.
    pub cache: Option<usize>,
}

impl Request {
    /// One prompt, and the usual rest.
    pub fn new(prompt: &str, count: usize, sampling: Sampling) -> Self {
        let prompts = vec![prompt.to_owned()];
        let (stop_tokens, stop_texts) = (Vec::new(), Vec::new());
        Request { prompts, plain: false, count, sampling, stop_tokens, stop_texts, cache: None }
    }

    /// Positions of the cache for prompts of up to `longest` tokens, if there is one.
    fn cache_for(&self, longest: usize, context: usize) -> Option<usize> {
        let needed = longest.saturating_add(self.count);
        // Lengths are few, so that programs are.
        let usual = (needed <= context).then(|| needed.next_power_of_two().max(SMALLEST_CACHE).min(context));
        self.cache.map_or(usual, |positions| (positions > 0).then_some(positions))
    }
}

/// Why a text ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It has as many tokens as were asked for.
    Count,
    /// This token was drawn, which ends a text.
    Token(u32),
    /// This text came up, which was to end it.
    Text(String),
    /// The cache of this many positions is full.
    CacheFull(usize),
}

/// What came of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continuation {
    /// The text, without the prompt and what ended it.
    pub text: String,
    /// The tokens that were drawn, with the one that ended it.
    pub tokens: Vec<u32>,
    /// Why the generation ended.
    pub end: End,
}

/// Continues prompts. `show` gets the prompt's number and each piece of its text as soon as it is complete. `compile`
/// says how programs are compiled; they run where the parameters are. On ranks that divide the layers of a model, whose
/// mesh has the axis [`TENSOR`](crate::tensor_parallel::TENSOR), the parameters are a rank's, and all of them call it.
///
/// # Errors
/// Settings of sampling that cannot be, no prompts, prompts that do not encode or have tokens that the model has no
/// rows for, a cache that is longer than the model's context or shorter than a prompt.
pub fn generate(
    config: &dyn Model,
    tokenizer: &Tokenizer,
    params: &Parameters<Array>,
    request: &Request,
    compile: &Options,
    show: &mut dyn FnMut(usize, &str),
) -> Result<Vec<Continuation>> {
    let sampling = request.sampling;
    sampling.validate()?;
    let prompts: Vec<Vec<u32>> = request
        .prompts
        .iter()
        .map(|prompt| prompt_tokens(config, tokenizer, prompt, request.plain))
        .collect::<Result<_>>()?;
    if prompts.is_empty() {
        return Err(wrong("prompts", "are none, expected at least one"));
    }
    let mut rows: Vec<Vec<i64>> =
        prompts.iter().map(|tokens| tokens.iter().map(|id| i64::from(*id)).collect()).collect();
    let texts = prompts.iter().map(|prompt| Text::after(tokenizer, prompt, request));
    let mut texts: Vec<Text> = texts.collect::<Result<_>>()?;
    let (rules, settings) = (sampling.rules(), sampling.settings()?);
    let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cache = (rows.len(), request.cache_for(longest, config.context()));
    check(request, config, &rows, cache.1)?;
    let mut next_tokens = NextTokens::new(config, params, rules, cache, compile)?;
    let mut counted = rules.repetition_penalty.then(|| occurrences(&rows, config.vocabulary())).transpose()?;
    for offset in 0..request.count {
        let live: Vec<bool> = texts.iter().map(|text| text.end.is_none()).collect();
        if !live.contains(&true) {
            break;
        }
        let generator = Array::new([2], &[sampling.seed as i64, offset as i64])?;
        let draw = Draw { settings: settings.clone(), occurrences: counted, generator };
        let (next, again) = next_tokens.draw(&rows, &live, draw)?;
        counted = again;
        let next = next.to_vec::<i64>()?;
        for (row, (text, token)) in texts.iter_mut().zip(next).enumerate().filter(|(row, _)| live[*row]) {
            rows[row].push(token);
            let piece = text.push(token as u32);
            show_piece(row, &piece, show);
            let full = next_tokens.full(&rows[row]).filter(|_| offset + 1 < request.count);
            text.end = text.end.take().or(full.map(End::CacheFull));
        }
    }
    let ended = texts.into_iter().enumerate().map(|(row, text)| {
        let (rest, continuation) = text.finish();
        show_piece(row, &rest, show);
        continuation
    });
    Ok(ended.collect())
}

/// Refuses what no text can come of, in the words of the request. Prompts count from one, as notes on texts do.
fn check(request: &Request, config: &dyn Model, rows: &[Vec<i64>], cache: Option<usize>) -> Result<()> {
    if request.stop_texts.iter().any(String::is_empty) {
        return Err(wrong("stop_texts", "hold an empty text, which is everywhere"));
    }
    let vocabulary = config.vocabulary();
    if let Some(token) = request.stop_tokens.iter().find(|token| **token as usize >= vocabulary) {
        return Err(wrong("stop_tokens", format!("hold {token}, the model's vocabulary is {vocabulary}")));
    }
    let Some(positions) = cache else { return Ok(()) };
    let context = config.context();
    if positions > context {
        return Err(wrong("cache", format!("has {positions} positions, the model's context {context}")));
    }
    match rows.iter().position(|row| row.len() > positions) {
        Some(row) => {
            let length = rows[row].len();
            Err(wrong("prompts", format!("hold one of {length} tokens (text {}), the cache has {positions}", row + 1)))
        }
        None => Ok(()),
    }
}

fn show_piece(row: usize, piece: &str, show: &mut dyn FnMut(usize, &str)) {
    if !piece.is_empty() {
        show(row, piece);
    }
}

/// The tokens of a prompt, at least one.
fn prompt_tokens(config: &dyn Model, tokenizer: &Tokenizer, prompt: &str, plain: bool) -> Result<Vec<u32>> {
    let encoded = if plain { tokenizer.encode(prompt) } else { tokenizer.encode_prompt(prompt) };
    let mut tokens = encoded.map_err(|error| wrong("prompt", error))?;
    if tokens.is_empty() {
        // Something must come first: what every text begins with, the end of the text before, or a new line.
        let first = tokenizer.begin().first().copied().or_else(|| tokenizer.end_of_text());
        tokens.extend(first.or_else(|| tokenizer.encode("\n").ok()?.first().copied()));
    }
    if tokens.is_empty() {
        return Err(wrong("prompt", "has no tokens, expected at least one"));
    }
    match tokens.iter().find(|token| **token as usize >= config.vocabulary()) {
        Some(token) => {
            Err(wrong("prompt", format!("token {token} is not in the model's vocabulary of {}", config.vocabulary())))
        }
        None => Ok(tokens),
    }
}

/// A text that is being generated.
struct Text<'a> {
    request: &'a Request,
    ends: &'a [u32],
    decoder: StreamingDecoder,
    stops: StopTexts,
    text: String,
    tokens: Vec<u32>,
    end: Option<End>,
}

impl<'a> Text<'a> {
    fn after(tokenizer: &'a Tokenizer, prompt: &[u32], request: &'a Request) -> Result<Self> {
        let decoder = StreamingDecoder::after(tokenizer.clone(), prompt).map_err(|error| wrong("prompt", error))?;
        let stops = StopTexts::new(&request.stop_texts);
        let (text, tokens) = (String::new(), Vec::new());
        Ok(Text { request, ends: tokenizer.ends(), decoder, stops, text, tokens, end: None })
    }

    /// What a token adds to the text.
    fn push(&mut self, token: u32) -> String {
        self.tokens.push(token);
        if self.ends.contains(&token) || self.request.stop_tokens.contains(&token) {
            self.end = Some(End::Token(token));
            return String::new();
        }
        // Rows beyond the tokenizer's vocabulary (padding for speed) have no text.
        let piece = self.decoder.push(token).unwrap_or_default();
        let (piece, stop) = self.stops.push(&piece);
        self.end = stop.map(End::Text);
        self.text += &piece;
        piece
    }

    /// The rest of the text, and all of it.
    fn finish(mut self) -> (String, Continuation) {
        let mut rest = String::new();
        if !matches!(self.end, Some(End::Text(_))) {
            let (piece, stop) = self.stops.push(&self.decoder.finish());
            let held = if stop.is_none() { self.stops.finish() } else { String::new() };
            self.end = stop.map(End::Text).or(self.end);
            rest = piece + &held;
        }
        self.text += &rest;
        (rest, Continuation { text: self.text, tokens: self.tokens, end: self.end.unwrap_or(End::Count) })
    }
}

#[cfg(test)]
#[path = "generate_tests.rs"]
mod tests;
