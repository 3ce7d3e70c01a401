//! Why a run ended: an error of a file, a program or a device, or numbers that are not finite.

use std::fmt;

use fulgurite_kernels::ranks::RankError;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, Error, Result};

use crate::nonfinite::NonFinite;
use crate::parameter_list::Parameters;
use crate::parameters::to_host;

/// Why a run ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// An error of an option, a file, a program or a device.
    #[error(transparent)]
    Failed(#[from] Error),
    /// Loss, gradients or weights that are not finite. What the checkpoint holds is from before.
    #[error(transparent)]
    Diverged(#[from] Divergence),
    /// The ranks do not fit together, or one is gone.
    #[error(transparent)]
    Ranks(#[from] RankError),
    /// Another rank failed, which says so itself.
    #[error("rank {rank} ended the run: {message}")]
    OtherRank {
        /// That rank.
        rank: usize,
        /// Whether its numbers were not finite.
        diverged: bool,
        /// Its error.
        message: String,
    },
}

/// Numbers of a run that are not finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Divergence {
    /// The step, from 1.
    pub step: u64,
    /// What is not finite there.
    pub cause: Cause,
    /// The step of the newest checkpoint, if there is one.
    pub saved: Option<u64>,
}

/// What of a run is not finite.
#[derive(Debug, Clone, PartialEq)]
pub enum Cause {
    /// A weight, before the step's update.
    Weight(NonFinite),
    /// A weight or a moment after the step's update.
    State(NonFinite),
    /// The gradient of a parameter.
    Gradient(NonFinite),
    /// The norm of all gradients, each of which is finite.
    Norm {
        /// The parameter with the largest gradient.
        parameter: String,
        /// The largest element of its gradient.
        largest: f64,
    },
    /// The loss, of weights that are finite.
    Loss(f64),
    /// The loss or the norm of all gradients; the next step failed before it was known what else is not finite.
    Report {
        /// The loss.
        loss: f64,
        /// The norm, where it is measured.
        norm: Option<f64>,
        /// Why the next step failed.
        failed: String,
    },
    /// The loss of a validation batch, of weights that are finite and were to be saved.
    ValidationLoss(f64),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |found: &NonFinite| {
            let NonFinite { name, index, value } = found;
            format!("'{name}' is {value} at element {index}")
        };
        match self {
            Cause::Weight(found) => write!(f, "the weight {}", place(found)),
            Cause::State(found) => write!(f, "after the update {}", place(found)),
            Cause::Gradient(found) => write!(f, "the gradient of {}", place(found)),
            Cause::Norm { parameter, largest } => write!(
                f,
                "the gradients' norm is infinite; the largest gradient, {largest:e}, is that of '{parameter}'"
            ),
            Cause::Loss(loss) => write!(f, "the loss is {loss}, though all weights are finite"),
            Cause::Report { loss, norm, failed } => {
                write!(f, "the loss is {loss}")?;
                if let Some(norm) = norm {
                    write!(f, ", the gradients' norm is {norm}")?;
                }
                write!(f, "; the next step, which was begun by then, failed: {failed}")
            }
            Cause::ValidationLoss(loss) => {
                write!(f, "the validation loss after it is {loss}, though all weights are finite")
            }
        }
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}; ", self.step, self.cause)?;
        match self.saved {
            Some(step) => write!(f, "the checkpoint is that of step {step}")?,
            None => write!(f, "nothing was saved")?,
        }
        write!(f, "; lower the learning rate")
    }
}

impl std::error::Error for Divergence {}

/// The first value of these parameters, or of their gradients, that is not finite.
pub(super) fn first_nonfinite(tree: &Parameters<Array>) -> Result<Option<NonFinite>> {
    for (name, array) in tree.leaves() {
        if let Some(found) = NonFinite::of(&name, &to_host(array)?) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Why loss or gradients of these weights are not finite.
pub(super) fn cause_of(params: &Parameters<Array>, loss: f64, gradients: &Parameters<Array>) -> Result<Cause> {
    if let Some(found) = first_nonfinite(params)? {
        return Ok(Cause::Weight(found));
    }
    if let Some(found) = first_nonfinite(gradients)? {
        return Ok(Cause::Gradient(found));
    }
    if !loss.is_finite() {
        return Ok(Cause::Loss(loss));
    }
    let mut largest = (String::new(), 0.0);
    for (name, array) in gradients.leaves() {
        let own = array.to_f64()?.into_iter().fold(0.0, |most: f64, value| most.max(value.abs()));
        if own >= largest.1 {
            largest = (name, own);
        }
    }
    Ok(Cause::Norm { parameter: largest.0, largest: largest.1 })
}
