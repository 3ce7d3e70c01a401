//! A run's state: made, continued, evaluated.

use std::path::Path;

use fulgurite_runtime::compile::{Options, compile};
use fulgurite_runtime::{Array, DType, Error, Result};

use super::agreement::sums;
use super::arrays::batch_arrays;
use super::chunks::{Chunks, fitting};
use super::evaluation::Evaluation;
use super::failure::{Cause, Divergence, TrainError};
use super::options::TrainOptions;
use super::parallel::place;
use super::programs::{State, ValidationLoss};
use super::resume;
use super::saving::Saving;
use crate::argument_error::wrong;
use crate::batches::{Batches, Order, validation_batches};
use crate::checkpoint::Checkpoint;
use crate::config::Parameter;
use crate::generate::{Request, generate};
use crate::head::Logits;
use crate::model::Model;
use crate::model_config::ModelConfig;
use crate::optimizer::{FIRST_MOMENT, SECOND_MOMENT};
use crate::parameter_list::Parameters;
use crate::parameters::{copied, initial_parameters, parameters_from, placed, rounded_copies};
use crate::sampling::Sampling;
use crate::step::{BatchTensors, TrainState};
use crate::tokenizer::Tokenizer;
use crate::traces::step_trace;
use crate::{kept, training_data, weight_files};

/// A run at some step.
pub(super) struct Run {
    pub(super) config: ModelConfig,
    /// None of a model of images.
    pub(super) tokenizer: Option<Tokenizer>,
    pub(super) state: State,
    pub(super) done: u64,
    pub(super) batches: Batches,
    pub(super) validation: Vec<BatchTensors<Array>>,
    /// How many of them all ranks have; a rank may have one more than another.
    pub(super) validated: usize,
    /// Tokens of a step, or images.
    pub(super) tokens: usize,
    /// Settings other than those of the checkpoint that it continues from.
    pub(super) changed: Vec<String>,
    /// Why newer checkpoints than that were passed over.
    pub(super) passed_over: Vec<String>,
    /// The step of the newest checkpoint in the folder, if it is one of this run.
    pub(super) saved: Option<u64>,
    /// The newest checkpoint in the folder when the run began, or as the run saved it last.
    pub(super) known: Option<kept::Identity>,
    /// The checkpoint that is being written.
    pub(super) saving: Option<Saving>,
    /// The step that it was resumed at.
    pub(super) resumed: Option<u64>,
    /// Fields of the configuration that were given, `name=value` each.
    pub(super) fields: Vec<String>,
    /// Whether the prompt of the samples has tokens to begin with.
    pub(super) has_samples: bool,
    /// Why its logits are in chunks, if that was known before its weights were made.
    pub(super) chunks: Option<Chunks>,
    /// What of the logits exists, once there are programs.
    pub(super) logits: Logits,
    /// The same of the checkpoint that it continues from, if that says it.
    pub(super) logits_before: Option<Logits>,
}

impl Run {
    /// The run's numbers are not finite; which checkpoint remains.
    pub(super) fn divergence(&self, step: u64, cause: Cause) -> Divergence {
        Divergence { step, cause, saved: self.saved.or(self.resumed) }
    }
}

/// Refuses a model that does not fit before its weights are made, which takes minutes where they are many: by the plan
/// of its step, or, where gradients are accumulated over several programs, by what weights, moments and gradients take.
/// Why its logits are in chunks, if that is known by then.
pub(super) fn within_memory(options: &TrainOptions, config: &dyn Model, context: usize) -> Result<Option<Chunks>> {
    // A device says itself what it lacks.
    let limit = options.compile.memory_limit.filter(|_| options.device().is_cpu());
    // How much less the parts of the state take, the compiled program says.
    let limit = limit.filter(|_| !options.has_parts());
    let Some(limit) = limit else { return Ok(None) };
    let (dtype, rounded) = (options.precision.parameters(), options.precision.copies());
    let weights = (config.parameter_count() as u64).saturating_mul(dtype.size() as u64);
    let copied: usize = copied(config).iter().map(Parameter::elements).sum();
    let copies = rounded.map_or(0, |rounded| (copied as u64).saturating_mul(rounded.size() as u64));
    let (resident, transient) = (weights.saturating_mul(3).saturating_add(copies), weights);
    let least = resident.saturating_add(transient);
    if least > limit {
        let tried = "; weights, moments and gradients alone take that".into();
        return Err(Error::PlanTooLarge { predicted: least, resident, transient, limit, tried });
    }
    // What is small beside the limit is planned when it is compiled.
    if options.accumulate > 1 || least < limit / 8 {
        return Ok(None);
    }
    let asked = options.logits.or(options.family.images().map(|_| Logits::Whole));
    let planned = fitting(asked, |logits| {
        let step = || step_trace(config, &options.optimizer, (dtype, rounded), [options.batch, context]);
        let trace = logits.within(|| options.activation_checkpointing.within(step))?;
        let (program, _) = compile(trace, &options.compile)?;
        Ok(((), program.memory().peak()))
    });
    planned.map(|((), chunks)| chunks)
}

/// The model: that of a file, or else the named size, which gets the requested context. `resumed` is the checkpoint's;
/// it says the context of a named size where none is requested.
fn configured(
    options: &TrainOptions,
    fields: &[String],
    of_file: Option<&ModelConfig>,
    resumed: Option<&ModelConfig>,
    tokenizer: &Tokenizer,
) -> Result<ModelConfig> {
    let from = |name: &str| if of_file.is_some() { "init".to_owned() } else { name.to_owned() };
    let mut config = match of_file {
        Some(config) if config.family() == options.family => config.clone(),
        Some(config) => {
            let (found, expected) = (config.family(), options.family);
            return Err(wrong(
                "init",
                format!("holds weights of a {found} model, expected those of a {expected} model"),
            ));
        }
        None => match (&options.size, resumed) {
            (None, Some(config)) if options.set.is_empty() && config.family() == options.family => config.clone(),
            (size, _) => {
                let size = size.as_deref().unwrap_or(options.family.usual_size());
                let context = options.context.or(resumed.map(ModelConfig::context));
                ModelConfig::named(options.family, size, fields, context, tokenizer)?
            }
        },
    };
    config.set_dropout(options.dropout).map_err(|error| wrong("dropout", error))?;
    config.validate().map_err(|error| wrong(&from("model"), error))?;
    let context = options.context.unwrap_or(config.context());
    if !(1..=config.context()).contains(&context) {
        let most = config.context();
        let message = match &options.init {
            Some(path) if of_file.is_some() => format!(
                "is {context}, but the weights of '{}' have {most} positions: expected 1 to {most}; a model with more \
                 begins with random weights, by its size",
                path.display()
            ),
            _ => format!("is {context}, the model of '{}' takes 1 to {most}", from("size")),
        };
        return Err(wrong("context", message));
    }
    if config.vocabulary() < tokenizer.vocabulary() {
        let (name, ids, rows) = (tokenizer.name(), tokenizer.vocabulary(), config.vocabulary());
        let message = format!("'{name}' has {ids} ids, the model of '{}' has a vocabulary of {rows}", from("size"));
        return Err(wrong("tokenizer", message));
    }
    Ok(config)
}

/// What a run begins with: from random weights, those of a file, or a checkpoint. A run that never `evaluates` has no
/// validation batches, and needs no data that would fill one.
pub(super) fn prepare(options: &TrainOptions, checkpoint: &Path, evaluates: bool) -> Result<Run> {
    let load = if options.allow_nonfinite { weight_files::load_unchecked } else { weight_files::load };
    let initial = options.init.as_deref().map(|path| load(path, None)).transpose();
    let initial = initial.map_err(|error| wrong("init", error))?;
    let known = kept::Identity::of(checkpoint);
    let saved = options.resume.then(|| resume::newest_good(checkpoint, options.allow_nonfinite)).transpose()?;
    let stored = saved.as_ref().map(|saved| &saved.checkpoint.state);
    let tokenizer = match (&options.tokenizer, &initial, stored) {
        (Some(name), ..) => Tokenizer::open(name).map_err(|error| wrong("tokenizer", error))?,
        (None, Some(loaded), None) => loaded.tokenizer().map_err(|error| wrong("init", error))?,
        (None, _, Some(stored)) => {
            let name = Tokenizer::found(stored.tokenizer.clone(), checkpoint);
            Tokenizer::open(&name).map_err(|error| wrong("tokenizer", error))?
        }
        (None, None, None) => Tokenizer::bytes(),
    };
    let fields = resume::fields(options, saved.as_ref());
    let of_file = initial.as_ref().map(|loaded| loaded.weights.config());
    let config = configured(options, &fields, of_file, stored.map(|stored| &stored.model), &tokenizer)?;
    let context = options.context.or(stored.map(|stored| stored.data.context)).unwrap_or(config.context());
    let tokens = options.tokens_of_step(context)?;
    let prompt = tokenizer.encode_prompt(&options.prompt).map_err(|error| wrong("prompt", error))?;
    let has_samples = !prompt.is_empty();
    let logits_before = stored.and_then(resume::logits_of);
    let chunks = within_memory(options, &config, context)?;
    if let Some(saved) = &saved {
        // Where none is named it is the checkpoint's own, which may be at another place by now.
        let stored = &saved.checkpoint.state;
        let same = options.tokenizer.is_none() || tokenizer.is_stored_as(&stored.tokenizer, checkpoint);
        let name = if same { stored.tokenizer.clone().into() } else { tokenizer.name() };
        resume::check(options, stored, &config, &name, context)?;
    }
    let (train, validation) =
        training_data::open(&options.data, &options.validation, &tokenizer).map_err(|error| wrong("data", error))?;
    // As many sequences as one rank with whole batches would take; each rank has its share of them.
    let (place, ranks) = (place(&options.compile.mesh).map_err(|error| wrong("ranks", error))?, options.ranks());
    let count = options.evaluate_batches.saturating_mul(ranks);
    let batches_of = || validation_batches(&validation, options.batch, context, count);
    let validation = match evaluates {
        true => batches_of().map_err(|error| wrong("validation data", error))?,
        false => Vec::new(),
    };
    // Where parameters are gathered, all ranks compute as many losses.
    let whole = if options.sharded_along().is_some() { validation.len() / ranks * ranks } else { validation.len() };
    if evaluates && whole == 0 {
        let message = format!("has {} batches, expected one for each of {ranks} ranks", validation.len());
        return Err(wrong("validation data", message));
    }
    let validation = validation.iter().take(whole).skip(place).step_by(ranks);
    let validation = validation.map(batch_arrays).collect::<Result<Vec<_>>>()?;
    if let Some(saved) = saved {
        let resume::Continued { checkpoint, newest, passed_over } = saved;
        let Checkpoint { state: stored, tensors } = checkpoint;
        let saved = newest.then_some(stored.step);
        let changed = resume::changed(options, &stored);
        let batches = Batches::resume(train, stored.data).and_then(|batches| batches.of_rank(place, ranks));
        let batches = batches.map_err(|error| wrong("data", error))?;
        let read = |prefix: &str| parameters_from(&config, &tensors, prefix, options.precision.parameters());
        let states = options.optimizer.kind.states(&options.optimizer);
        let own = |prefix: &str, there: bool| match there {
            true => options.own(&config, read(prefix)?),
            false => Ok(Parameters::none()),
        };
        let moments = [own(FIRST_MOMENT, states[0])?, own(SECOND_MOMENT, states[1])?];
        return Ok(Run {
            state: state_of(options, &config, read("")?, moments, Parameters::none())?,
            done: stored.step,
            batches,
            validation,
            validated: whole,
            tokens,
            tokenizer: Some(tokenizer),
            config,
            changed,
            passed_over,
            saved,
            known,
            saving: None,
            resumed: Some(stored.step),
            fields,
            has_samples,
            chunks,
            logits: Logits::default(),
            logits_before,
        });
    }
    let batches = Batches::new(train, options.whole_batch(), context, Order::Shuffled, options.seed)
        .and_then(|batches| batches.of_rank(place, ranks))
        .map_err(|error| wrong("data", error))?;
    let params = match &initial {
        Some(loaded) => loaded.weights.params()?,
        None => initial_parameters(&config, options.seed)?,
    };
    let [first, second] = options.optimizer.kind.states(&options.optimizer);
    let zeros = |there: bool| if there { options.own_zeros(&config) } else { Ok(Parameters::none()) };
    let moments = [zeros(first)?, zeros(second)?];
    Ok(Run {
        state: state_of(options, &config, params, moments, Parameters::none())?,
        done: 0,
        batches,
        validation,
        validated: whole,
        tokens,
        tokenizer: Some(tokenizer),
        config,
        changed: Vec::new(),
        passed_over: Vec::new(),
        saved: None,
        known,
        saving: None,
        resumed: None,
        fields,
        has_samples,
        chunks,
        logits: Logits::default(),
        logits_before,
    })
}

/// The state of a run with these whole parameters, of whatever type, this rank's moments, and buffers.
pub(super) fn state_of(
    options: &TrainOptions,
    config: &dyn Model,
    params: Parameters<Array>,
    [exp_avg, exp_avg_sq]: [Parameters<Array>; 2],
    buffers: Parameters<Array>,
) -> Result<State> {
    let (dtype, rounded) = (options.precision.parameters(), options.precision.copies());
    let params = options.own(config, params)?;
    // What is not to be rounded goes to the device with the first step.
    let params = match dtype == DType::F32 && rounded.is_none() {
        true => params,
        false => placed(params, dtype, options.device())?,
    };
    let copies = rounded_copies(config, &params, rounded)?;
    Ok(State::new(TrainState { params, exp_avg, exp_avg_sq, copies, buffers }))
}

/// What a model tells of a validation batch: its loss, and the share of right answers if it tells that.
pub(super) fn told(
    loss: &ValidationLoss<'_>,
    state: &TrainState<Array>,
    batch: &BatchTensors<Array>,
) -> Result<Vec<f64>> {
    let value: Array = loss.call((state.params.clone(), state.buffers.clone(), batch.clone()))?;
    value.to_f64()
}

/// Means over the validation batches of all ranks.
pub(super) fn evaluate(run: &mut Run, loss: &ValidationLoss<'_>) -> Result<Evaluation, TrainError> {
    let (mut total, mut right) = (0.0, None);
    for batch in &run.validation {
        let values = told(loss, run.state.get()?, batch)?;
        total += values[0];
        right = values.get(1).map(|share| share + right.unwrap_or(0.0));
    }
    let [total, count] = sums("the validation loss", [total, run.validation.len() as f64])?;
    // Models that tell it run on one rank.
    Ok(Evaluation { loss: total / count, accuracy: right.map(|right| right / count) })
}

/// Text by the model as it is, with the seed of the run: what changes from sample to sample is the model. `None` where
/// the prompt has no tokens, which the tokenizer of a file may make of white space. `params` are whole.
pub(super) fn sample(run: &Run, params: &Parameters<Array>, options: &TrainOptions) -> Result<Option<String>> {
    let Some(tokenizer) = run.tokenizer.as_ref().filter(|_| run.has_samples) else { return Ok(None) };
    let sampling = Sampling { seed: options.seed, ..Sampling::default() };
    let request = Request::new(&options.prompt, options.sample_tokens, sampling);
    let compile = Options::default();
    let texts = generate(&run.config, tokenizer, params, &request, &compile, &mut |_, _| {})?;
    Ok(Some(texts.into_iter().map(|of| of.text).collect()))
}
