//! What a step takes besides its state: its batch and its numbers. For a device, a thread of its own makes them and
//! sends them there while the step before is computed, so that the step finds them on the device.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use fulgurite_runtime::device::Uploader;
use fulgurite_runtime::{Array, Result};

use super::arrays::{next_arrays, step_scalars};
use super::options::TrainOptions;
use crate::argument_error::wrong;
use crate::batches::Batches;
use crate::schedule::Schedule;
use crate::step::{BatchTensors, StepScalars};

/// The inputs of a step.
pub(super) struct Inputs {
    pub(super) batch: BatchTensors<Array>,
    pub(super) scalars: StepScalars<Array>,
}

/// Inputs that were made ahead, and the batches behind them.
type Made = Result<(Inputs, Batches)>;

/// The inputs of the steps of a run, one after the other.
pub(super) struct Feed {
    schedule: Schedule,
    seed: u64,
    /// The number of the next step.
    next: u64,
    /// `None` on the host, which is busy with the steps.
    ahead: Option<Ahead>,
}

/// The thread that makes inputs, at most those of one step before they are taken.
struct Ahead {
    made: Option<Receiver<Made>>,
    thread: Option<JoinHandle<()>>,
}

fn inputs(schedule: &Schedule, seed: u64, number: u64, batches: &mut Batches) -> Result<Inputs> {
    let scalars = step_scalars(schedule.learning_rate(number - 1), number, seed)?;
    Ok(Inputs { batch: next_arrays(batches)?, scalars })
}

impl Inputs {
    fn sent(self, uploader: &Arc<Uploader>) -> Result<Inputs> {
        let Inputs { batch: BatchTensors { inputs, targets, reads }, scalars: StepScalars { lr, step, generator } } =
            self;
        let [inputs, targets, lr, step, generator] = uploader.send([inputs, targets, lr, step, generator])?;
        Ok(Inputs { batch: BatchTensors { inputs, targets, reads }, scalars: StepScalars { lr, step, generator } })
    }
}

impl Feed {
    /// The inputs of step `first` and later ones, from `batches` on, for the function `function`.
    ///
    /// # Errors
    /// If the device is not available.
    pub(super) fn start(
        (options, schedule): (&TrainOptions, &Schedule),
        function: &str,
        first: u64,
        batches: &Batches,
    ) -> Result<Feed> {
        let (schedule, seed, last) = (*schedule, options.seed, options.steps);
        let mut feed = Feed { schedule, seed, next: first, ahead: None };
        if options.device().is_cpu() {
            return Ok(feed);
        }
        let uploader = Uploader::new(options.device(), function)?;
        let mut batches = batches.clone();
        // Inputs are handed over when they are taken: no more than one step's are made ahead.
        let (send, made) = sync_channel::<Made>(0);
        let make = move || {
            for number in first..=last {
                let inputs = inputs(&schedule, seed, number, &mut batches).and_then(|inputs| inputs.sent(&uploader));
                let failed = inputs.is_err();
                if send.send(inputs.map(|inputs| (inputs, batches.clone()))).is_err() || failed {
                    return;
                }
            }
        };
        // Where there is no thread, inputs are made when they are taken.
        let thread = std::thread::Builder::new().name("making batches".into()).spawn(make);
        feed.ahead = thread.ok().map(|thread| Ahead { made: Some(made), thread: Some(thread) });
        Ok(feed)
    }

    /// The inputs of the next step, whose batch is the next of `batches`.
    ///
    /// # Errors
    /// Data that cannot be read; the device's.
    pub(super) fn next(&mut self, batches: &mut Batches) -> Result<Inputs> {
        let number = self.next;
        self.next += 1;
        let Some(Ahead { made: Some(made), .. }) = &self.ahead else {
            return inputs(&self.schedule, self.seed, number, batches);
        };
        let ended = |_| wrong("data", "no more batches are made: an earlier one failed");
        let (inputs, after) = made.recv().map_err(ended)??;
        *batches = after;
        Ok(inputs)
    }
}

impl Drop for Ahead {
    /// The process may not end while the driver is at work.
    fn drop(&mut self) {
        self.made = None;
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
