//! Elements in order. The order is that of [`mod@prims::topk`] of all elements: of equal elements the earlier comes
//! first, and NaN is larger than every number.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::{DType, Tensor};

use super::arrays::{along, reduce};
use super::promotion::{cast, position};
use super::{piece, slice_at};
use crate::prims;

/// The elements along `dim` in ascending order (descending if asked for) and the positions that they had. Equal
/// elements keep their order, with `stable` and without; NaN is larger than every number.
#[operator(torch = "sort", waive(stable = "every order is stable"))]
pub mod sort {
    #[results(values, indices)]
    fn sort(
        input: Tensor,
        #[default(-1)] dim: i64,
        #[default(false)] descending: bool,
        #[default(false)] stable: bool,
    ) -> (Tensor, Tensor);

    fn requires(input: &TensorMeta, dim: i64) -> Result<()> {
        normalize_dim(dim, input.rank())?;
        Ok(())
    }

    fn decomposition(input: Tensor, dim: i64, descending: bool, _stable: bool) -> (Tensor, Tensor) {
        ordered(input, dim, descending)
    }

    fn reference(input: &ReferenceTensor, dim: i64, descending: bool) -> (ReferenceTensor, ArrayD<i64>) {
        let values = along(input.floats(), dim, |row| order(row, descending).iter().map(|i| row[*i]).collect());
        let places = along(input.floats(), dim, |row| order(row, descending).iter().map(|i| *i as f64).collect());
        let values = match input.dtype().is_floating() {
            true => ReferenceTensor::from_floats(input.dtype(), values),
            false => ReferenceTensor::from_integers(input.dtype(), values.mapv(|x| x as i64)),
        };
        (values, places.mapv(|i| i as i64))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7])));
        s.case(with(s.normal([3, 5, 7])).dim(1).descending(true));
        s.case(with(s.normal([])));
        s.case(with(s.normal([3, 0])));
        s.case(with(s.values([2, 5], [1.0, 3.0, 3.0, 0.0, 3.0])).stable(true)).forward_only("ties");
        if s.dtype().is_floating() {
            let special = [1.0, f64::NAN, f64::INFINITY, f64::NAN, f64::NEG_INFINITY, 0.0];
            s.case(with(s.values([6], special))).forward_only("special values");
            s.case(with(s.values([6], special)).descending(true)).forward_only("special values");
        }
        s.case(with(s.normal([2, 1500]))).forward_only("large");
    }
}

/// The positions of the elements along `dim` in ascending order (descending if asked for); see [`mod@sort`].
#[operator(torch = "argsort", no_grad = "positions have no gradient", waive(stable = "every order is stable"))]
pub mod argsort {
    fn argsort(
        input: Tensor,
        #[default(-1)] dim: i64,
        #[default(false)] descending: bool,
        #[default(false)] stable: bool,
    ) -> Tensor;

    fn requires(input: &TensorMeta, dim: i64) -> Result<()> {
        normalize_dim(dim, input.rank())?;
        Ok(())
    }

    fn decomposition(input: Tensor, dim: i64, descending: bool, _stable: bool) -> Tensor {
        ordered(input, dim, descending).1
    }

    fn reference(input: &ArrayD<f64>, dim: i64, descending: bool) -> ArrayD<i64> {
        along(input, dim, |row| order(row, descending).iter().map(|i| *i as f64).collect()).mapv(|i| i as i64)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7])).stable(true));
        s.case(with(s.normal([3, 5, 7])).dim(1).descending(true).stable(true));
        s.case(with(s.normal([])));
        s.case(with(s.values([2, 5], [1.0, 3.0, 3.0, 0.0, 3.0])).stable(true));
    }
}

/// The elements along the first dimension in ascending order; NaN is larger than every number.
#[operator(torch = "msort")]
pub mod msort {
    fn msort(input: Tensor) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        ordered(input, 0, false).0
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        along(input, 0, |row| order(row, false).iter().map(|i| row[*i]).collect())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([5, 3])));
        s.case(with(s.normal([])));
        s.case(with(s.normal([0, 2])));
    }
}

/// The `k`-th smallest element along `dim`, counted from one, and its position; NaN is larger than every number. Of
/// equal elements the position is that of a stable order, where PyTorch gives that of any.
#[operator(torch = "kthvalue")]
pub mod kthvalue {
    #[results(values, indices)]
    fn kthvalue(
        input: Tensor<Number>,
        k: usize,
        #[default(-1)] dim: i64,
        #[default(false)] keepdim: bool,
    ) -> (Tensor, Tensor);

    fn requires(input: &TensorMeta, k: usize, dim: i64) -> Result<()> {
        let dim = normalize_dim(dim, input.rank())?;
        let extent = input.shape().get(dim).copied().unwrap_or(1);
        require!((1..=extent).contains(&k), Count, "k is {k}, expected a number from 1 to {extent}, the extent of dim");
        Ok(())
    }

    fn decomposition(input: Tensor, k: usize, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
        let (values, indices) = ordered(input, dim, false);
        if input.rank() == 0 {
            return (values, indices);
        }
        let dim = position(dim, input.rank());
        let at = |tensor: Tensor| match keepdim {
            true => piece(tensor, dim, k - 1, 1),
            false => slice_at(tensor, dim, k - 1),
        };
        (at(values), at(indices))
    }

    fn reference(input: &ArrayD<f64>, k: usize, dim: i64, keepdim: bool) -> (ArrayD<f64>, ArrayD<i64>) {
        let at = |row: &[f64]| order(row, false)[k - 1];
        let values = reduce(input, Some(&[dim]), keepdim, |row| row[at(row)]);
        (values, reduce(input, Some(&[dim]), keepdim, |row| at(row) as i64))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), 3));
        s.case(with(s.normal([3, 5, 7]), 1).dim(1).keepdim(true));
        s.case(with(s.normal([4, 4]), 2).dim(0));
        s.case(with(s.normal([]), 1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Count, with(e.normal([2, 3]), 4), "expected a number from 1 to 3");
        e.case(Count, with(e.normal([2, 3]), 0), "k is 0");
        e.case(Count, with(e.normal([]), 2), "k is 2");
    }
}

/// All elements along `dim` in order, and the positions that they had.
#[track_caller]
fn ordered(input: Tensor, dim: i64, descending: bool) -> (Tensor, Tensor) {
    if input.rank() == 0 {
        return (input, prims::full([], 0i64, DType::I64, input.device()));
    }
    let dim = position(dim, input.rank());
    let extent = input.shape()[dim];
    match input.dtype() {
        DType::Bool => {
            let (values, indices) = prims::topk(cast(input, DType::U8), extent, dim, descending);
            (cast(values, DType::Bool), indices)
        }
        _ => prims::topk(input, extent, dim, descending),
    }
}

/// For references: the positions of a row's elements in order.
fn order(row: &[f64], descending: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    let ascending = |a: usize, b: usize| {
        let (a, b) = (row[a], row[b]);
        a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    };
    order.sort_by(|a, b| if descending { ascending(*b, *a) } else { ascending(*a, *b) });
    order
}
