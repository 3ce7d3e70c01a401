//! Dropout of whole channels, and dropout that keeps mean and variance.

use fulgurite_ops_macros::operators;
use fulgurite_runtime::rules::{ArrayD, Failure};
use fulgurite_runtime::{DType, Tensor};

use crate::core::promotion::{accumulating, cast, constant_like};
use crate::prims;
use crate::prims::checks;

/// The limit of SELU for numbers far below zero, by its magnitude: the product of its two constants.
const LIMIT: f64 = 1.758_099_340_847_376_6;

/// How many dimensions one number is drawn for: the batch and the channels, or the channels of one item.
fn drawn(rank: usize, batched: Option<usize>) -> usize {
    if batched.is_none_or(|batched| rank == batched) { 2.min(rank) } else { 1.min(rank) }
}

/// For references: [`drawn`].
fn drawn_plainly(rank: usize, batched: Option<usize>) -> usize {
    match batched {
        Some(batched) if rank != batched => rank.min(1),
        _ => rank.min(2),
    }
}

/// Where a number drawn for each of the first `leading` dimensions is at least `p`, repeated over the others.
#[track_caller]
fn kept(input: Tensor, leading: usize, p: f64, generator: Tensor) -> Tensor {
    let shape = input.shape().to_vec();
    let kept = prims::ge(prims::uniform(&shape[..leading], 0.0, 1.0, DType::F32, generator), p);
    prims::broadcast_in_dim(kept, shape, (0..leading).collect::<Vec<_>>())
}

/// For references: as [`kept`].
fn kept_array(shape: &[usize], leading: usize, p: f64, generator: &ArrayD<i64>) -> Result<ArrayD<bool>, Failure> {
    let drawn = crate::nn::draws(&shape[..leading], DType::F32, generator)?;
    let threshold = f64::from(p as f32);
    Ok(ArrayD::from_shape_fn(shape, |at| drawn[&ndarray::Dimension::slice(&at)[..leading]] >= threshold))
}

// Declares dropout of channels.
operators! {
    #[operator(torch = $torch, effects(random))]
    pub mod $name {
        fn $name(
            input: Tensor,
            #[default(0.5)] p: f64,
            #[default(true)] training: bool,
            #[default(None)] generator: Option<Tensor<Integer>>,
        ) -> Tensor;

        fn meta(input: &TensorMeta, p: f64, training: bool, generator: Option<&TensorMeta>) -> Result<TensorMeta> {
            require!((0.0..=1.0).contains(&p), Probability, "p is {p}, expected a probability from 0 to 1");
            let rank = input.rank();
            require!($ranks.contains(&rank), InputRank, "input is {input}, expected {}", $expected);
            let draws = training && p > 0.0 && p < 1.0;
            require!(
                !draws || input.dtype().is_floating(),
                DrawsFloating,
                "training with p = {p} scales what it keeps: input is {}, expected a floating-point dtype",
                input.dtype()
            );
            require!(
                !draws || generator.is_some(),
                NeedsGenerator,
                "training with p = {p} draws random numbers: give a generator, i64[2] of seed and offset"
            );
            if let Some(generator) = generator {
                checks::generator(generator, Code::Generator)?;
            }
            Ok(input.clone())
        }

        fn decomposition(input: Tensor, p: f64, training: bool, generator: Option<Tensor>) -> Tensor {
            match generator {
                Some(generator) if training && p > 0.0 && p < 1.0 => {
                    let kept = kept(input, drawn(input.rank(), $batched), p, generator);
                    prims::select(kept, prims::mul(input, 1.0 / (1.0 - p)), 0.0)
                }
                _ if training && p == 1.0 && !input.dtype().is_floating() => constant_like(input, 0i64),
                _ if training && p == 1.0 => prims::mul(input, 0.0),
                _ => input,
            }
        }

        fn reference(Args { input, p, training, generator }: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
            let input = input.floats();
            if !training || p == 0.0 {
                return Ok(input.clone());
            }
            let Some(generator) = generator.filter(|_| p < 1.0) else { return Ok(input.mapv(|x| x * 0.0)) };
            let kept = kept_array(input.shape(), drawn_plainly(input.ndim(), $batched), p, generator)?;
            let value = |x: &f64, kept: &bool| if *kept { x / (1.0 - p) } else { 0.0 };
            Ok(ndarray::Zip::from(input).and(&kept).map_collect(value))
        }

        fn samples(s: &mut Samples) {
            for shape in [&$shape[..], &$shape[1..]] {
                if s.dtype().is_floating() {
                    s.case(with(s.normal(shape)).p(0.25).generator(s.integers(0, 1 << 20, [2])));
                }
            }
            if s.dtype().is_floating() {
                s.case(with(s.normal($shape)).p(0.6).generator(s.integers(0, 1 << 20, [3])));
            }
            s.case(with(s.normal($shape)).training(false));
            s.case(with(s.normal($shape)).p(0.0));
            s.case(with(s.normal($shape)).p(1.0));
            s.case(with(s.normal($shape)).p(1.0).generator(s.integers(0, 1 << 20, [2])));
        }

        fn errors(e: &mut ErrorSamples) {
            let input = || e.normal($shape);
            e.case(Probability, with(input()).p(1.5), "p is 1.5, expected a probability from 0 to 1");
            e.case(InputRank, with(e.normal([])).p(0.0), "input is f32[], expected");
            e.case(DrawsFloating, with(e.of(DType::I64, $shape)), "input is i64, expected a floating-point dtype");
            e.case(NeedsGenerator, with(input()), "give a generator");
            e.case(NeedsGenerator, with(input()).p(0.125), "give a generator");
            e.case(Generator, with(input()).generator(e.integers(0, 9, [4])), "generator is i64[4]");
        }
    }

    table($name, $torch, $ranks, $batched, $expected, $shape) {
        /// Whole channels of `input` [N, C, L] or [C, L] are zero with probability `p` and otherwise divided by `1 -
        /// p`, in training. Draws are those of [`mod@crate::nn::dropout`], one for each channel of an item. Tompson et
        /// al., 2015.
        dropout1d, "nn.functional.dropout1d", (2..=3), Some(3), "[N, C, L] or [C, L]", [3, 5, 4];
        /// Whole channels of `input` [N, C, ...] are zero with probability `p` and otherwise divided by `1 - p`, in
        /// training. Draws are those of [`mod@crate::nn::dropout`], one for each channel of an item; as in PyTorch
        /// three dimensions are [N, C, L].
        dropout2d, "nn.functional.dropout2d", (2..), None, "[N, C, ...]", [2, 5, 4, 3];
        /// Whole channels of `input` [N, C, D, H, W], or of [C, ...] with another number of dimensions, are zero with
        /// probability `p` and otherwise divided by `1 - p`, in training. Draws are those of
        /// [`mod@crate::nn::dropout`], one for each channel of an item.
        dropout3d, "nn.functional.dropout3d", (1..), Some(5), "[N, C, D, H, W] or [C, ...]", [2, 5, 2, 1, 3];
    }
}

// Declares dropout that keeps mean and variance.
operators! {
    #[operator(torch = $torch, effects(random))]
    pub mod $name {
        fn $name(
            input: Tensor,
            #[default(0.5)] p: f64,
            #[default(false)] training: bool,
            #[default(None)] generator: Option<Tensor<Integer>>,
        ) -> Tensor;

        fn meta(input: &TensorMeta, p: f64, training: bool, generator: Option<&TensorMeta>) -> Result<TensorMeta> {
            require!((0.0..=1.0).contains(&p), Probability, "p is {p}, expected a probability from 0 to 1");
            let draws = training && p > 0.0 && p < 1.0;
            let of_channels: bool = $of_channels;
            let has_channels = !of_channels || input.rank() > 1;
            require!(
                !draws || input.dtype().is_floating(),
                DrawsFloating,
                "training with p = {p} moves and scales elements: input is {}, expected a floating-point dtype",
                input.dtype()
            );
            require!(
                !draws || (generator.is_some() && has_channels),
                Draws,
                "training with p = {p} draws random numbers: {}",
                match has_channels {
                    true => "give a generator, i64[2] of seed and offset".to_owned(),
                    false => format!("input is {input}, expected [N, C, ...]"),
                }
            );
            if let Some(generator) = generator {
                checks::generator(generator, Code::Generator)?;
            }
            Ok(input.clone())
        }

        fn decomposition(input: Tensor, p: f64, training: bool, generator: Option<Tensor>) -> Tensor {
            match generator {
                Some(generator) if training && p > 0.0 && p < 1.0 => {
                    let scale = 1.0 / ((LIMIT * LIMIT * p + 1.0) * (1.0 - p)).sqrt();
                    let x = accumulating(input);
                    let moved = prims::add(prims::mul(x, scale), LIMIT * scale * p);
                    let leading = if $of_channels { 2 } else { input.rank() };
                    let kept = kept(input, leading, p, generator);
                    cast(prims::select(kept, moved, LIMIT * scale * (p - 1.0)), input.dtype())
                }
                _ if training && p == 1.0 && !input.dtype().is_floating() => constant_like(input, 0i64),
                _ if training && p == 1.0 => prims::mul(input, 0.0),
                _ => input,
            }
        }

        fn reference(Args { input, p, training, generator }: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
            let input = input.floats();
            if !training || p == 0.0 {
                return Ok(input.clone());
            }
            let Some(generator) = generator.filter(|_| p < 1.0) else { return Ok(input.mapv(|x| x * 0.0)) };
            let leading = if $of_channels { 2 } else { input.ndim() };
            let kept = kept_array(input.shape(), leading, p, generator)?;
            // Mean 0 and variance 1 of the input are those of the result: dropped elements have the limit of SELU.
            let (limit, variance) = (-LIMIT, (1.0 - p) * (1.0 + p * LIMIT * LIMIT));
            let value = |x: &f64, kept: &bool| ((if *kept { *x } else { limit }) - p * limit) / variance.sqrt();
            Ok(ndarray::Zip::from(input).and(&kept).map_collect(value))
        }

        fn samples(s: &mut Samples) {
            if s.dtype().is_floating() {
                for shape in [&[33, 5][..], &[2, 7, 3]] {
                    s.case(with(s.normal(shape)).p(0.25).training(true).generator(s.integers(0, 1 << 20, [2])));
                }
                s.case(with(s.normal([4, 8])).training(true).generator(s.integers(0, 1 << 20, [3])));
            }
            s.case(with(s.normal([4, 8])));
            s.case(with(s.normal([4, 8])).p(0.0).training(true));
            s.case(with(s.normal([4, 8])).p(1.0).training(true));
            s.case(with(s.normal([4, 8])).p(1.0).training(true).generator(s.integers(0, 1 << 20, [2])));
        }

        fn errors(e: &mut ErrorSamples) {
            let input = || e.normal([2, 3]);
            e.case(Probability, with(input()).p(1.5), "p is 1.5, expected a probability from 0 to 1");
            let whole = with(e.of(DType::I64, [2, 3])).training(true);
            e.case(DrawsFloating, whole, "input is i64, expected a floating-point dtype");
            e.case(Draws, with(input()).training(true), "give a generator");
            e.case(Draws, with(input()).training(true).p(0.125), "give a generator");
            let of_channels: bool = $of_channels;
            if of_channels {
                let flat = with(e.normal([3])).training(true).generator(e.integers(0, 9, [2]));
                e.case(Draws, flat, "input is f32[3], expected [N, C, ...]");
            }
            e.case(Generator, with(input()).generator(e.integers(0, 9, [4])), "generator is i64[4]");
        }
    }

    table($name, $torch, $of_channels) {
        /// Each element has the limit of SELU for small numbers, -1.758, with probability `p`, in training; all are
        /// then scaled and moved so that mean 0 and variance 1 stay what they are. Draws are those of
        /// [`mod@crate::nn::dropout`]. Integers and booleans pass where nothing is drawn. Klambauer et al., 2017.
        alpha_dropout, "nn.functional.alpha_dropout", false;
        /// As [`mod@alpha_dropout`] of whole channels of `input` [N, C, ...].
        feature_alpha_dropout, "nn.functional.feature_alpha_dropout", true;
    }
}
