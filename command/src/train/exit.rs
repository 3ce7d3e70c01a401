//! How `train` ends where it fails, beside an interruption.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fulgurite_kernels::ranks::ended;
use fulgurite_models::train::TrainError;

use super::super::outcome::{DIVERGED, Failed, Outcome};
use super::super::output::complain;

/// How long a rank waits for the end of the one that failed.
const FOR_ANOTHER: Duration = Duration::from_secs(2);

/// Tells an error of a run, unless another rank does.
pub(super) fn of(error: TrainError) -> Outcome {
    match error {
        TrainError::Failed(error) => Err(error.into()),
        TrainError::Diverged(divergence) => {
            complain(&divergence.to_string());
            Ok(ExitCode::from(DIVERGED))
        }
        TrainError::OtherRank { diverged, .. } => {
            // That rank is the first to end, and says why.
            let until = Instant::now() + FOR_ANOTHER;
            while ended().is_none() && Instant::now() < until {
                sleep(Duration::from_millis(5));
            }
            Ok(if diverged { ExitCode::from(DIVERGED) } else { ExitCode::FAILURE })
        }
        TrainError::Ranks(error) => Err(Failed(error.to_string())),
    }
}
