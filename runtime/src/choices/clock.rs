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
pub(super) enum Untimed {
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

/// Times runs on one device.
pub(super) enum Clock {
    /// By the host's clock.
    Host { other: Vec<u8> },
    /// By events of the device, around a whole run.
    Device { state: Arc<DeviceState>, other: DeviceBuffer },
}

impl Clock {
    /// # Errors
    /// If the device is not available, or has not the memory that is written between runs.
    pub(super) fn new(device: Device) -> Result<Clock> {
        if device.is_cpu() {
            let bytes = (last_level_cache() / 4 * 5).clamp(64 << 20, MOST_HOST_BYTES);
            return Ok(Clock::Host { other: vec![0; bytes] });
        }
        let bytes = find_kind(device.kind())?.beyond_caches();
        Ok(Clock::Device { state: DeviceState::of(device)?, other: DeviceBuffer::new(device, bytes)? })
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
        let state = DeviceState::of(device).ok()?;
        state.give_up_kept();
        Some(state.context().memory_free()? as u64)
    }

    /// Whether the device runs nothing any more in this process.
    pub(super) fn is_lost(device: Device) -> bool {
        !device.is_cpu() && DeviceState::of(device).is_ok_and(|state| state.lost().is_some())
    }

    /// Whether somebody records what the device does, and is not to be disturbed.
    pub(super) fn is_recorded(device: Device) -> bool {
        !device.is_cpu() && DeviceState::of(device).is_ok_and(|state| state.is_recording())
    }

    /// Runs a program and waits for it.
    pub(super) fn run(&self, program: &Program, inputs: &[Array]) -> Result<()> {
        let outputs = program.run_matching(inputs.to_vec())?;
        if let Clock::Device { state, .. } = self {
            state.synchronize()?;
        }
        // A fault is an error of reading.
        for output in outputs.iter().filter(|output| !output.device().is_cpu() && output.meta().len() <= 1) {
            output.to_host()?;
        }
        Ok(())
    }

    /// The time of one run of the program of that name in microseconds, with nothing of its inputs in caches.
    ///
    /// # Errors
    /// Those of the run; [`Untimed::Disturbed`] if the device's timeline does not have it.
    pub(super) fn microseconds(&mut self, program: &Program, inputs: &[Array], name: &str) -> Result<f64, Untimed> {
        match self {
            Clock::Host { other } => {
                let next = other[0].wrapping_add(1);
                black_box(&mut *other).fill(next);
                let inputs = inputs.to_vec();
                let start = Instant::now();
                let outputs = program.run_matching(inputs)?;
                let time = start.elapsed();
                drop(outputs);
                Ok(time.as_secs_f64() * 1e6)
            }
            Clock::Device { state, other } => {
                if !state.begin_choices()? {
                    return Err(Untimed::Disturbed);
                }
                let run = || -> Result<Vec<Array>> {
                    for byte in 0..FILLS as u8 {
                        // SAFETY: the memory is this clock's, and all work on it is on this stream.
                        unsafe { state.stream().fill(other.address(), byte, other.len()) }?;
                    }
                    program.run_matching(inputs.to_vec())
                };
                let outputs = run();
                let activities = state.end_choices()?;
                outputs?;
                time_of(&activities.unwrap_or_default(), name).ok_or(Untimed::Disturbed)
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
