//! Losses of classes at their edges: rows that are ignored bring no infinity into them, nor into gradients; one class
//! alone is certain.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::argument::{Arg, Attribute, Scalar};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::registry::find_operator;
use fulgurite_runtime::{Array, Result, Tensor, jit, tracer};

const INPUT: [f32; 4] = [f32::NEG_INFINITY, -0.1, -0.7, -0.7];

/// The loss of two rows, the first of which is ignored, and the gradients of `input` and `weight`.
fn ignored(
    weight: [f32; 2],
    reduction: Reduction,
    loss: impl Fn(Tensor, Tensor, Tensor, Reduction) -> Tensor,
) -> Result<[Vec<f32>; 3]> {
    let step = jit(|(input, target, weight): (Tensor, Tensor, Tensor)| {
        tracer::value_and_grad((input, weight), |(input, weight)| loss(*input, target, *weight, reduction).sum())
    });
    let arguments = (Array::new([2, 2], &INPUT)?, Array::new([2], &[-100i64, 1])?, Array::new([2], &weight)?);
    let (loss, (input, weight)) = step.call(arguments)?;
    Ok([loss.to_vec()?, input.to_vec()?, weight.to_vec()?])
}

#[test]
fn ignored_rows_bring_no_infinity_into_losses_and_gradients() -> Result<()> {
    for reduction in [Reduction::None, Reduction::Sum, Reduction::Mean] {
        for weight in [[1.0, 1.0], [f32::INFINITY, 2.0]] {
            let nll = |input, target, weight, reduction| {
                nll_loss::with(input, target).weight(Some(weight)).reduction(reduction).call()
            };
            let [loss, input, of_weight] = ignored(weight, reduction, nll)?;
            let mean = if reduction == Reduction::Mean { weight[1] } else { 1.0 };
            assert_eq!(loss, [0.7 * weight[1] / mean]);
            assert_eq!(input, [0.0, 0.0, 0.0, -weight[1] / mean]);
            let expected = if reduction == Reduction::Mean { 0.0 } else { 0.7 };
            assert!(of_weight[0] == 0.0 && (of_weight[1] - expected).abs() < 1e-6, "{of_weight:?}");

            let cross = |input, target, weight, reduction| {
                cross_entropy::with(input, target).weight(Some(weight)).reduction(reduction).call()
            };
            // Its gradient is a sum over all classes, whatever their weights.
            if weight[0].is_infinite() {
                continue;
            }
            let [loss, input, of_weight] = ignored(weight, reduction, cross)?;
            let all = [loss, input, of_weight].concat();
            assert!(all.iter().all(|value| value.is_finite()), "{reduction:?}, {weight:?}: {all:?}");
        }
    }
    Ok(())
}

/// The mean of no rows is no number, but its gradient is zero: nothing was counted.
#[test]
fn where_no_row_counts_gradients_are_zero() -> Result<()> {
    let cross = |input, target, weight, smoothing| {
        cross_entropy::with(input, target).weight(Some(weight)).label_smoothing(smoothing).call()
    };
    let regularized = |input, target, weight, smoothing| {
        regularized_cross_entropy::with(input, target).weight(Some(weight)).label_smoothing(smoothing).call()
    };
    for loss in [&cross as &dyn Fn(Tensor, Tensor, Tensor, f64) -> Tensor, &regularized] {
        for smoothing in [0.0, 0.1] {
            let step = jit(|(input, target, weight): (Tensor, Tensor, Tensor)| {
                tracer::value_and_grad((input, weight), |(input, weight)| loss(*input, target, *weight, smoothing))
            });
            let arguments =
                (Array::new([2, 2], &INPUT)?, Array::new([2], &[-100i64; 2])?, Array::new([2], &[1.0_f32, 2.0])?);
            let (loss, (input, weight)) = step.call(arguments)?;
            assert!(loss.to_vec::<f32>()?[0].is_nan());
            assert_eq!(input.to_vec::<f32>()?, [0.0; 4], "smoothing {smoothing}");
            assert_eq!(weight.to_vec::<f32>()?, [0.0; 2], "smoothing {smoothing}");
        }
    }
    Ok(())
}

/// `logical_not` tells a loss of 0 from one of a rounding. (The fuzzer's seed 1, case 1077.)
#[test]
fn the_loss_of_one_class_is_zero_by_kernel_and_reference() -> Result<()> {
    let forward = find_operator("cpu::cross_entropy_forward")?;
    for executors in [&["cpu"][..], &["reference"]] {
        for smoothing in [0.0, 0.1] {
            let certain = jit(|(input, target): (Tensor, Tensor)| {
                let numbers = [Scalar::Int(-100), Scalar::Float(smoothing)];
                let numbers = numbers.map(|number| Arg::Attribute(Attribute::Scalar(number)));
                let arguments = [Arg::Tensor(input), Arg::Tensor(target)].into_iter().chain(numbers).collect();
                logical_not(tracer::call(forward, arguments)[0])
            })
            .options(Options::default().with_executors(executors)?);
            let input = Array::new([3, 1], &[0.3_f32, -17.7, 1000.1])?;
            let certain = certain.call((input, Array::new([3], &[0i64; 3])?))?;
            assert_eq!(certain.to_f64()?, [1.0; 3], "{executors:?}, smoothing {smoothing}");
        }
    }
    Ok(())
}

/// Of a step over 512 rows of 64 numbers and 2000 classes the most bytes at a time, with its operands and results.
fn peak(loss: impl Fn(Tensor, Tensor, Tensor) -> Tensor) -> Result<u64> {
    let step = jit(|(input, weight, target): (Tensor, Tensor, Tensor)| {
        tracer::value_and_grad((input, weight), |(input, weight)| loss(*input, *weight, target))
    });
    let zeros = |shape: [usize; 2]| Array::new(shape, &vec![0.0_f32; shape[0] * shape[1]]);
    let arguments = (zeros([512, 64])?, zeros([2000, 64])?, Array::new([512], &[0i64; 512])?);
    Ok(step.compile(&arguments)?.program().memory().peak())
}

#[test]
fn the_logits_of_all_rows_never_exist_in_a_fused_linear_cross_entropy() -> Result<()> {
    let logits = 512 * 2000 * size_of::<f32>() as u64;
    let apart = peak(|input, weight, target| cross_entropy(linear(input, weight), target))?;
    let fused = peak(fused_linear_cross_entropy)?;
    assert!(apart > logits, "{apart} bytes, the logits have {logits}");
    assert!(fused < logits, "{fused} bytes, {apart} in two operators; the logits have {logits}");
    Ok(())
}

/// As PyTorch's: the mean of no losses is NaN, and no row has a gradient.
#[test]
fn where_no_row_counts_the_mean_is_nan_and_gradients_are_zero() -> Result<()> {
    type Loss = fn(Tensor, Tensor, Tensor, Tensor) -> Tensor;
    let losses: [(&str, Loss); 4] = [
        ("cross_entropy", |x, w, _, target| cross_entropy(linear(x, w), target)),
        ("regularized", |x, w, _, target| regularized_cross_entropy(linear(x, w), target)),
        ("fused", |x, w, _, target| fused_linear_cross_entropy(x, w, target)),
        ("fused with class weights", |x, w, of_class, target| {
            fused_linear_cross_entropy::with(x, w, target).ce_weight(of_class).call()
        }),
    ];
    for (name, loss) in losses {
        let step = jit(move |(input, weight, of_class, target): (Tensor, Tensor, Tensor, Tensor)| {
            tracer::value_and_grad((input, weight, of_class), |(x, w, of_class)| loss(*x, *w, *of_class, target))
        });
        let numbers = |count: usize| (0..count).map(|i| i as f32 / 7.0 - 1.0).collect::<Vec<_>>();
        let operands = (
            Array::new([5, 4], &numbers(20))?,
            Array::new([3, 4], &numbers(12))?,
            Array::new([3], &[1.0_f32, 2.0, 0.5])?,
            Array::new([5], &[-100_i64; 5])?,
        );
        let (loss, (input, weight, of_class)) = step.call(operands)?;
        assert!(loss.item()?.is_nan(), "{name}: {}", loss.item()?);
        for gradient in [input, weight, of_class] {
            assert!(gradient.to_f64()?.iter().all(|value| *value == 0.0), "{name}: {:?}", gradient.to_f64()?);
        }
    }
    Ok(())
}

/// The loss, and the gradients of `input` and `weight`, for a cotangent of 3.
fn tripled(fused: bool, reduction: Reduction) -> Result<[Vec<f64>; 3]> {
    let step = jit(move |(input, weight, target): (Tensor, Tensor, Tensor)| {
        tracer::value_and_grad((input, weight), |(input, weight)| {
            let loss = match fused {
                true => fused_linear_cross_entropy::with(*input, *weight, target).reduction(reduction).call(),
                false => cross_entropy::with(linear(*input, *weight), target).reduction(reduction).call(),
            };
            (loss * 3.0).sum()
        })
    });
    let numbers = |count: usize| (0..count).map(|i| (i * 37 % 17) as f64 / 17.0 - 0.5).collect::<Vec<_>>();
    let target: Vec<i64> = (0..9).map(|i| if i == 4 { -100 } else { i * 5 % 7 }).collect();
    let arguments = (Array::new([9, 6], &numbers(54))?, Array::new([7, 6], &numbers(42))?, Array::new([9], &target)?);
    let (loss, (input, weight)) = step.call(arguments)?;
    Ok([loss.to_f64()?, input.to_f64()?, weight.to_f64()?])
}

#[test]
fn gradients_computed_in_the_forward_pass_know_the_cotangent() -> Result<()> {
    for reduction in [Reduction::None, Reduction::Sum, Reduction::Mean] {
        let (fused, apart) = (tripled(true, reduction)?, tripled(false, reduction)?);
        for (fused, apart) in fused.iter().flatten().zip(apart.iter().flatten()) {
            assert!((fused - apart).abs() < 1e-12, "{reduction:?}: {fused} and {apart}");
        }
    }
    Ok(())
}
