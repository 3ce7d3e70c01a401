use fulgurite_ops_macros::operator;

use super::divergence::{CountedRows, DivergenceReduction, plainly_reduced, reduced_shape};
use crate::core::promotion::{accumulating, cast};
use crate::prims::{self, checks::is_like};

/// The terms of the Kullback-Leibler divergence of `target` from `input`, reduced: `target · (log target - input)`,
/// elementwise. `input` are logarithms of probabilities, and so is `target` with `log_target`, whose terms are
/// `e^target · (target - input)`; both have one shape and one element type. A target of zero has the term zero if
/// `input` is finite, and the gradient `-input`, which in PyTorch is NaN. The mean of no rows is zero, in PyTorch NaN.
/// Computed in f32 for f16 and bf16.
#[operator(torch = "nn.functional.kl_div", autocast = full)]
pub mod kl_div {
    fn kl_div(
        input: Tensor<Floating>,
        target: Tensor<Floating>,
        #[default(DivergenceReduction::Mean)] reduction: DivergenceReduction,
        #[default(false)] log_target: bool,
    ) -> Tensor;

    fn meta(input: &TensorMeta, target: &TensorMeta, reduction: DivergenceReduction) -> Result<TensorMeta> {
        is_like(("target", target), input, Code::SameMeta)?;
        let rows = input.rank() > 0 || reduction != DivergenceReduction::BatchMean;
        require!(rows, InputRank, "input is zero-dimensional, whose rows batchmean cannot count");
        Ok(input.with_shape(reduced_shape(input.shape(), reduction)))
    }

    fn decomposition(input: Tensor, target: Tensor, reduction: DivergenceReduction, log_target: bool) -> Tensor {
        let [x, t] = [input, target].map(accumulating);
        let terms = if log_target {
            prims::mul(prims::exp(t), prims::sub(t, x))
        } else {
            let positive = prims::select(prims::ne(t, 0.0), t, 1.0);
            prims::mul(t, prims::sub(prims::log(positive), x))
        };
        cast(CountedRows::ALL.reduced(terms, reduction), input.dtype())
    }

    fn reference(Args { input, target, reduction, log_target }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let term = |x: f64, t: f64| match log_target {
            true => t.exp() * (t - x),
            false if t == 0.0 => -t * x,
            false => t * (t.ln() - x),
        };
        plainly_reduced(crate::core::arrays::zip(input, target, term), None, 0, reduction)
    }

    fn samples(s: &mut Samples) {
        use DivergenceReduction as Reduced;
        for reduction in [Reduced::None, Reduced::Mean, Reduced::BatchMean, Reduced::Sum] {
            let of = |shape: &[usize]| with(s.uniform(-4.0, -0.1, shape), s.uniform(0.05, 1.0, shape));
            let log = with(s.uniform(-4.0, -0.1, [3, 5]), s.uniform(-4.0, -0.1, [3, 5])).log_target(true);
            let cases = [of(&[3, 5]), of(&[2, 3, 4]), of(&[7]), log];
            for case in cases {
                s.case(case.reduction(reduction));
            }
        }
        let [one, many] = [&[][..], &[70, 311]].map(|shape| s.uniform(0.05, 1.0, shape));
        s.case(with(s.uniform(-4.0, -0.1, []), one));
        s.case(with(s.uniform(-4.0, -0.1, [70, 311]), many).reduction(Reduced::BatchMean));
        s.case(with(s.normal([0, 3]), s.normal([0, 3])).reduction(Reduced::Sum));
        let zeros = with(s.values([2, 2], [-0.5, -1.0, -2.0, -0.25]), s.values([2, 2], [0.0, 1.0, 0.5, 0.5]));
        s.case(zeros.reduction(Reduced::None)).forward_only("a target of zero has a slope of one side");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(SameMeta, with(e.normal([2, 3]), e.normal([3])), "target is f32[3], expected f32[2, 3]");
        let number = with(e.normal([]), e.normal([])).reduction(DivergenceReduction::BatchMean);
        e.case(InputRank, number, "input is zero-dimensional");
    }
}
