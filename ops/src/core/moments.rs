//! Deviations, and pairs of statistics that are computed together.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::Tensor;

use super::arrays::reduce;
use super::promotion::{accumulating, cast, checked_dims, reduced_shape};
use super::{correction, mean, sum, var};
use crate::prims;

/// The standard deviation along `dim` (all dimensions if absent or empty), the square root of [`mod@var`].
#[operator(name = "std", torch = "std")]
pub mod std_ {
    fn std_(
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

    fn decomposition(arguments: Arguments) -> Tensor {
        prims::sqrt(var::call(arguments))
    }

    fn reference(Args { input, dim, correction, keepdim, unbiased }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let correction = super::correction(correction, unbiased);
        reduce(input, dim.as_deref(), keepdim, |row| super::moments(row, correction).0.sqrt())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
        s.case(with(s.normal([3, 5, 7])).dim(vec![-1]).keepdim(true));
        s.case(with(s.normal([3, 5, 7])).dim(vec![2, 0]).correction(0.0));
        s.case(with(s.normal([3, 5])).dim(vec![1]).unbiased(false));
        s.case(with(s.normal([0, 3])).dim(vec![1]));
        s.case(with(s.normal([3, 1])).dim(vec![1])).forward_only("of no degree of freedom");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([2, 3])).dim(vec![2]), "distinct dimensions of a tensor of rank 2");
        let both = with(e.normal([2, 3])).correction(0.0).unbiased(true);
        e.case(Correction, both, "correction and unbiased are both given");
    }
}

// Declares statistics beside the mean.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        #[results($first, mean)]
        fn $name(
            input: Tensor<Floating>,
            #[default(None)] dim: Option<Vec<i64>>,
            #[default(None)] correction: Option<f64>,
            #[default(false)] keepdim: bool,
            #[default(None)] unbiased: Option<bool>,
        ) -> (Tensor, Tensor);

        fn requires(Args { input, dim, correction, unbiased, .. }: Args<&TensorMeta>) -> Result<()> {
            require!(
                correction.is_none() || unbiased.is_none(),
                Correction,
                "correction and unbiased are both given, expected one of them"
            );
            checked_dims("dim", dim.as_deref(), input, Code::Dims)?;
            Ok(())
        }

        fn decomposition(Args { input, dim, correction, keepdim, unbiased }: Args<Tensor>) -> (Tensor, Tensor) {
            let spread = $first::with(input).dim(dim.clone()).correction(correction).keepdim(keepdim);
            let spread = spread.unbiased(unbiased).call();
            (spread, mean::with(input).dim(dim).keepdim(keepdim).call())
        }

        fn reference(
            Args { input, dim, correction, keepdim, unbiased }: Args<&ReferenceTensor>,
        ) -> (ArrayD<f64>, ArrayD<f64>) {
            let both = |row: &[f64]| super::moments(row, super::correction(correction, unbiased));
            (
                reduce(input, dim.as_deref(), keepdim, |row| $reference(both(row).0)),
                reduce(input, dim.as_deref(), keepdim, |row| both(row).1),
            )
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([4, 8])));
            s.case(with(s.normal([3, 5, 7])).dim(vec![2, 0]).correction(0.0).keepdim(true));
            s.case(with(s.normal([0, 3])).dim(vec![1]));
            s.case(with(s.normal([3, 5])).dim(vec![1]).unbiased(false));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Dims, with(e.normal([2, 3])).dim(vec![2]), "distinct dimensions of a tensor of rank 2");
            let both = with(e.normal([2, 3])).correction(0.0).unbiased(true);
            e.case(Correction, both, "correction and unbiased are both given");
        }
    }

    table($name, $torch, $first, $reference) {
        /// Variance and mean along `dim` (all dimensions if absent or empty): see [`mod@var`].
        var_mean, "var_mean", var, std::convert::identity;
        /// Standard deviation and mean along `dim` (all dimensions if absent or empty): see [`mod@var`].
        std_mean, "std_mean", std_, f64::sqrt;
    }
}

/// For references: variance and mean of a row.
fn moments(row: &[f64], correction: f64) -> (f64, f64) {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    let squares = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    (squares / (row.len() as f64 - correction).max(0.0), mean)
}

// Declares statistics of what is not NaN.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(
            input: Tensor<$class>,
            #[default(None)] dim: Option<Vec<i64>>,
            #[default(false)] keepdim: bool,
        ) -> Tensor;

        fn requires(input: &TensorMeta, dim: Option<&[i64]>) -> Result<()> {
            checked_dims("dim", dim, input, Code::Dims)?;
            Ok(())
        }

        fn decomposition(input: Tensor, dim: Option<&[i64]>, keepdim: bool) -> Tensor {
            let all = || dim.map(<[i64]>::to_vec);
            $decomposition
        }

        fn reference(input: &ArrayD<f64>, dim: Option<&[i64]>, keepdim: bool) -> ArrayD<f64> {
            reduce(input, dim, keepdim, |row| {
                let known: Vec<f64> = row.iter().copied().filter(|x| !x.is_nan()).collect();
                let total = known.iter().sum::<f64>();
                $reference
            })
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([4, 8])));
            s.case(with(s.normal([3, 5, 7])).dim(vec![2, 0]).keepdim(true));
            s.case(with(s.normal([0, 3])).dim(vec![1]));
            if s.dtype().is_floating() {
                let some = s.values([2, 3], [1.0, f64::NAN, 2.0, f64::NAN, f64::NAN, 0.5]);
                s.case(with(some).dim(vec![1])).forward_only("special values");
            }
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Dims, with(e.normal([2, 3])).dim(vec![2]), "distinct dimensions of a tensor of rank 2");
        }
    }

    table($name, $torch, $class, $decomposition, $reference) {
        /// The sum along `dim` (all dimensions if absent or empty) of what is not NaN; of integers as i64.
        nansum, "nansum", Any, sum::with(known(input)).dim(all()).keepdim(keepdim).call(), total;
        /// The mean along `dim` (all dimensions if absent or empty) of what is not NaN; NaN of nothing.
        nanmean, "nanmean", Floating, {
                let wide = accumulating(input);
                let total = sum::with(known(wide)).dim(all()).keepdim(keepdim).call();
                let counted = cast(prims::eq(input, input), wide.dtype());
                let count = sum::with(counted).dim(all()).keepdim(keepdim).call();
                cast(prims::div(total, count), input.dtype())
            },
            total / known.len() as f64;
    }
}

/// `input` with zeros in place of NaN.
#[track_caller]
fn known(input: Tensor) -> Tensor {
    if input.dtype().is_floating() { prims::select(prims::eq(input, input), input, 0.0) } else { input }
}
