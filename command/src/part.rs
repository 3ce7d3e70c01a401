//! Which program of a model.

/// What there is of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "models"), expect(dead_code, reason = "a command without models has none of them"))]
pub enum Part {
    /// A training step.
    Step,
    /// The loss of a batch.
    Loss,
    /// One token more of each sequence, with a cache as long as the context.
    Decode,
}
