//! Rows of logits and one class each: the losses, and their gradients, as the operators over them decompose.

use fulgurite_runtime::rules::Precondition;
use fulgurite_runtime::{DType, Failure, Tensor, TensorMeta};

use super::reduction::{Reduction, picked};
use crate::core::promotion::{accumulating, broadcast, cast, constant, differs_from};
use crate::nn::{log_normalizer, normalized_along, restored_along};
use crate::prims;

/// What the loss of a row consists of.
#[derive(Clone, Copy)]
pub(crate) struct RowOptions {
    /// Rows of this class count nothing.
    pub ignore_index: i64,
    /// What part of the target is spread over all classes.
    pub label_smoothing: f64,
    /// The factor of the squared log-sum-exp.
    pub lse_square_scale: f64,
    /// The bound `s` of `s · tanh(logit / s)`.
    pub softcap: Option<f64>,
}

/// A call of losses of classes, or of their gradient, with these options: each operator has a builder of its own type.
macro_rules! with_options {
    ($call:expr, $weight:expr, $options:expr) => {{
        let RowOptions { ignore_index, label_smoothing, lse_square_scale, softcap } = $options;
        let call = $call.weight($weight).ignore_index(ignore_index).label_smoothing(label_smoothing);
        call.lse_square_scale(lse_square_scale).softcap(softcap).call()
    }};
}
pub(crate) use with_options;

/// For metas: why `weight` is not one number for each of `classes` beside logits of `dtype`: of their type, or of the
/// type that sums of them are accumulated in, so that weights in f32 need not be rounded to the 16 bits of logits.
pub(crate) fn class_weight_fault(weight: &TensorMeta, classes: usize, dtype: DType) -> Option<String> {
    let wide = dtype.accumulator();
    if weight.shape() == [classes] && (weight.dtype() == dtype || weight.dtype() == wide) {
        return None;
    }
    let or_wide = if wide == dtype { String::new() } else { format!(" or {wide}[{classes}]") };
    Some(format!("weight is {weight}, expected {dtype}[{classes}]{or_wide}"))
}

/// For metas: fails with the caller's codes unless `input` is [N, C] with a class or more and `target` [N]; `weight`
/// has a number for each class ([`class_weight_fault`]); the smoothing is 0 to 1; the cap is positive.
pub(crate) fn check_rows(
    [input, target]: [&TensorMeta; 2],
    weight: Option<&TensorMeta>,
    label_smoothing: f64,
    softcap: Option<f64>,
    [rows, weights, smoothing, cap]: [Precondition; 4],
) -> Result<(), Failure> {
    let fits = input.rank() == 2 && input.shape()[1] > 0 && target.shape() == &input.shape()[..1];
    if !fits {
        return Err(rows.unmet(format_args!("input is {input}, target {target}, expected [N, C] with C > 0 and [N]")));
    }
    let fault = weight.and_then(|weight| class_weight_fault(weight, input.shape()[1], input.dtype()));
    if let Some(fault) = fault {
        return Err(weights.unmet(format_args!("{fault}")));
    }
    if !(0.0..=1.0).contains(&label_smoothing) {
        return Err(smoothing.unmet(format_args!("label_smoothing is {label_smoothing}, expected 0 to 1")));
    }
    match softcap {
        Some(softcap) if !(softcap.is_finite() && softcap > 0.0) => {
            Err(cap.unmet(format_args!("softcap is {softcap}, expected a finite number above 0")))
        }
        _ => Ok(()),
    }
}

/// Logits that were capped, and what is known of each row. There is a row at least.
pub(crate) struct LogitRows {
    /// The capped logits in the type that sums are accumulated in.
    x: Tensor,
    /// The hyperbolic tangents of capped logits.
    bent: Option<Tensor>,
    top: Tensor,
    log_sum: Tensor,
    target: Tensor,
    weight: Option<Tensor>,
    options: RowOptions,
}

impl LogitRows {
    #[track_caller]
    pub(crate) fn new(input: Tensor, target: Tensor, weight: Option<Tensor>, options: RowOptions) -> LogitRows {
        let wide = accumulating(input);
        let bent = options.softcap.map(|cap| prims::tanh(prims::div(wide, cap)));
        let x = match (bent, options.softcap) {
            (Some(bent), Some(cap)) => prims::mul(bent, cap),
            _ => wide,
        };
        let (top, log_sum) = log_normalizer(x, 1);
        LogitRows { x, bent, top, log_sum, target, weight: weight.map(accumulating), options }
    }

    fn classes(&self) -> usize {
        self.x.size(1)
    }

    /// What is spread over all classes, a class.
    fn spread(&self) -> f64 {
        self.options.label_smoothing / self.classes() as f64
    }

    #[track_caller]
    fn counted(&self) -> Tensor {
        differs_from(self.target, self.options.ignore_index)
    }

    /// The logarithm of the sum of the exponentials of each row.
    #[track_caller]
    fn log_sum_exp(&self) -> Tensor {
        prims::add(self.top, self.log_sum)
    }

    #[track_caller]
    fn per_row(&self, row: Tensor) -> Tensor {
        restored_along(row, self.x, 1)
    }

    #[track_caller]
    fn per_class(&self, class: Tensor) -> Tensor {
        broadcast(class, &self.x.shape())
    }

    /// Whether a logit is that of its row's class.
    #[track_caller]
    fn hits(&self) -> Tensor {
        // The numbers of the classes are read once a row: half as many bytes count.
        let narrow = if self.classes() < i32::MAX as usize { DType::I32 } else { self.target.dtype() };
        let numbers = prims::iota(self.classes(), 0i64, 1i64, narrow, self.x.device());
        prims::eq(self.per_class(numbers), self.per_row(cast(self.target, narrow)))
    }

    /// The weight of each row's class; `None` if all have one.
    #[track_caller]
    fn weights(&self, class: Tensor) -> Option<Tensor> {
        self.weight.map(|weight| prims::index_select(weight, 0, class))
    }

    /// The class of each row; 0 of rows that do not count.
    #[track_caller]
    fn class(&self) -> Tensor {
        prims::select(self.counted(), self.target, 0)
    }

    /// The loss of each row: [N].
    #[track_caller]
    pub(crate) fn losses(&self) -> Tensor {
        let class = self.class();
        // The difference of logits first: nothing is lost to their size.
        let mut loss = prims::sub(self.log_sum, prims::sub(picked(self.x, class), self.top));
        if let Some(weights) = self.weights(class) {
            loss = prims::mul(loss, weights);
        }
        if self.options.label_smoothing > 0.0 {
            let mut terms = normalized_along(self.x, self.top, self.log_sum, 1);
            if let Some(weight) = self.weight {
                terms = prims::mul(terms, self.per_class(weight));
            }
            let smooth = prims::mul(prims::sum(terms, [1]), -self.spread());
            loss = prims::add(prims::mul(loss, 1.0 - self.options.label_smoothing), smooth);
        }
        if self.options.lse_square_scale != 0.0 {
            let sum = self.log_sum_exp();
            loss = prims::add(loss, prims::mul(prims::mul(sum, sum), self.options.lse_square_scale));
        }
        prims::select(self.counted(), loss, 0.0)
    }

    /// The gradient of the logits before they were capped, in `dtype`: [N, C].
    #[track_caller]
    pub(crate) fn gradient(&self, d_losses: Tensor, dtype: DType) -> Tensor {
        let kept = 1.0 - self.options.label_smoothing;
        let weights = self.weights(self.class());
        // The loss is a sum over classes of numbers of theirs times `log_sum_exp - x`, and a function of log_sum_exp.
        let aimed = match weights {
            Some(weights) => prims::mul(prims::mul(weights, kept), d_losses),
            None => prims::mul(d_losses, kept),
        };
        let mut share = aimed;
        if self.options.label_smoothing > 0.0 {
            let smooth = match self.weight {
                Some(weight) => {
                    let all = prims::mul(prims::sum(weight, [0]), self.spread());
                    prims::mul(d_losses, broadcast(all, &d_losses.shape()))
                }
                None => prims::mul(d_losses, self.options.label_smoothing),
            };
            share = prims::add(share, smooth);
        }
        if self.options.lse_square_scale != 0.0 {
            let slope = prims::mul(self.log_sum_exp(), 2.0 * self.options.lse_square_scale);
            share = prims::add(share, prims::mul(slope, d_losses));
        }
        let probabilities = prims::exp(normalized_along(self.x, self.top, self.log_sum, 1));
        let hit = prims::select(self.hits(), self.per_row(aimed), 0.0);
        let mut gradient = prims::sub(prims::mul(probabilities, self.per_row(share)), hit);
        if self.options.label_smoothing > 0.0 {
            let spread = self.per_row(prims::mul(d_losses, self.spread()));
            let spread = self.weight.map_or(spread, |weight| prims::mul(spread, self.per_class(weight)));
            gradient = prims::sub(gradient, spread);
        }
        if let Some(bent) = self.bent {
            gradient = prims::mul(gradient, prims::sub(1.0, prims::mul(bent, bent)));
        }
        cast(prims::select(self.per_row(self.counted()), gradient, 0.0), dtype)
    }

    /// The gradient of the classes' weights, in the type that sums are accumulated in: [C].
    #[track_caller]
    pub(crate) fn weight_gradient(&self, d_losses: Tensor) -> Tensor {
        let surprise = prims::neg(normalized_along(self.x, self.top, self.log_sum, 1));
        // Other classes do not count without smoothing, not even where their logarithms are infinite.
        let mut terms = prims::mul(prims::select(self.hits(), surprise, 0.0), 1.0 - self.options.label_smoothing);
        if self.options.label_smoothing > 0.0 {
            terms = prims::add(terms, prims::mul(surprise, self.spread()));
        }
        let terms = prims::mul(terms, self.per_row(d_losses));
        prims::sum(prims::select(self.per_row(self.counted()), terms, 0.0), [0])
    }
}

/// What the losses of rows are divided by for a mean: the number of rows that count, or the sum of their classes'
/// weights. In `dtype`, zero-dimensional.
#[track_caller]
pub(crate) fn divisor(target: Tensor, weight: Option<Tensor>, ignore_index: i64, dtype: DType) -> Tensor {
    let counted = differs_from(target, ignore_index);
    let shares = match weight {
        Some(weight) => {
            let class = prims::select(counted, target, 0);
            prims::select(counted, prims::index_select(accumulating(weight), 0, class), 0.0)
        }
        None => cast(counted, dtype),
    };
    prims::sum(shares, [0])
}

/// Losses [N] of rows as one number, or as they are.
#[track_caller]
pub fn reduced_losses(
    losses: Tensor,
    target: Tensor,
    weight: Option<Tensor>,
    ignore_index: i64,
    reduction: Reduction,
) -> Tensor {
    match reduction {
        Reduction::None => losses,
        Reduction::Sum => prims::sum(losses, [0]),
        Reduction::Mean => prims::div(prims::sum(losses, [0]), divisor(target, weight, ignore_index, losses.dtype())),
    }
}

/// The cotangent of each of N losses, of that of what they were reduced to.
#[track_caller]
pub fn loss_shares(
    d_out: Tensor,
    target: Tensor,
    weight: Option<Tensor>,
    ignore_index: i64,
    reduction: Reduction,
) -> Tensor {
    let share = match reduction {
        Reduction::None | Reduction::Sum => d_out,
        Reduction::Mean => prims::div(d_out, divisor(target, weight, ignore_index, d_out.dtype())),
    };
    broadcast(share, &target.shape())
}

/// The meta of losses of rows, reduced: in the type that sums of the logits are accumulated in.
pub(crate) fn losses_meta(input: &TensorMeta, reduction: Reduction) -> TensorMeta {
    let shape = if reduction == Reduction::None { input.shape()[..1].to_vec() } else { Vec::new() };
    input.with_shape(shape).with_dtype(input.dtype().accumulator())
}

/// Nothing for each of no rows.
#[track_caller]
pub(crate) fn no_losses(input: Tensor) -> Tensor {
    constant(0.0, &losses_meta(&input.meta(), Reduction::None))
}

/// For references: the loss of each row, computed plainly, and the weight that it has in a mean. A class out of range
/// is an error.
pub(crate) fn plain_losses(
    input: &ndarray::ArrayD<f64>,
    target: &ndarray::ArrayD<i64>,
    weight: Option<&ndarray::ArrayD<f64>>,
    options: RowOptions,
) -> Result<Vec<(f64, f64)>, Failure> {
    let classes = input.shape()[1];
    let of_class = |class: usize| weight.map_or(1.0, |weight| weight[[class]]);
    let one = |(row, class): (usize, &i64)| {
        if *class == options.ignore_index {
            return Ok((0.0, 0.0));
        }
        let class = usize::try_from(*class).ok().filter(|class| *class < classes).ok_or_else(|| {
            Failure::new("IndexOutOfRange", format!("target holds {class}, there are {classes} classes"))
        })?;
        let x = |c: usize| options.softcap.map_or(input[[row, c]], |cap| cap * (input[[row, c]] / cap).tanh());
        let top = (0..classes).map(x).fold(f64::NEG_INFINITY, f64::max);
        let sum = top + (0..classes).map(|c| (x(c) - top).exp()).sum::<f64>().ln();
        let smooth: f64 = match options.label_smoothing {
            0.0 => 0.0,
            part => (0..classes).map(|c| part / classes as f64 * of_class(c) * (sum - x(c))).sum(),
        };
        let hard = (1.0 - options.label_smoothing) * of_class(class) * (sum - x(class));
        Ok((hard + smooth + options.lse_square_scale * sum * sum, of_class(class)))
    };
    target.iter().enumerate().map(one).collect()
}

/// For references: the gradient of [`plain_losses`] by `input`, times `d_losses`.
pub(crate) fn plain_gradient(
    input: &ndarray::ArrayD<f64>,
    target: &ndarray::ArrayD<i64>,
    d_losses: &ndarray::ArrayD<f64>,
    weight: Option<&ndarray::ArrayD<f64>>,
    options: RowOptions,
) -> ndarray::ArrayD<f64> {
    let classes = input.shape()[1];
    let of_class = |class: usize| weight.map_or(1.0, |weight| weight[[class]]);
    let mut gradient = ndarray::ArrayD::zeros(input.raw_dim());
    for (row, class) in target.iter().enumerate().filter(|(_, class)| **class != options.ignore_index) {
        let bent: Vec<f64> =
            (0..classes).map(|c| options.softcap.map_or(0.0, |cap| (input[[row, c]] / cap).tanh())).collect();
        let x = |c: usize| options.softcap.map_or(input[[row, c]], |cap| cap * bent[c]);
        let top = (0..classes).map(x).fold(f64::NEG_INFINITY, f64::max);
        let sum = top + (0..classes).map(|c| (x(c) - top).exp()).sum::<f64>().ln();
        // What the target wants of a class, with the class's weight.
        let wanted = |c: usize| {
            let hit = f64::from(u8::from(c as i64 == *class));
            ((1.0 - options.label_smoothing) * hit + options.label_smoothing / classes as f64) * of_class(c)
        };
        let all: f64 = (0..classes).map(wanted).sum();
        for c in 0..classes {
            let p = (x(c) - sum).exp();
            let slope = all * p - wanted(c) + 2.0 * options.lse_square_scale * sum * p;
            gradient[[row, c]] = d_losses[[row]] * slope * (1.0 - bent[c] * bent[c]);
        }
    }
    gradient
}
