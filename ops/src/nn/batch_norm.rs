//! Normalization of channels by statistics of the batch, of each item, or of earlier batches.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::{Tensor, TensorMeta};

use crate::core::arrays::{array, values};
use crate::core::promotion::{accumulating, cast};
use crate::core::{mean, var};
use crate::prims;

/// The arguments that have an element for each channel.
type Channels<T> = [(&'static str, Option<T>); 4];

/// What is wrong with arguments of channels: another shape, or a type other than that of `input` or the one it is
/// computed in.
fn wrong_channels(input: &TensorMeta, arguments: Channels<&TensorMeta>) -> Option<String> {
    let (channels, own) = (input.shape()[1], input.dtype());
    let wide = own.accumulator();
    arguments.into_iter().find_map(|(name, given)| {
        let given = given?;
        let fits = given.shape() == [channels] && [own, wide].contains(&given.dtype());
        let expected = if own == wide { own.to_string() } else { format!("{own} or {wide}") };
        (!fits).then(|| format!("{name} is {given}, expected [{channels}] of {expected}"))
    })
}

/// A vector of channels in the type that `x` has, repeated over the other dimensions.
#[track_caller]
fn of_channels(vector: Tensor, x: Tensor) -> Tensor {
    prims::broadcast_in_dim(cast(vector, x.dtype()), x.shape(), [1])
}

/// `(x - mean) / √(var + eps) · weight + bias`, where `spread` repeats `mean` and `var` over the places of `x`.
#[track_caller]
fn normalized(
    x: Tensor,
    [mean, var]: [Tensor; 2],
    spread: impl Fn(Tensor) -> Tensor,
    [weight, bias]: [Option<Tensor>; 2],
    eps: f64,
) -> Tensor {
    let normal = prims::mul(prims::sub(x, spread(mean)), spread(prims::rsqrt(prims::add(var, eps))));
    let scaled = weight.map_or(normal, |weight| prims::mul(normal, of_channels(weight, x)));
    bias.map_or(scaled, |bias| prims::add(scaled, of_channels(bias, x)))
}

/// A running statistic after a batch with the statistic `new`, rounded to its own type.
#[track_caller]
fn moved(running: Tensor, new: Tensor, momentum: f64) -> Tensor {
    let kept = prims::mul(cast(running, new.dtype()), 1.0 - momentum);
    cast(prims::add(kept, prims::mul(new, momentum)), running.dtype())
}

/// What normalizes a batch.
struct Used {
    /// Mean and biased variance of each channel.
    statistics: [Tensor; 2],
    /// Whether they are the batch's own.
    of_batch: bool,
    /// The running statistics after the batch.
    next: (Tensor, Tensor),
}

/// The statistics of a batch in `training`, otherwise, and for an empty one, the `running` ones.
#[track_caller]
fn used(input: Tensor, running: Option<(Tensor, Tensor)>, training: bool, momentum: f64) -> Used {
    let x = accumulating(input);
    if let Some((mean, var)) = running.filter(|_| !training || input.shape().contains(&0)) {
        return Used { statistics: [mean, var].map(|own| cast(own, x.dtype())), of_batch: false, next: (mean, var) };
    }
    let dims = places(input.rank(), false);
    let own = mean::with(x).dim(dims.clone()).call();
    let spread = |correction: f64| var::with(x).dim(dims.clone()).correction(correction).call();
    let unbiased = spread(1.0);
    let next = running.map_or_else(
        || (cast(own, input.dtype()), cast(unbiased, input.dtype())),
        |(mean, var)| (moved(mean, own, momentum), moved(var, unbiased, momentum)),
    );
    Used { statistics: [own, spread(0.0)], of_batch: true, next }
}

/// The places of a channel: all dimensions but the second; of one item without the first.
fn places(rank: usize, of_item: bool) -> Vec<i64> {
    (0..rank as i64).filter(|dim| *dim != 1 && (*dim != 0 || !of_item)).collect()
}

/// For references: mean, biased and unbiased variance of numbers.
fn statistics(numbers: &[f64]) -> [f64; 3] {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    [mean, squares / count, squares / (count - 1.0)]
}

/// `(input - mean) / √(var + eps) · weight + bias` of `input` [N, C, ...] with statistics of each channel: those of the
/// batch in `training` (the variance is the biased one), otherwise `running_mean` and `running_var`. `weight`, `bias`
/// and the running statistics are [C], of the type of `input` or of f32. Computed in f32 for f16 and bf16. Ioffe &
/// Szegedy, 2015.
///
/// Operators here do not change their operands, so the running statistics after the batch are results: in training `(1
/// - momentum) · running + momentum · new`, where the new variance is the unbiased one; otherwise, and for an empty
/// batch, as they were. Without running statistics these results are the mean and the unbiased variance of the batch.
/// Pass the results to the next step, as the optimizer's state; `value_and_grad_aux` returns them beside the gradients.
#[operator(torch = "nn.functional.batch_norm")]
pub mod batch_norm {
    use super::Used;
    use crate::core::promotion::constant_like;

    #[results(out, next_mean, next_var)]
    fn batch_norm(
        input: Tensor<Floating>,
        #[default(None)] running_mean: Option<Tensor<Floating>>,
        #[default(None)] running_var: Option<Tensor<Floating>>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(None)] bias: Option<Tensor<Floating>>,
        #[default(false)] training: bool,
        #[default(0.1)] momentum: f64,
        #[default(1e-5)] eps: f64,
    ) -> (Tensor, Tensor, Tensor);

    fn requires(args: Args<&TensorMeta>) -> Result<()> {
        let Args { input, running_mean, running_var, weight, bias, training, eps, .. } = args;
        require!(input.rank() > 1, InputRank, "input is {input}, expected [N, C, ...]");
        let both = running_mean.is_some() == running_var.is_some();
        require!(both, Statistics, "one of running_mean and running_var is given, expected both or none");
        require!(
            training || running_mean.is_some(),
            Statistics,
            "running_mean and running_var are absent, expected them outside of training"
        );
        let arguments = [running_mean, running_var, weight, bias];
        let names = ["running_mean", "running_var", "weight", "bias"];
        let wrong = super::wrong_channels(input, std::array::from_fn(|i| (names[i], arguments[i])));
        require!(wrong.is_none(), ChannelShape, "{}", wrong.unwrap_or_default());
        let count = input.shape()[0] * input.shape()[2..].iter().product::<usize>();
        let shape = input.shape();
        require!(
            !training || count != 1,
            OneValue,
            "input has shape {shape:?}, expected more than one value per channel in training"
        );
        require!(eps >= 0.0, Epsilon, "eps is {eps}, expected at least 0");
        Ok(())
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor, Tensor) {
        let Args { input, running_mean, running_var, weight, bias, training, momentum, eps } = args;
        let x = accumulating(input);
        let running = running_mean.zip(running_var);
        let Used { statistics, next, .. } = super::used(input, running, training, momentum);
        let spread = |each: Tensor| prims::broadcast_in_dim(each, x.shape(), [1]);
        let out = super::normalized(x, statistics, spread, [weight, bias], eps);
        (cast(out, input.dtype()), next.0, next.1)
    }

    /// Of the parts that need the batch, two sums of all places are enough: those of the cotangent, and of its products
    /// with what is normalized. The statistics are computed here, and not by a call, so that the pullback has them.
    fn grad(
        args: Args<Tensor>,
    ) -> ((Tensor, Tensor, Tensor), impl FnOnce((Option<Tensor>, Option<Tensor>, Option<Tensor>)) -> Grads) {
        let Args { input, running_mean, running_var, weight, bias, training, momentum, eps } = args;
        let running = running_mean.zip(running_var);
        let Used { statistics, of_batch, next } = super::used(input, running, training, momentum);
        let (x, shape, places) = (accumulating(input), input.shape().to_vec(), super::places(input.rank(), false));
        let empty = shape.contains(&0);
        let count: usize = places.iter().map(|dim| shape[*dim as usize]).product();
        let over: Vec<usize> = places.iter().map(|dim| *dim as usize).collect();
        let spread = move |each: Tensor| prims::broadcast_in_dim(each, &*shape, [1]);
        let [mean, var] = statistics;
        let out = super::normalized(x, statistics, &spread, [weight, bias], eps);
        let rstd = prims::rsqrt(prims::add(var, eps));
        ((cast(out, input.dtype()), next.0, next.1), move |(d_out, d_next_mean, d_next_var)| {
            let wide = |each: Tensor| cast(each, mean.dtype());
            // An empty batch gives no gradient, whatever the statistics are.
            let d = d_out.filter(|_| !empty).map(wide);
            let [d_mean, d_var] = [d_next_mean, d_next_var].map(|each| each.map(wide));
            let centred = prims::sub(accumulating(input), spread(mean));
            let normal = prims::mul(centred, spread(rstd));
            let sums = d.map(|d| [d, prims::mul(d, normal)].map(|each| prims::sum(each, &over)));
            let scale = weight.map_or(rstd, |weight| prims::mul(rstd, wide(weight)));
            let total = |parts: Vec<Option<Tensor>>| parts.into_iter().flatten().reduce(|a, b| prims::add(a, b));
            let zero = || constant_like(mean, 0.0);
            let [input_parts, mean_parts, var_parts] = if of_batch {
                let n = count as f64;
                // Factors of channels are made first: they are few.
                let of_out = d.zip(sums).map(|(d, [sum, along])| {
                    let [sum, along] = [sum, along].map(|total| spread(prims::mul(prims::div(total, n), scale)));
                    prims::sub(prims::sub(prims::mul(d, spread(scale)), sum), prims::mul(normal, along))
                });
                // What the results take of the batch: all of it, or `momentum`.
                let taken = |d: Tensor| if running.is_some() { prims::mul(d, momentum) } else { d };
                let kept = |d: Option<Tensor>| vec![d.map(|d| prims::mul(d, 1.0 - momentum))];
                let of_mean = d_mean.map(|d| spread(prims::div(taken(d), n)));
                let of_var = d_var
                    .map(|d| prims::mul(centred, spread(prims::div(prims::mul(taken(d), 2.0), (n - 1.0).max(0.0)))));
                [vec![of_out, of_mean, of_var], kept(d_mean), kept(d_var)]
            } else {
                let of_mean = sums.map(|[sum, _]| prims::neg(prims::mul(sum, scale)));
                let of_var = sums.map(|[_, along]| prims::mul(prims::mul(prims::mul(along, scale), rstd), -0.5));
                let of_out = d.map(|d| prims::mul(d, spread(scale)));
                [vec![of_out], vec![of_mean, d_mean], vec![of_var, d_var]]
            };
            let [sum, along] = [0, 1].map(|which| sums.map_or_else(zero, |sums| sums[which]));
            let of = |argument: Option<Tensor>, own: Tensor| argument.map(|argument| cast(own, argument.dtype()));
            let none = || spread(zero());
            Grads {
                input: cast(total(input_parts).unwrap_or_else(none), input.dtype()),
                running_mean: of(running_mean, total(mean_parts).unwrap_or_else(zero)),
                running_var: of(running_var, total(var_parts).unwrap_or_else(zero)),
                weight: of(weight, along),
                bias: of(bias, sum),
            }
        })
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let Args { input, running_mean, running_var, weight, bias, training, momentum, eps } = args;
        let channels = input.shape()[1];
        let (mut out, mut next) = (input.clone(), [vec![f64::NAN; channels], vec![f64::NAN; channels]]);
        for (channel, mut own) in out.axis_iter_mut(ndarray::Axis(1)).enumerate() {
            let [mean, biased, unbiased] = super::statistics(&own.iter().copied().collect::<Vec<_>>());
            let running = running_mean.zip(running_var).map(|(mean, var)| (mean[[channel]], var[[channel]]));
            let (used, after) = match running {
                Some(running) if !training || own.is_empty() => (running, running),
                Some((m, v)) => {
                    let step = |old: f64, new: f64| (1.0 - momentum) * old + momentum * new;
                    ((mean, biased), (step(m, mean), step(v, unbiased)))
                }
                None => ((mean, biased), (mean, unbiased)),
            };
            (next[0][channel], next[1][channel]) = after;
            let [scale, shift] = [(weight, 1.0), (bias, 0.0)].map(|(own, none)| own.map_or(none, |own| own[[channel]]));
            own.mapv_inplace(|x| (x - used.0) / (used.1 + eps).sqrt() * scale + shift);
        }
        let [mean, var] = next.map(|next| array(&[channels], next));
        (out, mean, var)
    }

    fn samples(s: &mut Samples) {
        for (shape, training) in [(&[4, 3][..], true), (&[2, 3, 5], true), (&[2, 3, 2, 4], false)] {
            let running = |s: &Samples| {
                let (mean, var) = (s.normal([3]), s.uniform(0.5, 2.0, [3]));
                with(s.normal(shape)).running_mean(mean).running_var(var).training(training)
            };
            let (affine, plain) = (running(s).weight(s.normal([3])).bias(s.normal([3])), running(s));
            s.case(affine);
            if training {
                s.case(plain.momentum(0.5).eps(0.1));
            }
        }
        s.case(with(s.normal([5, 2])).training(true).weight(s.normal([2])));
        let running =
            |s: &Samples| with(s.normal([0, 2, 3])).running_mean(s.normal([2])).running_var(s.uniform(0.5, 2.0, [2]));
        let (empty, trained) = (running(s), running(s).training(true));
        s.case(empty);
        s.case(trained);
        s.case(with(s.normal([33, 7, 9])).training(true).bias(s.normal([7])));
        if s.dtype().accumulator() != s.dtype() {
            let (mean, var, weight) = (s.normal([3]), s.uniform(0.5, 2.0, [3]), s.normal([3]));
            let [mean, var, weight] = [mean, var, weight].map(|tensor| tensor.cast(DType::F32));
            let mixed = with(s.normal([4, 3])).running_mean(mean).running_var(var).weight(weight);
            s.case(mixed.training(true));
        }
        s.case(with(s.normal([5, 2])).training(true).eps(0.0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(InputRank, with(e.normal([3])).training(true), "input is f32[3], expected [N, C, ...]");
        e.case(Statistics, with(e.normal([2, 3])), "are absent, expected them outside of training");
        let one = with(e.normal([2, 3])).running_mean(e.normal([3])).training(true);
        e.case(Statistics, one, "one of running_mean and running_var is given");
        let bias = with(e.normal([2, 3])).bias(e.normal([2])).training(true);
        e.case(ChannelShape, bias, "bias is f32[2], expected [3] of f32");
        let weight = with(e.normal([2, 3])).weight(e.of(DType::F64, [3])).training(true);
        e.case(ChannelShape, weight, "weight is f64[3], expected [3] of f32");
        let weight = with(e.of(DType::F16, [2, 3])).weight(e.of(DType::F64, [3])).training(true);
        e.case(ChannelShape, weight, "weight is f64[3], expected [3] of f16 or f32");
        e.case(OneValue, with(e.normal([1, 3])).training(true), "expected more than one value per channel");
        e.case(Epsilon, with(e.normal([2, 3])).training(true).eps(-1.0), "eps is -1, expected at least 0");
    }
}

/// `(input - mean) / √(var + eps) · weight + bias` of `input` [N, C, ...] with statistics of each channel of each item
/// (the variance is the biased one), or, unless `use_input_stats`, with `running_mean` and `running_var`. `weight`,
/// `bias` and the running statistics are [C], of the type of `input` or of f32. Computed in f32 for f16 and bf16.
/// Ulyanov et al., 2016.
///
/// The running statistics after the batch are results, as those of [`mod@batch_norm`]: they move by `momentum` towards
/// the mean over the items of their means and unbiased variances. Without running statistics these results are these
/// means.
#[operator(
    torch = "nn.functional.instance_norm",
    skip(layout, sample = 6, reason = "repeated elements have a variance of roundings alone, which is a result")
)]
pub mod instance_norm {
    #[results(out, next_mean, next_var)]
    fn instance_norm(
        input: Tensor<Floating>,
        #[default(None)] running_mean: Option<Tensor<Floating>>,
        #[default(None)] running_var: Option<Tensor<Floating>>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(None)] bias: Option<Tensor<Floating>>,
        #[default(true)] use_input_stats: bool,
        #[default(0.1)] momentum: f64,
        #[default(1e-5)] eps: f64,
    ) -> (Tensor, Tensor, Tensor);

    fn requires(args: Args<&TensorMeta>) -> Result<()> {
        let Args { input, running_mean, running_var, weight, bias, use_input_stats, eps, .. } = args;
        require!(input.rank() > 2, InputRank, "input is {input}, expected [N, C, ...] with a place or more");
        let both = running_mean.is_some() == running_var.is_some();
        require!(both, Statistics, "one of running_mean and running_var is given, expected both or none");
        require!(
            use_input_stats || running_mean.is_some(),
            Statistics,
            "running_mean and running_var are absent, expected them without use_input_stats"
        );
        let arguments = [running_mean, running_var, weight, bias];
        let names = ["running_mean", "running_var", "weight", "bias"];
        let wrong = super::wrong_channels(input, std::array::from_fn(|i| (names[i], arguments[i])));
        require!(wrong.is_none(), ChannelShape, "{}", wrong.unwrap_or_default());
        let shape = input.shape();
        require!(
            !use_input_stats || shape[2..].iter().product::<usize>() != 1,
            OneValue,
            "input has shape {shape:?}, expected more than one value per channel of an item"
        );
        require!(eps >= 0.0, Epsilon, "eps is {eps}, expected at least 0");
        Ok(())
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor, Tensor) {
        let Args { input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps } = args;
        let (x, shape) = (accumulating(input), input.shape());
        let running = running_mean.zip(running_var);
        let (used, over, next) = match running {
            Some((mean, var)) if !use_input_stats => {
                ([mean, var].map(|own| cast(own, x.dtype())), vec![1], (mean, var))
            }
            _ => {
                let dims = super::places(input.rank(), true);
                let own = mean::with(x).dim(dims.clone()).call();
                let spread = |correction: f64| var::with(x).dim(dims.clone()).correction(correction).call();
                let [of_items, unbiased] = [own, spread(1.0)].map(|each| mean::with(each).dim(vec![0]).call());
                let next = running.map_or_else(
                    || (cast(of_items, input.dtype()), cast(unbiased, input.dtype())),
                    |(mean, var)| (super::moved(mean, of_items, momentum), super::moved(var, unbiased, momentum)),
                );
                ([own, spread(0.0)], vec![0, 1], next)
            }
        };
        let spread = |each: Tensor| prims::broadcast_in_dim(each, &*shape, &over[..]);
        let out = super::normalized(x, used, spread, [weight, bias], eps);
        (cast(out, input.dtype()), next.0, next.1)
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let Args { input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps } = args;
        let (items, channels) = (input.shape()[0], input.shape()[1]);
        let each: usize = input.shape()[2..].iter().product();
        let (mut out, mut sums) = (values(input), vec![[0.0; 2]; channels]);
        let of = |own: Option<&ArrayD<f64>>, channel: usize, none: f64| own.map_or(none, |own| own[[channel]]);
        for (row, own) in out.chunks_mut(each.max(1)).enumerate() {
            let channel = row % channels;
            let [mean, biased, unbiased] = super::statistics(own);
            sums[channel][0] += mean / items as f64;
            sums[channel][1] += unbiased / items as f64;
            let running = (of(running_mean, channel, 0.0), of(running_var, channel, 0.0));
            let used = if use_input_stats { (mean, biased) } else { running };
            let (scale, shift) = (of(weight, channel, 1.0), of(bias, channel, 0.0));
            own.iter_mut().for_each(|x| *x = (*x - used.0) / (used.1 + eps).sqrt() * scale + shift);
        }
        let next = [running_mean, running_var].into_iter().enumerate().map(|(which, running)| {
            let next = (0..channels).map(|channel| match running {
                Some(running) if !use_input_stats => running[[channel]],
                Some(running) => (1.0 - momentum) * running[[channel]] + momentum * sums[channel][which],
                None => sums[channel][which],
            });
            array(&[channels], next.collect())
        });
        let next: Vec<ArrayD<f64>> = next.collect();
        (array(input.shape(), out), next[0].clone(), next[1].clone())
    }

    fn samples(s: &mut Samples) {
        for (shape, own) in [(&[4, 3, 5][..], true), (&[2, 3, 2, 4], true), (&[2, 3, 4], false)] {
            let running = |s: &Samples| {
                let (mean, var) = (s.normal([3]), s.uniform(0.5, 2.0, [3]));
                with(s.normal(shape)).running_mean(mean).running_var(var).use_input_stats(own)
            };
            let (affine, plain) = (running(s).weight(s.normal([3])).bias(s.normal([3])), running(s));
            s.case(affine);
            if own {
                s.case(plain.momentum(0.5).eps(0.1));
            }
        }
        s.case(with(s.normal([2, 4, 3])).weight(s.normal([4])));
        s.case(with(s.normal([9, 7, 33])).bias(s.normal([7])));
        s.case(with(s.normal([2, 2, 5])).eps(0.0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(InputRank, with(e.normal([2, 3])), "input is f32[2, 3], expected [N, C, ...]");
        let none = with(e.normal([2, 3, 4])).use_input_stats(false);
        e.case(Statistics, none, "are absent, expected them without use_input_stats");
        e.case(Statistics, with(e.normal([2, 3, 4])).running_var(e.normal([3])), "expected both or none");
        e.case(ChannelShape, with(e.normal([2, 3, 4])).bias(e.normal([2])), "bias is f32[2], expected [3] of f32");
        e.case(OneValue, with(e.normal([2, 3, 1])), "expected more than one value per channel of an item");
        e.case(Epsilon, with(e.normal([2, 3, 4])).eps(-1.0), "eps is -1, expected at least 0");
    }
}
