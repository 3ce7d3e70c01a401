//! Batches of next-token prediction from a stream of tokens, or of images, in an order that a small position
//! reproduces.
//!
//! The stream is cut into windows of T tokens (and the one after, as the last target). An epoch visits every window
//! once, but for the rest that fills no batch; its order is the identity or a shuffle by (seed, epoch).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::random::Stream;
use crate::tokens::{Tokens, TokensError};
use crate::vision::ImageSet;

/// The sequence number space of shuffles, apart from those of weights and of sampling.
const SHUFFLE: u64 = 0x5348_5546_464C_4500;

/// B sequences of T tokens with their next tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Token ids [B, T], row-major.
    pub inputs: Vec<i64>,
    /// The token after each input [B, T].
    pub targets: Vec<i64>,
    /// B, number of sequences.
    pub rows: usize,
    /// T, tokens a sequence.
    pub context: usize,
}

impl Batch {
    /// Sequences `first..first + rows` as a batch of their own. `None` beyond the end.
    pub fn slice_rows(&self, first: usize, rows: usize) -> Option<Batch> {
        let end = first.checked_add(rows).filter(|&end| end <= self.rows)?;
        let range = first * self.context..end * self.context;
        Some(Batch {
            inputs: self.inputs[range.clone()].to_vec(),
            targets: self.targets[range].to_vec(),
            rows,
            context: self.context,
        })
    }
}

/// The order of windows within an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// As in the stream.
    Sequential,
    /// A permutation drawn anew for each epoch.
    Shuffled,
}

/// The position of a loader and the fingerprint of its data: everything that a checkpoint stores of the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchPosition {
    /// Seed of the shuffles.
    pub seed: u64,
    /// The order of windows.
    pub order: Order,
    /// Epochs finished.
    pub epoch: u64,
    /// Batches of this epoch already handed out.
    pub batch: u64,
    /// Sequences a batch, of all ranks together.
    pub rows: usize,
    /// T, tokens a sequence.
    pub context: usize,
    /// Number of tokens of the stream.
    pub tokens: u64,
    /// Fingerprint of the stream, so that a run is not resumed on other data unnoticed.
    pub fingerprint: u64,
}

/// Data that makes no batches, or not those of a position.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The stream cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// A batch of nothing.
    #[error("a batch of {rows} sequences of {context} tokens is empty or too large")]
    Shape {
        /// B.
        rows: usize,
        /// T.
        context: usize,
    },
    /// Fewer tokens than one batch needs.
    #[error("{tokens} tokens are too few for one batch of {rows} sequences of {context} tokens, which needs {needed}")]
    TooFewTokens {
        /// Number of tokens in the data.
        tokens: usize,
        /// B.
        rows: usize,
        /// T.
        context: usize,
        /// Tokens needed.
        needed: usize,
    },
    /// Fewer images than one batch needs.
    #[error("{images} images are too few for one batch of {rows}")]
    TooFewImages {
        /// Number of images in the data.
        images: usize,
        /// B.
        rows: usize,
    },
    /// A batch that cannot be divided.
    #[error("a batch of {rows} sequences has no equal parts for {ranks} ranks")]
    Ranks {
        /// Sequences a batch.
        rows: usize,
        /// Ranks.
        ranks: usize,
    },
    /// The position belongs to another stream.
    #[error(
        "the position belongs to other data: {expected} tokens with fingerprint {expected_fingerprint:016x}, \
         here are {found} with {found_fingerprint:016x}"
    )]
    OtherData {
        /// Tokens of the position's stream.
        expected: u64,
        /// Its fingerprint.
        expected_fingerprint: u64,
        /// Tokens of this stream.
        found: u64,
        /// Its fingerprint.
        found_fingerprint: u64,
    },
    /// A position beyond its epoch.
    #[error("the position says batch {batch} of an epoch of {batches}")]
    BeyondEpoch {
        /// The batch.
        batch: u64,
        /// Batches an epoch.
        batches: u64,
    },
}

/// What batches are of.
#[derive(Debug, Clone)]
enum Source {
    Tokens(Tokens),
    Images(ImageSet),
}

/// An endless sequence of batches. A clone is cheap: it shares the stream and the permutation.
#[derive(Debug, Clone)]
pub struct Batches {
    source: Source,
    position: BatchPosition,
    windows: usize,
    /// The permutation of the epoch it was drawn for.
    permutation: Option<(u64, Arc<[u64]>)>,
    /// The part of each batch that is read: its first sequence, and how many.
    part: (usize, usize),
}

impl Batches {
    /// Batches of `rows` sequences of `context` tokens, from the start.
    pub fn new(
        tokens: impl Into<Tokens>,
        rows: usize,
        context: usize,
        order: Order,
        seed: u64,
    ) -> Result<Self, BatchError> {
        let tokens = tokens.into();
        let fingerprint = tokens.fingerprint()?;
        let length = tokens.len() as u64;
        Batches::build(
            Source::Tokens(tokens),
            BatchPosition { seed, order, epoch: 0, batch: 0, rows, context, tokens: length, fingerprint },
        )
    }

    /// Batches of `rows` images, from the start. An image is one item: the position has a context of 1, and their
    /// number in place of that of tokens.
    pub fn of_images(images: ImageSet, rows: usize, order: Order, seed: u64) -> Result<Self, BatchError> {
        let (count, fingerprint) = (images.len() as u64, images.fingerprint());
        let position = BatchPosition { seed, order, epoch: 0, batch: 0, rows, context: 1, tokens: count, fingerprint };
        Batches::build(Source::Images(images), position)
    }

    /// Continues at a stored position of the same stream: the next batch is the one that would have come next.
    pub fn resume(tokens: impl Into<Tokens>, position: BatchPosition) -> Result<Self, BatchError> {
        let tokens = tokens.into();
        let found = (tokens.len() as u64, tokens.fingerprint()?);
        Batches::resume_with(Source::Tokens(tokens), found, position)
    }

    /// As [`Batches::resume`], of images.
    pub fn resume_images(images: ImageSet, position: BatchPosition) -> Result<Self, BatchError> {
        let found = (images.len() as u64, images.fingerprint());
        Batches::resume_with(Source::Images(images), found, position)
    }

    fn resume_with(
        source: Source,
        (found, found_fingerprint): (u64, u64),
        position: BatchPosition,
    ) -> Result<Self, BatchError> {
        if (found, found_fingerprint) != (position.tokens, position.fingerprint) {
            return Err(BatchError::OtherData {
                expected: position.tokens,
                expected_fingerprint: position.fingerprint,
                found,
                found_fingerprint,
            });
        }
        Batches::build(source, position)
    }

    fn build(source: Source, position: BatchPosition) -> Result<Self, BatchError> {
        let BatchPosition { rows, context, .. } = position;
        let windows = match &source {
            Source::Tokens(tokens) => windows_of(tokens.len(), rows, context)?,
            Source::Images(images) if (1..=images.len()).contains(&rows) => images.len(),
            Source::Images(images) => return Err(BatchError::TooFewImages { images: images.len(), rows }),
        };
        let batches = (windows / rows) as u64;
        if position.batch >= batches {
            return Err(BatchError::BeyondEpoch { batch: position.batch, batches });
        }
        Ok(Batches { source, position, windows, permutation: None, part: (0, rows) })
    }

    /// The part of the rank at a place among so many: of each batch, as many sequences for each rank, in the order of
    /// ranks. All have the same position, which is that of one rank with whole batches.
    ///
    /// # Errors
    /// If the sequences cannot be divided so.
    pub fn of_rank(mut self, place: usize, ranks: usize) -> Result<Self, BatchError> {
        let rows = self.position.rows;
        if place >= ranks || !rows.is_multiple_of(ranks) {
            return Err(BatchError::Ranks { rows, ranks });
        }
        self.part = (place * (rows / ranks), rows / ranks);
        Ok(self)
    }

    /// Sequences of a batch that [`Batches::next_batch`] gives: all, or those of one of several ranks.
    pub fn rows(&self) -> usize {
        self.part.1
    }

    /// The loader's position: after the last batch handed out, before the next.
    pub fn position(&self) -> &BatchPosition {
        &self.position
    }

    /// Batches an epoch, at least 1.
    pub fn batches_per_epoch(&self) -> u64 {
        (self.windows / self.position.rows) as u64
    }

    /// The next batch; epochs follow each other without end. If the stream cannot be read, the position stays.
    pub fn next_batch(&mut self) -> Result<Batch, TokensError> {
        let (rows, context) = (self.rows(), self.position.context);
        let (mut inputs, mut targets) = (vec![0; rows * context], vec![0; rows * context]);
        self.next_into(&mut inputs, &mut targets)?;
        Ok(Batch { inputs, targets, rows, context })
    }

    /// The images of these batches, if they are of images.
    pub(crate) fn images(&self) -> Option<&ImageSet> {
        match &self.source {
            Source::Images(images) => Some(images),
            Source::Tokens(_) => None,
        }
    }

    /// As [`Batches::next_batch`], written to `inputs` and `targets`, which have room for one batch. Batches of images
    /// write nothing.
    pub(crate) fn next_into(&mut self, inputs: &mut [i64], targets: &mut [i64]) -> Result<(), TokensError> {
        let (windows, context) = (self.chosen(), self.position.context);
        if let Source::Tokens(tokens) = &self.source {
            gather(tokens, windows.into_iter().map(|window| window * context), context, inputs, targets)?;
        }
        self.advance();
        Ok(())
    }

    /// The images of the next batch, by their indices.
    pub(crate) fn next_indices(&mut self) -> Vec<usize> {
        let chosen = self.chosen();
        self.advance();
        chosen
    }

    /// The windows of the next batch: where they begin, in units of the context.
    fn chosen(&mut self) -> Vec<usize> {
        let BatchPosition { seed, order, epoch, batch, rows, .. } = self.position;
        if order == Order::Shuffled && self.permutation.as_ref().is_none_or(|(drawn, _)| *drawn != epoch) {
            self.permutation = Some((epoch, permutation(self.windows, seed, epoch).into()));
        }
        let first = batch as usize * rows + self.part.0;
        let window = |index: usize| match &self.permutation {
            Some((_, permutation)) if order == Order::Shuffled => permutation[index] as usize,
            _ => index,
        };
        (first..first + self.part.1).map(window).collect()
    }

    fn advance(&mut self) {
        self.position.batch += 1;
        if self.position.batch == self.batches_per_epoch() {
            self.position.batch = 0;
            // A corrupt position may hold the last epoch there is.
            self.position.epoch = self.position.epoch.wrapping_add(1);
        }
    }
}

/// Splits a stream into the part to train on and the last tenth to validate with.
pub fn split(tokens: &Tokens) -> (Tokens, Tokens) {
    tokens.split_at(tokens.len() - tokens.len() / 10)
}

/// The validation batches: always the same `count` at most, spread evenly over the stream, so that losses compare
/// between steps and runs.
pub fn validation_batches(
    tokens: &Tokens,
    rows: usize,
    context: usize,
    count: usize,
) -> Result<Vec<Batch>, BatchError> {
    let windows = windows_of(tokens.len(), rows, context)?;
    let count = count.min(windows / rows);
    let chosen = count * rows;
    // In 128 bits, the product cannot overflow.
    let start = |index: usize| (index as u128 * windows as u128 / chosen as u128) as usize * context;
    let batch = |batch| {
        let (mut inputs, mut targets) = (vec![0; rows * context], vec![0; rows * context]);
        gather(tokens, (batch * rows..(batch + 1) * rows).map(start), context, &mut inputs, &mut targets)?;
        Ok::<Batch, TokensError>(Batch { inputs, targets, rows, context })
    };
    Ok((0..count).map(batch).collect::<Result<_, _>>()?)
}

/// Number of windows of a stream; an error unless they fill one batch.
fn windows_of(tokens: usize, rows: usize, context: usize) -> Result<usize, BatchError> {
    let needed = rows
        .checked_mul(context)
        .filter(|&product| product > 0)
        .and_then(|product| product.checked_add(1))
        .ok_or(BatchError::Shape { rows, context })?;
    if tokens < needed {
        return Err(BatchError::TooFewTokens { tokens, rows, context, needed });
    }
    Ok((tokens - 1) / context)
}

/// Writes a window for each of `starts`: `context` tokens to `inputs`, and the token after each to `targets`.
fn gather(
    tokens: &Tokens,
    starts: impl Iterator<Item = usize>,
    context: usize,
    inputs: &mut [i64],
    targets: &mut [i64],
) -> Result<(), TokensError> {
    let rows = inputs.chunks_exact_mut(context).zip(targets.chunks_exact_mut(context));
    for (start, (inputs, targets)) in starts.zip(rows) {
        let window = tokens.read(start, context + 1)?;
        inputs.iter_mut().zip(&window[..context]).for_each(|(to, token)| *to = i64::from(*token));
        targets.iter_mut().zip(&window[1..]).for_each(|(to, token)| *to = i64::from(*token));
    }
    Ok(())
}

/// Fisher-Yates from the end, with the stream of (seed, epoch).
fn permutation(count: usize, seed: u64, epoch: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count as u64).collect();
    let mut random = Stream::new(seed, SHUFFLE.wrapping_add(epoch));
    for last in (1..count).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(count: u32) -> Arc<[u32]> {
        (0..count).collect()
    }

    #[test]
    fn sequential_windows_and_targets() {
        let mut batches = Batches::new(stream(14), 2, 3, Order::Sequential, 0).unwrap();
        assert_eq!(batches.batches_per_epoch(), 2);
        let batch = batches.next_batch().unwrap();
        assert_eq!(batch.inputs, [0, 1, 2, 3, 4, 5]);
        assert_eq!(batch.targets, [1, 2, 3, 4, 5, 6]);
        assert_eq!(batches.next_batch().unwrap().inputs, [6, 7, 8, 9, 10, 11]);
        assert_eq!((batches.position().epoch, batches.position().batch), (1, 0));
        assert_eq!(batches.next_batch().unwrap(), batch);
        assert_eq!(batch.slice_rows(1, 1).unwrap().targets, [4, 5, 6]);
        assert_eq!(batch.slice_rows(1, 2), None);
        assert_eq!(batch.slice_rows(usize::MAX, 2), None);
    }

    #[test]
    fn an_epoch_visits_every_window_once_in_its_own_order() {
        let mut batches = Batches::new(stream(8 * 12 + 1), 4, 8, Order::Shuffled, 5).unwrap();
        let mut epoch = || {
            let starts: Vec<i64> = (0..3)
                .flat_map(|_| batches.next_batch().unwrap().inputs.chunks(8).map(|row| row[0]).collect::<Vec<_>>())
                .collect();
            let mut sorted = starts.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..12).map(|window| window * 8).collect::<Vec<i64>>());
            starts
        };
        assert_ne!(epoch(), epoch());
    }

    #[test]
    fn a_stored_position_continues_exactly() {
        for order in [Order::Sequential, Order::Shuffled] {
            let mut batches = Batches::new(stream(1000), 3, 7, order, 9).unwrap();
            for _ in 0..120 {
                let stored = serde_json::to_string(batches.position()).unwrap();
                let mut resumed = Batches::resume(stream(1000), serde_json::from_str(&stored).unwrap()).unwrap();
                assert_eq!(batches.next_batch().unwrap(), resumed.next_batch().unwrap());
                assert_eq!(batches.position(), resumed.position());
            }
        }
    }

    #[test]
    fn ranks_read_the_parts_of_one_batch() {
        let whole = || Batches::new(stream(1000), 6, 7, Order::Shuffled, 9).unwrap();
        for ranks in [1, 2, 3, 6] {
            let (mut all, of_rank) = (whole(), |place| whole().of_rank(place, ranks).unwrap());
            let mut parts: Vec<Batches> = (0..ranks).map(of_rank).collect();
            for _ in 0..30 {
                let batch = all.next_batch().unwrap();
                for (place, part) in parts.iter_mut().enumerate() {
                    let rows = part.rows();
                    assert_eq!(Some(part.next_batch().unwrap()), batch.slice_rows(place * rows, rows));
                    assert_eq!(part.position(), all.position());
                }
            }
        }
        assert!(matches!(whole().of_rank(0, 4), Err(BatchError::Ranks { rows: 6, ranks: 4 })));
    }

    /// The loop over accumulated batches keeps a clone of where its step began.
    #[test]
    fn a_clone_shares_the_permutation() {
        let mut batches = Batches::new(stream(1000), 3, 7, Order::Shuffled, 9).unwrap();
        batches.next_batch().unwrap();
        let before = batches.clone();
        let shared = |batches: &Batches| batches.permutation.as_ref().map(|(_, order)| Arc::as_ptr(order));
        assert!(shared(&before).is_some() && shared(&before) == shared(&batches));
    }

    #[test]
    fn other_data_and_impossible_positions_are_refused() {
        let batches = Batches::new(stream(1000), 3, 7, Order::Shuffled, 9).unwrap();
        let position = batches.position().clone();
        let changed: Arc<[u32]> = (1..1001).collect();
        assert!(matches!(Batches::resume(changed, position.clone()), Err(BatchError::OtherData { .. })));
        let beyond = BatchPosition { batch: 47, ..position.clone() };
        assert!(matches!(Batches::resume(stream(1000), beyond), Err(BatchError::BeyondEpoch { batches: 47, .. })));
        let huge = BatchPosition { rows: usize::MAX, ..position };
        assert!(matches!(Batches::resume(stream(1000), huge), Err(BatchError::Shape { .. })));
        assert!(matches!(
            Batches::new(stream(21), 3, 7, Order::Shuffled, 0),
            Err(BatchError::TooFewTokens { needed: 22, .. })
        ));
        assert!(Batches::new(stream(22), 3, 7, Order::Shuffled, 0).is_ok());
        assert!(matches!(Batches::new(stream(21), 0, 7, Order::Shuffled, 0), Err(BatchError::Shape { .. })));
    }

    #[test]
    fn validation_is_fixed_and_spread() {
        let (train, validation) = split(&stream(2000).into());
        assert_eq!((train.len(), validation.len(), validation.read(0, 1).unwrap()[0]), (1800, 200, 1800));
        let batches = validation_batches(&validation, 2, 9, 3).unwrap();
        assert_eq!(batches, validation_batches(&validation, 2, 9, 3).unwrap());
        assert_eq!(batches.len(), 3);
        assert_eq!(batches[0].inputs[0], 1800);
        assert!(batches[2].inputs[9] > 1950);
        assert_eq!(validation_batches(&validation, 2, 9, 1000).unwrap().len(), 11);
    }
}
