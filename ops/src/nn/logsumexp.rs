use fulgurite_ops_macros::operator;

use crate::core::arrays::{largest, reduce};
use crate::core::promotion::{
    accumulating, broadcast, cast, checked_dims, floating, keep_dims, reduced_dims, reduced_shape,
};
use crate::prims;

/// `log Σ eˣ` along `dim`, computed around the largest element, in f32 for f16 and bf16; -inf of no elements. Integers
/// and booleans are converted to f32.
#[operator(torch = "logsumexp", autocast = full)]
pub mod logsumexp {
    fn logsumexp(input: Tensor, dim: Vec<i64>, #[default(false)] keepdim: bool) -> Tensor;

    fn meta(input: &TensorMeta, dim: &[i64], keepdim: bool) -> Result<TensorMeta> {
        let dims = checked_dims("dim", Some(dim), input, Code::Dims)?;
        let shape = reduced_shape(input.shape(), &dims, keepdim);
        Ok(input.with_shape(shape).with_dtype(floating(input.dtype())))
    }

    fn decomposition(input: Tensor, dim: &[i64], keepdim: bool) -> Tensor {
        let input = cast(input, floating(input.dtype()));
        let shape = input.shape();
        let dims = reduced_dims(Some(dim), shape.len()).unwrap_or_default();
        if dims.is_empty() {
            return input;
        }
        let wide = accumulating(input);
        let sum = if input.meta().is_empty() {
            prims::log(prims::sum(wide, &dims))
        } else {
            let top = prims::amax(wide, &dims);
            // Infinities need no shift, and would give their own difference, which is NaN.
            let top = prims::select(prims::isfinite(top), top, 0.0);
            let shift = broadcast(keep_dims(top, &shape, &dims, true), &shape);
            let exponentials = prims::exp(prims::sub(wide, shift));
            prims::add(prims::log(prims::sum(exponentials, &dims)), top)
        };
        keep_dims(cast(sum, input.dtype()), &shape, &dims, keepdim)
    }

    fn grad(input: Tensor, dim: &[i64], keepdim: bool) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = with(input, dim).keepdim(keepdim).call();
        let dims = reduced_dims(Some(dim), input.rank()).unwrap_or_default();
        (out, move |d_out: Tensor| {
            let shape = input.shape();
            let kept = reduced_shape(&shape, &dims, true);
            let spread = |reduced: Tensor| broadcast(prims::reshape(accumulating(reduced), &kept), &shape);
            let share = prims::exp(prims::sub(accumulating(input), spread(out)));
            Grads { input: cast(prims::mul(spread(d_out), share), input.dtype()) }
        })
    }

    fn reference(input: &ArrayD<f64>, dim: &[i64], keepdim: bool) -> ArrayD<f64> {
        reduce(input, Some(dim), keepdim, |row| {
            let top = largest(row);
            let top = if top.is_infinite() { 0.0 } else { top };
            row.iter().map(|x| (x - top).exp()).sum::<f64>().ln() + top
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), [-1]));
        s.case(with(s.normal([3, 5, 7]), [0, 2]).keepdim(true));
        s.case(with(s.normal([]), [0]));
        s.case(with(s.normal([0, 3]), [1]));
        s.case(with(s.normal([3, 0]), [1])).forward_only("-inf");
        if !s.dtype().is_floating() {
            return;
        }
        s.case(with(s.values([4], [30.0, -30.0, 1e4, 9.9e3]), [0]));
        let special = [f64::NEG_INFINITY, f64::NEG_INFINITY, 1.0, f64::INFINITY, f64::NAN, 0.0];
        s.case(with(s.values([3, 2], special), [1])).forward_only("special values");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([2, 3]), [2]), "distinct dimensions of a tensor of rank 2");
        e.case(Dims, with(e.normal([1; 65]), [0]), "expected at most 64 where some are named");
    }
}
