use fulgurite_ops_macros::operator;

use super::preference::{Sequences, check_reference, check_sequences, plain_sequences, plain_tokens, share};
use crate::core::promotion::{broadcast, cast};
use crate::prims;

/// Kahneman-Tversky optimization over a linear layer: the mean over sequences of `1 - σ(beta (l - kl))` for those that
/// `preference_labels` [B] prefers and of `1 - σ(beta (kl - l))` for the others. l is the log-probability of a
/// sequence, less that by the reference's layer `ref_input` [B, T, K], `ref_weight` [C, K], `ref_bias` [C] if it is
/// given; `kl` [] is the estimate of the divergence from the reference, zero if it is left out. Hidden states `input`
/// [B, T, H], tokens `target` [B, T]; tokens of `ignore_index` count nothing. Results: the loss, and the
/// log-probabilities [B], in f32 for f16 and bf16. Logits exist for one chunk of tokens at a time, and are computed
/// again for the gradient. Ethayarajh and others, 2024.
#[operator]
pub mod fused_linear_kto {
    #[results(loss, logps)]
    fn fused_linear_kto(
        input: Tensor<Floating>,
        weight: Tensor<Floating>,
        target: Tensor<Integer>,
        preference_labels: Tensor<Boolean>,
        #[default(None)] bias: Option<Tensor<Floating>>,
        #[default(None)] ref_input: Option<Tensor<Floating>>,
        #[default(None)] ref_weight: Option<Tensor<Floating>>,
        #[default(None)] ref_bias: Option<Tensor<Floating>>,
        #[default(None)] kl: Option<Tensor<Floating>>,
        #[default(-100)] ignore_index: i64,
        #[default(0.1)] beta: f64,
        #[default(false)] average_log_prob: bool,
    ) -> (Tensor, Tensor);

    fn requires(args: Args<&TensorMeta>) -> Result<()> {
        let Args { input, weight, target, preference_labels, bias, ref_input, ref_weight, ref_bias, kl, .. } = args;
        check_sequences("", [input, weight, target], bias, [Code::Layer, Code::Target, Code::BiasShape])?;
        let count = input.shape()[0];
        let labelled = count > 0 && preference_labels.shape() == [count];
        require!(labelled, Labels, "preference_labels is {preference_labels}, input {input}, expected [B] with B > 0");
        let codes = [Code::RefLayer, Code::Target, Code::RefBias, Code::Reference];
        check_reference(target, ref_input, ref_weight, ref_bias, codes)?;
        if let Some(kl) = kl {
            require!(kl.rank() == 0, Kl, "kl is {kl}, expected a zero-dimensional tensor");
        }
        Ok(())
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor) {
        let Args { input, weight, target, preference_labels, bias, ref_input, ref_weight, .. } = args;
        let Args { ref_bias, kl, ignore_index, beta, average_log_prob, .. } = args;
        let of = |input: Tensor, weight: Tensor, bias: Option<Tensor>| {
            Sequences { input, weight, target, bias, ignore_index }.log_probabilities(average_log_prob)
        };
        let log_p = of(input, weight, bias);
        let reference = ref_input.zip(ref_weight).map(|(input, weight)| of(input, weight, ref_bias));
        let mut margin = reference.map_or(log_p, |reference| prims::sub(log_p, cast(reference, log_p.dtype())));
        if let Some(kl) = kl {
            margin = prims::sub(margin, broadcast(cast(kl, margin.dtype()), &margin.shape()));
        }
        let lost = prims::select(preference_labels, prims::neg(margin), margin);
        let losses = share(prims::mul(lost, beta));
        (prims::div(prims::sum(losses, [0]), input.size(0) as f64), log_p)
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<(ArrayD<f64>, ArrayD<f64>)> {
        let Args { input, weight, target, preference_labels, bias, ref_input, ref_weight, .. } = args;
        let Args { ref_bias, kl, ignore_index, beta, average_log_prob, .. } = args;
        let of = |input: &ArrayD<f64>, weight: &ArrayD<f64>, bias: Option<&ArrayD<f64>>| {
            let tokens = plain_tokens(input, weight, target, bias, ignore_index)?;
            Ok::<_, Failure>(plain_sequences(&tokens, target, ignore_index, average_log_prob))
        };
        let log_p = of(input, weight, bias)?;
        let compared = match ref_input.zip(ref_weight) {
            Some((input, weight)) => of(input, weight, ref_bias)?,
            None => vec![0.0; log_p.len()],
        };
        let kl = kl.map_or(0.0, |kl| kl[[]]);
        let mut loss = 0.0;
        for ((log_p, reference), preferred) in log_p.iter().zip(compared).zip(preference_labels) {
            let sign = if *preferred { 1.0 } else { -1.0 };
            loss += 1.0 - 1.0 / (1.0 + (-sign * beta * (log_p - reference - kl)).exp());
        }
        let array = crate::core::arrays::array;
        Ok((array(&[], vec![loss / log_p.len() as f64]), array(&[log_p.len()], log_p)))
    }

    fn samples(s: &mut Samples) {
        let of = |s: &Samples, [count, length, width, classes]: [usize; 4]| {
            let target = s.integers(0, classes as i64, [count, length]);
            let labels = s.booleans([count]);
            with(s.normal([count, length, width]), s.uniform(-0.5, 0.5, [classes, width]), target, labels)
        };
        // One chunk, and several.
        let plain = of(s, [5, 3, 30, 5]);
        let all = of(s, [6, 4, 6, 7]).bias(s.normal([7])).ignore_index(2).beta(0.7).kl(s.uniform(0.1, 0.9, []));
        let all = all.ref_input(s.normal([6, 4, 3])).ref_weight(s.uniform(-0.5, 0.5, [7, 3])).ref_bias(s.normal([7]));
        let averaged = of(s, [1, 5, 4, 3]).average_log_prob(true);
        for case in [plain, all, averaged] {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |input: [usize; 3], weight: [usize; 2], target: [usize; 2], labels: usize| {
            with(e.normal(input), e.normal(weight), e.integers(0, 5, target), e.booleans([labels]))
        };
        let good = || of([4, 3, 4], [5, 4], [4, 3], 4);
        let compared = || good().ref_input(e.normal([4, 3, 2])).ref_weight(e.normal([5, 2]));
        e.case(Layer, of([4, 3, 4], [5, 3], [4, 3], 4), "expected [B, T, H] and [C, H] of one type");
        e.case(Target, of([4, 3, 4], [5, 4], [4, 2], 4), "expected [4, 3]");
        e.case(BiasShape, good().bias(e.normal([4])), "bias is f32[4], expected f32[5]");
        e.case(Labels, of([4, 3, 4], [5, 4], [4, 3], 3), "expected [B] with B > 0");
        e.case(Labels, of([0, 3, 4], [5, 4], [0, 3], 0), "expected [B] with B > 0");
        e.case(Reference, good().ref_weight(e.normal([5, 2])), "are given together");
        e.case(RefLayer, compared().ref_weight(e.normal([5, 3])), "ref_input is f32[4, 3, 2], ref_weight f32[5, 3]");
        e.case(RefBias, compared().ref_bias(e.normal([4])), "ref_bias is f32[4], expected f32[5]");
        e.case(Reference, good().ref_bias(e.normal([5])), "ref_bias only with them");
        e.case(Kl, good().kl(e.normal([4])), "kl is f32[4], expected a zero-dimensional tensor");
    }
}
