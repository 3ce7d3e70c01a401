//! Checkpoints of a run: its state is copied between two steps, and written while the next ones compute.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use fulgurite_kernels::mesh::Axis;
use fulgurite_kernels::ranks;
use fulgurite_runtime::Error;
use fulgurite_runtime::tree::Tree;

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
use crate::checkpoint_parts::{Part, remove_others};
use crate::kept;
use crate::model::Model;
use crate::nonfinite::NonFinite;

/// A checkpoint that is being written. A run that fails leaves a file that is begun whole: dropping waits for it.
pub(super) struct Saving {
    step: u64,
    /// None on ranks that do not write.
    thread: Option<Thread>,
    /// What remains to be written once the parts of all ranks are.
    sharded: Option<Sharded>,
}

type Thread = JoinHandle<Result<Written, TrainError>>;

/// What a thread has written.
enum Written {
    Part(Part),
    Checkpoint(Option<kept::Identity>),
}

/// A checkpoint in parts, without them.
struct Sharded {
    place: Place,
    state: TrainingState,
    shapes: BTreeMap<String, Vec<usize>>,
    axis: Axis,
}

impl Saving {
    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn wait(&mut self) -> Result<Option<Written>, TrainError> {
        let thread = self.thread.take();
        thread.map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).transpose()
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
    let begun = Instant::now();
    settle(run)?;
    let waited = begun.elapsed();
    let along = options.saved_along();
    let state = run.state.get()?;
    let (mut arrays, mut shapes) = (Vec::new(), BTreeMap::new());
    for (prefix, tree) in [("", &state.params), (FIRST_MOMENT, &state.exp_avg), (SECOND_MOMENT, &state.exp_avg_sq)] {
        let saved = if along.is_some() { tree.clone() } else { options.whole(&run.config, tree)? };
        let own = saved.leaves().into_iter().filter(|_| along.is_some() || writes());
        arrays.extend(own.map(|(name, array)| (format!("{prefix}{name}"), array.clone())));
        shapes.extend(run.config.parameters().into_iter().map(|own| (format!("{prefix}{}", own.name), own.shape)));
    }
    let validation = match run.validation.first() {
        Some(batch) => Some(loss.call((state.params.clone(), batch_arrays(batch)?))?.item()?),
        None => None,
    };
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
    let begin = || match along {
        Some(axis) => {
            let snapshot = Snapshot::of(arrays)?;
            let (whose, step) = (place.clone(), state.step);
            let at = (ranks::place(axis)?, axis.extent());
            let sharded = Sharded { place, state, shapes, axis: axis.clone() };
            let thread = started(path, move || whose.write_part(step, at, snapshot, validation))?;
            Ok((Some(thread), Some(sharded)))
        }
        None if writes() => {
            let snapshot = Snapshot::of(arrays)?;
            Ok((Some(started(path, move || place.write(state, snapshot, validation))?), None))
        }
        None => Ok((None, None)),
    };
    let ((thread, sharded), _) = agree("the beginning of a checkpoint", false, begin())?;
    run.saving = Some(Saving { step: run.done, thread, sharded });
    // A step's pause, without what the checkpoint before takes longer than the steps since.
    tracing::info!(step = run.done, pause = ?begun.elapsed() - waited, ?waited, "a checkpoint is begun");
    Ok(())
}

fn started(
    path: &Path,
    write: impl FnOnce() -> Result<Written, TrainError> + Send + 'static,
) -> Result<Thread, TrainError> {
    let started = Builder::new().name("checkpoint".into()).spawn(write);
    started.map_err(|error| file_error(path, format!("no thread writes the checkpoint: {error}")).into())
}

/// Waits until the checkpoint that is being written is in its place. All ranks call it.
///
/// # Errors
/// Those of [`Place::write`], on all ranks.
pub(super) fn settle(run: &mut Run) -> Result<(), TrainError> {
    while run.saving.is_some() {
        advance(run)?;
    }
    Ok(())
}

/// Goes on with the checkpoint that is being written, if nobody has to wait.
///
/// # Errors
/// As [`settle`].
pub(super) fn poll(run: &mut Run) -> Result<(), TrainError> {
    let Some(saving) = &run.saving else { return Ok(()) };
    match fewest("whether a checkpoint is written", u64::from(saving.is_finished()))? {
        0 => Ok(()),
        _ => advance(run),
    }
}

/// Waits for what is being written; where that is the parts, the file that names them is begun.
fn advance(run: &mut Run) -> Result<(), TrainError> {
    let Some(mut saving) = run.saving.take() else { return Ok(()) };
    match agree("a checkpoint", false, saving.wait())?.0 {
        Some(Written::Part(part)) => {
            let Some(Sharded { place, state, shapes, axis }) = saving.sharded.take() else { return Ok(()) };
            let own = serde_json::to_vec(&part).map_err(CheckpointError::Metadata);
            let own = own.map_err(|error| resume::in_file(&place.path, error))?;
            let given = ranks::exchange(&axis, "the parts of a checkpoint", &own)?;
            let begin = || {
                let parts = given.iter().map(|part| serde_json::from_slice(part)).collect::<Result<Vec<Part>, _>>();
                let parts = parts.map_err(|error| resume::in_file(&place.path, CheckpointError::Metadata(error)))?;
                let path = place.path.clone();
                started(&path, move || {
                    place.replace(&state, |path| Checkpoint::save_sharded(path, &state, shapes, parts))
                })
                .map(Some)
            };
            let begun = if writes() { begin() } else { Ok(None) };
            (saving.thread, _) = agree("the end of a checkpoint", false, begun)?;
            run.saving = Some(saving);
        }
        Some(Written::Checkpoint(known)) => (run.known, run.saved) = (known, Some(saving.step)),
        None => run.saved = Some(saving.step),
    }
    Ok(())
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
#[derive(Clone)]
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
    /// Writes the checkpoint in one file. Nothing is written if a weight or a moment is not finite, or the loss of a
    /// validation batch: a run resumed from there could not go on.
    fn write(self, state: TrainingState, snapshot: Snapshot, validation: Option<f64>) -> Result<Written, TrainError> {
        let checkpoint = Checkpoint { state, tensors: snapshot.into_host()? };
        self.finite(checkpoint.state.step, NonFinite::among(&checkpoint.tensors), validation)?;
        self.replace(&checkpoint.state, |path| checkpoint.save_unchecked(path))
    }

    /// Writes the part at a place of so many, under the same conditions. The checkpoint there is as it was.
    fn write_part(
        self,
        step: u64,
        at: (usize, usize),
        snapshot: Snapshot,
        validation: Option<f64>,
    ) -> Result<Written, TrainError> {
        let pieces = snapshot.into_host()?;
        let found = NonFinite::among(&pieces).map(|found| {
            let before = pieces.get(&found.name).map_or(0, |piece| at.0 * piece.shape().iter().product::<usize>());
            NonFinite { index: before + found.index, ..found }
        });
        self.finite(step, found, validation)?;
        let part = Part::write(&self.path, step, at, &pieces).map_err(CheckpointError::written);
        Ok(Written::Part(part.map_err(|error| resume::in_file(&self.path, error))?))
    }

    fn finite(&self, step: u64, state: Option<NonFinite>, validation: Option<f64>) -> Result<(), Divergence> {
        let loss = validation.filter(|value| !value.is_finite()).map(Cause::ValidationLoss);
        let cause = state.map(Cause::State).or(loss);
        cause.map_or(Ok(()), |cause| Err(Divergence { step, cause, saved: self.before }))
    }

    /// Replaces the checkpoint by the one of `state` that `save` writes, and keeps those before it that are to be kept;
    /// not if the checkpoint there is not the one that the run found or saved itself.
    fn replace(
        &self,
        state: &TrainingState,
        save: impl FnOnce(&Path) -> Result<(), CheckpointError>,
    ) -> Result<Written, TrainError> {
        let (path, step) = (&*self.path, state.step);
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
        save(path).map_err(|error| resume::in_file(path, error))?;
        kept::prune(path, self.pruned_before, self.earlier);
        let all = kept::earlier(path).into_iter().map(|(_, path)| path).chain([path.to_owned()]);
        // Where one cannot be read, nothing says which parts are its own.
        if let Ok(parts) = all.map(|path| Checkpoint::parts(&path)).collect::<Result<Vec<_>, _>>() {
            remove_others(path, &parts.into_iter().flatten().collect());
        }
        Ok(Written::Checkpoint(kept::Identity::of(path)))
    }
}

fn file_error(path: &Path, message: String) -> Error {
    Error::File { path: path.display().to_string(), message }
}
