//! How long one run of a program takes with cold caches.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use fulgurite_kernels::machine::last_level_cache;

use crate::array::Array;
use crate::device::{Activity, Category, DeviceBuffer, DeviceError, DeviceState, StreamKind, find_kind};
use crate::error::{Error, Result};
use crate::meta::Device;
use crate::program::Program;

/// How often a device's memory is written between runs: the host enqueues the run while the device is busy with it.
const FILLS: usize = 3;
/// On the host no more than this is written between runs, whatever the cache's size.
const MOST_HOST_BYTES: usize = 512 << 20;

/// Why a run has no time.
#[derive(Debug)]
pub enum Untimed {
    /// The run failed.
    Failed(Error),
    /// Another thread recorded what the device does meanwhile.
    Disturbed,
}

impl From<Error> for Untimed {
    fn from(error: Error) -> Untimed {
        Untimed::Failed(error)
    }
}

impl From<Untimed> for Error {
    fn from(untimed: Untimed) -> Error {
        let message = "a run has no time: another thread recorded what the device does";
        match untimed {
            Untimed::Failed(error) => error,
            Untimed::Disturbed => Error::Device(DeviceError::new(Category::Other, message)),
        }
    }
}

/// Times whole runs on one device, with nothing of their inputs in caches.
#[derive(Debug)]
pub struct Clock(By);

#[derive(Debug)]
enum By {
    /// The host's clock.
    Host { other: Vec<u8> },
    /// Events of the device, around a whole run.
    Device { state: Arc<DeviceState>, other: DeviceBuffer },
}

impl Clock {
    /// # Errors
    /// If the device is not available, or has not the memory that is written between runs.
    pub fn new(device: Device) -> Result<Clock> {
        if device.is_cpu() {
            let bytes = (last_level_cache() / 4 * 5).clamp(64 << 20, MOST_HOST_BYTES);
            return Ok(Clock(By::Host { other: vec![0; bytes] }));
        }
        let bytes = find_kind(device.kind())?.beyond_caches();
        Ok(Clock(By::Device { state: DeviceState::of(device)?, other: DeviceBuffer::new(device, bytes)? }))
    }

    /// Gives memory back that measuring needed, and that nobody will ask for again in these sizes.
    pub(super) fn release(device: Device) {
        if !device.is_cpu()
            && let Ok(state) = DeviceState::of(device)
        {
            state.give_up_kept();
        }
    }

    /// Free bytes of the device's memory, those of this process that nobody uses included; `None` if that is not known.
    pub(super) fn room(device: Device) -> Option<u64> {
        if device.is_cpu() {
            return None;
        }
        DeviceState::of(device).ok()?.memory_free()
    }

    /// Whether the device runs nothing any more in this process.
    pub(super) fn is_lost(device: Device) -> bool {
        !device.is_cpu() && DeviceState::of(device).is_ok_and(|state| state.lost().is_some())
    }

    /// Whether a profiler records what the device does: it is not to be disturbed.
    pub(super) fn is_recorded(device: Device) -> bool {
        !device.is_cpu() && DeviceState::of(device).is_ok_and(|state| state.is_recording())
    }

    /// Runs a program and waits for it.
    pub(super) fn run(&self, program: &Program, inputs: &[Array]) -> Result<()> {
        let outputs = program.run_matching(inputs.to_vec())?;
        if let By::Device { state, .. } = &self.0 {
            state.synchronize()?;
        }
        // A fault is an error of reading.
        for output in outputs.iter().filter(|output| !output.device().is_cpu() && output.meta().len() <= 1) {
            output.to_host()?;
        }
        Ok(())
    }

    /// The time of one run of the program in microseconds.
    ///
    /// # Errors
    /// As [`Clock::time`].
    pub(super) fn microseconds(&mut self, program: &Program, inputs: &[Array]) -> Result<f64, Untimed> {
        self.time(program, inputs.to_vec()).map(|(_, time)| time)
    }

    /// Runs the program on inputs of the metas and strides that it was compiled for. Returns its results, and how long
    /// it took in microseconds: by the host's clock on the host; on a device from the begin of its first kernel to the
    /// end of its last one, enqueued while the device is busy with something else. The first runs of a program compile
    /// kernels and record a graph.
    ///
    /// # Errors
    /// Those of the run; [`Untimed::Disturbed`] if another thread records what the device does.
    pub fn time(&mut self, program: &Program, inputs: Vec<Array>) -> Result<(Vec<Array>, f64), Untimed> {
        // Looking at hundreds of inputs takes longer than a replay: the device may not wait for it.
        program.check_inputs(&inputs)?;
        match &mut self.0 {
            By::Host { other } => {
                let next = other[0].wrapping_add(1);
                black_box(&mut *other).fill(next);
                let start = Instant::now();
                let outputs = program.run_matching(inputs)?;
                Ok((outputs, start.elapsed().as_secs_f64() * 1e6))
            }
            By::Device { state, other } => {
                if !state.begin_choices()? {
                    return Err(Untimed::Disturbed);
                }
                let run = || -> Result<Vec<Array>> {
                    for byte in 0..FILLS as u8 {
                        // SAFETY: the memory is this clock's, and all work on it is on this stream.
                        unsafe { state.stream().fill(other.address(), byte, other.len()) }?;
                    }
                    program.run_matching(inputs)
                };
                let outputs = run();
                let activities = state.end_choices()?;
                let time = time_of(&activities.unwrap_or_default(), &program.trace().name);
                Ok((outputs?, time.ok_or(Untimed::Disturbed)?))
            }
        }
    }
}

/// The time of the runs of that name in microseconds; `None` if there is none.
fn time_of(activities: &[Activity], name: &str) -> Option<f64> {
    let own = activities.iter().filter(|one| one.stream == StreamKind::Compute && one.what == name);
    own.map(|one| one.time.as_secs_f64() * 1e6).reduce(|all, one| all + one)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_was_not_recorded_has_no_time() {
        let run = |what: &str, stream, microseconds| {
            let (start, time) = (Duration::ZERO, Duration::from_micros(microseconds));
            Activity { what: what.into(), stream, start, time }
        };
        let all = [run("choice", StreamKind::Compute, 30), run("other", StreamKind::Compute, 5)];
        assert_eq!(time_of(&all, "choice"), Some(30.0));
        assert_eq!(time_of(&all[1..], "choice"), None);
        assert_eq!(time_of(&[], "choice"), None);
    }
}
