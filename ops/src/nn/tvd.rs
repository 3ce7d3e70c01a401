use fulgurite_ops_macros::operator;

use super::divergence::{CountedRows, DivergenceReduction, check_distributions, plainly_reduced, reduced_shape};
use crate::core::promotion::accumulating;
use crate::prims;

/// The terms of the total variation distance of two distributions in rows, reduced: `|p - q| / 2`, elementwise. `p`
/// and `q` are [N, C]; rows whose label in `shift_labels` [N] is `ignore_index` count nothing, also not for the mean.
/// In f32 for f16 and bf16. The subgradient at `p = q` is zero.
#[operator(autocast = full)]
pub mod tvd {
    fn tvd(
        p: Tensor<Floating>,
        q: Tensor<Floating>,
        #[default(None)] shift_labels: Option<Tensor<Integer>>,
        #[default(DivergenceReduction::BatchMean)] reduction: DivergenceReduction,
        #[default(-100)] ignore_index: i64,
    ) -> Tensor;

    fn meta(Args { p, q, shift_labels, reduction, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        check_distributions(("p", p), ("q", q), shift_labels, [Code::Rows, Code::SameMeta, Code::Labels])?;
        Ok(p.with_shape(reduced_shape(p.shape(), reduction)).with_dtype(p.dtype().accumulator()))
    }

    fn decomposition(Args { p, q, shift_labels, reduction, ignore_index }: Args<Tensor>) -> Tensor {
        let rows = CountedRows::new(shift_labels, ignore_index);
        let distance = prims::abs(prims::sub(accumulating(p), accumulating(q)));
        rows.reduced(prims::mul(distance, 0.5), reduction)
    }

    fn reference(Args { p, q, shift_labels, reduction, ignore_index }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let terms = crate::core::arrays::zip(p, q, |p, q| (p - q).abs() / 2.0);
        plainly_reduced(terms, shift_labels, ignore_index, reduction)
    }

    fn samples(s: &mut Samples) {
        use DivergenceReduction as Reduced;
        for reduction in [Reduced::None, Reduced::Mean, Reduced::BatchMean, Reduced::Sum] {
            let of = || with(s.uniform(0.0, 1.0, [6, 5]), s.uniform(0.0, 1.0, [6, 5])).reduction(reduction);
            let (plain, labelled) = (of(), of().shift_labels(s.integers(0, 3, [6])).ignore_index(1));
            s.case(plain);
            s.case(labelled);
        }
        s.case(with(s.uniform(0.0, 1.0, [70, 311]), s.uniform(0.0, 1.0, [70, 311])));
        s.case(with(s.normal([0, 3]), s.normal([0, 3])).reduction(Reduced::Sum));
        let none = with(s.normal([2, 3]), s.normal([2, 3])).shift_labels(s.integers(4, 5, [2])).ignore_index(4);
        s.case(none);
        let equal = with(s.values([1, 3], [0.5, 0.25, 0.25]), s.values([1, 3], [0.5, 0.75, 0.0]));
        s.case(equal.reduction(Reduced::None))
            .forward_only("the kink at zero")
            .gradients([&[0.0, -1.0, 1.5], &[-0.0, 1.0, -1.5]]);
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rows, with(e.normal([3]), e.normal([3])), "p is f32[3], expected [N, C]");
        e.case(SameMeta, with(e.normal([2, 3]), e.normal([2, 4])), "q is f32[2, 4], expected f32[2, 3]");
        let labels = with(e.normal([2, 3]), e.normal([2, 3])).shift_labels(e.integers(0, 3, [3]));
        e.case(Labels, labels, "shift_labels has shape [3], expected [2]");
    }
}
