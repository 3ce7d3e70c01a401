use fulgurite_ops_macros::operator;

use super::preference::{Sequences, check_pairs, check_sequences, plain_logsigmoid, plain_pairs, plain_tokens};
use crate::nn::logsigmoid;
use crate::prims;

/// Odds ratio preference optimization over a linear layer: the mean over pairs of `-beta log σ(log (odds c / odds r))`
/// with `odds p = p / (1 - p)`, where c and r are the geometric means of the probabilities of the preferred and of the
/// rejected sequence's tokens, and with `compute_nll_loss` the mean negative log-probability of the preferred tokens.
/// Means above `e^(-1/1024)`, as those of sequences without tokens, count as that number: odds of one are infinite. The
/// other arguments, the results and the memory are those of
/// [`fused_linear_cpo`](mod@super::fused_linear_cpo); the log-probabilities are means. Hong and others, 2024.
#[operator]
pub mod fused_linear_orpo {
    #[results(loss, chosen_logps, rejected_logps)]
    fn fused_linear_orpo(
        input: Tensor<Floating>,
        weight: Tensor<Floating>,
        target: Tensor<Integer>,
        #[default(None)] bias: Option<Tensor<Floating>>,
        #[default(-100)] ignore_index: i64,
        #[default(0.1)] beta: f64,
        #[default(true)] compute_nll_loss: bool,
    ) -> (Tensor, Tensor, Tensor);

    fn requires(input: &TensorMeta, weight: &TensorMeta, target: &TensorMeta, bias: Option<&TensorMeta>) -> Result<()> {
        check_sequences("", [input, weight, target], bias, [Code::Layer, Code::Target, Code::BiasShape])?;
        check_pairs(input, Code::Pairs)
    }

    /// The largest logarithm of a probability whose odds are taken.
    const MOST: f64 = -1.0 / 1024.0;

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor, Tensor) {
        let Args { input, weight, target, bias, ignore_index, beta, compute_nll_loss } = args;
        let pairs = Sequences { input, weight, target, bias, ignore_index }.pairs(true);
        let log_odds = |log_p: Tensor| {
            let log_p = prims::minimum(log_p, MOST);
            prims::sub(log_p, prims::log(prims::sub(1.0, prims::exp(log_p))))
        };
        let ratio = prims::sub(log_odds(pairs.chosen), log_odds(pairs.rejected));
        pairs.results(prims::mul(logsigmoid(ratio), -beta), compute_nll_loss.then_some(1.0))
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<(ArrayD<f64>, ArrayD<f64>, ArrayD<f64>)> {
        let Args { input, weight, target, bias, ignore_index, beta, compute_nll_loss } = args;
        let tokens = plain_tokens(input, weight, target, bias, ignore_index)?;
        let odds = |log_p: f64| log_p.min(MOST).exp() / (1.0 - log_p.min(MOST).exp());
        let loss = |_: usize, chosen: f64, rejected: f64| {
            let ratio = odds(chosen) / odds(rejected);
            -beta * plain_logsigmoid(ratio.ln())
        };
        let nll = compute_nll_loss.then_some(1.0);
        Ok(plain_pairs(&tokens, target, ignore_index, true, nll, loss))
    }

    fn samples(s: &mut Samples) {
        let of = |s: &Samples, [pairs, length, width, classes]: [usize; 4]| {
            let target = s.integers(0, classes as i64, [2 * pairs, length]);
            with(s.normal([2 * pairs, length, width]), s.uniform(-0.5, 0.5, [classes, width]), target)
        };
        // One chunk, and several.
        let plain = of(s, [2, 3, 24, 5]);
        let all = of(s, [3, 4, 6, 7]).bias(s.normal([7])).ignore_index(2).beta(0.7);
        let averaged = of(s, [1, 5, 4, 3]).compute_nll_loss(false);
        // No token of the rejected sequence counts.
        let (input, weight) = (s.normal([2, 3, 4]), s.uniform(-0.5, 0.5, [5, 4]));
        let target = s.values([2, 3], [0.0, 3.0, 1.0, 2.0, 2.0, 2.0]).cast(DType::I64);
        let none = with(input, weight, target).ignore_index(2);
        for case in [plain, all, averaged, none] {
            s.case(case);
        }
        // No token counts at all.
        let target = s.values([2, 3], [2.0; 6]).cast(DType::I64);
        s.case(with(s.normal([2, 3, 4]), s.uniform(-0.5, 0.5, [5, 4]), target).ignore_index(2));
        // One token of each sequence counts.
        let target = s.values([2, 3], [2.0, 2.0, 1.0, 0.0, 2.0, 2.0]).cast(DType::I64);
        s.case(with(s.normal([2, 3, 4]), s.uniform(-0.5, 0.5, [5, 4]), target).ignore_index(2));
    }

    fn errors(e: &mut ErrorSamples) {
        let good = || with(e.normal([4, 3, 4]), e.normal([5, 4]), e.integers(0, 5, [4, 3]));
        let narrow = with(e.normal([4, 3, 4]), e.normal([5, 3]), e.integers(0, 5, [4, 3]));
        e.case(Layer, narrow, "expected [B, T, H] and [C, H] of one type");
        let short = with(e.normal([4, 3, 4]), e.normal([5, 4]), e.integers(0, 5, [4, 2]));
        e.case(Target, short, "expected [4, 3]");
        e.case(BiasShape, good().bias(e.normal([4])), "bias is f32[4], expected f32[5]");
        let odd = with(e.normal([3, 3, 4]), e.normal([5, 4]), e.integers(0, 5, [3, 3]));
        e.case(Pairs, odd, "there are 3 sequences, expected as many preferred as rejected ones");
    }
}
