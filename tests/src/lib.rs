//! The suite that runs what declarations generate: `tests/generated.rs` for the operator library, `tests/wrong_operators.rs` for the
//! templates themselves. There is no library here.
