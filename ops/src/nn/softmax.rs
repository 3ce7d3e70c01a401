use fulgurite_ops_macros::operator;

use crate::core::arrays::{along, softmax_row};
use crate::core::promotion::{accumulating, broadcast, cast, keep_dims, position};
use crate::prims;

/// `e^(x - max) / Σ e^(x - max)` along `dim`, computed in f32 for f16 and bf16. `input` is converted to `dtype` first if it is
/// given.
#[operator(torch = "softmax")]
pub mod softmax {
    fn softmax(input: Tensor<Floating>, dim: i64, #[default(None)] dtype: Option<DType>) -> Tensor;

    fn meta(input: &TensorMeta, dim: i64, dtype: Option<DType>) -> Result<TensorMeta> {
        normalize_dim(dim, input.rank())?;
        let dtype = dtype.unwrap_or(input.dtype());
        require!(dtype.is_floating(), ResultType, "dtype is {dtype}, expected a floating-point dtype");
        Ok(input.with_dtype(dtype))
    }

    fn decomposition(input: Tensor, dim: i64, dtype: Option<DType>) -> Tensor {
        let dtype = dtype.unwrap_or(input.dtype());
        cast(super::exact_softmax(accumulating(cast(input, dtype)), dim), dtype)
    }

    fn grad(
        input: Tensor,
        dim: i64,
        dtype: Option<DType>,
    ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = with(input, dim).dtype(dtype).call();
        (out, move |d_out: Tensor| {
            let given = input.dtype();
            let (p, d) = (accumulating(out), accumulating(d_out));
            let product = prims::mul(p, d);
            let total = super::total(product, dim);
            let d_input = prims::sub(product, prims::mul(p, total));
            Grads { input: cast(cast(d_input, out.dtype()), given) }
        })
    }

    fn reference(input: &ArrayD<f64>, dim: i64) -> ArrayD<f64> {
        along(input, dim, softmax_row)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), -1));
        s.case(with(s.normal([3, 5, 7]), 1));
        s.case(with(s.normal([]), 0));
        s.case(with(s.normal([0, 3]), 1));
        s.case(with(s.normal([3, 0]), 1));
        s.case(with(s.normal([2, 1]), 1));
        s.case(with(s.normal([3, 515]), -1));
        s.case(with(s.normal([3, 4]), 0).dtype(DType::F64));
        s.case(with(s.values([4], [30.0, -30.0, 1e4, 9.9e3]), 0));
        let masked = [f64::NEG_INFINITY, 0.5, f64::NEG_INFINITY, 2.0];
        s.case(with(s.values([2, 4], masked), 1)).forward_only("infinities have no differences");
        s.case(with(s.values([2], [f64::NEG_INFINITY]), 0)).forward_only("NaN");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(ResultType, with(e.normal([2]), 0).dtype(DType::I64), "dtype is i64");
    }
}

/// The sum along `dim`, broadcast back.
#[track_caller]
pub(crate) fn total(input: fulgurite::Tensor, dim: i64) -> fulgurite::Tensor {
    let shape = input.shape();
    if shape.is_empty() {
        return input;
    }
    let dims = [position(dim, shape.len())];
    broadcast(keep_dims(prims::sum(input, dims), &shape, &dims, true), &shape)
}

/// `x - max x` along `dim`; `input` has elements.
#[track_caller]
pub(crate) fn shifted(input: fulgurite::Tensor, dim: i64) -> fulgurite::Tensor {
    let shape = input.shape();
    if shape.is_empty() {
        return prims::sub(input, input);
    }
    let dims = [position(dim, shape.len())];
    let top = broadcast(keep_dims(prims::amax(input, dims), &shape, &dims, true), &shape);
    prims::sub(input, top)
}

/// The softmax in the element type of `input`.
#[track_caller]
pub(crate) fn exact_softmax(input: fulgurite::Tensor, dim: i64) -> fulgurite::Tensor {
    if input.meta().is_empty() {
        return input;
    }
    let exponentials = prims::exp(shifted(input, dim));
    prims::div(exponentials, total(exponentials, dim))
}

/// Its logarithm in the element type of `input`.
#[track_caller]
pub(crate) fn exact_log_softmax(input: fulgurite::Tensor, dim: i64) -> fulgurite::Tensor {
    if input.meta().is_empty() {
        return input;
    }
    let shifted = shifted(input, dim);
    prims::sub(shifted, prims::log(total(prims::exp(shifted), dim)))
}
