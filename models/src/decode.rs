//! Decoding with a cache: the tokens of prompts are written in one call, padded to a length that is a power of two, and
//! then each call adds one token. So a conversation whose prompts fall into one length has two programs.

use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::executor::find_executor;
use fulgurite_runtime::jit::Jit;
use fulgurite_runtime::mesh::Axis;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, DType, Device, Error, Result, jit};

use crate::cache::{Cached, KvCache};
use crate::model::Model;
use crate::parameter_list::Parameters;

/// The shortest padded length: shorter prompts share one program.
const SHORTEST: usize = 16;

/// Parameters, the cache, tokens i64[B, T], the position of each sequence's first one i64[B], the place of its last one
/// among them i64[B], and what the choice takes.
type Arguments<T, X> = (Parameters<T>, KvCache<T>, T, T, T, X);
type Traced<X> = Arguments<Tensor, <X as Tree>::With<Tensor>>;
type Program<'a, X, Y> =
    Jit<Arguments<Array, X>, (KvCache<Tensor>, Y), Box<dyn Fn(Traced<X>) -> (KvCache<Tensor>, Y) + 'a>>;

/// Writes `tokens` `i64[B, T]` to a cache from positions `starts` `i64[B]` on: the cache, and the logits `[B, V]` of
/// the token that is at place `last` `i64[B]` of each sequence. What comes after that place is padding.
#[track_caller]
pub fn continued(
    config: &dyn Model,
    params: &Parameters<Tensor>,
    cache: KvCache<Tensor>,
    [tokens, starts, last]: [Tensor; 3],
) -> (KvCache<Tensor>, Tensor) {
    let cached = Cached::new(cache, tokens, starts);
    let mut hidden = config.hidden_after(params, tokens, &cached);
    let (batch, length, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
    if length > 1 {
        let places = expand(reshape(last, [batch as i64, 1, 1]), [batch as i64, 1, width as i64]);
        hidden = gather(hidden, 1, places);
    }
    let logits = config.head(params, hidden);
    (cached.into_cache(), reshape(logits, [batch as i64, logits.size(2) as i64]))
}

/// `options` with the executor `decode` before those of a device that it is for, unless executors are named. No list
/// has it by itself: other programs have nothing for it.
pub fn by_decode(options: Options) -> Options {
    let (Some(device), None) = (options.device, &options.executors) else { return options };
    let Ok(decode) = find_executor("decode") else { return options };
    if !decode.runs_on(device.kind()) {
        return options;
    }
    let list = [decode].into_iter().chain(options.executor_list(device.kind())).collect();
    Options { executors: Some(list), ..options }
}

/// A model that continues a batch of sequences, each by its own number of tokens. `X` is what the choice of the next
/// token takes besides the logits, `Y` what it returns.
pub struct Decoding<'a, X: Tree<Leaf = Array>, Y> {
    config: &'a dyn Model,
    params: Parameters<Array>,
    program: Program<'a, X, Y>,
    cache: Option<KvCache<Array>>,
    /// Whether a call failed to which the cache was donated.
    lost: bool,
    /// The tokens of each sequence that are in the cache.
    sequences: Vec<Vec<i64>>,
    max_seq_length: usize,
    /// Among how many ranks the heads of the cache are divided.
    ranks: usize,
}

impl<'a, X, Y> Decoding<'a, X, Y>
where
    X: Tree<Leaf = Array>,
    X::With<Tensor>: Tree<Leaf = Tensor, With<Tensor> = X::With<Tensor>>,
    Y: Tree<Leaf = Tensor> + Clone,
{
    /// Without a cache yet. `choose` is traced: it gets the logits [B, V] of the last tokens and what a call hands on
    /// to it, and returns what the call returns. Unless `options` name executors, those of [`by_decode`] run it. Where
    /// they divide parameters and the cache among ranks ([`crate::tensor_parallel::generating`]), `params` are those of
    /// a rank.
    pub fn new(
        config: &'a dyn Model,
        params: Parameters<Array>,
        options: Options,
        choose: impl Fn(Tensor, X::With<Tensor>) -> Y + 'a,
    ) -> Self {
        let step = move |(params, cache, tokens, starts, last, more): Traced<X>| {
            let (cache, logits) = continued(config, &params, cache, [tokens, starts, last]);
            (cache, choose(logits, more))
        };
        let options = by_decode(options);
        let divides = options.division.as_ref().and_then(|division| division.axis_of(&options.mesh).ok());
        let ranks = divides.map_or(1, Axis::extent);
        let program = jit(Box::new(step) as Box<dyn Fn(_) -> _>)
            .named("decode")
            .arguments(["params", "cache", "tokens", "starts", "last", "more"])
            .results(["cache", "chosen"])
            .donate("cache")
            .options(options);
        Decoding { config, params, program, cache: None, lost: false, sequences: Vec::new(), max_seq_length: 0, ranks }
    }

    /// An empty cache for `batch` sequences of up to `max_seq_length` tokens, of the element type of the parameters and
    /// where they are. A cache that was there is given up. `max_seq_length` is at most the model's context.
    pub fn set_kv_cache(&mut self, batch: usize, max_seq_length: usize) -> Result<()> {
        let (dtype, device) = match self.params.leaves().first() {
            Some((_, array)) => (array.dtype(), array.device()),
            None => (DType::F32, Device::CPU),
        };
        let [layers, groups, width] = self.config.cache_sizes();
        let sizes = ([layers, groups / self.ranks, width], self.config.context());
        self.cache = Some(KvCache::new(sizes, (batch, max_seq_length), dtype, device)?);
        self.lost = false;
        self.sequences = vec![Vec::new(); batch];
        self.max_seq_length = max_seq_length;
        Ok(())
    }

    /// The tokens of each sequence that are in the cache.
    pub fn sequences(&self) -> &[Vec<i64>] {
        &self.sequences
    }

    /// Number of tokens for which sequence `row` has room.
    pub fn room(&self, row: usize) -> usize {
        self.sequences.get(row).map_or(0, |tokens| self.max_seq_length - tokens.len())
    }

    /// How many programs were compiled.
    pub fn compiles(&self) -> usize {
        self.program.compiles()
    }

    /// Adds tokens to each sequence, and returns what is chosen of the logits after the last ones. A sequence with no
    /// new tokens stays as it is, and its logits are those after its last token. If all get one at most, the program of
    /// one token runs.
    ///
    /// An error without a cache, for another number of sequences, for a sequence that stays empty, for tokens that the
    /// model has no rows for, and for more tokens than there is room for: with both lengths. These change nothing. If
    /// the program fails, the cache that was donated to it is lost, and [`Decoding::set_kv_cache`] makes another one.
    pub fn extend(&mut self, tokens: &[&[i64]], more: X) -> Result<Y::With<Array>> {
        let wrong = |message: String| Err(Error::Argument { argument: "tokens".into(), message });
        let Some(cache) = self.cache.take() else {
            let after = "come after a call that failed, with which the cache was lost: call `set_kv_cache` again";
            return wrong(if self.lost { after } else { "come before `set_kv_cache`" }.into());
        };
        if let Err(error) = self.check(tokens) {
            self.cache = Some(cache);
            return Err(error);
        }
        let longest = tokens.iter().map(|new| new.len()).max().unwrap_or(0);
        let length = match longest {
            0 | 1 => 1,
            _ => longest.next_power_of_two().max(SHORTEST).min(self.max_seq_length),
        };
        let (mut padded, mut starts, mut last) = (Vec::new(), Vec::new(), Vec::new());
        for (sequence, new) in self.sequences.iter_mut().zip(tokens) {
            let filled = sequence.len();
            sequence.extend_from_slice(new);
            // Padding has to fit the cache as well; where it would not, the last tokens before are written once more.
            let start = filled.min(sequence.len() - 1).min(self.max_seq_length - length);
            let window = &sequence[start..];
            starts.push(start as i64);
            last.push(window.len() as i64 - 1);
            padded.extend_from_slice(window);
            padded.resize(padded.len() + length - window.len(), 0);
        }
        let batch = tokens.len();
        match self.run(cache, [batch, length], [&padded, &starts, &last], more) {
            Ok((cache, chosen)) => {
                self.cache = Some(cache);
                Ok(chosen)
            }
            Err(error) => {
                self.lost = true;
                self.sequences.iter_mut().for_each(Vec::clear);
                Err(error)
            }
        }
    }

    fn run(
        &self,
        cache: KvCache<Array>,
        [batch, length]: [usize; 2],
        [tokens, starts, last]: [&[i64]; 3],
        more: X,
    ) -> Result<(KvCache<Array>, Y::With<Array>)> {
        let tokens = Array::new([batch, length], tokens)?;
        let [starts, last] = [Array::new([batch], starts)?, Array::new([batch], last)?];
        self.program.call((self.params.clone(), cache, tokens, starts, last, more))
    }

    fn check(&self, tokens: &[&[i64]]) -> Result<()> {
        let wrong = |message: String| Err(Error::Argument { argument: "tokens".into(), message });
        let (batch, vocabulary) = (self.sequences.len(), self.config.vocabulary());
        if tokens.len() != batch {
            return wrong(format!("are of {} sequences, the cache is for {batch}", tokens.len()));
        }
        for (row, (new, sequence)) in tokens.iter().zip(&self.sequences).enumerate() {
            if let Some(token) = new.iter().find(|token| !(0..vocabulary as i64).contains(token)) {
                return wrong(format!("hold {token} in sequence {row}, the model's vocabulary is {vocabulary}"));
            }
            let all = sequence.len() + new.len();
            if all == 0 {
                return wrong(format!("are none in sequence {row}, which is empty"));
            }
            if all > self.max_seq_length {
                let room = self.max_seq_length;
                return wrong(format!(
                    "make sequence {row} {all} long ({} and {} more), the cache has room for {room}",
                    sequence.len(),
                    new.len()
                ));
            }
        }
        Ok(())
    }
}
