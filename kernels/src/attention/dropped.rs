//! Which weights are dropped.

use std::ops::Range;

use super::problem::{Dropped, Extents};
use crate::philox;

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
            philox::units(self.numbers.from((first + i) * extents.keys + keys.start), row);
            row.iter_mut().for_each(|unit| *unit = if *unit >= probability { kept } else { 0.0 });
        }
    }
}
