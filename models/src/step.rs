//! The training step, traced whole: loss, gradients, clipping, the optimizer. The learning rate, the step's number and
//! the random generator are run-time tensors, so a run compiles once.

use fulgurite_ops::core::promotion::cast;
use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_ops_macros::Tree;
use fulgurite_runtime::tree::{Leaf, Tree};

pub use crate::batch_tensors::BatchTensors;
use crate::dropout::Dropout;
use crate::model::Model;
use crate::optimizer::{self, OptimizerSettings};
use crate::parameter_list::Parameters;

/// Parameters and the optimizer's states; one that it lacks is the list of no parameters.
#[derive(Debug, Clone, Tree)]
pub struct TrainState<T: Leaf> {
    /// Parameters.
    pub params: Parameters<T>,
    /// Running mean of gradients, or the momentum, of the parameters' element type.
    pub exp_avg: Parameters<T>,
    /// Running mean of squared gradients, of the parameters' element type.
    pub exp_avg_sq: Parameters<T>,
    /// The parameters that products read in 16 bits, rounded: of mixed precision. Otherwise none.
    pub copies: Parameters<T>,
    /// What steps change without gradients, in f32: running statistics. Most models have none.
    pub buffers: Parameters<T>,
}

/// What changes from step to step.
#[derive(Debug, Clone, Tree)]
pub struct StepScalars<T: Leaf> {
    /// Learning rate, f32[].
    pub lr: T,
    /// Number of this step, from 1, f32[].
    pub step: T,
    /// Seed and offset of the random numbers, `i64[2]`.
    pub generator: T,
}

/// Loss and gradients of one batch. `copies` are rounded copies of parameters, or none.
#[track_caller]
pub fn loss_and_gradients(
    config: &dyn Model,
    params: Parameters<Tensor>,
    copies: &Parameters<Tensor>,
    batch: &BatchTensors<Tensor>,
    generator: Tensor,
) -> (Tensor, Parameters<Tensor>) {
    value_and_grad(params, |params| {
        let dropout = Dropout::new(config.dropout(), generator);
        config.loss(&params.with_copies(copies), batch.inputs, batch.targets, &dropout)
    })
}

/// As [`loss_and_gradients`], with the buffers after the batch beside the loss.
#[track_caller]
pub fn loss_buffers_and_gradients(
    config: &dyn Model,
    state: &TrainState<Tensor>,
    batch: &BatchTensors<Tensor>,
    generator: Tensor,
) -> ((Tensor, Parameters<Tensor>), Parameters<Tensor>) {
    let TrainState { params, copies, buffers, .. } = state;
    if buffers.is_empty() {
        let (loss, gradients) = loss_and_gradients(config, params.clone(), copies, batch, generator);
        return ((loss, buffers.clone()), gradients);
    }
    value_and_grad_aux(params.clone(), |params| {
        let dropout = Dropout::new(config.dropout(), generator);
        config.training_loss(&params.with_copies(copies), buffers, batch, &dropout)
    })
}

/// The optimizer's update from gradients; also the gradients' total norm before clipping, where they are clipped.
/// (Nobody else needs it, and it takes another pass over all gradients.)
#[track_caller]
pub fn update(
    config: &dyn Model,
    optimizer: &OptimizerSettings,
    state: TrainState<Tensor>,
    gradients: Parameters<Tensor>,
    scalars: &StepScalars<Tensor>,
) -> (TrainState<Tensor>, Option<Tensor>) {
    let (list, norm) = clipped(&gradients, optimizer.clip);
    (apply_update(config, optimizer, state, &list, scalars, None), norm)
}

/// The gradients in the order of the leaves, clipped to a norm of `most`, and the norm before; as they are, and no
/// norm, without `most`.
fn clipped(gradients: &Parameters<Tensor>, most: Option<f64>) -> (Vec<Tensor>, Option<Tensor>) {
    let mut list = flat(gradients);
    let norm = most.and_then(|most| {
        list = scope("clip", || clip_grad_norm(&list, most));
        list.pop()
    });
    (list, norm)
}

/// The optimizer's update of all parameters, and of their copies; where `apply` is false, the state as it is.
fn apply_update(
    config: &dyn Model,
    settings: &OptimizerSettings,
    state: TrainState<Tensor>,
    list: &[Tensor],
    scalars: &StepScalars<Tensor>,
    apply: Option<Tensor>,
) -> TrainState<Tensor> {
    let decays: Vec<bool> = config.parameters().iter().map(|parameter| parameter.decays).collect();
    let names: Vec<String> = state.params.leaves().into_iter().map(|(path, _)| path).collect();
    let (params, means, squares) = (flat(&state.params), flat(&state.exp_avg), flat(&state.exp_avg_sq));
    let mut copies = state.copies.clone();
    let updated: Vec<(Tensor, [Option<Tensor>; 2])> = (0..params.len())
        .map(|i| {
            scope(&format!("optim.{}", names[i]), || {
                let states = [means.get(i).copied(), squares.get(i).copied()];
                let decay = if decays[i] { settings.weight_decay } else { 0.0 };
                let (own, numbers) = ((params[i], list[i]), (scalars.lr, scalars.step));
                let updated = optimizer::updated(settings, own, states, numbers, decay, apply);
                if let Some(copy) = copies.get_mut(&names[i]) {
                    *copy = cast(updated.0, copy.dtype());
                }
                updated
            })
        })
        .collect();
    let rebuild = |tree: Parameters<Tensor>, pick: fn(&(Tensor, [Option<Tensor>; 2])) -> Option<Tensor>| {
        let mut next = updated.iter().filter_map(pick);
        tree.map(&mut |old| next.next().unwrap_or(old))
    };
    TrainState {
        params: rebuild(state.params, |u| Some(u.0)),
        exp_avg: rebuild(state.exp_avg, |u| u.1[0]),
        exp_avg_sq: rebuild(state.exp_avg_sq, |u| u.1[1]),
        copies,
        buffers: state.buffers,
    }
}

/// What a guarded update looks at beside the loss.
#[derive(Debug, Clone, Copy, Default)]
pub struct Guard {
    /// Whether the gradients' norm is computed also where nothing is clipped.
    pub measure: bool,
    /// What the step before reported. The state stays as it is where that is not finite, so that the state is still the
    /// reported one when the report is read after the next step.
    pub previous: Option<Tensor>,
}

/// As [`update`], but the state stays as it is where the loss or the gradients' norm is not finite: one such gradient,
/// clipped with the others, would make every weight NaN. The second result says so in one small tensor: `f32[2]` of
/// loss and norm. The norm is there for clipping; without clipping it takes a pass over all gradients, which is made if
/// [`Guard::measure`] is set, and otherwise the second result is `f32[1]`, the loss alone, and decides alone.
#[track_caller]
pub fn guarded_update(
    config: &dyn Model,
    optimizer: &OptimizerSettings,
    state: TrainState<Tensor>,
    gradients: Parameters<Tensor>,
    loss: Tensor,
    scalars: &StepScalars<Tensor>,
    guard: Guard,
) -> (TrainState<Tensor>, Tensor) {
    let buffers = state.buffers.clone();
    guarded(config, optimizer, (state, buffers), (gradients, loss), scalars, guard)
}

/// As [`guarded_update`], with the buffers after the batch.
#[track_caller]
fn guarded(
    config: &dyn Model,
    optimizer: &OptimizerSettings,
    (state, buffers): (TrainState<Tensor>, Parameters<Tensor>),
    (gradients, loss): (Parameters<Tensor>, Tensor),
    scalars: &StepScalars<Tensor>,
    guard: Guard,
) -> (TrainState<Tensor>, Tensor) {
    let (list, norm) = clipped(&gradients, optimizer.clip.or(guard.measure.then_some(f64::INFINITY)));
    let (apply, report) = scope("guard", || match norm {
        Some(norm) => {
            // NaN where one of the two is not finite, and 0 otherwise.
            let apply = prims::isfinite(loss * 0.0 + norm * 0.0);
            (apply, prims::cat(vec![reshape(loss, [1]), reshape(norm, [1])], 0))
        }
        None => (prims::isfinite(loss), reshape(loss, [1])),
    });
    let apply = guard
        .previous
        .map_or(apply, |previous| scope("guard", || logical_and(apply, prims::isfinite(sum(previous * 0.0)))));
    let updated = apply_update(config, optimizer, state, &list, scalars, Some(apply));
    let mut before = flat(&updated.buffers).into_iter();
    let mut kept = |after: Tensor| before.next().map_or(after, |before| where_(apply, after, before));
    let buffers = scope("buffers", || buffers.map(&mut kept));
    (TrainState { buffers, ..updated }, report)
}

/// The leaves in their order.
fn flat(tree: &Parameters<Tensor>) -> Vec<Tensor> {
    tree.leaves().into_iter().map(|(_, leaf)| *leaf).collect()
}

/// A whole step on one batch, with a [`guarded_update`].
#[track_caller]
pub fn guarded_step(
    config: &dyn Model,
    optimizer: &OptimizerSettings,
    state: TrainState<Tensor>,
    batch: BatchTensors<Tensor>,
    scalars: StepScalars<Tensor>,
    guard: Guard,
) -> (TrainState<Tensor>, Tensor) {
    let ((loss, next), gradients) = loss_buffers_and_gradients(config, &state, &batch, scalars.generator);
    guarded(config, optimizer, (state, next), (gradients, loss), &scalars, guard)
}

/// What a training step gives back: the new state, the loss before it, the gradients' norm if they are clipped.
pub type StepResults<T> = (TrainState<T>, T, Option<T>);

/// A whole step on one batch.
#[track_caller]
pub fn train_step(
    config: &dyn Model,
    optimizer: &OptimizerSettings,
    state: TrainState<Tensor>,
    batch: BatchTensors<Tensor>,
    scalars: StepScalars<Tensor>,
) -> StepResults<Tensor> {
    let ((loss, next), gradients) = loss_buffers_and_gradients(config, &state, &batch, scalars.generator);
    let (state, norm) = update(config, optimizer, TrainState { buffers: next, ..state }, gradients, &scalars);
    (state, loss, norm)
}

/// The first of the two functions of a step over several batches: adds this batch's gradients, divided by their number,
/// to `gradients`, and its loss likewise to `loss`. With the parameters come rounded copies of them, or none.
#[track_caller]
pub fn accumulate_step(
    config: &dyn Model,
    batches: usize,
    (params, copies): (Parameters<Tensor>, Parameters<Tensor>),
    gradients: Parameters<Tensor>,
    loss: Tensor,
    batch: BatchTensors<Tensor>,
    generator: Tensor,
) -> (Parameters<Tensor>, Tensor) {
    let (batch_loss, batch_gradients) = loss_and_gradients(config, params, &copies, &batch, generator);
    let share = 1.0 / batches as f64;
    let mut own = batch_gradients.leaves().into_iter().map(|(_, leaf)| *leaf).collect::<Vec<_>>().into_iter();
    let gradients =
        scope("accumulate", || gradients.map(&mut |sum: Tensor| own.next().map_or(sum, |g| sum + g * share)));
    (gradients, loss + batch_loss * share)
}
