use fulgurite_ops_macros::operator;

use super::preference::{
    Sequences, check_pairs, check_reference, check_sequences, halves, plain_logsigmoid, plain_pairs, plain_sequences,
    plain_smoothed, plain_tokens, share, smoothed,
};
use crate::core::promotion::cast;
use crate::nn::{logsigmoid, relu};
use crate::prims;

fulgurite_runtime::attribute_enum! {
    /// The loss of a pair of sequences, of the logarithms a and b of how much more probable the preferred and the
    /// rejected one are than by the reference; d is `beta (a - b)`, σ the logistic function, ε the label smoothing.
    pub enum PreferenceLoss {
        /// `-(1 - ε) log σ(d) - ε log σ(-d)`: Rafailov and others, 2023.
        Sigmoid = "sigmoid",
        /// `max(1 - d, 0)`: Zhao and others, 2023.
        Hinge = "hinge",
        /// `σ(d) (log σ(d) - log(1 - ε)) + σ(-d) (log σ(-d) - log ε)`: Ji and others, 2024.
        ExoPair = "exo_pair",
        /// `-log σ(beta a) - log σ(-beta a) / 2 - log σ(-beta b) / 2`: Chen and others, 2024.
        NcaPair = "nca_pair",
        /// `(ε log σ(-d) - (1 - ε) log σ(d)) / (1 - 2 ε)`: Chowdhury and others, 2024.
        Robust = "robust",
        /// `-log σ(beta a) - log σ(-beta b)`: Jung and others, 2024.
        BcoPair = "bco_pair",
        /// `(a - 1 / (2 beta))² + (b + 1 / (2 beta))²`: Wu and others, 2024.
        SppoHard = "sppo_hard",
        /// `1 - σ(beta a) + σ(beta b)`: D'Oosterlinck and others, 2024.
        ApoZero = "apo_zero",
        /// `σ(beta a) + 1 - σ(d)`: D'Oosterlinck and others, 2024.
        ApoDown = "apo_down",
        /// `-log σ(d) (1 - m) + e^-d m` with `m = σ(d / tau)`: Lu and others, 2024.
        Discopop = "discopop",
    }
}

/// Direct preference optimization over a linear layer: the mean over pairs of the loss that `loss_type` names, and with
/// `compute_nll_loss` `alpha` times the mean negative log-probability of the preferred tokens. `ref_input` [2B, T, K],
/// `ref_weight` [C, K] and `ref_bias` [C] are the reference's hidden states and layer, which has log-probabilities of
/// zero if they are left out. The other arguments, the results and the memory are those of
/// [`fused_linear_cpo`](mod@super::fused_linear_cpo).
#[operator]
pub mod fused_linear_dpo {
    #[results(loss, chosen_logps, rejected_logps)]
    fn fused_linear_dpo(
        input: Tensor<Floating>,
        weight: Tensor<Floating>,
        target: Tensor<Integer>,
        #[default(None)] bias: Option<Tensor<Floating>>,
        #[default(None)] ref_input: Option<Tensor<Floating>>,
        #[default(None)] ref_weight: Option<Tensor<Floating>>,
        #[default(None)] ref_bias: Option<Tensor<Floating>>,
        #[default(-100)] ignore_index: i64,
        #[default(0.1)] beta: f64,
        #[default(false)] compute_nll_loss: bool,
        #[default(false)] average_log_prob: bool,
        #[default(PreferenceLoss::Sigmoid)] loss_type: PreferenceLoss,
        #[default(0.0)] label_smoothing: f64,
        #[default(0.05)] discopop_tau: f64,
        #[default(1.0)] alpha: f64,
    ) -> (Tensor, Tensor, Tensor);

    fn requires(args: Args<&TensorMeta>) -> Result<()> {
        let Args { input, weight, target, bias, ref_input, ref_weight, ref_bias, .. } = args;
        let Args { beta, loss_type, label_smoothing, discopop_tau, .. } = args;
        check_sequences("", [input, weight, target], bias, [Code::Layer, Code::Target, Code::BiasShape])?;
        check_pairs(input, Code::Pairs)?;
        let codes = [Code::RefLayer, Code::Target, Code::RefBias, Code::Reference];
        check_reference(target, ref_input, ref_weight, ref_bias, codes)?;
        require!(beta > 0.0, Beta, "beta is {beta}, expected more than 0");
        let smoothing = match loss_type {
            PreferenceLoss::ExoPair => 0.0 < label_smoothing && label_smoothing < 1.0,
            PreferenceLoss::Robust => (0.0..0.5).contains(&label_smoothing),
            PreferenceLoss::Sigmoid => (0.0..=1.0).contains(&label_smoothing),
            _ => label_smoothing == 0.0,
        };
        require!(
            smoothing,
            Smoothing,
            "label_smoothing is {label_smoothing}, expected 0 to 1 for sigmoid, 0 to below 0.5 for robust, between 0 and \
             1 for exo_pair, 0 for others"
        );
        require!(discopop_tau > 0.0, Tau, "discopop_tau is {discopop_tau}, expected more than 0");
        Ok(())
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor, Tensor) {
        let Args { input, weight, target, bias, ref_input, ref_weight, ref_bias, ignore_index, beta, .. } = args;
        let Args { compute_nll_loss, average_log_prob, loss_type, label_smoothing, discopop_tau, alpha, .. } = args;
        let pairs = Sequences { input, weight, target, bias, ignore_index }.pairs(average_log_prob);
        let mut ratios = [pairs.chosen, pairs.rejected];
        if let Some((input, weight)) = ref_input.zip(ref_weight) {
            let reference = Sequences { input, weight, target, bias: ref_bias, ignore_index };
            let log_p = cast(reference.log_probabilities(average_log_prob), pairs.chosen.dtype());
            let [chosen, rejected] = halves(log_p);
            ratios = [prims::sub(ratios[0], chosen), prims::sub(ratios[1], rejected)];
        }
        let losses = losses(loss_type, ratios, beta, label_smoothing, discopop_tau);
        pairs.results(losses, compute_nll_loss.then_some(alpha))
    }

    /// The loss of each pair.
    #[track_caller]
    fn losses(kind: PreferenceLoss, [a, b]: [Tensor; 2], beta: f64, smoothing: f64, tau: f64) -> Tensor {
        let (minus, scaled) = (|x: Tensor| prims::neg(x), |x: Tensor, by: f64| prims::mul(x, by));
        let sum = |x: Tensor, y: Tensor| prims::add(x, y);
        let d = scaled(prims::sub(a, b), beta);
        let rewards = [a, b].map(|ratio| scaled(ratio, beta));
        match kind {
            PreferenceLoss::Sigmoid => smoothed(d, smoothing),
            PreferenceLoss::Hinge => relu(prims::sub(1.0, d)),
            PreferenceLoss::ExoPair => {
                let side = |d: Tensor, part: f64| prims::mul(share(d), prims::sub(logsigmoid(d), part.ln()));
                sum(side(d, 1.0 - smoothing), side(minus(d), smoothing))
            }
            PreferenceLoss::NcaPair => {
                let pulled = sum(logsigmoid(minus(rewards[0])), logsigmoid(minus(rewards[1])));
                minus(sum(logsigmoid(rewards[0]), scaled(pulled, 0.5)))
            }
            PreferenceLoss::Robust => {
                let flipped = scaled(logsigmoid(minus(d)), smoothing);
                let loss = prims::sub(flipped, scaled(logsigmoid(d), 1.0 - smoothing));
                scaled(loss, 1.0 / (1.0 - 2.0 * smoothing))
            }
            PreferenceLoss::BcoPair => minus(sum(logsigmoid(rewards[0]), logsigmoid(minus(rewards[1])))),
            PreferenceLoss::SppoHard => {
                let [up, down] = [prims::sub(a, 0.5 / beta), prims::add(b, 0.5 / beta)];
                sum(prims::mul(up, up), prims::mul(down, down))
            }
            PreferenceLoss::ApoZero => sum(share(minus(rewards[0])), share(rewards[1])),
            PreferenceLoss::ApoDown => sum(share(rewards[0]), share(minus(d))),
            PreferenceLoss::Discopop => {
                let sharp = scaled(d, 1.0 / tau);
                let near = prims::mul(minus(logsigmoid(d)), share(minus(sharp)));
                // Where e^-d is large the share is small: their logarithms are added.
                sum(near, prims::exp(prims::sub(logsigmoid(sharp), d)))
            }
        }
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<(ArrayD<f64>, ArrayD<f64>, ArrayD<f64>)> {
        let Args { input, weight, target, bias, ref_input, ref_weight, ref_bias, ignore_index, beta, .. } = args;
        let Args { compute_nll_loss, average_log_prob, loss_type, label_smoothing, discopop_tau, alpha, .. } = args;
        let tokens = plain_tokens(input, weight, target, bias, ignore_index)?;
        let reference = match ref_input.zip(ref_weight) {
            Some((input, weight)) => {
                let tokens = plain_tokens(input, weight, target, ref_bias, ignore_index)?;
                plain_sequences(&tokens, target, ignore_index, average_log_prob)
            }
            None => vec![0.0; tokens.len()],
        };
        let (log, share) = (plain_logsigmoid, |x: f64| 1.0 / (1.0 + (-x).exp()));
        let loss = |pair: usize, chosen: f64, rejected: f64| {
            let (a, b) = (chosen - reference[pair], rejected - reference[pair + tokens.len() / 2]);
            let (d, e) = (beta * (a - b), label_smoothing);
            match loss_type {
                PreferenceLoss::Sigmoid => plain_smoothed(d, e),
                PreferenceLoss::Hinge => (1.0 - d).max(0.0),
                PreferenceLoss::ExoPair => {
                    let (won, lost) = (share(d), share(-d));
                    won * (won / (1.0 - e)).ln() + lost * (lost / e).ln()
                }
                PreferenceLoss::NcaPair => -log(beta * a) - 0.5 * log(-beta * a) - 0.5 * log(-beta * b),
                PreferenceLoss::Robust => (e * log(-d) - (1.0 - e) * log(d)) / (1.0 - 2.0 * e),
                PreferenceLoss::BcoPair => -log(beta * a) - log(-beta * b),
                PreferenceLoss::SppoHard => (a - 0.5 / beta).powi(2) + (b + 0.5 / beta).powi(2),
                PreferenceLoss::ApoZero => 1.0 - share(beta * a) + share(beta * b),
                PreferenceLoss::ApoDown => share(beta * a) + 1.0 - share(d),
                PreferenceLoss::Discopop => {
                    let m = share(d / discopop_tau);
                    -log(d) * (1.0 - m) + (log(d / discopop_tau) - d).exp()
                }
            }
        };
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
        s.case(plain);
        use PreferenceLoss::*;
        for kind in [Hinge, NcaPair, BcoPair, SppoHard, ApoZero, ApoDown, Discopop] {
            let case = of(s, [2, 3, 4, 5]).loss_type(kind).beta(0.5).discopop_tau(0.7);
            s.case(case);
        }
        for kind in [ExoPair, Robust] {
            let case = of(s, [2, 3, 4, 5]).loss_type(kind).beta(0.5).label_smoothing(0.25);
            s.case(case);
        }
        let all = of(s, [3, 4, 6, 7]).bias(s.normal([7])).ignore_index(2).beta(0.7).compute_nll_loss(true).alpha(0.5);
        let all = all.ref_input(s.normal([6, 4, 3])).ref_weight(s.uniform(-0.5, 0.5, [7, 3])).ref_bias(s.normal([7]));
        let averaged = of(s, [1, 5, 4, 3]).average_log_prob(true);
        let smooth = of(s, [2, 3, 24, 5]).label_smoothing(0.25);
        // A margin of -100 and beyond.
        let far = of(s, [2, 3, 24, 5]).loss_type(Discopop).beta(if s.dtype() == DType::F16 { 1.0 } else { 12.0 });
        for case in [all, averaged, smooth] {
            s.case(case);
        }
        s.case(far).forward_only("differences step over where the share rises");
    }

    fn errors(e: &mut ErrorSamples) {
        let good = || with(e.normal([4, 3, 4]), e.normal([5, 4]), e.integers(0, 5, [4, 3]));
        let compared = || good().ref_input(e.normal([4, 3, 2])).ref_weight(e.normal([5, 2]));
        let narrow = with(e.normal([4, 3, 4]), e.normal([5, 3]), e.integers(0, 5, [4, 3]));
        e.case(Layer, narrow, "expected [B, T, H] and [C, H] of one type");
        let short = with(e.normal([4, 3, 4]), e.normal([5, 4]), e.integers(0, 5, [4, 2]));
        e.case(Target, short, "expected [4, 3]");
        e.case(BiasShape, good().bias(e.normal([4])), "bias is f32[4], expected f32[5]");
        let odd = with(e.normal([3, 3, 4]), e.normal([5, 4]), e.integers(0, 5, [3, 3]));
        e.case(Pairs, odd, "there are 3 sequences, expected as many preferred as rejected ones");
        let none = with(e.normal([0, 3, 4]), e.normal([5, 4]), e.integers(0, 5, [0, 3]));
        e.case(Pairs, none, "there are 0 sequences, expected as many preferred as rejected ones");
        e.case(Reference, good().ref_input(e.normal([4, 3, 2])), "are given together");
        e.case(RefLayer, compared().ref_weight(e.normal([5, 3])), "ref_input is f32[4, 3, 2], ref_weight f32[5, 3]");
        e.case(RefBias, compared().ref_bias(e.normal([4])), "ref_bias is f32[4], expected f32[5]");
        e.case(Reference, good().ref_bias(e.normal([5])), "ref_bias only with them");
        e.case(Beta, good().beta(0.0), "beta is 0, expected more than 0");
        let smooth = good().loss_type(PreferenceLoss::Robust).label_smoothing(0.5);
        e.case(Smoothing, smooth, "label_smoothing is 0.5, expected 0 to 1 for sigmoid, 0 to below 0.5 for robust");
        e.case(Smoothing, good().loss_type(PreferenceLoss::ExoPair), "between 0 and 1 for exo_pair");
        let whole = good().loss_type(PreferenceLoss::ExoPair).label_smoothing(1.0);
        e.case(Smoothing, whole, "between 0 and 1 for exo_pair");
        e.case(Smoothing, good().label_smoothing(1.25), "label_smoothing is 1.25, expected 0 to 1 for sigmoid");
        let hinge = good().loss_type(PreferenceLoss::Hinge).label_smoothing(0.1);
        e.case(Smoothing, hinge, "0 for others");
        e.case(Tau, good().discopop_tau(0.0), "discopop_tau is 0, expected more than 0");
    }
}
