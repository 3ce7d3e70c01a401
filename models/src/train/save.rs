//! Checkpoints of a run: its state is copied between two steps, and written while the next ones compute.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};

use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Error, Result};

use super::agreement::{agree, fewest, writes};
use super::arrays::batch_arrays;
use super::failure::{Cause, Divergence, TrainError};
use super::notes::{self, DATA, DROPOUT_STREAMS, LOGITS, PRECISION, SET, VALIDATION};
use super::options::TrainOptions;
use super::programs::ValidationLoss;
use super::resume;
use super::run::Run;
use super::snapshot::Snapshot;
use crate::checkpoint::{Checkpoint, CheckpointError, FIRST_MOMENT, SECOND_MOMENT, TrainingState};
use crate::kept;

/// A checkpoint that is being written. A run that fails leaves it whole too: dropping waits for it.
pub(super) struct Saving {
    step: u64,
    /// None on ranks that do not write.
    thread: Option<JoinHandle<Result<Option<kept::Identity>, TrainError>>>,
}

impl Saving {
    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn wait(&mut self) -> Result<Option<kept::Identity>, TrainError> {
        self.thread.take().map_or(Ok(None), |thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        // The error is that by which the run ends already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Begins a checkpoint, once the one before it is in its place. All ranks call it.
///
/// # Errors
/// Those of the checkpoint before, and of copying the state.
pub(super) fn save(
    path: &Path,
    run: &mut Run,
    options: &TrainOptions,
    loss: &ValidationLoss<'_>,
) -> Result<(), TrainError> {
    settle(run)?;
    let state = run.state.get()?;
    let mut arrays = Vec::new();
    for (prefix, tree) in [("", &state.params), (FIRST_MOMENT, &state.exp_avg), (SECOND_MOMENT, &state.exp_avg_sq)] {
        let whole = options.whole(&run.config, tree)?;
        let own = whole.leaves().into_iter().filter(|_| writes());
        arrays.extend(own.map(|(name, array)| (format!("{prefix}{name}"), array.clone())));
    }
    let validation = match run.validation.first() {
        Some(batch) => Some(loss.call((state.params.clone(), batch_arrays(batch)?))?.item()?),
        None => None,
    };
    let begin = || {
        let snapshot = Snapshot::of(arrays)?;
        let place = Place {
            path: path.to_owned(),
            saved: run.saved,
            before: run.saved.or(run.resumed),
            known: run.known.clone(),
            earlier: options.keep - 1,
            // A run that starts anew replaces those of the run before it.
            pruned_before: if run.saved.is_none() && !options.resume { 0 } else { run.done },
        };
        let state = training_state(run, options);
        let write = move || place.write(state, snapshot, validation);
        let started = Builder::new().name("checkpoint".into()).spawn(write);
        started.map_err(|error| TrainError::from(file_error(path, format!("no thread writes the checkpoint: {error}"))))
    };
    let begun = if writes() { begin().map(Some) } else { Ok(None) };
    let (thread, _) = agree("the beginning of a checkpoint", false, begun)?;
    run.saving = Some(Saving { step: run.done, thread });
    Ok(())
}

/// Waits until the checkpoint that is being written is in its place. All ranks call it.
///
/// # Errors
/// Those of [`Place::write`], on all ranks.
pub(super) fn settle(run: &mut Run) -> Result<(), TrainError> {
    let Some(mut saving) = run.saving.take() else { return Ok(()) };
    (run.known, _) = agree("a checkpoint", false, saving.wait())?;
    run.saved = Some(saving.step);
    Ok(())
}

/// As [`settle`], if nobody has to wait.
///
/// # Errors
/// As [`settle`].
pub(super) fn poll(run: &mut Run) -> Result<(), TrainError> {
    let Some(saving) = &run.saving else { return Ok(()) };
    match fewest("whether a checkpoint is written", u64::from(saving.is_finished()))? {
        0 => Ok(()),
        _ => settle(run),
    }
}

/// Everything of a run but its tensors, as a checkpoint has it.
fn training_state(run: &Run, options: &TrainOptions) -> TrainingState {
    let mut notes = BTreeMap::from([
        (PRECISION.to_owned(), options.precision.name().to_owned()),
        (DROPOUT_STREAMS.to_owned(), "by step, batch and place".to_owned()),
        (notes::EVALUATE_EVERY.to_owned(), options.evaluate_every.to_string()),
        (notes::EVALUATE_BATCHES.to_owned(), options.evaluate_batches.to_string()),
        (notes::SAMPLE_EVERY.to_owned(), options.sample_every.to_string()),
        (notes::SAMPLE_TOKENS.to_owned(), options.sample_tokens.to_string()),
        (notes::PROMPT.to_owned(), options.prompt.clone()),
        (LOGITS.to_owned(), run.logits.name().to_owned()),
    ]);
    for (note, files) in [(DATA, &options.data), (VALIDATION, &options.validation)] {
        // Paths that are not UTF-8 cannot be stored; `--resume` then needs `--data`.
        let names = files.iter().map(|file| std::path::absolute(file).ok()?.to_str().map(str::to_owned));
        if let Some(names) = names.collect::<Option<Vec<String>>>().filter(|names| !names.is_empty()) {
            notes.insert(note.to_owned(), serde_json::json!(names).to_string());
        }
    }
    if !run.fields.is_empty() {
        notes.insert(SET.to_owned(), serde_json::json!(run.fields).to_string());
    }
    TrainingState {
        step: run.done,
        model: run.config.clone(),
        tokenizer: run.tokenizer.name().into_owned(),
        data: run.batches.position().clone(),
        accumulation: options.accumulate as u64,
        schedule: options.schedule(),
        optimizer: options.optimizer,
        seed: options.seed,
        // Each step draws from streams that its number says.
        random_offset: run.done,
        notes,
    }
}

/// Where a checkpoint goes, and what is there.
struct Place {
    path: PathBuf,
    /// The step of the newest checkpoint, if it is one of this run.
    saved: Option<u64>,
    /// The step that remains where this one is not written.
    before: Option<u64>,
    known: Option<kept::Identity>,
    /// How many earlier ones are kept, of the steps before `pruned_before`.
    earlier: usize,
    pruned_before: u64,
}

impl Place {
    /// Writes the checkpoint, and keeps those before it that are to be kept. Nothing is written if a weight or a moment
    /// is not finite, or the loss of a validation batch: a run resumed from there could not go on. Nor if the
    /// checkpoint there is not the one that the run found or saved itself.
    fn write(
        self,
        state: TrainingState,
        snapshot: Snapshot,
        validation: Option<f64>,
    ) -> Result<Option<kept::Identity>, TrainError> {
        let (path, step) = (&*self.path, state.step);
        let diverged = |cause| Divergence { step, cause, saved: self.before };
        let checkpoint = Checkpoint { state, tensors: snapshot.into_host()? };
        match checkpoint.validate_finite() {
            Err(CheckpointError::NonFinite(found)) => return Err(diverged(Cause::State(found)).into()),
            other => other.map_err(|error| resume::in_file(path, error))?,
        }
        if let Some(value) = validation.filter(|value| !value.is_finite()) {
            return Err(diverged(Cause::ValidationLoss(value)).into());
        }
        // The lock of the folder keeps other runs away; a copy, or a program that knows no lock, may have come all the
        // same.
        let found = kept::Identity::of(path);
        if found.is_some() && found != self.known {
            let since = self.saved.map_or_else(|| "this run began".into(), |step| format!("step {step} was saved"));
            let message = format!(
                "was written by another program since {since}: it is kept, and the checkpoint of step {step} is not \
                 saved; give each run a folder of its own (--out)"
            );
            return Err(file_error(path, message).into());
        }
        match self.saved.filter(|_| found.is_some()) {
            // Resumed, trained no step, and saved again.
            Some(saved) if saved == step => {}
            Some(saved) if self.earlier > 0 => kept::keep(path, saved).map_err(|error| {
                file_error(path, format!("the checkpoint could not be kept before it is replaced: {error}"))
            })?,
            _ => {}
        }
        // Looked through above.
        checkpoint.save_unchecked(path).map_err(|error| resume::in_file(path, error))?;
        kept::prune(path, self.pruned_before, self.earlier);
        Ok(kept::Identity::of(path))
    }
}

fn file_error(path: &Path, message: String) -> Error {
    Error::File { path: path.display().to_string(), message }
}
