//! What losses over preferred and rejected sequences share: the log-probabilities of sequences of tokens, of a linear
//! layer whose logits never exist for all tokens.

use fulgurite_runtime::rules::Precondition;
use fulgurite_runtime::{DType, Failure, Tensor, TensorMeta};
use ndarray::ArrayD;

use super::logit_rows::{RowOptions, plain_losses};
use crate::core::arrays::{permuted, product, reshaped};
use crate::core::promotion::{cast, differs_from};
use crate::nn::{Reduction, fused_linear_cross_entropy, logsigmoid};
use crate::prims;

/// Hidden states of sequences, `input` [B, T, H], their next tokens, `target` [B, T], and the layer that predicts them:
/// `weight` [C, H] and `bias` [C]. Tokens of `ignore_index` count nothing.
#[derive(Clone, Copy)]
pub(crate) struct Sequences {
    /// [B, T, H].
    pub input: Tensor,
    /// [C, H].
    pub weight: Tensor,
    /// [B, T].
    pub target: Tensor,
    /// [C].
    pub bias: Option<Tensor>,
    /// The class of tokens that do not count.
    pub ignore_index: i64,
}

/// For metas: fails with the caller's codes unless `input` is [B, T, H], `weight` [C, H] of its type, `target` [B, T]
/// and `bias` [C] of its type. The names of `input`, `weight` and `bias` begin with `prefix`.
pub(crate) fn check_sequences(
    prefix: &str,
    [input, weight, target]: [&TensorMeta; 3],
    bias: Option<&TensorMeta>,
    [layer, tokens, biased]: [Precondition; 3],
) -> Result<(), Failure> {
    let fits = input.rank() == 3 && weight.rank() == 2 && input.shape()[2] == weight.shape()[1];
    if !fits || input.dtype() != weight.dtype() {
        return Err(layer.unmet(format_args!(
            "{prefix}input is {input}, {prefix}weight {weight}, expected [B, T, H] and [C, H] of one type"
        )));
    }
    if target.shape() != &input.shape()[..2] {
        return Err(tokens.unmet(format_args!("target is {target}, expected {:?}", &input.shape()[..2])));
    }
    let expected = input.with_shape([weight.shape()[0]]);
    match bias.filter(|bias| **bias != expected) {
        Some(bias) => Err(biased.unmet(format_args!("{prefix}bias is {bias}, expected {expected}"))),
        None => Ok(()),
    }
}

/// For metas: as [`check_sequences`], of a reference's hidden states and layer, which are given together or left out.
pub(crate) fn check_reference(
    target: &TensorMeta,
    input: Option<&TensorMeta>,
    weight: Option<&TensorMeta>,
    bias: Option<&TensorMeta>,
    [layer, tokens, biased, reference]: [Precondition; 4],
) -> Result<(), Failure> {
    match (input, weight, bias) {
        (Some(input), Some(weight), bias) => {
            check_sequences("ref_", [input, weight, target], bias, [layer, tokens, biased])
        }
        (None, None, None) => Ok(()),
        _ => Err(reference.unmet(format_args!("ref_input and ref_weight are given together, ref_bias only with them"))),
    }
}

/// For metas: fails with the caller's code unless the sequences are pairs: as many preferred ones as rejected ones
/// after them, one at least.
pub(crate) fn check_pairs(input: &TensorMeta, code: Precondition) -> Result<(), Failure> {
    let count = input.shape().first().copied().unwrap_or(0);
    if count > 0 && count.is_multiple_of(2) {
        return Ok(());
    }
    Err(code.unmet(format_args!("there are {count} sequences, expected as many preferred as rejected ones")))
}

impl Sequences {
    /// The log-probability of each token in the type that sums are accumulated in, zero for those that do not count:
    /// [B, T].
    #[track_caller]
    pub(crate) fn token_log_probabilities(&self) -> Tensor {
        let shape = self.input.shape().to_vec();
        let tokens = shape[0] * shape[1];
        let losses = fused_linear_cross_entropy::with(
            prims::reshape(self.input, [tokens, shape[2]]),
            self.weight,
            prims::reshape(self.target, [tokens]),
        );
        let losses = losses.bias(self.bias).ignore_index(self.ignore_index).reduction(Reduction::None).call();
        prims::reshape(prims::neg(losses), &shape[..2])
    }

    /// How many tokens of each sequence count, in `dtype`, at least one: [B].
    #[track_caller]
    fn lengths(&self, dtype: DType) -> Tensor {
        let counted = cast(differs_from(self.target, self.ignore_index), dtype);
        prims::maximum(prims::sum(counted, [1]), 1.0)
    }

    /// The log-probabilities of the sequences, sums over tokens or with `average` means: [B].
    #[track_caller]
    pub(crate) fn log_probabilities(&self, average: bool) -> Tensor {
        self.summed(self.token_log_probabilities(), average)
    }

    #[track_caller]
    fn summed(&self, tokens: Tensor, average: bool) -> Tensor {
        let sums = prims::sum(tokens, [1]);
        if average { prims::div(sums, self.lengths(sums.dtype())) } else { sums }
    }

    /// The sequences as pairs, whose first half is preferred.
    #[track_caller]
    pub(crate) fn pairs(&self, average: bool) -> Pairs {
        let tokens = self.token_log_probabilities();
        let [chosen, rejected] = halves(self.summed(tokens, average));
        let [preferred, _] = halves(tokens);
        let [counted, _] = halves(cast(differs_from(self.target, self.ignore_index), tokens.dtype()));
        let counted = prims::maximum(prims::sum(counted, [0, 1]), 1.0);
        Pairs { chosen, rejected, nll: prims::neg(prims::div(prims::sum(preferred, [0, 1]), counted)) }
    }
}

/// The first half of a tensor's items, and the second.
#[track_caller]
pub(crate) fn halves(tensor: Tensor) -> [Tensor; 2] {
    let (count, half) = (tensor.size(0), tensor.size(0) / 2);
    [[0, half], [half, count]].map(|chunk| super::chunked_linear::rows(tensor, chunk))
}

/// Pairs of sequences.
#[derive(Clone, Copy)]
pub(crate) struct Pairs {
    /// The log-probabilities of the preferred sequences: a number for each pair.
    pub chosen: Tensor,
    /// Those of the rejected sequences.
    pub rejected: Tensor,
    /// The mean negative log-probability of the preferred sequences' tokens: one number.
    pub nll: Tensor,
}

impl Pairs {
    /// The loss, the mean of `losses` over pairs and `alpha` times the mean negative log-probability if that is not
    /// left out, and what is reported beside it.
    #[track_caller]
    pub(crate) fn results(self, losses: Tensor, nll: Option<f64>) -> (Tensor, Tensor, Tensor) {
        let mean = prims::div(prims::sum(losses, [0]), losses.size(0) as f64);
        let loss = nll.map_or(mean, |alpha| prims::add(mean, prims::mul(self.nll, alpha)));
        (loss, self.chosen, self.rejected)
    }
}

/// `-(1 - smoothing) log σ(margin) - smoothing log σ(-margin)`: the loss of a preference that is wrong with the
/// probability `smoothing`.
#[track_caller]
pub(crate) fn smoothed(margin: Tensor, smoothing: f64) -> Tensor {
    let right = prims::mul(logsigmoid(margin), -(1.0 - smoothing));
    if smoothing == 0.0 {
        return right;
    }
    prims::sub(right, prims::mul(logsigmoid(prims::neg(margin)), smoothing))
}

/// `σ(x)`, elementwise, whose derived gradient is finite for every x.
#[track_caller]
pub(crate) fn share(x: Tensor) -> Tensor {
    prims::exp(logsigmoid(x))
}

/// For references: `log σ(x)`.
pub(crate) fn plain_logsigmoid(x: f64) -> f64 {
    x.min(0.0) - (-x.abs()).exp().ln_1p()
}

/// For references: [`smoothed`].
pub(crate) fn plain_smoothed(margin: f64, smoothing: f64) -> f64 {
    -(1.0 - smoothing) * plain_logsigmoid(margin) - smoothing * plain_logsigmoid(-margin)
}

/// For references: the log-probability of each token, zero for those that do not count. A class out of range is an
/// error.
pub(crate) fn plain_tokens(
    input: &ArrayD<f64>,
    weight: &ArrayD<f64>,
    target: &ArrayD<i64>,
    bias: Option<&ArrayD<f64>>,
    ignore_index: i64,
) -> Result<Vec<Vec<f64>>, Failure> {
    let [count, length, width] = [0, 1, 2].map(|dim| input.shape()[dim]);
    let mut logits = product(&reshaped(input, &[count * length, width]), &permuted(weight, &[1, 0]));
    if let Some(bias) = bias {
        logits += bias;
    }
    let options = RowOptions { ignore_index, label_smoothing: 0.0, lse_square_scale: 0.0, softcap: None };
    let losses = plain_losses(&logits, &reshaped(target, &[count * length]), None, options)?;
    Ok(losses.chunks(length.max(1)).map(|row| row.iter().map(|(loss, _)| -loss).collect()).collect())
}

/// For references: the log-probability of each sequence.
pub(crate) fn plain_sequences(tokens: &[Vec<f64>], target: &ArrayD<i64>, ignore_index: i64, average: bool) -> Vec<f64> {
    let lengths = target.outer_iter().map(|row| row.iter().filter(|token| **token != ignore_index).count());
    let sums = tokens.iter().map(|row| row.iter().sum::<f64>());
    sums.zip(lengths).map(|(sum, length)| if average { sum / length.max(1) as f64 } else { sum }).collect()
}

/// For references: the results of a loss over pairs, of which `loss` gives one pair's.
pub(crate) fn plain_pairs(
    tokens: &[Vec<f64>],
    target: &ArrayD<i64>,
    ignore_index: i64,
    average: bool,
    nll: Option<f64>,
    loss: impl Fn(usize, f64, f64) -> f64,
) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
    let all = plain_sequences(tokens, target, ignore_index, average);
    let (chosen, rejected) = all.split_at(all.len() / 2);
    let pairs = chosen.iter().zip(rejected).enumerate();
    let mean = pairs.map(|(i, (chosen, rejected))| loss(i, *chosen, *rejected)).sum::<f64>() / chosen.len() as f64;
    let preferred = target.iter().take(target.len() / 2);
    let counted = preferred.filter(|token| **token != ignore_index).count().max(1) as f64;
    let likelihood = -tokens[..chosen.len()].iter().flatten().sum::<f64>() / counted;
    let loss = mean + nll.map_or(0.0, |alpha| alpha * likelihood);
    let array = |values: &[f64]| crate::core::arrays::array(&[values.len()], values.to_vec());
    (crate::core::arrays::array(&[], vec![loss]), array(chosen), array(rejected))
}
