use fulgurite_ops_macros::operator;

use super::arrays::rearranged;
use super::promotion::position;
use crate::prims;

/// `length` elements along `dim`, from `start` on (counted from the end if negative).
#[operator(torch = "narrow")]
pub mod narrow {
    fn narrow(input: Tensor, dim: i64, start: i64, length: usize) -> Tensor;

    fn meta(input: &TensorMeta, dim: i64, start: i64, length: usize) -> Result<TensorMeta> {
        require!(input.rank() > 0, Rank, "input has no dimensions, expected at least one");
        let dim = normalize_dim(dim, input.rank())?;
        let extent = input.shape()[dim];
        let first = super::first(extent, start);
        require!(
            first.is_some_and(|first| first.checked_add(length).is_some_and(|end| end <= extent)),
            Range,
            "start is {start}, length {length}, dimension {dim} has extent {extent}"
        );
        let mut shape = input.shape().to_vec();
        shape[dim] = length;
        Ok(input.with_shape(shape))
    }

    fn decomposition(input: Tensor, dim: i64, start: i64, length: usize) -> Tensor {
        let shape = input.shape();
        let dim = position(dim, shape.len());
        super::piece(input, dim, super::first(shape[dim], start).unwrap_or(0), length)
    }

    fn reference(input: &ReferenceTensor, dim: i64, start: i64, length: usize) -> ReferenceTensor {
        let mut shape = input.shape().to_vec();
        let dim = dim.rem_euclid(shape.len() as i64) as usize;
        let first = if start < 0 { (shape[dim] as i64 + start) as usize } else { start as usize };
        shape[dim] = length;
        rearranged(input, &shape, 0.0, |at| {
            let mut from = at.to_vec();
            from[dim] += first;
            Some(from)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 6]), 0, 1, 2));
        s.case(with(s.normal([4, 6]), -1, 2, 3));
        s.case(with(s.normal([4, 6]), 1, -2, 2));
        s.case(with(s.normal([4, 6]), 1, 6, 0));
        s.case(with(s.normal([5]), 0, 0, 5));
        s.case(with(s.normal([0, 3]), 1, 1, 2));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([]), 0, 0, 1), "input has no dimensions");
        e.case(Range, with(e.normal([4]), 0, 2, 3), "start is 2, length 3, dimension 0 has extent 4");
        e.case(Range, with(e.normal([4]), 0, -5, 1), "start is -5");
    }
}

fn first(extent: usize, start: i64) -> Option<usize> {
    usize::try_from(if start < 0 { start + extent as i64 } else { start }).ok().filter(|first| *first <= extent)
}

/// Elements `start..start + length` along dimension `dim`; the tensor itself if these are all.
#[track_caller]
pub(crate) fn piece(input: fulgurite::Tensor, dim: usize, start: usize, length: usize) -> fulgurite::Tensor {
    let mut ends = input.shape().to_vec();
    if ends[dim] == length {
        return input;
    }
    let mut starts = vec![0; ends.len()];
    (starts[dim], ends[dim]) = (start, start + length);
    let steps = vec![1; ends.len()];
    prims::slice(input, starts, ends, steps)
}
