use fulgurite_ops_macros::operator;

use super::preference::{Sequences, check_sequences, plain_tokens, share};
use crate::core::detach;
use crate::core::promotion::{accumulating, cast, constant_like};
use crate::prims;

fulgurite_runtime::attribute_enum! {
    /// What the sum of the tokens' losses is divided by.
    pub enum PolicyLoss {
        /// The number of tokens of each sequence; then the mean over sequences: Shao and others, 2024.
        Grpo = "grpo",
        /// The number of tokens.
        Bnpo = "bnpo",
        /// The number of sequences times the longest length that a completion may have: Liu and others, 2025.
        DrGrpo = "dr_grpo",
        /// The number of tokens of the whole batch: Yu and others, 2025.
        Dapo = "dapo",
        /// The mean over all places of the batch, of losses times their sequence's number of tokens.
        Luspo = "luspo",
        /// As `grpo`, of losses whose ratios go through a sigmoid instead of bounds: Gao and others, 2025.
        Sapo = "sapo",
        /// As `dapo`, of log-probabilities whose weights are bounded ratios without a gradient: MiniMax, 2025.
        Cispo = "cispo",
        /// As `dapo`, of log-probabilities whose weights are a function of their sequence's ratio, without a gradient:
        /// Shen and others, 2026.
        Vespo = "vespo",
    }
}

fulgurite_runtime::attribute_enum! {
    /// What a policy's probabilities are compared by.
    pub enum ImportanceSampling {
        /// Each token's.
        Token = "token",
        /// The geometric mean over the tokens of a sequence: Zheng and others, 2025.
        Sequence = "sequence",
    }
}

/// Group relative policy optimization over a linear layer. With a token's log-probability l and its ratio
/// `w = e^(l - old)`, which `importance_sampling_level` may average over a sequence, and the `advantages` A [B] of the
/// sequences, a token has the loss `-min(w A, clip(w, 1 - epsilon_low, 1 + epsilon_high) A)`; with
/// `ref_per_token_logps` r it has also `beta (e^(r - l) - (r - l) - 1)`. `loss_type` says how the losses are summed,
/// `max_completion_length` is what dr_grpo needs. In place of the bounds sapo has `-4 / τ · σ(τ (w - 1)) A`, with the
/// temperature τ `sapo_temperature_pos` where A is positive, and `sapo_temperature_neg` elsewhere; cispo has
/// `-min(w, epsilon_high) A l`, and vespo `-φ A l` with `φ = e^λ W^k e^(-λ W)` of the product W of a sequence's ratios,
/// with `vespo_k_pos` and `vespo_lambda_pos` where A is at least 0, and `vespo_k_neg` and `vespo_lambda_neg` elsewhere.
/// W is bounded: the logarithm of each ratio to ±20, and their sum to [ln 1e-8, 20]. Derivatives take these weights for
/// constants. The three compare tokens. cispo bounds w itself, and wants an `epsilon_high` of its own, above 1: the
/// default 0.2 bounds each weight by 0.2. Each k of vespo is at least 0, and each λ at least 1e-4; together they must
/// give no weight above e^80.
///
/// Hidden states `input` [B, T, H], tokens `selected_token_ids` [B, T], of which those count that `attention_mask`
/// [B, T] holds; `old_per_token_logps` and `ref_per_token_logps` are [B, T]. Logits are divided by `temperature`, by
/// way of the hidden states and the bias. Results: the loss, and the log-probabilities [B, T], zero where the mask is
/// false, in f32 for f16 and bf16. Logits exist for one chunk of tokens at a time, and are computed again for the
/// gradient.
#[operator(tolerance(
    gradient,
    scaled = 4.0e-7,
    dtype = f32,
    sample = 16,
    reason = "the gradient of a weight is a sum of terms of both signs, far below each of them"
))]
pub mod fused_linear_grpo {
    #[results(loss, per_token_logps)]
    fn fused_linear_grpo(
        input: Tensor<Floating>,
        weight: Tensor<Floating>,
        selected_token_ids: Tensor<Integer>,
        attention_mask: Tensor<Boolean>,
        advantages: Tensor<Floating>,
        old_per_token_logps: Tensor<Floating>,
        #[default(None)] bias: Option<Tensor<Floating>>,
        #[default(None)] ref_per_token_logps: Option<Tensor<Floating>>,
        #[default(0.04)] beta: f64,
        #[default(0.2)] epsilon_low: f64,
        #[default(0.2)] epsilon_high: f64,
        #[default(PolicyLoss::Dapo)] loss_type: PolicyLoss,
        #[default(None)] max_completion_length: Option<usize>,
        #[default(ImportanceSampling::Token)] importance_sampling_level: ImportanceSampling,
        #[default(1.0)] temperature: f64,
        #[default(1.0)] sapo_temperature_pos: f64,
        #[default(1.05)] sapo_temperature_neg: f64,
        #[default(2.0)] vespo_k_pos: f64,
        #[default(3.0)] vespo_lambda_pos: f64,
        #[default(3.0)] vespo_k_neg: f64,
        #[default(2.0)] vespo_lambda_neg: f64,
    ) -> (Tensor, Tensor);

    fn requires(args: Args<&TensorMeta>) -> Result<()> {
        let Args { input, weight, selected_token_ids, attention_mask, advantages, old_per_token_logps, .. } = args;
        let Args { bias, ref_per_token_logps, loss_type, max_completion_length, temperature, .. } = args;
        let Args { sapo_temperature_pos, sapo_temperature_neg, .. } = args;
        check_sequences("", [input, weight, selected_token_ids], bias, [Code::Layer, Code::Target, Code::BiasShape])?;
        let shape = &input.shape()[..2];
        require!(shape[0] > 0, Sequences, "there are no sequences");
        require!(attention_mask.shape() == shape, Mask, "attention_mask is {attention_mask}, expected {shape:?}");
        require!(advantages.shape() == &shape[..1], Advantages, "advantages is {advantages}, expected [{}]", shape[0]);
        let named = [("old_per_token_logps", Some(old_per_token_logps)), ("ref_per_token_logps", ref_per_token_logps)];
        for (name, given) in named {
            if let Some(given) = given {
                require!(given.shape() == shape, TokenShape, "{name} is {given}, expected {shape:?}");
            }
        }
        let bounded = loss_type != PolicyLoss::DrGrpo || max_completion_length.is_some_and(|most| most > 0);
        require!(bounded, Length, "dr_grpo needs a max_completion_length above 0, which is {max_completion_length:?}");
        require!(temperature > 0.0, Temperature, "temperature is {temperature}, expected more than 0");
        require!(
            [sapo_temperature_pos, sapo_temperature_neg].iter().all(|rate| *rate > 0.0 && rate.is_finite()),
            SapoTemperature,
            "the temperatures of sapo are {sapo_temperature_pos} and {sapo_temperature_neg}, expected finite numbers \
             above 0"
        );
        for (k, rate) in [(args.vespo_k_pos, args.vespo_lambda_pos), (args.vespo_k_neg, args.vespo_lambda_neg)] {
            require!(k >= 0.0 && k.is_finite(), Rates, "a k of vespo is {k}, expected a finite number of at least 0");
            let lasting = rate >= LEAST_RATE && rate.is_finite();
            require!(lasting, Rates, "a rate of vespo is {rate}, expected a finite number of at least {LEAST_RATE}");
            let peak = (k / rate).ln().clamp(LEAST, MOST);
            let highest = rate * (1.0 - peak.exp()) + k * peak;
            require!(
                highest <= HIGHEST,
                Rates,
                "vespo with k {k} and the rate {rate} has weights up to e^{highest:.0}, expected at most e^{HIGHEST}"
            );
        }
        let of_tokens = matches!(loss_type, PolicyLoss::Sapo | PolicyLoss::Cispo | PolicyLoss::Vespo);
        require!(
            !of_tokens || args.importance_sampling_level == ImportanceSampling::Token,
            Level,
            "sapo, cispo and vespo compare tokens, importance_sampling_level is that of sequences"
        );
        Ok(())
    }

    /// The bounds of the logarithm of a ratio that vespo's weights are of: of a token, and the least of a sequence.
    const MOST: f64 = 20.0;
    const LEAST: f64 = -18.420680743952367;

    /// The least rate of vespo, and the most that the logarithm of a weight may be, which f32 holds with room for what
    /// it is multiplied by.
    const LEAST_RATE: f64 = 1e-4;
    const HIGHEST: f64 = 80.0;

    /// The class of tokens that do not count, which no token has.
    const MASKED: i64 = -(1 << 53);

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor) {
        let Args { input, weight, selected_token_ids, attention_mask, advantages, old_per_token_logps, .. } = args;
        let Args { bias, ref_per_token_logps, beta, epsilon_low, epsilon_high, loss_type, temperature, .. } = args;
        // In the type of sums: a type of 16 bits would round the temperature itself. The quotient is rounded once; a
        // product with the reciprocal would be rounded twice.
        let cooled = |tensor: Tensor| match temperature {
            1.0 => tensor,
            _ => cast(prims::div(accumulating(tensor), temperature), tensor.dtype()),
        };
        let counted = attention_mask;
        let target = prims::select(counted, cast(selected_token_ids, DType::I64), MASKED);
        let (input, bias) = (cooled(input), bias.map(cooled));
        let log_p = Sequences { input, weight, target, bias, ignore_index: MASKED }.token_log_probabilities();
        let (shape, wide) = (log_p.shape().to_vec(), log_p.dtype());
        let only = |tokens: Tensor| prims::select(counted, tokens, 0.0);
        let spread = |of_sequence: Tensor| prims::broadcast_in_dim(of_sequence, &shape, [0]);
        let lengths = prims::maximum(prims::sum(cast(counted, wide), [1]), 1.0);

        let mut log_ratio = only(prims::sub(log_p, cast(old_per_token_logps, wide)));
        if args.importance_sampling_level == ImportanceSampling::Sequence {
            log_ratio = spread(prims::div(prims::sum(log_ratio, [1]), lengths));
        }
        let (ratio, advantage) = (prims::exp(log_ratio), spread(cast(advantages, wide)));
        // A number of the advantage's sign.
        let by_sign = |holds: Tensor, [yes, no]: [f64; 2]| {
            prims::select(holds, constant_like(advantage, yes), constant_like(advantage, no))
        };
        let weighed = |weight: Tensor| prims::neg(prims::mul(prims::mul(detach(weight), advantage), log_p));
        let mut losses = match loss_type {
            PolicyLoss::Sapo => {
                let raised = prims::gt(advantage, 0.0);
                let sharpness = by_sign(raised, [args.sapo_temperature_pos, args.sapo_temperature_neg]);
                let gate = prims::div(share(prims::mul(sharpness, prims::sub(ratio, 1.0))), sharpness);
                prims::mul(prims::mul(gate, advantage), -4.0)
            }
            PolicyLoss::Cispo => weighed(prims::minimum(ratio, epsilon_high)),
            PolicyLoss::Vespo => {
                let bounded = |x: Tensor, least: f64| prims::maximum(prims::minimum(x, MOST), least);
                let log_weight = spread(bounded(prims::sum(bounded(log_ratio, -MOST), [1]), LEAST));
                let good = prims::ge(advantage, 0.0);
                let power = by_sign(good, [args.vespo_k_pos, args.vespo_k_neg]);
                let rate = by_sign(good, [args.vespo_lambda_pos, args.vespo_lambda_neg]);
                let fallen = prims::mul(rate, prims::sub(1.0, prims::exp(log_weight)));
                weighed(prims::exp(prims::add(prims::mul(power, log_weight), fallen)))
            }
            _ => {
                let clipped = prims::maximum(prims::minimum(ratio, 1.0 + epsilon_high), 1.0 - epsilon_low);
                let [free, bounded] = [ratio, clipped].map(|ratio| prims::mul(ratio, advantage));
                // Within the bounds both are equal, and the gradient is that of the first.
                prims::neg(prims::select(prims::lt(bounded, free), bounded, free))
            }
        };
        if let Some(reference) = ref_per_token_logps.filter(|_| beta != 0.0) {
            let d = only(prims::sub(cast(reference, wide), log_p));
            let divergence = prims::sub(prims::sub(prims::exp(d), d), 1.0);
            losses = prims::add(losses, prims::mul(divergence, beta));
        }
        let losses = only(losses);
        let sum = |tokens: Tensor| prims::sum(tokens, [0, 1]);
        let per = |losses: Tensor, count: usize| prims::div(losses, count as f64);
        let loss = match loss_type {
            PolicyLoss::Grpo | PolicyLoss::Sapo => {
                per(prims::sum(prims::div(prims::sum(losses, [1]), lengths), [0]), shape[0])
            }
            PolicyLoss::Bnpo | PolicyLoss::Dapo | PolicyLoss::Cispo | PolicyLoss::Vespo => {
                prims::div(sum(losses), prims::maximum(sum(cast(counted, wide)), 1.0))
            }
            PolicyLoss::DrGrpo => per(per(sum(losses), shape[0]), args.max_completion_length.unwrap_or(1)),
            PolicyLoss::Luspo => per(sum(prims::mul(losses, spread(lengths))), shape[0] * shape[1].max(1)),
        };
        (loss, log_p)
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<(ArrayD<f64>, ArrayD<f64>)> {
        let Args { input, weight, selected_token_ids, attention_mask, advantages, old_per_token_logps, .. } = args;
        let Args { bias, ref_per_token_logps, beta, epsilon_low, epsilon_high, loss_type, temperature, .. } = args;
        let masked = ndarray::Zip::from(selected_token_ids).and(attention_mask);
        let target = masked.map_collect(|token, counted| if *counted { *token } else { MASKED });
        let bias = bias.map(|bias| bias / temperature);
        let tokens = plain_tokens(&(input / temperature), weight, &target, bias.as_ref(), MASKED)?;
        let (mut total, mut sequences, mut counted, mut weighted) = (0.0, 0.0, 0.0, 0.0);
        for (b, row) in tokens.iter().enumerate() {
            let places: Vec<usize> = (0..row.len()).filter(|t| attention_mask[[b, *t]]).collect();
            let length = places.len().max(1) as f64;
            let log_ratio = |t: usize| row[t] - old_per_token_logps[[b, t]];
            let mean = places.iter().map(|t| log_ratio(*t)).sum::<f64>() / length;
            let losses = places.iter().map(|t| {
                let by_token = args.importance_sampling_level == ImportanceSampling::Token;
                let ratio = if by_token { log_ratio(*t) } else { mean }.exp();
                let divergence = ref_per_token_logps.filter(|_| beta != 0.0).map_or(0.0, |reference| {
                    let d = reference[[b, *t]] - row[*t];
                    beta * (d.exp() - d - 1.0)
                });
                let advantage = advantages[[b]];
                let objective = match loss_type {
                    PolicyLoss::Sapo => {
                        let sharpness =
                            if advantage > 0.0 { args.sapo_temperature_pos } else { args.sapo_temperature_neg };
                        4.0 / sharpness / (1.0 + (sharpness * (1.0 - ratio)).exp()) * advantage
                    }
                    PolicyLoss::Cispo => ratio.min(epsilon_high) * advantage * row[*t],
                    PolicyLoss::Vespo => {
                        let [power, rate] = match advantage >= 0.0 {
                            true => [args.vespo_k_pos, args.vespo_lambda_pos],
                            false => [args.vespo_k_neg, args.vespo_lambda_neg],
                        };
                        let sum: f64 = places.iter().map(|t| log_ratio(*t).clamp(-MOST, MOST)).sum();
                        let weight = sum.clamp(LEAST, MOST).exp();
                        rate.exp() * weight.powf(power) * (-rate * weight).exp() * advantage * row[*t]
                    }
                    _ => (ratio * advantage).min(ratio.clamp(1.0 - epsilon_low, 1.0 + epsilon_high) * advantage),
                };
                divergence - objective
            });
            let sum = losses.sum::<f64>();
            (total, counted) = (total + sum, counted + places.len() as f64);
            (sequences, weighted) = (sequences + sum / length, weighted + sum * length);
        }
        let [count, length] = [tokens.len(), selected_token_ids.shape()[1]];
        let loss = match loss_type {
            PolicyLoss::Grpo | PolicyLoss::Sapo => sequences / count as f64,
            PolicyLoss::Bnpo | PolicyLoss::Dapo | PolicyLoss::Cispo | PolicyLoss::Vespo => {
                total / f64::max(counted, 1.0)
            }
            PolicyLoss::DrGrpo => total / count as f64 / args.max_completion_length.unwrap_or(1) as f64,
            PolicyLoss::Luspo => weighted / (count * length) as f64,
        };
        let array = crate::core::arrays::array;
        Ok((array(&[], vec![loss]), array(&[count, length], tokens.concat())))
    }

    fn samples(s: &mut Samples) {
        let of = |s: &Samples, [count, length, width, classes]: [usize; 4]| {
            let (shape, tokens) = ([count, length], s.integers(0, classes as i64, [count, length]));
            let layer = (s.normal([count, length, width]), s.uniform(-0.5, 0.5, [classes, width]));
            // Ratios on both sides of the bounds.
            let old = s.uniform(-2.6, -1.0, shape);
            with(layer.0, layer.1, tokens, s.booleans(shape), s.normal([count]), old)
        };
        // One chunk, and several.
        let plain = of(s, [4, 3, 24, 5]);
        s.case(plain);
        for kind in [PolicyLoss::Grpo, PolicyLoss::Bnpo, PolicyLoss::DrGrpo, PolicyLoss::Dapo, PolicyLoss::Luspo] {
            let case = of(s, [4, 3, 4, 5]).loss_type(kind).max_completion_length(Some(7));
            s.case(case);
        }
        let all = of(s, [3, 4, 6, 7]).bias(s.normal([7])).ref_per_token_logps(s.uniform(-2.6, -1.0, [3, 4]));
        let all = all.beta(0.3).epsilon_low(0.1).epsilon_high(0.3).temperature(2.0);
        let longer = of(s, [2, 3, 4, 5]).loss_type(PolicyLoss::DrGrpo).max_completion_length(Some(9));
        let sequence = of(s, [3, 4, 4, 5]).importance_sampling_level(ImportanceSampling::Sequence);
        // Without the divergence a reference of no probability brings nothing in.
        let far = of(s, [2, 3, 24, 5]).ref_per_token_logps(s.uniform(200.0, 300.0, [2, 3])).beta(0.0);
        for case in [all, longer, sequence, far] {
            s.case(case);
        }
        let soft = of(s, [5, 4, 4, 5]).loss_type(PolicyLoss::Sapo);
        let softer =
            of(s, [4, 3, 6, 7]).loss_type(PolicyLoss::Sapo).sapo_temperature_pos(2.5).sapo_temperature_neg(0.4);
        for case in [soft, softer] {
            s.case(case);
        }
        let bounded = of(s, [5, 4, 4, 5]).loss_type(PolicyLoss::Cispo).epsilon_high(1.1);
        let weighed = of(s, [5, 4, 4, 5]).loss_type(PolicyLoss::Vespo);
        let rates = of(s, [4, 3, 6, 7]).loss_type(PolicyLoss::Vespo).vespo_k_pos(1.5).vespo_lambda_pos(0.5);
        let rates = rates.vespo_k_neg(0.5).vespo_lambda_neg(1.25);
        for case in [bounded, weighed, rates] {
            s.case(case).forward_only("derivatives take the weights for constants");
        }
        if s.dtype().size() >= 4 {
            let small = |s: &Samples, kind: PolicyLoss| {
                let values = |shape: &[usize], values: &[f64]| s.values(shape, values);
                let input = values(&[2, 2, 2], &[0.5, -1.0, 0.25, 0.75, -0.5, 1.5, 1.0, 0.125]);
                let weight = values(&[3, 2], &[0.5, -0.25, -0.75, 1.0, 0.25, 0.5]);
                let tokens = values(&[2, 2], &[0.0, 2.0, 1.0, 1.0]).cast(DType::I64);
                let mask = values(&[2, 2], &[1.0; 4]).cast(DType::Bool);
                let old = values(&[2, 2], &[-1.25, -1.0, -0.75, -1.0]);
                with(input, weight, tokens, mask, values(&[2], &[1.5, -0.5]), old).loss_type(kind).epsilon_high(1.1)
            };
            let case = small(s, PolicyLoss::Cispo);
            s.case(case).forward_only("by definition").gradients([
                &[
                    0.11071505684187836,
                    -0.1886999591397966,
                    0.58322079220608,
                    -0.06635848464008987,
                    -0.8920393153268569,
                    0.5636323656641604,
                    -3.894794018934382,
                    3.103618855955057,
                ],
                &[
                    -1.7392916079900944,
                    -0.9971650514050419,
                    2.812788732800971,
                    1.248916425193141,
                    -1.073497124810877,
                    -0.25175137378809875,
                ],
                &[0.37407615517256654, 0.2814393373392212],
                &[-0.0; 4],
            ]);
            let case = small(s, PolicyLoss::Vespo);
            s.case(case).forward_only("by definition").gradients([
                &[
                    0.1792119263468041,
                    -0.3054443012868929,
                    0.6989543369185873,
                    -0.07952657252683726,
                    -0.8722415884821226,
                    0.5511232313417772,
                    -3.91008154867028,
                    3.1158009290810416,
                ],
                &[
                    -1.70052386579506,
                    -1.1774399360914316,
                    2.7844852405774048,
                    1.1577587659419746,
                    -1.0839613747823449,
                    0.019681170149456917,
                ],
                &[0.04768891613449861, 0.29747071548863196],
                &[-0.0; 4],
            ]);
        }
        // Its reciprocal is no number of any type.
        let cooled = of(s, [3, 4, 6, 7]).bias(s.normal([7])).temperature(0.7);
        s.case(cooled);
        let least = of(s, [2, 3, 4, 5]).loss_type(PolicyLoss::Sapo).sapo_temperature_neg(0.25).temperature(0.25);
        s.case(least.vespo_k_pos(0.0));
        // One token counts.
        let mask = s.values([2, 3], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]).cast(DType::Bool);
        let single = ARGUMENTS.attention_mask.set(of(s, [2, 3, 4, 5]).loss_type(PolicyLoss::Dapo), mask);
        s.case(single);
        let one = of(s, [2, 3, 4, 5]).loss_type(PolicyLoss::DrGrpo).max_completion_length(Some(1));
        s.case(one);
    }

    fn errors(e: &mut ErrorSamples) {
        let good = || {
            let (tokens, mask) = (e.integers(0, 5, [4, 3]), e.booleans([4, 3]));
            with(e.normal([4, 3, 4]), e.normal([5, 4]), tokens, mask, e.normal([4]), e.normal([4, 3]))
        };
        e.case(Layer, ARGUMENTS.weight.set(good(), e.normal([5, 3])), "expected [B, T, H] and [C, H] of one type");
        e.case(Target, ARGUMENTS.selected_token_ids.set(good(), e.integers(0, 5, [4, 2])), "expected [4, 3]");
        e.case(BiasShape, good().bias(e.normal([4])), "bias is f32[4], expected f32[5]");
        let (tokens, mask) = (e.integers(0, 5, [0, 3]), e.booleans([0, 3]));
        let none = with(e.normal([0, 3, 4]), e.normal([5, 4]), tokens, mask, e.normal([0]), e.normal([0, 3]));
        e.case(Sequences, none, "there are no sequences");
        e.case(Mask, ARGUMENTS.attention_mask.set(good(), e.booleans([4, 2])), "expected [4, 3]");
        e.case(Advantages, ARGUMENTS.advantages.set(good(), e.normal([3])), "advantages is f32[3], expected [4]");
        e.case(TokenShape, good().ref_per_token_logps(e.normal([4, 2])), "ref_per_token_logps is f32[4, 2]");
        let short = ARGUMENTS.old_per_token_logps.set(good(), e.normal([4, 2]));
        e.case(TokenShape, short, "old_per_token_logps is f32[4, 2]");
        let odd = e.values([1, 1], [-1.0]).cast(DType::I64);
        let (mask, one) = (e.values([1, 1], [1.0]).cast(DType::Bool), || e.normal([1]));
        let outside = with(e.normal([1, 1, 4]), e.normal([5, 4]), odd, mask, one(), e.normal([1, 1]));
        e.when_run("IndexOutOfRange", outside, "holds");
        e.case(Length, good().loss_type(PolicyLoss::DrGrpo), "needs a max_completion_length above 0");
        let none = good().loss_type(PolicyLoss::DrGrpo).max_completion_length(Some(0));
        e.case(Length, none, "above 0, which is Some(0)");
        e.case(Temperature, good().temperature(0.0), "temperature is 0, expected more than 0");
        e.case(Rates, good().vespo_lambda_pos(0.0), "a rate of vespo is 0, expected a finite number of at least 0.0");
        e.case(Rates, good().vespo_lambda_neg(1e-9), "a rate of vespo is 0.000000001");
        e.case(Rates, good().vespo_k_neg(-1.0), "a k of vespo is -1, expected a finite number of at least 0");
        e.case(Rates, good().vespo_k_pos(f64::INFINITY), "a k of vespo is inf");
        e.case(Rates, good().vespo_k_pos(10.0).vespo_lambda_pos(1e-4), "weights up to e^105, expected at most e^80");
        e.case(Rates, good().vespo_lambda_neg(100.0).vespo_k_neg(0.0), "weights up to e^100");
        let sequences = good().loss_type(PolicyLoss::Cispo).importance_sampling_level(ImportanceSampling::Sequence);
        e.case(Level, sequences, "vespo compare tokens");
        e.case(SapoTemperature, good().sapo_temperature_neg(0.0), "are 1 and 0, expected finite numbers above 0");
        e.case(SapoTemperature, good().sapo_temperature_pos(f64::INFINITY), "are inf and 1.05");
    }
}
