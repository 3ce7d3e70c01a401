use fulgurite_ops_macros::operator;

use super::support::rearranged;
use crate::prims::slice;

/// `input` with `low[i]` elements of `value` before and `high[i]` after it in each dimension `i`.
#[operator(prim, exact, overload = Pad)]
pub mod pad {
    fn pad(input: Tensor, low: Vec<usize>, high: Vec<usize>, value: Scalar) -> Tensor;

    fn meta(input: &TensorMeta, low: &[usize], high: &[usize], value: Scalar) -> Result<TensorMeta> {
        require!(
            low.len() == input.rank() && high.len() == input.rank(),
            Rank,
            "low and high have {} and {} numbers, expected {}, the rank of input",
            low.len(),
            high.len(),
            input.rank()
        );
        require!(
            value.fits(input.dtype()),
            FillValue,
            "value is {}, which {} cannot hold",
            value.to_attribute(),
            input.dtype()
        );
        // What saturates is refused for its size.
        let extents = input
            .shape()
            .iter()
            .zip(low)
            .zip(high)
            .map(|((extent, low), high)| extent.saturating_add(*low).saturating_add(*high));
        Ok(input.with_shape(extents.collect::<Vec<_>>()))
    }

    fn grad(input: Tensor, low: &[usize], high: &[usize], value: Scalar) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let starts = low.to_vec();
        (pad(input, low, high, value), move |d_out: Tensor| {
            let ends: Vec<usize> =
                starts.iter().zip(input.shape().iter()).map(|(start, extent)| start + extent).collect();
            let steps = vec![1; starts.len()];
            Grads { input: slice(d_out, starts, ends, steps) }
        })
    }

    fn reference(input: &ReferenceTensor, low: &[usize], high: &[usize], value: Scalar) -> ReferenceTensor {
        let from = input.shape();
        let shape: Vec<usize> = (0..from.len()).map(|i| low[i] + from[i] + high[i]).collect();
        // A boolean's fill is whether the number differs from zero.
        let value = if input.dtype() == DType::Bool { Scalar::Bool(value.to_f64() != 0.0) } else { value };
        rearranged(input, &shape, value, |index| {
            (0..from.len()).map(|i| index[i].checked_sub(low[i]).filter(|at| *at < from[i])).collect()
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([]), [], [], 1.0));
        s.case(with(s.normal([7]), [2], [3], 0.0));
        s.case(with(s.normal([7]), [0], [0], 0.0));
        s.case(with(s.normal([4, 6]), [1, 0], [0, 2], 2));
        s.case(with(s.normal([3, 1, 5]), [0, 1, 0], [2, 0, 1], 1.5));
        s.case(with(s.normal([0, 3]), [1, 1], [1, 0], 1.0));
        s.case(with(s.normal([64, 65]), [1, 2], [3, 1], 0.0));
        s.case(with(s.normal([4097, 1]), [0, 1], [0, 1], 0.0));
        s.case(with(s.normal([2049, 1]), [0, 0], [0, 1], 1.0));
        if s.dtype().is_floating() {
            s.case(with(s.normal([2, 2]), [1, 1], [1, 1], f64::NEG_INFINITY));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([2, 3]), [0], [0, 1], 0.0), "low and high have 1 and 2 numbers");
        e.case(Rank, with(e.normal([2, 3]), [0, 1], [0], 0.0), "low and high have 2 and 1 numbers");
        e.case(FillValue, with(e.of(DType::U8, [2]), [1], [1], -1), "value is -1, which u8 cannot hold");
    }
}
