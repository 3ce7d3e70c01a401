use fulgurite_ops_macros::operator;

use super::preference::{Sequences, check_pairs, check_sequences, plain_pairs, plain_smoothed, plain_tokens, smoothed};
use crate::prims;

/// Contrastive preference optimization over a linear layer: the mean over pairs of `-log σ(beta (c - r))`, with the
/// log-probabilities c and r of the preferred and of the rejected sequence, and `alpha` times the mean negative
/// log-probability of the preferred tokens. Hidden states `input` [2B, T, H] and tokens `target` [2B, T] hold the
/// preferred sequences first; tokens of `ignore_index` count nothing. With `label_smoothing` ε a pair is taken for
/// swapped with the probability ε. Results: the loss, and both log-probabilities [B], in f32 for f16 and bf16. Logits
/// exist for one chunk of tokens at a time, and are computed again for the gradient. Xu and others, 2024.
#[operator]
pub mod fused_linear_cpo {
    #[results(loss, chosen_logps, rejected_logps)]
    fn fused_linear_cpo(
        input: Tensor<Floating>,
        weight: Tensor<Floating>,
        target: Tensor<Integer>,
        #[default(None)] bias: Option<Tensor<Floating>>,
        #[default(-100)] ignore_index: i64,
        #[default(0.1)] beta: f64,
        #[default(1.0)] alpha: f64,
        #[default(0.0)] label_smoothing: f64,
        #[default(true)] compute_nll_loss: bool,
        #[default(false)] average_log_prob: bool,
    ) -> (Tensor, Tensor, Tensor);

    fn requires(Args { input, weight, target, bias, label_smoothing, .. }: Args<&TensorMeta>) -> Result<()> {
        check_sequences("", [input, weight, target], bias, [Code::Layer, Code::Target, Code::BiasShape])?;
        check_pairs(input, Code::Pairs)?;
        let known = (0.0..=1.0).contains(&label_smoothing);
        require!(known, Smoothing, "label_smoothing is {label_smoothing}, expected 0 to 1");
        Ok(())
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor, Tensor) {
        let Args { input, weight, target, bias, ignore_index, beta, alpha, label_smoothing, .. } = args;
        let Args { compute_nll_loss, average_log_prob, .. } = args;
        let pairs = Sequences { input, weight, target, bias, ignore_index }.pairs(average_log_prob);
        let margin = prims::mul(prims::sub(pairs.chosen, pairs.rejected), beta);
        pairs.results(smoothed(margin, label_smoothing), compute_nll_loss.then_some(alpha))
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<(ArrayD<f64>, ArrayD<f64>, ArrayD<f64>)> {
        let Args { input, weight, target, bias, ignore_index, beta, alpha, label_smoothing, .. } = args;
        let Args { compute_nll_loss, average_log_prob, .. } = args;
        let tokens = plain_tokens(input, weight, target, bias, ignore_index)?;
        let loss = |_: usize, chosen: f64, rejected: f64| plain_smoothed(beta * (chosen - rejected), label_smoothing);
        let nll = compute_nll_loss.then_some(alpha);
        Ok(plain_pairs(&tokens, target, ignore_index, average_log_prob, nll, loss))
    }

    fn samples(s: &mut Samples) {
        let of = |s: &Samples, [pairs, length, width, classes]: [usize; 4]| {
            let target = s.integers(0, classes as i64, [2 * pairs, length]);
            with(s.normal([2 * pairs, length, width]), s.uniform(-0.5, 0.5, [classes, width]), target)
        };
        // One chunk, and several.
        let plain = of(s, [2, 3, 24, 5]);
        let all = of(s, [3, 4, 6, 7]).bias(s.normal([7])).ignore_index(2).beta(0.7).alpha(0.5).label_smoothing(0.25);
        let averaged = of(s, [1, 5, 4, 3]).compute_nll_loss(false).average_log_prob(true);
        // One token of each sequence, and one that is preferred.
        let single = of(s, [1, 1, 4, 3]).average_log_prob(true);
        for case in [plain, all, averaged, single] {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let good = || with(e.normal([4, 3, 4]), e.normal([5, 4]), e.integers(0, 5, [4, 3]));
        let narrow = with(e.normal([4, 3, 4]), e.normal([5, 3]), e.integers(0, 5, [4, 3]));
        e.case(Layer, narrow, "expected [B, T, H] and [C, H] of one type");
        let deep = with(e.normal([4, 3, 4]), e.normal([5, 4, 1]), e.integers(0, 5, [4, 3]));
        e.case(Layer, deep, "expected [B, T, H] and [C, H] of one type");
        let other = with(e.normal([4, 3, 4]), e.of(DType::F64, [5, 4]), e.integers(0, 5, [4, 3]));
        e.case(Layer, other, "expected [B, T, H] and [C, H] of one type");
        let flat = with(e.normal([4, 4]), e.normal([5, 4]), e.integers(0, 5, [4]));
        e.case(Layer, flat, "expected [B, T, H] and [C, H] of one type");
        let short = with(e.normal([4, 3, 4]), e.normal([5, 4]), e.integers(0, 5, [4, 2]));
        e.case(Target, short, "expected [4, 3]");
        e.case(BiasShape, good().bias(e.normal([4])), "bias is f32[4], expected f32[5]");
        let odd = with(e.normal([3, 3, 4]), e.normal([5, 4]), e.integers(0, 5, [3, 3]));
        e.case(Pairs, odd, "there are 3 sequences, expected as many preferred as rejected ones");
        e.case(Smoothing, good().label_smoothing(1.5), "label_smoothing is 1.5, expected 0 to 1");
    }
}
