//! The cache of keys and values: what a model has computed of the positions before, so that one more token costs one
//! position.

use std::cell::RefCell;

use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_ops_macros::Tree;
use fulgurite_runtime::argument::Scalar;
use fulgurite_runtime::tree::Leaf;
use fulgurite_runtime::{Array, DType, Device, Error, Result};

/// Keys and values of every block, [B, G, S, D] each: of B sequences the G heads of keys at S positions. Positions that
/// no token was written to are not read.
#[derive(Debug, Clone, Tree)]
pub struct KvCache<T: Leaf> {
    /// The keys of each block.
    pub keys: Vec<T>,
    /// The values of each block.
    pub values: Vec<T>,
}

impl<T: Leaf> KvCache<T> {
    /// A cache for `batch` sequences of up to `max_seq_length` positions, of a model with so many blocks, heads of keys
    /// in each, and values in a head; `make` gets the shape of each array.
    pub fn build<E>(
        [layers, groups, width]: [usize; 3],
        batch: usize,
        max_seq_length: usize,
        make: &mut dyn FnMut(&[usize]) -> Result<T, E>,
    ) -> Result<Self, E> {
        let mut all = || (0..layers).map(|_| make(&[batch, groups, max_seq_length, width])).collect::<Result<_, E>>();
        Ok(KvCache { keys: all()?, values: all()? })
    }
}

impl KvCache<Array> {
    /// An empty cache on `device`; `sizes` as for [`KvCache::build`]. `max_seq_length` is at most `context`, that of
    /// the model.
    pub fn new(
        (sizes, context): ([usize; 3], usize),
        (batch, max_seq_length): (usize, usize),
        dtype: DType,
        device: Device,
    ) -> Result<Self> {
        let within = |argument: &str, value: usize, most: usize| match (1..=most).contains(&value) {
            true => Ok(()),
            false => {
                Err(Error::Argument { argument: argument.into(), message: format!("is {value}, expected 1 to {most}") })
            }
        };
        within("batch", batch, 1 << 16)?;
        within("max_seq_length", max_seq_length, context)?;
        KvCache::build(sizes, batch, max_seq_length, &mut |shape| Array::zeros_on(device, shape, dtype))
    }
}

/// A cache that is traced: new tokens of each sequence write to it, and read what is before them.
pub struct Cached {
    /// The position of the first new token of each sequence, i64[B].
    starts: Tensor,
    /// The positions of all new tokens, i64[B, T].
    positions: Tensor,
    cache: RefCell<KvCache<Tensor>>,
}

impl Cached {
    /// For `tokens` `i64[B, T]` that begin at positions `starts` `i64[B]`.
    #[track_caller]
    pub fn new(cache: KvCache<Tensor>, tokens: Tensor, starts: Tensor) -> Cached {
        let (batch, length) = (tokens.size(0) as i64, tokens.size(1));
        let mut positions = reshape(starts, [batch, 1]);
        if length > 1 {
            let steps = prims::iota(length, Scalar::Int(0), Scalar::Int(1), DType::I64, tokens.device());
            positions = positions + reshape(steps, [1, length as i64]);
        }
        Cached { starts, positions, cache: RefCell::new(cache) }
    }

    /// The positions of the new tokens, i64[B, T].
    pub fn positions(&self) -> Tensor {
        self.positions
    }

    /// S, the positions that the cache has room for.
    pub fn max_seq_length(&self) -> usize {
        self.cache.borrow().keys.first().map_or(0, |keys| keys.size(2))
    }

    /// Writes keys and values [B, G, T, D] of block `layer`, and attends with queries [B, H, T, D] to all positions up
    /// to their own: [B, H, T, D]. Queries and keys are rotated before by the `table`, cosines and sines [B, 1, T, n],
    /// if there is one.
    #[track_caller]
    pub fn attend(
        &self,
        layer: usize,
        [query, key, value]: [Tensor; 3],
        table: Option<[Tensor; 2]>,
        scores: &Scores,
    ) -> Tensor {
        let mut cache = self.cache.borrow_mut();
        let (keys, values) = (cache.keys[layer], cache.values[layer]);
        let [query, key, value] = [query, key, value].map(|new| to(new, keys.dtype()));
        let (keys, values, out) = extend_and_attend::with(query, key, value, [keys, values], self.starts)
            .cos(table.map(|[cos, _]| cos))
            .sin(table.map(|[_, sin]| sin))
            .scale(scores.scale)
            .window(scores.window.map(|window| window as i64))
            .cap(scores.cap)
            .call();
        (cache.keys[layer], cache.values[layer]) = (keys, values);
        out
    }

    /// The cache with what was written.
    pub fn into_cache(self) -> KvCache<Tensor> {
        self.cache.into_inner()
    }
}

/// How scores of a block become weights.
#[derive(Debug, Clone, Copy)]
pub struct Scores {
    /// What they are multiplied by; 1/√D if absent.
    pub scale: Option<f64>,
    /// Number of last positions, its own included, that a position attends to; all before it if absent.
    pub window: Option<usize>,
    /// They are bent to stay within this: `cap · tanh(score / cap)`.
    pub cap: Option<f64>,
}
