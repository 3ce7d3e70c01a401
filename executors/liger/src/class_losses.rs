//! Losses of rows of logits and classes, and their gradients: each row is read once, whether its loss, its gradient, or
//! both are wanted, as long as a block can keep it.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{DType, Tensor, TensorMeta, binds, refuse_unless};

use super::{liger, scaled, takes};
use fulgurite_executor_cuda::rows::streamed;
use fulgurite_executor_cuda::support::{WIDEST, are_aligned, pack_anywhere, type_of};
use fulgurite_ops::core::promotion::{cast, constant};
use fulgurite_ops::nn::{
    Reduction, class_losses, class_losses_backward, class_losses_with_gradient, loss_shares, reduced_losses,
};

/// Threads of a block that goes along a row, and the most of one that keeps it.
const STREAMING_THREADS: usize = 512;
const MOST_THREADS: usize = 1024;
/// The longest row: places in it are counted by an `int`, a little past its end.
const LONGEST: usize = 1 << 30;
/// Rows are kept in the shared memory of multiprocessors that have at least so many bytes of it, and what each block
/// takes for itself.
const SHARED_BYTES: usize = 228 << 10;
const OWN_BYTES: usize = 2 << 10;
/// Packs of a thread where a block is small, and the most of one that are in registers.
const FEW_STEPS: usize = 8;
const MOST_EXTRA: usize = 2;

/// How a block keeps a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    threads: usize,
    /// Packs of a thread in shared memory, and in registers.
    steps: usize,
    extra: usize,
    /// Blocks that a multiprocessor has at a time.
    blocks: usize,
}

impl Kept {
    /// For rows of `packs` packs; `None` if a block cannot keep one.
    fn new(packs: usize) -> Option<Kept> {
        let threads = if packs <= 512 * FEW_STEPS { 512 } else { MOST_THREADS };
        let all = packs.div_ceil(threads).max(1);
        let steps = all.min((SHARED_BYTES - OWN_BYTES) / (threads * WIDEST));
        let kept = Kept { threads, steps, extra: all - steps, blocks: 1 };
        let blocks = (SHARED_BYTES / (kept.bytes() + OWN_BYTES)).min(MOST_THREADS / threads).max(1);
        (kept.extra <= MOST_EXTRA).then_some(Kept { blocks, ..kept })
    }

    /// Dynamic shared memory of a block.
    fn bytes(self) -> usize {
        self.steps * self.threads * WIDEST
    }
}

/// Whether the kernels are written for these rows.
fn kernels_fit(input: &TensorMeta) -> Claim {
    takes("input", input)?;
    let columns = input.shape().last().copied().unwrap_or(0);
    refuse_unless!((1..=LONGEST).contains(&columns), "takes 1 to {LONGEST} classes, not {columns}");
    let rows = input.shape()[0];
    refuse_unless!(i32::try_from(rows).is_ok(), "takes at most {} rows, a block each, not {rows}", i32::MAX);
    Ok(())
}

/// Plans what is wanted of the losses of `args`: themselves, the gradient for the cotangents `d_losses`, or both.
fn plan_losses(
    plan: &mut Plan,
    args: &class_losses::Args<&DeviceTensor>,
    losses: Option<&DeviceTensor>,
    gradient: Option<(&DeviceTensor, &DeviceTensor)>,
) -> Result<()> {
    let class_losses::Args { input, target, weight, ignore_index, label_smoothing, lse_square_scale, softcap } = *args;
    let [rows, columns] = [input.shape()[0], input.shape()[1]];
    if rows == 0 {
        return Ok(());
    }
    plan.source(streamed("class_losses.cu", include_str!("class_losses.cu")));
    plan.define("ELEMENT", type_of(input.dtype()));
    plan.define("COLUMNS", columns);
    // Rows need not start at packs.
    let pack = pack_anywhere(0, input.dtype().size());
    plan.define("PACK", pack);
    let moved: Vec<&DeviceTensor> = [Some(input), gradient.map(|(_, to)| to)].into_iter().flatten().collect();
    plan.define("ALIGNED", u8::from(are_aligned(pack, &moved)));
    plan.define("TARGET", type_of(target.dtype()));
    plan.define("LOSSES", u8::from(losses.is_some()));
    plan.define("GRADIENT", u8::from(gradient.is_some()));
    plan.define("WEIGHTED", u8::from(weight.is_some()));
    plan.define("CLASS_WEIGHT", type_of(weight.unwrap_or(input).dtype()));
    plan.define("SMOOTHED", u8::from(label_smoothing > 0.0));
    plan.define("CAPPED", u8::from(softcap.is_some()));
    let fault = plan.fault("target");
    // A kernel does not read what it has no use for.
    let (d_losses, to) = gradient.unwrap_or((input, input));
    let mut parameters = binds![input, target, d_losses, weight.unwrap_or(input)];
    parameters.extend(binds![losses.unwrap_or(input), to, rows, ignore_index]);
    let numbers = [1.0 - label_smoothing, label_smoothing / columns as f64, lse_square_scale, softcap.unwrap_or(1.0)];
    parameters.extend(numbers.map(|number| Parameter::from(number as f32)));
    parameters.extend(binds![fault, Parameter::FaultCode]);
    let large = plan.properties().shared_bytes_per_multiprocessor >= SHARED_BYTES;
    match Kept::new(columns / pack).filter(|_| large && gradient.is_some()) {
        Some(kept) => {
            plan.define("THREADS", kept.threads);
            plan.define("STEPS", kept.steps);
            plan.define("EXTRA", kept.extra);
            plan.define("BLOCKS", kept.blocks);
            let blocks = rows.min(plan.properties().multiprocessors * kept.blocks);
            let shape = LaunchShape::linear(blocks as u32, kept.threads as u32).shared(kept.bytes() as u32);
            plan.launch("class_losses_kept", shape, parameters)
        }
        None => {
            plan.define("THREADS", STREAMING_THREADS);
            let shape = LaunchShape::linear(rows as u32, STREAMING_THREADS as u32);
            plan.launch("class_losses_streamed", shape, parameters)
        }
    }
}

#[implementation(of = class_losses, by = liger)]
mod class_losses_by_liger {
    fn checker(input: &TensorMeta) -> Claim {
        kernels_fit(input)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        plan_losses(plan, &args, Some(out), None)
    }
}

#[implementation(of = class_losses_backward, by = liger, in_place(input))]
mod class_losses_backward_by_liger {
    fn checker(input: &TensorMeta) -> Claim {
        kernels_fit(input)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { input, target, d_losses, weight, ignore_index, label_smoothing, lse_square_scale, softcap } = args;
        let of = class_losses::Args { input, target, weight, ignore_index, label_smoothing, lse_square_scale, softcap };
        plan_losses(plan, &of, None, Some((d_losses, out)))
    }
}

#[implementation(of = class_losses_with_gradient, by = liger, in_place(input))]
mod class_losses_with_gradient_by_liger {
    fn checker(input: &TensorMeta) -> Claim {
        kernels_fit(input)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, losses: &DeviceTensor, d_input: &DeviceTensor) -> Result<()> {
        let Args { input, target, d_losses, weight, ignore_index, label_smoothing, lse_square_scale, softcap } = args;
        let of = class_losses::Args { input, target, weight, ignore_index, label_smoothing, lse_square_scale, softcap };
        plan_losses(plan, &of, Some(losses), Some((d_losses, d_input)))
    }
}

/// What a reduced loss consists of, without weights of classes.
#[derive(Clone, Copy)]
struct Loss {
    ignore_index: i64,
    reduction: Reduction,
    label_smoothing: f64,
    lse_square_scale: f64,
    softcap: Option<f64>,
}

impl Loss {
    #[track_caller]
    fn of(self, input: Tensor, target: Tensor) -> Tensor {
        let Loss { ignore_index, reduction, label_smoothing, lse_square_scale, softcap } = self;
        let weight = None;
        let of = class_losses::Args { input, target, weight, ignore_index, label_smoothing, lse_square_scale, softcap };
        reduced_losses(of.call(), target, None, ignore_index, reduction)
    }

    /// The loss, and how the logits' gradient follows from its cotangent. The gradient is computed with the loss, for a
    /// cotangent of one, and multiplied by the cotangent. Where each row has a cotangent, or f16 might have no room for
    /// a gradient that is not scaled yet, the logits are read again.
    #[track_caller]
    fn differentiated(self, input: Tensor, target: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Tensor) {
        let Loss { ignore_index, reduction, label_smoothing, lse_square_scale, softcap } = self;
        let wide = input.dtype().accumulator();
        let early = (reduction != Reduction::None && input.dtype() != DType::F16).then(|| {
            let one = constant(1.0, &input.meta().with_shape([]).with_dtype(wide));
            let d_losses = loss_shares(one, target, None, ignore_index, reduction);
            let (losses, gradient) = class_losses_with_gradient::with(input, target, d_losses)
                .ignore_index(ignore_index)
                .label_smoothing(label_smoothing)
                .lse_square_scale(lse_square_scale)
                .softcap(softcap)
                .call();
            (reduced_losses(losses, target, None, ignore_index, reduction), gradient)
        });
        let loss = early.map_or_else(|| self.of(input, target), |(loss, _)| loss);
        (loss, move |d_loss: Tensor| match early {
            Some((_, gradient)) => scaled(gradient, d_loss),
            None => {
                class_losses_backward::with(input, target, loss_shares(d_loss, target, None, ignore_index, reduction))
                    .ignore_index(ignore_index)
                    .label_smoothing(label_smoothing)
                    .lse_square_scale(lse_square_scale)
                    .softcap(softcap)
                    .call()
            }
        })
    }
}

/// Whether a loss is one of rows and classes, without weights of classes, whose gradient the library's operators have.
fn takes_loss(input: &TensorMeta, target: &TensorMeta, weight: Option<&TensorMeta>) -> Claim {
    kernels_fit(input)?;
    refuse_unless!(input.rank() == 2, "input has rank {}, takes [N, C]", input.rank());
    refuse_unless!(target.dtype().is_integer(), "takes classes, not probabilities");
    refuse_unless!(weight.is_none(), "takes no class weights; class_losses does");
    Ok(())
}

#[implementation(of = fulgurite_ops::nn::cross_entropy, by = liger)]
mod cross_entropy_by_liger {
    fn checker(input: &TensorMeta, target: &TensorMeta, weight: Option<&TensorMeta>) -> Claim {
        takes_loss(input, target, weight)
    }

    fn execution(Args { input, target, weight: _, ignore_index, reduction, label_smoothing }: Args<Tensor>) -> Tensor {
        let loss = Loss { ignore_index, reduction, label_smoothing, lse_square_scale: 0.0, softcap: None };
        cast(loss.of(input, target), input.dtype())
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { input, target, weight: _, ignore_index, reduction, label_smoothing } = args;
        let loss = Loss { ignore_index, reduction, label_smoothing, lse_square_scale: 0.0, softcap: None };
        let (out, gradient) = loss.differentiated(input, target);
        (cast(out, input.dtype()), move |d_out: Tensor| {
            // Classes are integers, whose gradient nobody reads.
            Grads { input: gradient(cast(d_out, DType::F32)), target, weight: None }
        })
    }
}

#[implementation(of = fulgurite_ops::nn::regularized_cross_entropy, by = liger)]
mod regularized_cross_entropy_by_liger {
    fn checker(input: &TensorMeta, target: &TensorMeta, weight: Option<&TensorMeta>) -> Claim {
        takes_loss(input, target, weight)
    }

    fn execution(args: Args<Tensor>) -> Tensor {
        let Args { input, target, weight: _, ignore_index, reduction, .. } = args;
        let Args { label_smoothing, lse_square_scale, softcap, .. } = args;
        Loss { ignore_index, reduction, label_smoothing, lse_square_scale, softcap }.of(input, target)
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { input, target, weight: _, ignore_index, reduction, .. } = args;
        let Args { label_smoothing, lse_square_scale, softcap, .. } = args;
        let loss = Loss { ignore_index, reduction, label_smoothing, lse_square_scale, softcap };
        let (out, gradient) = loss.differentiated(input, target);
        (out, move |d_out: Tensor| Grads { input: gradient(d_out), weight: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_room_for_what_it_keeps() {
        for packs in (0..20_000).step_by(7) {
            let Some(kept) = Kept::new(packs) else {
                assert!(packs > 16 * 1024, "{packs}");
                continue;
            };
            assert!((kept.steps + kept.extra) * kept.threads >= packs, "{kept:?}");
            assert!(kept.blocks * (kept.bytes() + OWN_BYTES) <= SHARED_BYTES, "{kept:?}");
            assert!(kept.blocks * kept.threads <= MOST_THREADS, "{kept:?}");
        }
        // Llama 3's vocabulary in 16 bits.
        assert_eq!(Kept::new(128_256 / 8), Some(Kept { threads: 1024, steps: 14, extra: 2, blocks: 1 }));
        assert_eq!(Kept::new(32_000 / 8), Some(Kept { threads: 512, steps: 8, extra: 0, blocks: 2 }));
    }
}
