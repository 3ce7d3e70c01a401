use fulgurite_ops_macros::operator;

use super::divergence::{
    CountedRows, DivergenceReduction, check_distributions, divergence_slopes, divergence_terms, plain_divergence,
    plainly_reduced,
};
use crate::core::promotion::{accumulating, broadcast, cast};
use crate::prims;

/// The generalized Jensen-Shannon divergence of rows of logarithms of probabilities, `input` [N, C] of a student and
/// `target` [N, C] of a teacher: with `P = e^target`, `Q = e^input` and `M = beta P + (1 - beta) Q` the mean over rows
/// of `beta KL(P | M) + (1 - beta) KL(Q | M)`; of `KL(P | Q)` if `beta` is 0, of `KL(Q | P)` if it is 1. Rows whose
/// label in `shift_labels` [N] is `ignore_index` count nothing; if none counts, the result is 0. In f32 for f16 and
/// bf16. Agarwal and others, "On-Policy Distillation of Language Models", 2024.
#[operator(autocast = full)]
pub mod jsd {
    fn jsd(
        input: Tensor<Floating>,
        target: Tensor<Floating>,
        #[default(None)] shift_labels: Option<Tensor<Integer>>,
        #[default(0.5)] beta: f64,
        #[default(-100)] ignore_index: i64,
    ) -> Tensor;

    fn meta(Args { input, target, shift_labels, beta, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let codes = [Code::Rows, Code::SameMeta, Code::Labels];
        check_distributions(("input", input), ("target", target), shift_labels, codes)?;
        require!((0.0..=1.0).contains(&beta), Beta, "beta is {beta}, expected 0 to 1");
        Ok(input.with_shape([]).with_dtype(input.dtype().accumulator()))
    }

    fn decomposition(Args { input, target, shift_labels, beta, ignore_index }: Args<Tensor>) -> Tensor {
        let rows = CountedRows::new(shift_labels, ignore_index);
        let terms = divergence_terms(accumulating(input), accumulating(target), beta);
        rows.reduced(terms, DivergenceReduction::BatchMean)
    }

    // The derived gradient would be NaN where a probability is zero.
    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { input, target, shift_labels, beta, ignore_index } = args;
        let out = with(input, target).shift_labels(shift_labels).beta(beta).ignore_index(ignore_index).call();
        (out, move |d_out: Tensor| {
            let rows = CountedRows::new(shift_labels, ignore_index);
            let share = broadcast(rows.mean(d_out, input.size(0)), &input.shape());
            let slopes = divergence_slopes(accumulating(input), accumulating(target), beta);
            let [d_input, d_target] = slopes.map(|slope| cast(rows.only(prims::mul(slope, share)), input.dtype()));
            Grads { input: d_input, target: d_target }
        })
    }

    fn reference(Args { input, target, shift_labels, beta, ignore_index }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let terms = crate::core::arrays::zip(input, target, |x, y| plain_divergence(x, y, beta));
        plainly_reduced(terms, shift_labels, ignore_index, DivergenceReduction::BatchMean)
    }

    fn samples(s: &mut Samples) {
        for beta in [0.0, 0.1, 0.5, 1.0] {
            let of = || with(s.uniform(-4.0, -0.1, [6, 5]), s.uniform(-4.0, -0.1, [6, 5])).beta(beta);
            let (plain, labelled) = (of(), of().shift_labels(s.integers(0, 3, [6])).ignore_index(1));
            s.case(plain);
            s.case(labelled);
        }
        s.case(with(s.uniform(-9.0, -0.1, [70, 311]), s.uniform(-9.0, -0.1, [70, 311])));
        let none = with(s.normal([2, 3]), s.normal([2, 3])).shift_labels(s.integers(4, 5, [2])).ignore_index(4);
        s.case(none);
        let zero = f64::NEG_INFINITY;
        let masked = with(s.values([1, 4], [-0.5, zero, -1.0, zero]), s.values([1, 4], [-0.5, -1.0, zero, zero]));
        s.case(masked.beta(0.5)).forward_only("infinities have no differences");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rows, with(e.normal([3]), e.normal([3])), "input is f32[3], expected [N, C]");
        e.case(SameMeta, with(e.normal([2, 3]), e.normal([2, 4])), "target is f32[2, 4], expected f32[2, 3]");
        let labels = with(e.normal([2, 3]), e.normal([2, 3])).shift_labels(e.integers(0, 3, [3]));
        e.case(Labels, labels, "shift_labels has shape [3], expected [2]");
        e.case(Beta, with(e.normal([2, 3]), e.normal([2, 3])).beta(1.5), "beta is 1.5, expected 0 to 1");
    }
}
