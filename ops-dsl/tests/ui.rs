//! What must not compile, and what it says. The messages are those of the toolchain that `rust-toolchain.toml` pins.

#[test]
fn ui() {
    // The gate compiles with clippy's driver, whose lints are not messages of the macros.
    // SAFETY: this is the only test of the process; its main thread waits and reads no variable meanwhile.
    unsafe { std::env::remove_var("RUSTC_WORKSPACE_WRAPPER") };
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
