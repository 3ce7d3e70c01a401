use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use super::{reduced_along, restored_along, total_along};
use crate::core::arrays::{along, largest};
use crate::core::promotion::{accumulating, cast, position};
use crate::prims;

/// The point of the probability simplex nearest to each row along `dim`: `max(input - tau, 0)`, with the `tau` for
/// which a row sums to one. Computed in f32 for f16 and bf16, from the sorted row. Martins & Astudillo, "From Softmax
/// to Sparsemax", 2016.
#[operator(autocast = full)]
pub mod sparsemax {
    fn sparsemax(input: Tensor<Floating>, #[default(-1)] dim: i64) -> Tensor;

    fn meta(input: &TensorMeta, dim: i64) -> Result<TensorMeta> {
        normalize_dim(dim, input.rank())?;
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, dim: i64) -> Tensor {
        if input.meta().is_empty() {
            return input;
        }
        if input.rank() == 0 {
            return prims::reshape(decomposition(prims::reshape(input, [1]), 0), []);
        }
        let (shape, dim) = (input.shape(), position(dim, input.rank()));
        let x = accumulating(input);
        // Nothing changes with what is subtracted from a row: differences to the largest lose nothing to its size.
        let along = dim as i64;
        let centred = prims::sub(x, restored_along(reduced_along(x, along, |x, dims| prims::amax(x, dims)), x, along));
        let (sorted, _) = prims::topk(centred, shape[dim], dim, true);
        let ranks = prims::iota(shape[dim], 1.0, 1.0, x.dtype(), x.device());
        let ranks = prims::broadcast_in_dim(ranks, &shape, [dim]);
        // The support is that of the largest elements of which the last one exceeds their mean less its share of one.
        let reached = prims::add(prims::mul(ranks, sorted), 1.0);
        let support = prims::gt(reached, prims::cumsum(sorted, dim));
        let count = prims::sum(cast(support, x.dtype()), [dim]);
        let sum = prims::sum(prims::select(support, sorted, 0.0), [dim]);
        let tau = prims::div(prims::sub(sum, 1.0), count);
        cast(prims::maximum(prims::sub(centred, restored_along(tau, x, along)), 0.0), input.dtype())
    }

    fn grad(input: Tensor, dim: i64) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = with(input).dim(dim).call();
        (out, move |d_out: Tensor| Grads { input: super::sparsemax_gradient(out, d_out, dim) })
    }

    fn reference(input: &ArrayD<f64>, dim: i64) -> ArrayD<f64> {
        along(input, dim, super::plain_sparsemax)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
        s.case(with(s.normal([3, 5, 7])).dim(1));
        s.case(with(s.uniform(0.0, 0.1, [3, 4])).dim(0));
        s.case(with(s.normal([])));
        s.case(with(s.normal([0, 3])));
        s.case(with(s.normal([3, 0])));
        s.case(with(s.normal([2, 1])));
        s.case(with(s.normal([3, 515])));
        s.case(with(s.values([4], [30.0, -30.0, 1e4, 9.9e3])));
        let masked = [f64::NEG_INFINITY, 0.5, f64::NEG_INFINITY, 0.25];
        s.case(with(s.values([2, 4], masked))).forward_only("infinities have no differences");
    }
}

/// For references: the sparsemax of a row.
pub fn plain_sparsemax(row: &[f64]) -> Vec<f64> {
    let top = largest(row);
    let centred: Vec<f64> = row.iter().map(|x| x - top).collect();
    // Values below the mean excess of the support so far are not in it; repeated until nothing changes.
    let mut support = centred.clone();
    loop {
        let tau = (support.iter().sum::<f64>() - 1.0) / support.len() as f64;
        let next: Vec<f64> = support.iter().copied().filter(|x| *x > tau).collect();
        if next.len() == support.len() {
            return centred.iter().map(|x| if x.is_nan() { *x } else { (x - tau).max(0.0) }).collect();
        }
        support = next;
    }
}

/// The gradient of sparsemax along `dim`, from its result `out`, in the element type of `out`.
#[track_caller]
pub fn sparsemax_gradient(out: Tensor, d_out: Tensor, dim: i64) -> Tensor {
    let d = accumulating(d_out);
    let support = prims::gt(out, 0.0);
    let of_support = |value: Tensor| prims::select(support, value, 0.0);
    let mean = prims::div(total_along(of_support(d), dim), total_along(cast(support, d.dtype()), dim));
    cast(of_support(prims::sub(d, mean)), out.dtype())
}
