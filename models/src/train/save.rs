//! Checkpoints of a run: its state is copied between two steps, and written while the next ones compute.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use fulgurite_kernels::ranks;
use fulgurite_runtime::tree::Tree;

use super::agreement::{agree, fewest, writes};
use super::failure::TrainError;
use super::notes::{self, DATA, DROPOUT_STREAMS, LOGITS, PRECISION, SET, VALIDATION};
use super::options::TrainOptions;
use super::programs::ValidationLoss;
use super::resume;
use super::run::{Run, told};
use super::saving::{Place, Saving, Sharded, Written, started};
use super::snapshot::Snapshot;
use crate::checkpoint::{Checkpoint, CheckpointError, TrainingState};
use crate::checkpoint_parts::Part;
use crate::model::Model;
use crate::optimizer::{FIRST_MOMENT, SECOND_MOMENT};

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
    let trees = [("", &state.params), (FIRST_MOMENT, &state.exp_avg), (SECOND_MOMENT, &state.exp_avg_sq)];
    for (prefix, tree) in trees.into_iter().filter(|(_, tree)| !tree.is_empty()) {
        let saved = if along.is_some() { tree.clone() } else { options.whole(&run.config, tree)? };
        let own = saved.leaves().into_iter().filter(|_| along.is_some() || writes());
        arrays.extend(own.map(|(name, array)| (format!("{prefix}{name}"), array.clone())));
        shapes.extend(run.config.parameters().into_iter().map(|own| (format!("{prefix}{}", own.name), own.shape)));
    }
    if writes() {
        arrays.extend(state.buffers.leaves().into_iter().map(|(name, array)| (name, array.clone())));
    }
    let validation = match run.validation.first() {
        Some(batch) => Some(told(loss, state, batch)?[0]),
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
    if let Some(name) = &options.name {
        notes.insert(notes::RUN.to_owned(), name.clone());
    }
    if !run.fields.is_empty() {
        notes.insert(SET.to_owned(), serde_json::json!(run.fields).to_string());
    }
    TrainingState {
        step: run.done,
        model: run.config.clone(),
        tokenizer: run.tokenizer.as_ref().map(|own| own.name().into_owned()).unwrap_or_default(),
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
