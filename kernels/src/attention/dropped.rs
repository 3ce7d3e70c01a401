//! Weights that are dropped.

use std::ops::Range;

use super::Extents;
use crate::philox;

/// Weights that are dropped, by the numbers that [`uniform`](crate::philox::uniform) draws for a tensor
/// `[batch, heads, queries, keys]`: those whose number is below the probability. The others are divided by `1 - p`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropped {
    /// The key of the numbers.
    pub seed: u64,
    /// Their stream.
    pub offset: u64,
    /// The probability p of a weight to be dropped, 0 to below 1.
    pub probability: f64,
}

impl Dropped {
    /// What the weights of a tile are multiplied with: `factors[i * keys.len() + j]`, 0 for those that are dropped.
    pub(super) fn factors(
        &self,
        extents: &Extents,
        [batch, head]: [usize; 2],
        (queries, keys): (&Range<usize>, &Range<usize>),
        factors: &mut [f32],
    ) {
        let (probability, kept) = (self.probability as f32, (1.0 / (1.0 - self.probability)) as f32);
        let first = (batch * extents.heads + head) * extents.queries;
        for (i, row) in queries.clone().zip(factors.chunks_exact_mut(keys.len())) {
            philox::units(self.seed, self.offset, (first + i) * extents.keys + keys.start, row);
            row.iter_mut().for_each(|unit| *unit = if *unit >= probability { kept } else { 0.0 });
        }
    }
}
