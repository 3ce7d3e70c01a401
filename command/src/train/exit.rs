//! Exit codes of `train`, beside that of an interruption.

/// Of a run whose numbers were no longer finite.
pub const DIVERGED: u8 = 3;
