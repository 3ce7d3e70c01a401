use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use super::arrays::rearranged;
use super::parts;
use super::promotion::position;
use crate::prims;

/// `length` elements along `dim`, from `start` on (counted from the end if negative). `start` may be an integer tensor
/// without dimensions: a position that is known when the program runs; if it is out of range, running is an error. With
/// a length of 0 it is not looked at.
#[operator(torch = "narrow", complex)]
pub mod narrow {
    fn narrow(input: Tensor, dim: i64, start: Operand<Integer>, length: usize) -> Tensor;

    fn meta(input: &TensorMeta, dim: i64, start: Operand<&TensorMeta>, length: usize) -> Result<TensorMeta> {
        require!(input.rank() > 0, Rank, "input has no dimensions, expected at least one");
        let dim = normalize_dim(dim, input.rank())?;
        let extent = input.shape()[dim];
        match start {
            Operand::Scalar(start) => {
                require!(
                    matches!(start, Scalar::Int(_)),
                    Start,
                    "start is {}, expected an integer",
                    start.to_attribute()
                );
                let first = super::first(extent, start.to_i64());
                require!(
                    first.is_some_and(|first| first.checked_add(length).is_some_and(|end| end <= extent)),
                    Range,
                    "start is {}, length {length}, dimension {dim} has extent {extent}",
                    start.to_i64()
                );
            }
            Operand::Tensor(start) => {
                require!(
                    start.rank() == 0,
                    StartRank,
                    "start has shape {:?}, expected a number or a tensor without dimensions",
                    start.shape()
                );
                require!(length <= extent, Length, "length is {length}, dimension {dim} has extent {extent}");
            }
        }
        let mut shape = input.shape().to_vec();
        shape[dim] = length;
        Ok(input.with_shape(shape))
    }

    fn decomposition(input: Tensor, dim: i64, start: Operand<Tensor>, length: usize) -> Tensor {
        let shape = input.shape();
        let dim = position(dim, shape.len());
        match start {
            Operand::Scalar(start) => {
                super::piece(input, dim, super::first(shape[dim], start.to_i64()).unwrap_or(0), length)
            }
            Operand::Tensor(start) => parts::index_select(input, dim, super::positions(start, shape[dim], length)),
        }
    }

    fn reference(input: &ReferenceTensor, dim: i64, start: ArrayD<f64>, length: usize) -> Result<ReferenceTensor> {
        let start = start[[]] as i64;
        let mut shape = input.shape().to_vec();
        let dim = dim.rem_euclid(shape.len() as i64) as usize;
        let first = if start < 0 { shape[dim] as i64 + start } else { start };
        let last = shape[dim] as i64 - length as i64;
        if length > 0 && !(0..=last).contains(&first) {
            let message = format!("{length} elements from {first} on of a dimension of size {}", shape[dim]);
            return Err(Failure::new("IndexOutOfRange", message));
        }
        let first = if length == 0 { 0 } else { first as usize };
        shape[dim] = length;
        Ok(rearranged(input, &shape, 0.0, |at| {
            let mut from = at.to_vec();
            from[dim] += first;
            Some(from)
        }))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 6]), 0, 1, 2));
        s.case(with(s.normal([4, 6]), -1, 2, 3));
        s.case(with(s.normal([4, 6]), 1, -2, 2));
        s.case(with(s.normal([4, 6]), 1, 6, 0));
        s.case(with(s.normal([5]), 0, 0, 5));
        s.case(with(s.normal([0, 3]), 1, 1, 2));
        s.case(with(s.normal([4, 6]), 1, s.integers(0, 3, []), 4));
        s.case(with(s.normal([5, 3]), 0, s.integers(-5, -3, []), 2));
        s.case(with(s.normal([6]), 0, s.integers(0, 7, []).cast(DType::I32), 0));
        // All of it, from a start of zero.
        s.case(with(s.normal([4]), 0, s.integers(0, 1, []), 4));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([]), 0, 0, 1), "input has no dimensions");
        e.case(Range, with(e.normal([4]), 0, 2, 3), "start is 2, length 3, dimension 0 has extent 4");
        e.case(Range, with(e.normal([4]), 0, -5, 1), "start is -5");
        e.case(Start, with(e.normal([4]), 0, 1.5, 1), "start is 1.5, expected an integer");
        e.case(StartRank, with(e.normal([4]), 0, e.integers(0, 1, [1]), 1), "start has shape [1]");
        for start in [3.0, -5.0] {
            let start = e.values([], [start]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([4]), 0, start, 2), "of size 4");
        }
        e.case(Length, with(e.normal([4]), 0, e.integers(0, 1, []), 5), "length is 5");
    }
}

/// `length` positions from `start` on in a dimension of `extent`; a negative `start` counts from the end.
#[track_caller]
fn positions(start: Tensor, extent: usize, length: usize) -> Tensor {
    let start = super::promotion::cast(start, fulgurite_runtime::DType::I64);
    let from_end = prims::add(start, extent as i64);
    let first = prims::select(prims::lt(start, 0), from_end, start);
    let steps = prims::iota(length, 0i64, 1i64, fulgurite_runtime::DType::I64, start.device());
    prims::add(super::promotion::broadcast(first, &[length]), steps)
}

fn first(extent: usize, start: i64) -> Option<usize> {
    usize::try_from(if start < 0 { start + extent as i64 } else { start }).ok().filter(|first| *first <= extent)
}

/// Elements `start..start + length` along dimension `dim`; the tensor itself if these are all.
#[track_caller]
pub(crate) fn piece(input: Tensor, dim: usize, start: usize, length: usize) -> Tensor {
    let mut ends = input.shape().to_vec();
    if ends[dim] == length {
        return input;
    }
    let mut starts = vec![0; ends.len()];
    (starts[dim], ends[dim]) = (start, start + length);
    let steps = vec![1; ends.len()];
    parts::slice(input, starts, ends, steps)
}
