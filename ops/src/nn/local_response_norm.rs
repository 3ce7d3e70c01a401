use fulgurite_ops_macros::operator;

use super::placement::{Placement, addressable_windows, moved_from_last, moved_last, windows_of};
use crate::core::promotion::{accumulating, cast, floating, number};
use crate::core::{RoundingMode, div, pow};
use crate::prims;

/// `x / (k + alpha · m)^beta` of `input` [N, C, ...], where m is the mean of the squares of `size` neighbouring
/// channels (zeros beyond the first and the last). Krizhevsky et al., 2012. The mean of integers is rounded towards
/// zero, as PyTorch's is.
#[operator(torch = "nn.functional.local_response_norm")]
pub mod local_response_norm {
    fn local_response_norm(
        input: Tensor<Number>,
        size: usize,
        #[default(1e-4)] alpha: f64,
        #[default(0.75)] beta: f64,
        #[default(1.0)] k: f64,
    ) -> Tensor;

    fn requires(input: &TensorMeta, size: usize) -> Result<()> {
        require!(input.rank() >= 3, InputRank, "input has shape {:?}, expected [N, C, ...]", input.shape());
        require!(size > 0, Size, "size is 0, expected a positive number");
        let shape = input.shape();
        require!(
            addressable_windows(&[&shape[..1], &shape[2..]].concat(), &[neighbours(shape[1], size)]),
            MemorySize,
            "size is {size}, input has shape {shape:?}: the neighbouring channels are larger than any memory"
        );
        Ok(())
    }

    /// The neighbours of each of `extent` channels.
    fn neighbours(extent: usize, size: usize) -> Placement {
        Placement { extent, low: size / 2, size, step: 1, dilation: 1, count: extent }
    }

    fn decomposition(input: Tensor, size: usize, alpha: f64, beta: f64, k: f64) -> Tensor {
        let (own, dtype) = (input.dtype(), floating(input.dtype()));
        let x = accumulating(input);
        let placed = neighbours(x.shape()[1], size);
        let squares = moved_last(prims::mul(x, x), 1);
        let windows = windows_of(squares, &[placed], number(Scalar::Int(0), x.dtype()));
        let sums = moved_from_last(prims::sum(windows, [windows.rank() - 1]), 1);
        let means = match own.is_floating() {
            true => prims::div(sums, size as f64),
            false => div::with(sums, size as i64).rounding_mode(Some(RoundingMode::Trunc)).call(),
        };
        let wide = dtype.accumulator();
        let scale = pow(prims::add(prims::mul(cast(means, wide), alpha), k), beta);
        cast(prims::div(cast(x, wide), scale), dtype)
    }

    fn reference(input: &ReferenceTensor, size: usize, alpha: f64, beta: f64, k: f64) -> ArrayD<f64> {
        let whole = !input.dtype().is_floating();
        let values = if whole { input.integers().mapv(|x| x as f64) } else { input.floats().clone() };
        let channels = values.shape()[1];
        ArrayD::from_shape_fn(values.raw_dim(), |at| {
            let squares = (0..size).filter_map(|i| (at[1] + i).checked_sub(size / 2)).filter(|i| *i < channels);
            let sum: f64 = squares
                .map(|channel| {
                    let mut near = at.clone();
                    near[1] = channel;
                    values[&near].powi(2)
                })
                .sum();
            let mean = sum / size as f64;
            values[&at] / (k + alpha * if whole { mean.trunc() } else { mean }).powf(beta)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 5, 3]), 3).alpha(0.5));
        s.case(with(s.normal([1, 3, 2, 2]), 2).alpha(0.7).beta(0.5).k(1.5));
        s.case(with(s.normal([1, 2, 2]), 7).alpha(1.0));
        s.case(with(s.normal([0, 2, 2]), 1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(InputRank, with(e.normal([2, 3]), 1), "input has shape [2, 3]");
        e.case(Size, with(e.normal([2, 3, 1]), 0), "size is 0");
        e.case(MemorySize, with(e.normal([2, 3, 1]), 1 << 50), "are larger than any memory");
    }
}
