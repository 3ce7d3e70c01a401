//! What must not compile, and what it says. The messages are those of the toolchain that `rust-toolchain.toml` pins.

#[test]
fn ui() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
