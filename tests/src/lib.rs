//! The suite that runs what declarations generate: `tests/generated.rs` for the operator library,
//! `tests/wrong_operators.rs` for the templates themselves, `tests/fuzz.rs` for the fuzzer. There is no library here.
