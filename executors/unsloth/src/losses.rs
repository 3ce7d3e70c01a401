//! The losses that the kernels compute.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::{DType, Tensor, TensorMeta, refuse_unless};

use super::kernels::kernels_fit;
use super::{cross_entropy, cross_entropy_backward, unsloth};
use fulgurite_ops::core::promotion::cast;
use fulgurite_ops::nn::{Reduction, loss_shares, reduced_losses};

/// Whether a loss is one of classes alone.
fn takes(input: &TensorMeta, target: &TensorMeta, weight: Option<&TensorMeta>, label_smoothing: f64) -> Claim {
    kernels_fit(input, target)?;
    refuse_unless!(weight.is_none(), "takes no class weights");
    refuse_unless!(label_smoothing == 0.0, "has no label smoothing, label_smoothing is {label_smoothing}");
    Ok(())
}

/// The reduced loss, f32, and how the logits' gradient follows from its cotangent: the logits are read again.
#[track_caller]
fn differentiated(
    input: Tensor,
    target: Tensor,
    ignore_index: i64,
    reduction: Reduction,
    softcap: Option<f64>,
) -> (Tensor, impl FnOnce(Tensor) -> Tensor) {
    let (losses, sums) = cross_entropy(input, target, ignore_index, 1.0, softcap);
    (reduced_losses(losses, target, None, ignore_index, reduction), move |d_out: Tensor| {
        let shares = loss_shares(cast(d_out, DType::F32), target, None, ignore_index, reduction);
        cross_entropy_backward(shares, input, sums, target, ignore_index, 1.0, softcap)
    })
}

#[implementation(of = fulgurite_ops::nn::cross_entropy, by = unsloth)]
mod cross_entropy_by_unsloth {
    fn checker(input: &TensorMeta, target: &TensorMeta, weight: Option<&TensorMeta>, label_smoothing: f64) -> Claim {
        takes(input, target, weight, label_smoothing)
    }

    fn execution(args: Args<Tensor>) -> Tensor {
        let Args { input, target, weight: _, ignore_index, reduction, label_smoothing: _ } = args;
        cast(differentiated(input, target, ignore_index, reduction, None).0, input.dtype())
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { input, target, weight: _, ignore_index, reduction, label_smoothing: _ } = args;
        let (out, gradient) = differentiated(input, target, ignore_index, reduction, None);
        // Classes are integers, whose gradient nobody reads.
        let of = move |d_out: Tensor| Grads { input: gradient(d_out), target, weight: None };
        (cast(out, input.dtype()), of)
    }
}

#[implementation(of = fulgurite_ops::nn::regularized_cross_entropy, by = unsloth)]
mod regularized_cross_entropy_by_unsloth {
    fn checker(Args { input, target, weight, label_smoothing, lse_square_scale, .. }: Args<&TensorMeta>) -> Claim {
        refuse_unless!(lse_square_scale == 0.0, "has no z-loss, lse_square_scale is {lse_square_scale}");
        takes(input, target, weight, label_smoothing)
    }

    fn execution(args: Args<Tensor>) -> Tensor {
        let Args { input, target, weight: _, ignore_index, reduction, label_smoothing: _, .. } = args;
        let Args { lse_square_scale: _, softcap, .. } = args;
        differentiated(input, target, ignore_index, reduction, softcap).0
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { input, target, weight: _, ignore_index, reduction, label_smoothing: _, .. } = args;
        let Args { lse_square_scale: _, softcap, .. } = args;
        let (out, gradient) = differentiated(input, target, ignore_index, reduction, softcap);
        (out, move |d_out: Tensor| Grads { input: gradient(d_out), weight: None })
    }
}
