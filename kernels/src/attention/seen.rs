//! Which queries see which keys, and what is added to scores.

use std::ops::Range;

use rayon::prelude::*;

use super::problem::{Extents, KEYS, QUERIES, Scores};
use crate::access::read_i64;
use crate::dtype::DType;
use crate::elementwise::convert;
use crate::scratch;
use crate::view::{TensorMut, TensorRef, contiguous_strides};

/// What a problem says of all heads: numbers of masks in f32, and lengths that were read.
pub(super) struct Added<'a> {
    /// Booleans, or f32: where they begin, their strides in elements, and which of the two they are.
    mask: Option<(*const u8, [isize; 4], bool)>,
    /// The mask's numbers, where they are of another type.
    _copy: Vec<f32>,
    /// The number of keys that each of the batch sees.
    lengths: Vec<usize>,
    /// What is subtracted from the sums of scores and numbers for each query of each head, [`Scores::mask`]; empty
    /// where the mask has no numbers.
    bases: Vec<f32>,
    queries: usize,
    heads: usize,
    memory: std::marker::PhantomData<&'a u8>,
}

// SAFETY: the memory is only read while this lives.
unsafe impl Sync for Added<'_> {}

impl<'a> Added<'a> {
    pub(super) fn of(scores: &Scores<'a>, extents: &Extents) -> Added<'a> {
        let mut copy: Vec<f32> = Vec::new();
        let mask = scores.mask.map(|mask| {
            let distances = |shape: &[usize], strides: &[isize]| {
                [0, 1, 2, 3].map(|dim| if shape[dim] == 1 { 0 } else { strides[dim] })
            };
            let own = distances(mask.shape(), mask.strides());
            let is_of_booleans = mask.dtype() == DType::Bool;
            if is_of_booleans || mask.dtype() == DType::F32 {
                return (mask.as_ptr(), own, is_of_booleans);
            }
            // What is the same element again and again is converted once.
            let shape = [0, 1, 2, 3].map(|dim| if own[dim] == 0 { 1 } else { mask.shape()[dim] });
            // SAFETY: a part of the mask.
            let once = unsafe { mask.part(&shape, &own, mask.as_ptr()) };
            copy = scratch::zeroed(once.len());
            let strides = contiguous_strides(&shape);
            convert(once, TensorMut::from_slice(&mut copy, &shape, &strides));
            (copy.as_ptr().cast(), distances(&shape, &strides), false)
        });
        let read = |lengths: TensorRef<'_>| {
            let lengths = read_i64(&lengths).into_iter();
            scratch::collected(lengths.map(|length| usize::try_from(length).unwrap_or(0).min(extents.keys)))
        };
        let lengths = scores.lengths.map_or_else(|| scratch::filled(extents.keys, extents.batch), read);
        let (memory, bases) = (std::marker::PhantomData, Vec::new());
        let (queries, heads) = (extents.queries, extents.heads);
        let mut added = Added { mask, _copy: copy, lengths, bases, queries, heads, memory };
        if added.mask.is_some_and(|(_, _, is_of_booleans)| !is_of_booleans) {
            let mut bases = scratch::zeroed::<f32>(extents.batch * heads * queries);
            bases.par_chunks_mut(queries.max(1)).enumerate().for_each(|(pair, bases)| {
                Seen::of(scores, &added, pair / heads, pair % heads).find_bases(bases);
            });
            added.bases = bases;
        }
        added
    }
}

/// Which queries see which keys in one head.
pub(super) struct Seen<'a> {
    is_causal: bool,
    window: usize,
    /// Whether a row of scores may be -infinity everywhere and still be meant.
    pub(super) hides_rows: bool,
    /// The keys that there are.
    length: usize,
    mask: Option<HeadMask<'a>>,
    /// What is subtracted from the sums of scores and numbers for each query.
    bases: &'a [f32],
}

/// The mask of one head.
struct HeadMask<'a> {
    first: *const u8,
    /// Strides of queries and keys, in elements.
    strides: [isize; 2],
    is_of_booleans: bool,
    memory: std::marker::PhantomData<&'a u8>,
}

impl HeadMask<'_> {
    /// The element of query i and key j.
    ///
    /// # Safety
    /// The mask is of elements of this type, and has this one.
    unsafe fn read<T: Copy>(&self, i: usize, j: usize) -> T {
        let at = i as isize * self.strides[0] + j as isize * self.strides[1];
        // SAFETY: the caller's promise.
        unsafe { self.first.cast::<T>().wrapping_offset(at).read() }
    }
}

impl<'a> Seen<'a> {
    pub(super) fn of(scores: &Scores<'_>, added: &'a Added<'_>, batch: usize, head: usize) -> Seen<'a> {
        let mask = added.mask.map(|(first, strides, is_of_booleans)| {
            let offset = batch as isize * strides[0] + head as isize * strides[1];
            let size = if is_of_booleans { 1 } else { size_of::<f32>() as isize };
            HeadMask {
                first: first.wrapping_offset(offset * size),
                strides: [strides[2], strides[3]],
                is_of_booleans,
                memory: std::marker::PhantomData,
            }
        });
        let first = (batch * added.heads + head) * added.queries;
        Seen {
            bases: if added.bases.is_empty() { &[] } else { &added.bases[first..first + added.queries] },
            is_causal: scores.is_causal,
            window: scores.window.unwrap_or(usize::MAX),
            hides_rows: mask.is_some() || scores.lengths.is_some() || scores.window.is_some(),
            length: added.lengths[batch],
            mask,
        }
    }

    /// The keys that query i sees, but for a mask.
    fn of_query(&self, i: usize) -> Range<usize> {
        let end = if self.is_causal { self.length.min(i + 1) } else { self.length };
        (i + 1).saturating_sub(self.window).min(end)..end
    }

    /// For each query the largest number that the mask has for a key that it sees; 0 where that is -infinity.
    fn find_bases(&self, bases: &mut [f32]) {
        let Some(mask) = &self.mask else { return };
        let largest = |i: usize| {
            // SAFETY: the mask has a number for each pair, or one for all of a dimension.
            let numbers = self.of_query(i).map(|j| unsafe { mask.read::<f32>(i, j) });
            let largest = numbers.fold(f32::NEG_INFINITY, |most, one| if one > most { one } else { most });
            if largest == f32::NEG_INFINITY { 0.0 } else { largest }
        };
        if mask.strides[0] == 0 && !self.is_causal && self.window == usize::MAX {
            // A row for all queries.
            bases.fill(largest(0));
            return;
        }
        bases.iter_mut().enumerate().for_each(|(i, base)| *base = largest(i));
    }

    /// Keys that some of the queries may see, from the begin of a tile on.
    pub(super) fn keys(&self, queries: &Range<usize>) -> Range<usize> {
        let end = if self.is_causal { self.length.min(queries.end) } else { self.length };
        let first = (queries.start + 1).saturating_sub(self.window).min(end);
        let begin = first / KEYS * KEYS;
        if first == end { end..end } else { begin..end }
    }

    /// Queries of `0..queries` that may see some of the keys, from the begin of a tile on.
    pub(super) fn queries(&self, keys: &Range<usize>, queries: usize) -> Range<usize> {
        if keys.start >= self.length {
            return 0..0;
        }
        let begin = if self.is_causal { keys.start / QUERIES * QUERIES } else { 0 };
        // The last key that there is is seen until the window has passed it.
        let last = keys.end.min(self.length) - 1;
        let end = queries.min(last.saturating_add(self.window));
        begin.min(end)..end
    }

    /// Hides scores, and adds the mask's numbers to them.
    pub(super) fn apply(&self, scores: &mut [f32], queries: &Range<usize>, keys: &Range<usize>) {
        let rows = || queries.clone();
        let hide = |(_, score): (usize, &mut f32)| *score = f32::NEG_INFINITY;
        if let Some(mask) = &self.mask {
            for (i, row) in rows().zip(scores.chunks_exact_mut(keys.len())) {
                let pairs = keys.clone().zip(row);
                if mask.is_of_booleans {
                    // SAFETY: the mask has a byte for each pair, or one for all of a dimension.
                    let is_hidden = |j: usize| unsafe { mask.read::<u8>(i, j) } == 0;
                    pairs.filter(|(j, _)| is_hidden(*j)).for_each(hide);
                } else {
                    // SAFETY: as above, of numbers.
                    let number = |j: usize| unsafe { mask.read::<f32>(i, j) };
                    // In this order: the sum rounds the score as adding to it does.
                    pairs.for_each(|(j, score)| *score = (*score + number(j)) - self.bases[i]);
                }
            }
        }
        let ends = self.is_causal && keys.end > queries.start + 1 || keys.end > self.length;
        let begins = keys.start < queries.end.saturating_sub(self.window);
        if !ends && !begins {
            return;
        }
        for (i, row) in rows().zip(scores.chunks_exact_mut(keys.len())) {
            let Range { start, end } = self.of_query(i);
            let [begin, end] = [start, end].map(|key| key.saturating_sub(keys.start).min(keys.len()));
            row[..begin].fill(f32::NEG_INFINITY);
            row[end..].fill(f32::NEG_INFINITY);
        }
    }
}
