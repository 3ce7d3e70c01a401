//! What a run finds in its folder: a checkpoint to continue from, or one that must not be lost.

use std::path::Path;

use fulgurite_runtime::{Error, Result};

use super::notes::{DROPOUT_STREAMS, LOGITS, PRECISION, SET};
use super::options::TrainOptions;
use crate::argument_error::wrong;
use crate::checkpoint::{Checkpoint, CheckpointError, TrainingState};
use crate::config::{SIZES, Size};
use crate::head::Logits;
use crate::kept;
use crate::model::Model;
use crate::model_config::ModelConfig;
use crate::precision::Precision;

/// The error of a file, which it names once.
pub(super) fn in_file(path: &Path, error: CheckpointError) -> Error {
    match error {
        CheckpointError::InFile { path, fault } => {
            Error::File { path: path.display().to_string(), message: fault.to_string() }
        }
        other => Error::File { path: path.display().to_string(), message: other.to_string() },
    }
}

/// Refuses to start anew where there is a checkpoint: it may hold hours of training.
pub(super) fn refuse_overwrite(options: &TrainOptions, checkpoint: &Path) -> Result<()> {
    if options.resume || options.overwrite {
        return Ok(());
    }
    let failed = |message: String| Error::File { path: checkpoint.display().to_string(), message };
    // A link whose target is gone is no checkpoint; an earlier one is as good as the newest.
    match checkpoint.try_exists() {
        Ok(false) if kept::earlier(checkpoint).is_empty() => Ok(()),
        Ok(_) => Err(failed(
            "a checkpoint is there already: --resume continues from it, --overwrite starts anew and replaces it".into(),
        )),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// What a run continues from.
pub(super) struct Continued {
    /// The checkpoint.
    pub(super) checkpoint: Checkpoint,
    /// Whether it is the newest, and not an earlier one.
    pub(super) newest: bool,
    /// Why newer ones were passed over.
    pub(super) passed_over: Vec<String>,
}

/// A checkpoint that can be gone on with: whole, with all tensors of its model, and finite unless that is allowed.
fn good(path: &Path, allow_nonfinite: bool) -> Result<Checkpoint> {
    let read = Checkpoint::load(path).and_then(|saved| {
        saved.validate_tensors()?;
        if !allow_nonfinite {
            saved.validate_finite()?;
        }
        Ok(saved)
    });
    read.map_err(|error| in_file(path, error))
}

/// The newest good checkpoint. The error is that of the newest file, if none is good.
pub(super) fn newest_good(newest: &Path, allow_nonfinite: bool) -> Result<Continued> {
    let first = match good(newest, allow_nonfinite) {
        Ok(checkpoint) => return Ok(Continued { checkpoint, newest: true, passed_over: Vec::new() }),
        Err(error) => error,
    };
    let mut passed_over = vec![first.to_string()];
    for (_, path) in kept::earlier(newest) {
        match good(&path, allow_nonfinite) {
            Ok(checkpoint) => return Ok(Continued { checkpoint, newest: false, passed_over }),
            Err(error) => passed_over.push(error.to_string()),
        }
    }
    Err(first)
}

/// The fields of the configuration that a run of `options` replaces: those given, or else those that the run was
/// started with.
pub(super) fn fields(options: &TrainOptions, continued: Option<&Continued>) -> Vec<String> {
    let noted = continued.and_then(|continued| continued.checkpoint.state.notes.get(SET));
    let noted = noted.filter(|_| options.set.is_empty()).and_then(|noted| serde_json::from_str(noted).ok());
    noted.unwrap_or_else(|| options.set.clone())
}

/// Checks that a checkpoint is one of this very run: of this model, batch, seed and arithmetic.
pub(super) fn check(
    options: &TrainOptions,
    stored: &TrainingState,
    config: &ModelConfig,
    tokenizer: &str,
    context: usize,
) -> Result<()> {
    if stored.data.tokens == 0 {
        let message =
            "the checkpoint was converted from weights and has no position in data: start a run with it (init)";
        return Err(wrong("resume", message));
    }
    let different = differences(stored, config, tokenizer, (options.batch, options.ranks()), context);
    if !different.is_empty() {
        return Err(wrong(
            "resume",
            format!(
                "the checkpoint is of another run: {}; leave these options out to go on with it, or begin another run in a \
             folder of its own",
                different.join("; ")
            ),
        ));
    }
    let (old, new) = (&stored.optimizer, &options.optimizer);
    if (old.kind, old.prefixes()) != (new.kind, new.prefixes()) {
        let message = format!("the checkpoint has the states of {old}, got {new}");
        return Err(wrong("optimizer", message));
    }
    if stored.seed != options.seed {
        return Err(wrong("seed", format!("the checkpoint was made with seed {}, got {}", stored.seed, options.seed)));
    }
    let now = options.precision;
    if let Some(before) = precision_of(stored).filter(|before| *before != now.name()) {
        return Err(wrong("precision", format!("the checkpoint was made in {before}, got {now}")));
    }
    Ok(())
}

/// The name of the precision that a checkpoint was made in, if it says that. Those of versions before `bf16-true`
/// name a type instead.
pub fn precision_of(stored: &TrainingState) -> Option<&str> {
    stored.notes.get(PRECISION).map(String::as_str).or_else(|| match stored.notes.get("compute_dtype")?.as_str() {
        "f32" => Some(Precision::F32True.name()),
        "bf16" => Some(Precision::Bf16Mixed.name()),
        other => Some(other),
    })
}

/// What of the logits existed in the steps of a checkpoint's run, if it says that.
pub(super) fn logits_of(stored: &TrainingState) -> Option<Logits> {
    let noted = stored.notes.get(LOGITS)?;
    Logits::ALL.into_iter().find(|logits| logits.name() == noted)
}

/// Settings that may change when a run is resumed, and did, each with both values. (The schedule follows from the
/// number of steps.)
pub(super) fn changed(options: &TrainOptions, stored: &TrainingState) -> Vec<String> {
    let (before, now) = (stored.schedule, options.schedule());
    let (old, new) = (stored.optimizer, options.optimizer);
    let clip = |clip: Option<f64>| clip.unwrap_or(0.0);
    let settings = [
        ("learning rate", before.peak, now.peak),
        ("final learning rate", before.floor, now.floor),
        ("warm-up steps", before.warmup_steps as f64, now.warmup_steps as f64),
        ("steps of the schedule", before.total_steps as f64, now.total_steps as f64),
        ("accumulated batches", stored.accumulation as f64, options.accumulate as f64),
        ("beta1", old.beta1, new.beta1),
        ("beta2", old.beta2, new.beta2),
        ("epsilon", old.epsilon, new.epsilon),
        ("weight decay", old.weight_decay, new.weight_decay),
        ("clipped norm", clip(old.clip), clip(new.clip)),
        ("momentum", old.momentum, new.momentum),
        ("nesterov", f64::from(u8::from(old.nesterov)), f64::from(u8::from(new.nesterov))),
    ];
    let differ = settings.iter().filter(|(_, before, now)| before != now);
    let mut changes: Vec<String> = differ.map(|(name, before, now)| format!("{name} {now}, was {before}")).collect();
    let logits = options.logits.zip(logits_of(stored)).filter(|(now, before)| now != before);
    changes.extend(logits.map(|(now, before)| format!("logits {now}, were {before}")));
    if stored.model.dropout() > 0.0 && !stored.notes.contains_key(DROPOUT_STREAMS) {
        changes
            .push("dropout draws other numbers than the version that made the checkpoint, which repeated them".into());
    }
    changes
}

/// The differences between a checkpoint and the options, each with both values, named by the option.
fn differences(
    stored: &TrainingState,
    config: &ModelConfig,
    tokenizer: &str,
    (batch, ranks): (usize, usize),
    context: usize,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: &str, before: String, now: String| {
        if before != now {
            found.push(format!("{what} is {before} in the checkpoint, got {now}"));
        }
    };
    compare("model", stored.model.family().to_string(), config.family().to_string());
    compare("size", size_in_words(&stored.model), size_in_words(config));
    compare("tokenizer", stored.tokenizer.clone(), tokenizer.to_owned());
    if stored.tokenizer == tokenizer {
        // Otherwise it follows from the tokenizers.
        compare("vocabulary", stored.model.vocabulary().to_string(), config.vocabulary().to_string());
    }
    // A run of shorter sequences than its model takes has two contexts.
    let in_words = |model: usize, sequence: usize| match model == sequence {
        true => model.to_string(),
        false => format!("{sequence} (of the model's {model})"),
    };
    compare("context", in_words(stored.model.context(), stored.data.context), in_words(config.context(), context));
    compare("dropout", stored.model.dropout().to_string(), config.dropout().to_string());
    if let (ModelConfig::Decoder(before), ModelConfig::Decoder(now)) = (&stored.model, config) {
        before.differences(now).into_iter().for_each(|[field, before, now]| compare(&field, before, now));
    }
    let whole = batch.saturating_mul(ranks);
    let now = if ranks == 1 { batch.to_string() } else { format!("{whole} ({ranks} ranks of {batch})") };
    if stored.data.rows != whole {
        compare("batch", stored.data.rows.to_string(), now);
    }
    found
}

/// The size without its context: `nano (2 layers, 2 heads, 64 channels)`.
pub(super) fn size_in_words(config: &ModelConfig) -> String {
    let [layers, heads, channels] = config.sizes();
    let shape = format!("{layers} layers, {heads} heads, {channels} channels");
    let known = |size: &&Size| (size.layers, size.heads, size.channels) == (layers, heads, channels);
    let name = match config {
        ModelConfig::Gpt2(_) => SIZES.iter().find(known).map(|size| size.name),
        ModelConfig::Decoder(config) => Some(config.name.as_str()),
        ModelConfig::Images(config) => return config.in_words(),
    };
    name.map_or_else(|| shape.clone(), |name| format!("{name} ({shape})"))
}
