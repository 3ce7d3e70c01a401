//! The notes that a run leaves in its checkpoints.

/// The note of a checkpoint with the [`Precision`](crate::precision::Precision) of its run.
pub const PRECISION: &str = "precision";

/// The note of a checkpoint with the fields of the configuration that were given, as a list in JSON.
pub const SET: &str = "set";

/// The note of a checkpoint whose dropout draws from streams of [`generator`](super::generator). Checkpoints without it
/// are of a version whose masks repeated.
pub const DROPOUT_STREAMS: &str = "dropout_streams";
