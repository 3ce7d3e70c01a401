//! The functions of a run, compiled when they are first called.

use fulgurite_ops::collectives::draws_of_rank;
use fulgurite_ops::prelude::Tensor;
use fulgurite_runtime::compile::Stage;
use fulgurite_runtime::jit::{Bound, Jit};
use fulgurite_runtime::program::{Profile, Program};
use fulgurite_runtime::{Array, Result, jit};

use super::arrays::{generator, next_arrays, step_scalars};
use super::options::{OnNonFinite, TrainOptions};
use super::parallel::{Leaves, averaged, state_trees};
use crate::batches::Batches;
use crate::head::Logits;
use crate::model::Model;
use crate::parameter_list::Parameters;
use crate::step::{
    BatchTensors, Guard, StepScalars, TrainState, accumulate_step, guarded_step, guarded_update, loss_and_gradients,
};

/// A function of arrays `A`, traced with tensors `T` in their place.
type Function<'a, A, T, O> = Jit<A, O, Box<dyn Fn(T) -> O + 'a>>;

/// State, batch, numbers, and what the step before reported.
type StepArguments<T> = (TrainState<T>, BatchTensors<T>, StepScalars<T>, T);
/// Parameters and their copies, sums of gradients and of losses, batch, random numbers.
type AccumulateArguments<T> = ((Parameters<T>, Parameters<T>), Parameters<T>, T, BatchTensors<T>, T);
type UpdateArguments<T> = (TrainState<T>, Parameters<T>, T, StepScalars<T>);
type GradientArguments<T> = (Parameters<T>, BatchTensors<T>, T);
/// Parameters, buffers, batch.
type LossArguments<T> = (Parameters<T>, Parameters<T>, BatchTensors<T>);

/// The state that steps update.
pub(super) type State = Bound<TrainState<Tensor>, Tensor>;

/// The loss of a validation batch, and the share of right answers if the model tells it.
pub(super) type ValidationLoss<'a> = Function<'a, LossArguments<Array>, LossArguments<Tensor>, Tensor>;

/// The parameters of a program that takes no more of the state.
const PARAMS: [(&str, Leaves); 1] = [("params", Leaves::Parameters)];

/// The name of the step on one batch.
pub(super) const STEP: &str = "train_step";

/// See the module.
pub(super) struct Programs<'a> {
    pub(super) config: &'a dyn Model,
    /// What of the logits exists at a time.
    pub(super) logits: Logits,
    /// A step on one batch.
    pub(super) step: Function<'a, StepArguments<Array>, StepArguments<Tensor>, (TrainState<Tensor>, Tensor)>,
    /// One batch of a step on several.
    pub(super) accumulate:
        Function<'a, AccumulateArguments<Array>, AccumulateArguments<Tensor>, (Parameters<Tensor>, Tensor)>,
    /// The end of a step on several batches.
    pub(super) update: Function<'a, UpdateArguments<Array>, UpdateArguments<Tensor>, (TrainState<Tensor>, Tensor)>,
    /// Run only where something is not finite, to say what.
    pub(super) gradients: Function<'a, GradientArguments<Array>, GradientArguments<Tensor>, Parameters<Tensor>>,
    /// The loss of a validation batch.
    pub(super) validation_loss: ValidationLoss<'a>,
}

impl<'a> Programs<'a> {
    /// The programs of a run, none of which is compiled.
    pub(super) fn new(options: &'a TrainOptions, config: &'a dyn Model, logits: Logits) -> Result<Programs<'a>> {
        let (optimizer, count) = (&options.optimizer, options.accumulate);
        let checkpointing = options.activation_checkpointing;
        // Without clipping the norm takes a pass of its own; unless it is measured, `stop` acts one step later.
        let measure = options.nonfinite == OnNonFinite::Skip;
        let step = move |(state, batch, scalars, previous): StepArguments<Tensor>| {
            let guard = Guard { measure, previous: Some(previous) };
            let step = || guarded_step(config, optimizer, state, batch, scalars, guard);
            logits.within(|| checkpointing.within(step))
        };
        let accumulate = move |(params, gradients, loss, batch, generator): AccumulateArguments<Tensor>| {
            // Gradients of a batch are not averaged, so that no strategy does this.
            let of_rank = |axis| draws_of_rank(generator, String::from(axis));
            let along = options.averaged_along().filter(|_| config.dropout() > 0.0);
            let generator = along.map_or(generator, of_rank);
            let step = || accumulate_step(config, count, params, gradients, loss, batch, generator);
            logits.within(|| checkpointing.within(step))
        };
        let update = move |(state, gradients, loss, scalars): UpdateArguments<Tensor>| {
            let (gradients, loss) = averaged(gradients, loss, options.averaged_along());
            guarded_update(config, optimizer, state, gradients, loss, &scalars, Guard { measure, previous: None })
        };
        let gradients = move |(params, batch, generator): GradientArguments<Tensor>| {
            let gradients = || loss_and_gradients(config, params, &Parameters::none(), &batch, generator).1;
            logits.within(|| checkpointing.within(gradients))
        };
        let loss = move |(params, buffers, batch): LossArguments<Tensor>| {
            logits.within(|| config.evaluation(&params, &buffers, &batch))
        };
        let sums = ("gradients", Leaves::Parameters);
        let of_batch = [("params.0", Leaves::Parameters), ("params.1", Leaves::Copies), sums];
        let state = state_trees(options);
        let updated = [&state[..], &[sums]].concat();
        Ok(Programs {
            config,
            logits,
            step: jit(Box::new(step) as Box<dyn Fn(_) -> _>)
                .named(STEP)
                .arguments(["state", "batch", "scalars", "previous"])
                .results(["state", "loss_and_norm"])
                .donate("state")
                .options(options.of_program(config, &state, &["previous"], true)?),
            accumulate: jit(Box::new(accumulate) as Box<dyn Fn(_) -> _>)
                .named("accumulate_step")
                .arguments(["params", "gradients", "loss", "batch", "generator"])
                .results(["gradients", "loss"])
                .donate("gradients")
                .donate("loss")
                .options(options.of_program(config, &of_batch, &[], false)?),
            update: jit(Box::new(update) as Box<dyn Fn(_) -> _>)
                .named("update_step")
                .arguments(["state", "gradients", "loss", "scalars"])
                .results(["state", "loss_and_norm"])
                .donate("state")
                .options(options.of_program(config, &updated, &[], false)?),
            gradients: jit(Box::new(gradients) as Box<dyn Fn(_) -> _>)
                .named("gradients")
                .arguments(["params", "batch", "generator"])
                .options(options.of_program(config, &PARAMS, &[], true)?),
            validation_loss: jit(Box::new(loss) as Box<dyn Fn(_) -> _>)
                .named("validation_loss")
                .arguments(["params", "buffers", "batch"])
                .options(options.of_program(config, &PARAMS, &[], false)?),
        })
    }

    /// What `of` takes of the program that runs once for each batch, and of its stages, in a run of this state.
    pub(super) fn of_batch<R>(
        &self,
        options: &TrainOptions,
        state: &TrainState<Array>,
        batches: &Batches,
        of: impl FnOnce(&Program, &[Stage]) -> R,
    ) -> Result<R> {
        let batch = next_arrays(&mut batches.clone())?;
        let scalars = step_scalars(options.lr, 1, options.seed)?;
        if options.accumulate == 1 {
            let compiled = self.step.compile(&(state.clone(), batch, scalars, no_report(options)?))?;
            return Ok(of(compiled.program(), compiled.stages()));
        }
        let gradients = options.own_zeros(self.config)?;
        let loss = Array::scalar(0.0);
        let params = (state.params.clone(), state.copies.clone());
        let arguments = (params, gradients, loss, batch, scalars.generator);
        let compiled = self.accumulate.compile(&arguments)?;
        Ok(of(compiled.program(), compiled.stages()))
    }

    /// Where the time of what runs once for each batch goes, in a run of this state.
    pub(super) fn profile(
        &self,
        options: &TrainOptions,
        state: TrainState<Array>,
        batches: &Batches,
    ) -> Result<Profile> {
        let batch = next_arrays(&mut batches.clone())?;
        if options.accumulate == 1 {
            let scalars = step_scalars(options.lr, 1, options.seed)?;
            return Ok(self.step.profile((state, batch, scalars, no_report(options)?))?.1);
        }
        let gradients = options.own_zeros(self.config)?;
        let loss = Array::scalar(0.0);
        let generator = generator(options.seed, 1, 0)?;
        let params = (state.params, state.copies);
        Ok(self.accumulate.profile((params, gradients, loss, batch, generator))?.1)
    }

    /// How often what runs once for each batch was compiled.
    pub(super) fn compiles(&self, options: &TrainOptions) -> usize {
        if options.accumulate == 1 { self.step.compiles() } else { self.accumulate.compiles() }
    }
}

/// What the first step has for the report of the step before it.
pub(super) fn no_report(options: &TrainOptions) -> Result<Array> {
    let norm = options.optimizer.clip.is_some() || options.nonfinite == OnNonFinite::Skip;
    let zeros = [0.0_f32; 2];
    let report = if norm { &zeros[..] } else { &zeros[..1] };
    Array::new([report.len()], report)
}
