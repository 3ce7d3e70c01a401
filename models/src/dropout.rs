//! Dropout of a model.

use std::cell::Cell;

use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::argument::Scalar;

/// Where dropout draws its random numbers: each place in the model draws from a stream of its own.
pub struct Dropout {
    probability: f64,
    /// i64[2] of seed and offset, or i64[3] of a part of a larger batch.
    generator: Option<Tensor>,
    drawn: Cell<i64>,
}

/// How far apart the offsets of a model's places are. An offset is the number of a stream, of 2^64 blocks, so places
/// need not be far apart; there is room for 2^24 of them below the part of the offset that numbers the batches of a
/// step ([`crate::train::generator`]).
pub(crate) const DRAW_STRIDE: i64 = 1 << 8;

impl Dropout {
    /// No dropout: evaluation, or a probability of zero.
    pub fn none() -> Dropout {
        Dropout { probability: 0.0, generator: None, drawn: Cell::new(0) }
    }

    /// Drops with `probability`, drawing from `generator`, `i64[2]` of seed and offset, or `i64[3]` of a
    /// part of a larger batch ([`draws_of_rank`](fulgurite_ops::collectives::draws_of_rank())).
    pub fn new(probability: f64, generator: Tensor) -> Dropout {
        let generator = (probability > 0.0).then_some(generator);
        Dropout { probability, generator, drawn: Cell::new(0) }
    }

    #[track_caller]
    pub(crate) fn apply(&self, x: Tensor) -> Tensor {
        let Some(generator) = self.generator else { return x };
        let place = self.drawn.get();
        self.drawn.set(place + 1);
        let (numbers, stride) = (generator.size(0), place * DRAW_STRIDE);
        let shift = prims::iota(numbers, Scalar::Int(0), Scalar::Int(stride), DType::I64, x.device());
        // Seed, offset, and the sum of the offset and the part.
        let shift = if numbers > 2 { prims::minimum(shift, stride) } else { shift };
        dropout::with(x).p(self.probability).training(true).generator(generator + shift).call()
    }
}
