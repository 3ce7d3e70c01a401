//! How a run begins: of text, or of images.

use std::path::Path;

use fulgurite_runtime::{Array, DType, Result};

use super::arrays::image_arrays;
use super::options::TrainOptions;
use super::resume;
use super::run::{self, Run, state_of, within_memory};
use crate::argument_error::wrong;
use crate::batches::{Batches, Order};
use crate::blocks::ActivationCheckpointing;
use crate::checkpoint::Checkpoint;
use crate::head::Logits;
use crate::kept;
use crate::model::Model;
use crate::model_config::{Family, ModelConfig};
use crate::optimizer::{FIRST_MOMENT, SECOND_MOMENT};
use crate::parameter_list::Parameters;
use crate::parameters::{initial, initial_parameters, listed_from, parameters_from};
use crate::step::BatchTensors;
use crate::vision::{ImageConfig, ImageKind, ImageSet, cifar10, image_weights, shapes};

/// What a run begins with: from random weights, those of a file, or a checkpoint. A run that never `evaluates` has no
/// validation batches.
pub(super) fn begun(options: &TrainOptions, checkpoint: &Path, evaluates: bool) -> Result<Run> {
    match options.family.images() {
        Some(kind) => of_images(kind, options, checkpoint, evaluates),
        None => run::prepare(options, checkpoint, evaluates),
    }
}

/// Refuses what means nothing for a model of images.
fn refuse_others(kind: ImageKind, options: &TrainOptions) -> Result<()> {
    let reads = |name: &str| Err(wrong(name, format!("is given for {kind}, which reads images, and no tokens")));
    if options.tokenizer.is_some() {
        return reads("tokenizer");
    }
    if options.context.is_some() {
        return reads("context");
    }
    if options.logits.is_some_and(|logits| logits != Logits::Whole) {
        return reads("logits");
    }
    if !options.set.is_empty() {
        return Err(wrong("set", format!("is given for {kind}, whose sizes have no fields to replace")));
    }
    if !options.validation.is_empty() {
        return Err(wrong("validation", format!("is given for {kind}, whose data has images to validate with")));
    }
    if options.all_ranks() > 1 {
        return Err(wrong("devices", format!("is {}, a {kind} trains on one rank", options.all_ranks())));
    }
    if options.peak_flops.is_some() {
        return Err(wrong("peak_flops", format!("is given for {kind}, whose arithmetic is not counted")));
    }
    if kind == ImageKind::Resnet {
        // Statistics of each block's normalizations are results beside its own.
        if options.activation_checkpointing != ActivationCheckpointing::None {
            return Err(wrong("activation_checkpointing", "is blocks, expected none for resnet"));
        }
        if options.accumulate > 1 {
            let count = options.accumulate;
            let message = format!("is {count}, expected 1: each batch of a resnet moves its running statistics");
            return Err(wrong("accumulate", message));
        }
    }
    Ok(())
}

/// The images to train on and to validate with.
fn data(options: &TrainOptions, config: &ImageConfig) -> Result<(ImageSet, ImageSet)> {
    let (image, kind) = (config.image(), config.kind());
    let (train, validation) = match &options.data[..] {
        [] => shapes(image, kind.labels()),
        [folder] => cifar10(folder).map_err(|error| wrong("data", error))?,
        several => {
            let message = format!("is {} names, expected the folder of CIFAR-10's binary files", several.len());
            return Err(wrong("data", message));
        }
    };
    let name = train.name();
    if train.labels() != kind.labels() {
        let message = format!("has {name}, a class for each image; a {kind} needs one for each pixel (drawn shapes)");
        return Err(wrong("data", message));
    }
    if train.shape() != image {
        let found = train.shape();
        return Err(wrong("data", format!("has {name} of {found:?}, the model takes images of {image:?}")));
    }
    Ok((train, validation))
}

/// Always the same batches, spread evenly over the images.
fn validation_batches(images: &ImageSet, rows: usize, count: usize) -> Result<Vec<BatchTensors<Array>>> {
    let count = count.min(images.len() / rows);
    if count == 0 {
        let found = images.len();
        return Err(wrong("validation data", format!("has {found} images, expected those of a batch of {rows}")));
    }
    let chosen = count * rows;
    let indices: Vec<usize> =
        (0..chosen).map(|i| (i as u128 * images.len() as u128 / chosen as u128) as usize).collect();
    indices.chunks(rows).map(|batch| image_arrays(images, batch)).collect()
}

fn of_images(kind: ImageKind, options: &TrainOptions, checkpoint: &Path, evaluates: bool) -> Result<Run> {
    refuse_others(kind, options)?;
    let known = kept::Identity::of(checkpoint);
    let saved = options.resume.then(|| resume::newest_good(checkpoint, options.allow_nonfinite)).transpose()?;
    let stored = saved.as_ref().and_then(|saved| match &saved.checkpoint.state.model {
        ModelConfig::Images(config) if config.kind() == kind => Some(config.clone()),
        _ => None,
    });
    let (mut config, is_stored) = match (&options.size, stored) {
        (None, Some(config)) => (config, true),
        (size, _) => {
            let size = size.as_deref().unwrap_or(Family::Images(kind).usual_size());
            (ImageConfig::named(kind, size).map_err(|error| wrong("size", error))?, false)
        }
    };
    let (train, validation) = data(options, &config)?;
    // Sizes for training from nothing have the classes of the data; published ones have their own.
    if !is_stored && config.classes() < 1000 {
        config = config.with_classes(train.classes());
    }
    if train.classes() > config.classes() {
        let (found, name) = (train.classes(), train.name());
        return Err(wrong("data", format!("has {name} of {found} classes, the model has {}", config.classes())));
    }
    config.set_dropout(options.dropout).map_err(|error| wrong("dropout", error))?;
    let model = ModelConfig::Images(config.clone());
    model.validate().map_err(|error| wrong("size", error))?;
    let tokens = options.tokens_of_step(1)?;
    within_memory(options, &model, 1)?;
    if let Some(saved) = &saved {
        resume::check(options, &saved.checkpoint.state, &model, "", 1)?;
    }
    let validation = match evaluates {
        true => validation_batches(&validation, options.batch, options.evaluate_batches)?,
        false => Vec::new(),
    };
    let dtype = options.precision.parameters();
    let run = |state, batches| Run {
        state,
        done: 0,
        batches,
        validated: validation.len(),
        validation,
        tokens,
        tokenizer: None,
        config: model.clone(),
        changed: Vec::new(),
        passed_over: Vec::new(),
        saved: None,
        known,
        saving: None,
        resumed: None,
        fields: Vec::new(),
        has_samples: false,
        chunks: None,
        logits: Logits::default(),
        logits_before: None,
    };
    let Some(resume::Continued { checkpoint, newest, passed_over }) = saved else {
        let (params, buffers) = match &options.init {
            Some(path) => {
                let tensors = image_weights(&config, path).map_err(|error| wrong("init", error))?;
                let buffers = listed_from(&model.buffers(), &tensors, "", DType::F32)?;
                (parameters_from(&model, &tensors, "", DType::F32)?, buffers)
            }
            None => (initial_parameters(&model, options.seed)?, initial(&model.buffers(), options.seed)?),
        };
        let [first, second] = options.optimizer.kind.states(&options.optimizer);
        let zeros = |there: bool| if there { options.own_zeros(&model) } else { Ok(Parameters::none()) };
        let state = state_of(options, &model, params, [zeros(first)?, zeros(second)?], buffers)?;
        let batches = Batches::of_images(train, options.batch, Order::Shuffled, options.seed);
        return Ok(run(state, batches.map_err(|error| wrong("data", error))?));
    };
    let Checkpoint { state: stored, tensors } = checkpoint;
    let states = options.optimizer.kind.states(&options.optimizer);
    let own = |prefix: &str, there: bool| match there {
        true => parameters_from(&model, &tensors, prefix, dtype),
        false => Ok(Parameters::none()),
    };
    let moments = [own(FIRST_MOMENT, states[0])?, own(SECOND_MOMENT, states[1])?];
    let buffers = listed_from(&model.buffers(), &tensors, "", DType::F32)?;
    let state = state_of(options, &model, own("", true)?, moments, buffers)?;
    let (step, saved, changed) = (stored.step, newest.then_some(stored.step), resume::changed(options, &stored));
    let batches = Batches::resume_images(train, stored.data).map_err(|error| wrong("data", error))?;
    Ok(Run { done: step, resumed: Some(step), saved, changed, passed_over, ..run(state, batches) })
}
