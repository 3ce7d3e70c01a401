use fulgurite_ops_macros::operator;

use super::arrays::rearranged;
use super::promotion::position;
use super::read_as;
use crate::prims;

/// The windows of `size` elements along `dimension` whose starts are `step` apart: `dimension` counts the windows, the
/// last dimension of the result their elements. A tensor without dimensions has one window, of its element.
#[operator(torch = "Tensor.unfold")]
pub mod unfold {
    fn unfold(input: Tensor, dimension: i64, size: i64, step: i64) -> Tensor;

    fn requires(input: &TensorMeta, dimension: i64, size: i64, step: i64) -> Result<()> {
        let dim = normalize_dim(dimension, input.rank())?;
        let extent = input.shape().get(dim).copied().unwrap_or(1);
        require!(size >= 0, NegativeSize, "size is {size} but must be >= 0");
        require!(
            size as u64 <= extent as u64,
            Size,
            "maximum size for tensor at dimension {dim} is {extent} but size is {size}"
        );
        require!(step > 0, Step, "step is {step} but must be > 0");
        Ok(())
    }

    fn decomposition(input: Tensor, dimension: i64, size: i64, step: i64) -> Tensor {
        let (rank, size, step) = (input.rank(), size as usize, step as usize);
        if rank == 0 {
            let line = read_as(input, &[1]);
            return if size == 1 { line } else { prims::slice(line, [0], [0], [1]) };
        }
        let dim = position(dimension, rank);
        let order: Vec<usize> = (0..rank).filter(|other| *other != dim).chain([dim]).collect();
        let last = if dim + 1 == rank { input } else { prims::permute(input, order) };
        let count = (last.shape()[rank - 1] - size) / step + 1;
        let windows = prims::windows(last, [count], [size], [step], [1]);
        // The windows are counted where the dimension was.
        let order: Vec<usize> = (0..dim).chain([rank - 1]).chain(dim..rank - 1).chain([rank]).collect();
        if dim + 1 == rank { windows } else { prims::permute(windows, order) }
    }

    fn reference(input: &ReferenceTensor, dimension: i64, size: i64, step: i64) -> ReferenceTensor {
        let (mut shape, size, step) = (input.shape().to_vec(), size as usize, step as usize);
        if shape.is_empty() {
            return rearranged(input, &[size], 0.0, |_| Some(vec![]));
        }
        let dim = dimension.rem_euclid(shape.len() as i64) as usize;
        shape[dim] = (0..=shape[dim] - size).step_by(step).count();
        shape.push(size);
        rearranged(input, &shape, 0.0, |at| {
            let mut from = at[..at.len() - 1].to_vec();
            from[dim] = from[dim] * step + at[at.len() - 1];
            Some(from)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([]), 0, 1, 3));
        s.case(with(s.normal([]), -1, 0, 5));
        s.case(with(s.normal([0]), 0, 0, 1));
        s.case(with(s.normal([8]), 0, 2, 1));
        s.case(with(s.normal([6, 2]), 0, 2, 2));
        s.case(with(s.normal([2, 7, 3]), -2, 3, 2));
        s.case(with(s.normal([2, 5]), 1, 5, 9));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Size, with(e.normal([]), 0, 2, 1), "maximum size for tensor at dimension 0 is 1 but size is 2");
        e.case(Size, with(e.normal([8]), 0, 10, 1), "maximum size for tensor at dimension 0 is 8 but size is 10");
        e.case(NegativeSize, with(e.normal([8]), 0, -5, 1), "size is -5 but must be >= 0");
        e.case(Step, with(e.normal([0]), 0, 0, -1), "step is -1 but must be > 0");
        e.case(Step, with(e.normal([8]), 0, 2, 0), "step is 0 but must be > 0");
    }
}
