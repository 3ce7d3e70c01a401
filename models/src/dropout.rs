//! Dropout of a model.

use std::cell::Cell;

use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::argument::Scalar;

/// Where dropout draws its random numbers: each place in the model draws from a stream of its own.
pub struct Dropout {
    probability: f64,
    /// i64[2]: seed and offset.
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

    /// Drops with `probability`, drawing from `generator`, `i64[2]` of seed and offset.
    pub fn new(probability: f64, generator: Tensor) -> Dropout {
        let generator = (probability > 0.0).then_some(generator);
        Dropout { probability, generator, drawn: Cell::new(0) }
    }

    #[track_caller]
    pub(crate) fn apply(&self, x: Tensor) -> Tensor {
        let Some(generator) = self.generator else { return x };
        let place = self.drawn.get();
        self.drawn.set(place + 1);
        let shift = prims::iota(2, Scalar::Int(0), Scalar::Int(place * DRAW_STRIDE), DType::I64, x.device());
        dropout::with(x).p(self.probability).training(true).generator(generator + shift).call()
    }
}
