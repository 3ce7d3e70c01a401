//! The allocator of the suite's programs: they compile traces by the thousand, and a fourth of their time went into the
//! system's. `tests/generated.rs` runs what declarations generate for the operator library, `tests/wrong_operators.rs`
//! tests the templates themselves.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
