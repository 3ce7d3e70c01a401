//! Rows that a loss of classes ignores bring no infinity of theirs into it, nor into gradients.

use fulgurite::{Array, Result, Tensor, jit, tracer};
use fulgurite_ops::prelude::*;

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
