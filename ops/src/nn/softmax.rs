use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use crate::core::arrays::{along, softmax_row};
use crate::core::promotion::{accumulating, cast, position};
use crate::prims;

/// `e^(x - max) / Σ e^(x - max)` along `dim`, computed in f32 for f16 and bf16. `input` is converted to `dtype` first
/// if it is given.
#[operator(torch = "softmax", autocast = full)]
pub mod softmax {
    fn softmax(input: Tensor, dim: i64, #[default(None)] dtype: Option<DType>) -> Tensor;

    fn requires(input: &TensorMeta, dim: i64, dtype: Option<DType>) -> Result<()> {
        normalize_dim(dim, input.rank())?;
        let dtype = dtype.unwrap_or(input.dtype());
        require!(
            dtype.is_floating(),
            ResultType,
            "the result would be {dtype}, expected a floating-point dtype: give `dtype` for an input of another type"
        );
        Ok(())
    }

    fn decomposition(input: Tensor, dim: i64, dtype: Option<DType>) -> Tensor {
        let dtype = dtype.unwrap_or(input.dtype());
        cast(super::exact_softmax(accumulating(cast(input, dtype)), dim), dtype)
    }

    fn grad(input: Tensor, dim: i64, dtype: Option<DType>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = with(input, dim).dtype(dtype).call();
        (out, move |d_out: Tensor| Grads { input: cast(super::softmax_gradient(out, d_out, dim), input.dtype()) })
    }

    fn reference(input: &ArrayD<f64>, dim: i64) -> ArrayD<f64> {
        along(input, dim, softmax_row)
    }

    fn samples(s: &mut Samples) {
        if !s.dtype().is_floating() {
            s.case(with(s.uniform(0.0, 2.0, [3, 4]), 1).dtype(DType::F32));
            return;
        }
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
        // A row so long that several threads work on it.
        s.case(with(s.normal([1, 70_001]), -1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(ResultType, with(e.normal([2]), 0).dtype(DType::I64), "the result would be i64");
        e.case(ResultType, with(e.of(DType::I64, [2]), 0), "give `dtype` for an input of another type");
    }
}

/// The reduction of `input` along `dim` by `reduce`; a zero-dimensional tensor is its own.
#[track_caller]
pub(crate) fn reduced_along(input: Tensor, dim: i64, reduce: impl FnOnce(Tensor, [usize; 1]) -> Tensor) -> Tensor {
    match input.rank() {
        0 => input,
        rank => reduce(input, [position(dim, rank)]),
    }
}

/// What was reduced along `dim`, for all elements of `like` again.
#[track_caller]
pub(crate) fn restored_along(reduced: Tensor, like: Tensor, dim: i64) -> Tensor {
    let shape = like.shape();
    if shape.is_empty() {
        return reduced;
    }
    let dim = position(dim, shape.len());
    prims::broadcast_in_dim(reduced, &shape, (0..shape.len()).filter(|i| *i != dim).collect::<Vec<_>>())
}

/// The sum along `dim`, for all elements again.
#[track_caller]
pub(crate) fn total_along(input: Tensor, dim: i64) -> Tensor {
    restored_along(reduced_along(input, dim, |x, dims| prims::sum(x, dims)), input, dim)
}

/// The gradient of softmax along `dim`, from its result `out`, in the element type of `out`.
#[track_caller]
pub fn softmax_gradient(out: Tensor, d_out: Tensor, dim: i64) -> Tensor {
    let (p, d) = (accumulating(out), accumulating(d_out));
    let product = prims::mul(p, d);
    let total = total_along(product, dim);
    cast(prims::sub(product, prims::mul(p, total)), out.dtype())
}

/// The softmax in the element type of `input`.
#[track_caller]
pub(crate) fn exact_softmax(input: Tensor, dim: i64) -> Tensor {
    if input.meta().is_empty() {
        return input;
    }
    let top = reduced_along(input, dim, |x, dims| prims::amax(x, dims));
    let exponentials = prims::exp(prims::sub(input, restored_along(top, input, dim)));
    prims::div(exponentials, total_along(exponentials, dim))
}

/// The largest element along `dim`, and the logarithm of the sum of the exponentials of the differences to it. `input`
/// has elements.
#[track_caller]
pub(crate) fn log_normalizer(input: Tensor, dim: i64) -> (Tensor, Tensor) {
    let top = reduced_along(input, dim, |x, dims| prims::amax(x, dims));
    let exponentials = prims::exp(prims::sub(input, restored_along(top, input, dim)));
    (top, prims::log(reduced_along(exponentials, dim, |x, dims| prims::sum(x, dims))))
}

/// The logarithm of the softmax in the element type of `input`.
#[track_caller]
pub(crate) fn exact_log_softmax(input: Tensor, dim: i64) -> Tensor {
    if input.meta().is_empty() {
        return input;
    }
    let (top, log_sum) = log_normalizer(input, dim);
    normalized_along(input, top, log_sum, dim)
}

/// `input - top - log_sum`.
#[track_caller]
pub(crate) fn normalized_along(input: Tensor, top: Tensor, log_sum: Tensor, dim: i64) -> Tensor {
    prims::sub(prims::sub(input, restored_along(top, input, dim)), restored_along(log_sum, input, dim))
}
