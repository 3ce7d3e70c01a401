//! The notes that a run leaves in its checkpoints.

/// The note of a checkpoint with the [`Precision`](crate::precision::Precision) of its run.
pub const PRECISION: &str = "precision";

/// The note of a checkpoint with the fields of the configuration that were given, as a list in JSON.
pub const SET: &str = "set";

/// The notes of a checkpoint with the files that the run trains and validates with, as lists in JSON. Without them it
/// is tinyshakespeare, and the last tenth of the data.
pub const DATA: &str = "data";
/// See [`DATA`].
pub const VALIDATION: &str = "validation";

/// The notes of a checkpoint with what its run validates and samples: numbers as
/// [`TrainOptions`](super::TrainOptions) has them under these names, and the prompt as it is. How often it saves is not
/// noted: the checkpoints of a step are equal whenever others were written.
pub const EVALUATE_EVERY: &str = "evaluate_every";
/// See [`EVALUATE_EVERY`].
pub const EVALUATE_BATCHES: &str = "evaluate_batches";
/// See [`EVALUATE_EVERY`].
pub const SAMPLE_EVERY: &str = "sample_every";
/// See [`EVALUATE_EVERY`].
pub const SAMPLE_TOKENS: &str = "sample_tokens";
/// See [`EVALUATE_EVERY`].
pub const PROMPT: &str = "prompt";

/// The note of a checkpoint with the name of its run ([`TrainOptions::name`](super::TrainOptions::name)).
pub const RUN: &str = "run";

/// The note of a checkpoint with what of the logits existed in its run's steps, by the name of
/// [`Logits`](crate::head::Logits): sums of the other kind are rounded otherwise.
pub const LOGITS: &str = "logits";

/// The note of a checkpoint whose dropout draws from streams of [`generator`](super::generator). Checkpoints without it
/// are of a version whose masks repeated.
pub const DROPOUT_STREAMS: &str = "dropout_streams";
