//! Threads that write checkpoints, in one file or in parts.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};

use fulgurite_kernels::mesh::Axis;
use fulgurite_runtime::Error;

use super::failure::{Cause, Divergence, TrainError};
use super::resume;
use super::snapshot::Snapshot;
use crate::checkpoint::{Checkpoint, CheckpointError, TrainingState};
use crate::checkpoint_parts::{Part, remove_others};
use crate::kept;
use crate::nonfinite::NonFinite;

/// A checkpoint that is being written. A run that fails leaves a file that is begun whole: dropping waits for it.
pub(super) struct Saving {
    pub(super) step: u64,
    /// None on ranks that do not write.
    pub(super) thread: Option<Thread>,
    /// What remains to be written once the parts of all ranks are.
    pub(super) sharded: Option<Sharded>,
}

pub(super) type Thread = JoinHandle<Result<Written, TrainError>>;

/// What a thread has written.
pub(super) enum Written {
    Part(Part),
    Checkpoint(Option<kept::Identity>),
}

/// A checkpoint in parts, without them.
pub(super) struct Sharded {
    pub(super) place: Place,
    pub(super) state: TrainingState,
    pub(super) shapes: BTreeMap<String, Vec<usize>>,
    pub(super) axis: Axis,
}

impl Saving {
    /// Whether nobody has to wait.
    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// What the thread of this rank has written, once it has.
    ///
    /// # Errors
    /// Those of the thread.
    pub(super) fn wait(&mut self) -> Result<Option<Written>, TrainError> {
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

/// Has a thread write.
///
/// # Errors
/// If the system has no thread more.
pub(super) fn started(
    path: &Path,
    write: impl FnOnce() -> Result<Written, TrainError> + Send + 'static,
) -> Result<Thread, TrainError> {
    let started = Builder::new().name("checkpoint".into()).spawn(write);
    started.map_err(|error| file_error(path, format!("no thread writes the checkpoint: {error}")).into())
}

/// Where a checkpoint goes, and what is there.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// The step of the newest checkpoint, if it is one of this run.
    pub(super) saved: Option<u64>,
    /// The step that remains where this one is not written.
    pub(super) before: Option<u64>,
    pub(super) known: Option<kept::Identity>,
    /// How many earlier ones are kept, of the steps before `pruned_before`.
    pub(super) earlier: usize,
    pub(super) pruned_before: u64,
}

impl Place {
    /// Writes the checkpoint in one file. Nothing is written if a weight or a moment is not finite, or the loss of a
    /// validation batch: a run resumed from there could not go on.
    pub(super) fn write(
        self,
        state: TrainingState,
        snapshot: Snapshot,
        validation: Option<f64>,
    ) -> Result<Written, TrainError> {
        let checkpoint = Checkpoint { state, tensors: snapshot.into_host()? };
        self.finite(checkpoint.state.step, NonFinite::among(&checkpoint.tensors), validation)?;
        self.replace(&checkpoint.state, |path| checkpoint.save_unchecked(path))
    }

    /// Writes the part at a place of so many, under the same conditions. The checkpoint there is as it was.
    pub(super) fn write_part(
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
    pub(super) fn replace(
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
        // At once: what another program writes from now on is its own.
        let known = kept::Identity::of(path);
        kept::prune(path, self.pruned_before, self.earlier);
        let all = kept::earlier(path).into_iter().map(|(_, path)| path).chain([path.to_owned()]);
        // Where one cannot be read, nothing says which parts are its own.
        if let Ok(parts) = all.map(|path| Checkpoint::parts(&path)).collect::<Result<Vec<_>, _>>() {
            remove_others(path, &parts.into_iter().flatten().collect());
        }
        Ok(Written::Checkpoint(known))
    }
}

fn file_error(path: &Path, message: String) -> Error {
    Error::File { path: path.display().to_string(), message }
}
