use fulgurite_ops_macros::operator;

use super::support::rearranged;
use crate::prims::{pad, reshape};

/// Every `steps[i]`-th element from `starts[i]` up to, not including, `ends[i]` of each dimension `i`.
#[operator(prim, overload = Slice)]
pub mod slice {
    fn slice(input: Tensor, starts: Vec<usize>, ends: Vec<usize>, steps: Vec<usize>) -> Tensor;

    fn meta(input: &TensorMeta, starts: &[usize], ends: &[usize], steps: &[usize]) -> Result<TensorMeta> {
        let rank = input.rank();
        require!(
            starts.len() == rank && ends.len() == rank && steps.len() == rank,
            Rank,
            "starts, ends and steps have {}, {} and {} numbers, expected {rank}, the rank of input",
            starts.len(),
            ends.len(),
            steps.len()
        );
        require!(
            (0..rank).all(|i| starts[i] <= ends[i] && ends[i] <= input.shape()[i]),
            Range,
            "starts is {starts:?}, ends is {ends:?}, expected starts <= ends <= {:?}",
            input.shape()
        );
        require!(!steps.contains(&0), Step, "steps is {steps:?}, expected positive numbers");
        Ok(input.with_shape((0..rank).map(|i| (ends[i] - starts[i]).div_ceil(steps[i])).collect::<Vec<_>>()))
    }

    fn view(input: &Strided, starts: &[usize], ends: &[usize], steps: &[usize]) -> Option<View> {
        let empty = starts.iter().zip(ends).any(|(start, end)| start >= end);
        let offset = starts.iter().zip(&input.strides).map(|(start, stride)| *start as isize * stride).sum();
        let strides =
            (0..steps.len()).map(|i| within(steps[i], starts[i], ends[i]) as isize * input.strides[i]).collect();
        Some(View { strides, offset: if empty { 0 } else { offset } })
    }

    /// A step beyond the range reaches the first element only, as a step of the whole range does.
    fn within(step: usize, start: usize, end: usize) -> usize {
        step.min((end - start).max(1))
    }

    fn grad(Args { input, starts, ends, steps }: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = slice(input, &starts, &ends, &steps);
        let steps: Vec<usize> = (0..steps.len()).map(|i| within(steps[i], starts[i], ends[i])).collect();
        (out, move |d_out: Tensor| {
            let extents = input.shape();
            if d_out.shape() == extents {
                // All of it: an element that was left out would be missing.
                return Grads { input: d_out };
            }
            let (mut d_input, rank) = (d_out, steps.len());
            if steps.iter().any(|step| *step != 1) {
                // The elements that were stepped over: each element becomes a group of `step`, itself and zeros.
                let taken = d_out.shape();
                let paired = |second: &dyn Fn(usize) -> usize| -> Vec<usize> {
                    (0..rank).flat_map(|i| [taken[i], second(i)]).collect()
                };
                let grouped = reshape(d_input, paired(&|_| 1));
                let high: Vec<usize> = (0..rank).flat_map(|i| [0, steps[i] - 1]).collect();
                let filled = pad(grouped, vec![0; 2 * rank], high, 0.0);
                let merged: Vec<usize> = (0..rank).map(|i| taken[i] * steps[i]).collect();
                let flat = reshape(filled, &merged);
                let inside: Vec<usize> = (0..rank).map(|i| merged[i].min(extents[i] - starts[i])).collect();
                d_input = slice(flat, vec![0; rank], inside, vec![1; rank]);
            }
            let covered = d_input.shape();
            let high: Vec<usize> = (0..rank).map(|i| extents[i].saturating_sub(starts[i] + covered[i])).collect();
            Grads { input: pad(d_input, starts, high, 0.0) }
        })
    }

    fn reference(input: &ReferenceTensor, starts: &[usize], ends: &[usize], steps: &[usize]) -> ReferenceTensor {
        let shape: Vec<usize> = (0..starts.len()).map(|i| (starts[i]..ends[i]).step_by(steps[i]).count()).collect();
        rearranged(input, &shape, Scalar::Int(0), |index| {
            Some((0..starts.len()).map(|i| starts[i] + index[i] * steps[i]).collect())
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([]), [], [], []));
        s.case(with(s.normal([7]), [2], [6], [1]));
        s.case(with(s.normal([7]), [1], [7], [3]));
        s.case(with(s.normal([8]), [1], [6], [3]));
        s.case(with(s.normal([4, 6]), [0, 1], [4, 5], [1, 1]));
        s.case(with(s.normal([4, 6]), [1, 0], [4, 6], [2, 4]));
        s.case(with(s.normal([4, 6]), [4, 0], [4, 6], [1, 1]));
        s.case(with(s.normal([3, 1, 5]), [0, 0, 2], [3, 1, 3], [2, 1, 1]));
        s.case(with(s.normal([0, 3]), [0, 1], [0, 3], [1, 1]));
        s.case(with(s.normal([70, 71]), [1, 2], [69, 69], [1, 1]));
        s.case(with(s.normal([4097, 2]), [0, 1], [4097, 2], [1, 1]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([2, 3]), [0], [2], [1]), "starts, ends and steps have 1, 1 and 1 numbers");
        for (starts, ends, steps) in [(1, 2, 2), (2, 1, 2), (2, 2, 1)] {
            let short = with(e.normal([2, 3]), vec![0; starts], vec![1; ends], vec![1; steps]);
            e.case(Rank, short, "expected 2, the rank of input");
        }
        e.case(Range, with(e.normal([2]), [0], [3], [1]), "ends is [3]");
        e.case(Range, with(e.normal([2]), [2], [1], [1]), "starts is [2]");
        e.case(Step, with(e.normal([2]), [0], [2], [0]), "steps is [0]");
    }
}
