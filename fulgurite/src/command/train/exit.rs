//! Exit codes of `train`.

/// Of a run whose numbers were no longer finite.
pub const DIVERGED: u8 = 3;

/// Of what an interruption ended.
pub const INTERRUPTED: u8 = 130;
