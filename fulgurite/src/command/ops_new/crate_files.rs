//! The files of a crate with operators, tests and a command of its own.

use std::path::Path;
use std::process::ExitCode;

use super::super::files::write_new;
use super::super::outcome::{Failed, Outcome};
use super::super::output::say;
use super::super::rust_names::identifier;

/// The test target, as the manifest has it.
pub(super) const TEST_TARGET: &str = "\
[[test]]
name = \"generated\"
harness = false
";

const MANIFEST: &str = r#"[package]
name = "CRATE"
version = "0.1.0"
edition = "2024"
rust-version = "1.95"
# What `cargo run` runs, also beside programs in src/bin/.
default-run = "CRATE"

[dependencies]
fulgurite = { path = "FULGURITE" }

# Its main runs the tests that the crate's declarations generate.
TARGET
# Kernels are optimized in debug builds too: without these lines tests take many times as long.
[profile.dev]
opt-level = 1
debug = "line-tables-only"
lto = "off"

[profile.dev.package."*"]
debug = false

[profile.dev.package.gemm-common]
opt-level = 3
debug-assertions = false
[profile.dev.package.gemm-f32]
opt-level = 3
debug-assertions = false
[profile.dev.package.gemm-f64]
opt-level = 3
debug-assertions = false

[profile.dev.package.fulgurite-kernels]
opt-level = 3
"#;

const LIBRARY: &str = "\
//! Operators of CRATE.

fulgurite::operator_files! {}
";

const COMMAND: &str = "\
//! The `fulgurite` command with this crate's declarations besides the library's.

// Naming the crate links its declarations.
use CRATE as _;

fn main() -> std::process::ExitCode {
    fulgurite::command::main()
}
";

const TESTS: &str = "\
// Naming the crate links its declarations.
use CRATE as _;

fn main() -> std::process::ExitCode {
    fulgurite::main_of_crate!()
}
";

/// The file of the test target of the crate `name`.
pub(super) fn test_file(name: &str) -> String {
    TESTS.replace("CRATE", name)
}

/// Writes the crate whose folder is `folder`, and whose name is the folder's.
pub(super) fn write_all(folder: &Path) -> Outcome {
    let absolute = std::path::absolute(folder).map_err(|error| Failed::file(folder, error))?;
    let name = absolute.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = identifier(&name)
        .map_err(|message| Failed::file(folder, format!("its name becomes the crate's: {message}")))?;
    // Where the library of this command was built: the crate needs the same one.
    let facade = env!("CARGO_MANIFEST_DIR");
    let manifest = MANIFEST.replace("TARGET", TEST_TARGET).replace("FULGURITE", facade);
    let files = [
        ("Cargo.toml", manifest.as_str()),
        ("src/lib.rs", LIBRARY),
        ("src/main.rs", COMMAND),
        ("tests/generated.rs", TESTS),
    ];
    if let Some((there, _)) = files.iter().find(|(file, _)| folder.join(file).exists()) {
        return Err(Failed::file(&folder.join(there), "is there already; nothing was written"));
    }
    for inner in ["src", "tests"] {
        let inner = folder.join(inner);
        std::fs::create_dir_all(&inner).map_err(|error| Failed::file(&inner, error))?;
    }
    for (file, text) in files {
        write_new(&folder.join(file), &text.replace("CRATE", &name))?;
    }
    if !Path::new(facade).join("Cargo.toml").is_file() {
        say!("{facade} is not there any more: write in Cargo.toml where the library is")?;
    }
    say!("its first operator: cargo run -- ops new NAME --path src/NAME.rs, in {}; then cargo test", folder.display())?;
    Ok(ExitCode::SUCCESS)
}
