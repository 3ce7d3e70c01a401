//! What the validation batches of a run came to.

use crate::report::What;

/// What the validation batches came to.
pub(super) struct Evaluation {
    /// The mean loss.
    pub(super) loss: f64,
    /// The share of right answers, if the model tells it.
    pub(super) accuracy: Option<f64>,
}

impl std::fmt::Display for Evaluation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "validation loss {:.4}", self.loss)?;
        self.accuracy.map_or(Ok(()), |share| write!(f, ", accuracy {:.2} %", 100.0 * share))
    }
}

impl Evaluation {
    /// The event of the report.
    pub(super) fn event(&self) -> What {
        What::Validation { loss: self.loss, accuracy: self.accuracy }
    }
}
