use fulgurite_ops_macros::operator;

use super::arrays::reduce;
use super::mean;
use super::promotion::{accumulating, cast, checked_dims, keep_dims, reduced_dims, reduced_shape};
use crate::prims;

/// The variance along `dim` (all dimensions if absent or empty): `Σ (x - mean)² / max(0, n - correction)`, in two
/// passes, accumulated in f32 for f16 and bf16. `correction` is 1 if absent; `unbiased` is the older way to say so: 1
/// if true, 0 if false.
#[operator(torch = "var")]
pub mod var {
    fn var(
        input: Tensor<Floating>,
        #[default(None)] dim: Option<Vec<i64>>,
        #[default(None)] correction: Option<f64>,
        #[default(false)] keepdim: bool,
        #[default(None)] unbiased: Option<bool>,
    ) -> Tensor;

    fn meta(Args { input, dim, correction, keepdim, unbiased }: Args<&TensorMeta>) -> Result<TensorMeta> {
        require!(
            correction.is_none() || unbiased.is_none(),
            Correction,
            "correction and unbiased are both given, expected one of them"
        );
        let dims = checked_dims("dim", dim.as_deref(), input, Code::Dims)?;
        Ok(input.with_shape(reduced_shape(input.shape(), &dims, keepdim)))
    }

    fn decomposition(Args { input, dim, correction, keepdim, unbiased }: Args<Tensor>) -> Tensor {
        let correction = super::correction(correction, unbiased);
        let shape = input.shape();
        let dims = reduced_dims(dim.as_deref(), input.rank()).unwrap_or_default();
        let count: usize = dims.iter().map(|dim| shape[*dim]).product();
        let wide = accumulating(input);
        let all: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
        let centre = if dims.is_empty() { wide } else { mean::with(wide).dim(all).keepdim(true).call() };
        let deviation = wide - centre;
        let squares = prims::mul(deviation, deviation);
        let total = if dims.is_empty() { squares } else { prims::sum(squares, &dims) };
        let variance = prims::div(total, (count as f64 - correction).max(0.0));
        keep_dims(cast(variance, input.dtype()), &shape, &dims, keepdim)
    }

    fn reference(Args { input, dim, correction, keepdim, unbiased }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let correction = super::correction(correction, unbiased);
        reduce(input, dim.as_deref(), keepdim, |row| {
            let mean = row.iter().sum::<f64>() / row.len() as f64;
            row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (row.len() as f64 - correction).max(0.0)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
        s.case(with(s.normal([3, 5, 7])).dim(vec![-1]).keepdim(true));
        s.case(with(s.normal([3, 5, 7])).dim(vec![2, 0]).correction(0.0));
        s.case(with(s.normal([5, 33])).dim(vec![1]).correction(2.0));
        s.case(with(s.normal([0, 3])).dim(vec![1]));
        s.case(with(s.normal([3, 5])).dim(vec![1]).unbiased(false));
        s.case(with(s.normal([3, 5])).unbiased(true));
        let why = "of no degree of freedom";
        s.case(with(s.normal([]))).forward_only(why);
        s.case(with(s.normal([3, 1])).dim(vec![1])).forward_only(why);
        s.case(with(s.normal([0, 3])).dim(vec![0])).forward_only(why);
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([2, 3])).dim(vec![2]), "distinct dimensions of a tensor of rank 2");
        e.case(Dims, with(e.normal([1; 65])).dim(vec![0]), "expected at most 64 where some are named");
        let both = with(e.normal([2, 3])).correction(0.0).unbiased(true);
        e.case(Correction, both, "correction and unbiased are both given");
    }
}

/// What is subtracted from the number of elements.
pub(crate) fn correction(correction: Option<f64>, unbiased: Option<bool>) -> f64 {
    let from_unbiased = unbiased.map(|unbiased| f64::from(u8::from(unbiased)));
    correction.or(from_unbiased).unwrap_or(1.0)
}
