//! What is attended to, and how its tiles are cut.

use crate::dtype::DType;
use crate::extents;
use crate::philox::Numbers;
use crate::view::TensorRef;

/// Queries of a tile.
pub(super) const QUERIES: usize = 128;
/// Keys of a tile.
pub(super) const KEYS: usize = 128;

/// Weights that are dropped, by the numbers that [`uniform`](crate::philox::uniform) draws for a tensor
/// `[batch, heads, queries, keys]`: those whose number is below the probability. The others are divided by `1 - p`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropped {
    /// The numbers of the tensor.
    pub numbers: Numbers,
    /// The probability p of a weight to be dropped, 0 to below 1.
    pub probability: f64,
}

/// What scores and weights are computed from, and which queries see which keys.
#[derive(Clone, Copy)]
pub struct Scores<'a> {
    /// `[batch, heads, queries, width]`.
    pub query: TensorRef<'a>,
    /// `[batch, groups, keys, width]`; `groups` divides `heads`, whose first `heads / groups` read the first group.
    pub key: TensorRef<'a>,
    /// Booleans `[batch, heads, queries, keys]` that say which keys are seen, or numbers of f32, bf16 or f16 that are
    /// added to scores in f32; every extent may be 1 instead. Then the largest number of a key that the query sees is
    /// subtracted from the sums. That changes no weight, and logarithms of sums keep their digits where all numbers of
    /// a row are far below 0. The sums round the scores: where all numbers are the least of f32, all weights are equal.
    pub mask: Option<TensorRef<'a>>,
    /// How many keys each of the batch sees, integers `[batch]`.
    pub lengths: Option<TensorRef<'a>>,
    /// Whether query i sees the keys 0 to i alone.
    pub is_causal: bool,
    /// Query i sees the keys behind `i - window` alone.
    pub window: Option<usize>,
    /// Scores become `cap · tanh(score / cap)`, before numbers are added.
    pub cap: Option<f64>,
    /// Weights that are dropped.
    pub dropped: Option<Dropped>,
    /// The factor of the products of queries and keys.
    pub scale: f64,
}

impl<'a> Scores<'a> {
    /// Each query sees all keys, and scores are products times `scale`.
    pub fn new(query: TensorRef<'a>, key: TensorRef<'a>, scale: f64) -> Scores<'a> {
        let (mask, lengths, window, cap, dropped) = (None, None, None, None, None);
        Scores { query, key, mask, lengths, is_causal: false, window, cap, dropped, scale }
    }
}

/// Extents that were checked.
#[derive(Clone, Copy)]
pub(super) struct Extents {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) groups: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) width: usize,
    pub(super) value_width: usize,
}

impl Extents {
    /// Panics if the operands do not fit each other.
    pub(super) fn of(function: &str, scores: &Scores<'_>, value: &TensorRef<'_>) -> Extents {
        let Scores { query, key, mask, lengths, .. } = scores;
        for (name, operand) in [("query", query), ("key", key), ("value", value)] {
            extents::rank(function, name, operand.shape(), 4);
        }
        let [batch, heads, queries, width] = [0, 1, 2, 3].map(|dim| query.shape()[dim]);
        let [groups, keys, value_width] = [key.shape()[1], key.shape()[2], value.shape()[3]];
        extents::shape(function, "key", key.shape(), &[batch, groups, keys, width]);
        extents::shape(function, "value", value.shape(), &[batch, groups, keys, value_width]);
        assert!(groups > 0 && heads.is_multiple_of(groups), "{function}: {heads} heads for {groups} of keys");
        if let Some(mask) = mask {
            let known = [DType::Bool, DType::F32, DType::BF16, DType::F16].contains(&mask.dtype());
            assert!(known, "{function}: mask is {}, expected bool, f32, bf16 or f16", mask.dtype());
            extents::rank(function, "mask", mask.shape(), 4);
            let full = [batch, heads, queries, keys];
            let fits = mask.shape().iter().zip(full).all(|(own, full)| *own == 1 || *own == full);
            assert!(fits, "{function}: mask has shape {:?}, expected {full:?}, or 1 in their places", mask.shape());
        }
        if let Some(lengths) = lengths {
            let dtype = lengths.dtype();
            assert!(dtype.is_integer(), "{function}: lengths is {dtype}, expected integers");
            extents::shape(function, "lengths", lengths.shape(), &[batch]);
        }
        Extents { batch, heads, groups, queries, keys, width, value_width }
    }

    /// Heads that read the same keys.
    pub(super) fn times(&self) -> usize {
        self.heads / self.groups
    }

    /// Whether there is nothing to compute.
    pub(super) fn nothing(&self) -> bool {
        [self.batch, self.heads, self.queries, self.value_width].contains(&0)
    }
}

/// A run of the extent `0..extent` that begins at `from`.
pub(super) fn tile(from: usize, length: usize, extent: usize) -> std::ops::Range<usize> {
    from..extent.min(from + length)
}
