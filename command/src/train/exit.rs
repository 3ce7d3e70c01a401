//! How `train` ends where it fails, beside an interruption.

use std::process::ExitCode;

use fulgurite_models::train::TrainError;

use super::super::outcome::{Failed, Outcome};
use super::super::output::complain;

/// The exit code of a run whose numbers were no longer finite.
const DIVERGED: u8 = 3;

/// Tells an error of a run, unless another rank does.
pub(super) fn of(error: TrainError) -> Outcome {
    match error {
        TrainError::Failed(error) => Err(error.into()),
        TrainError::Diverged(divergence) => {
            complain(&divergence.to_string());
            Ok(ExitCode::from(DIVERGED))
        }
        TrainError::OtherRank { diverged: true, .. } => Ok(ExitCode::from(DIVERGED)),
        TrainError::OtherRank { .. } => Ok(ExitCode::FAILURE),
        TrainError::Ranks(error) => Err(Failed(error.to_string())),
    }
}
