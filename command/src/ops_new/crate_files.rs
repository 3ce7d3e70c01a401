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

[features]
# `cargo run --features models` adds `train`, `generate` and the others. Cargo.lock has their packages as long as this
# feature is here.
models = ["fulgurite-command/models"]

[dependencies]
fulgurite = { path = "FULGURITE/fulgurite" }
fulgurite-command = { path = "FULGURITE/command", default-features = false }

# Its main runs the tests that the crate's declarations generate.
TARGET
# Kernels are optimized in debug builds too: without these lines tests take many times as long.
[profile.dev]
opt-level = 1
debug = false
lto = "off"

[profile.dev.package.gemm-common]
opt-level = 3
debug-assertions = false
[profile.dev.package.gemm-f32]
opt-level = 3
debug-assertions = false
[profile.dev.package.gemm-f64]
opt-level = 3
debug-assertions = false

# What compiles a trace is where tests spend most of their time beside products.
[profile.dev.package.fulgurite-base]
opt-level = 2
[profile.dev.package.fulgurite-ir]
opt-level = 2
[profile.dev.package.fulgurite-compile]
opt-level = 2
[profile.dev.package.fulgurite-run]
opt-level = 2
[profile.dev.package.fulgurite-testing]
opt-level = 2

# What is compiled far longer than it runs.
[profile.dev.package.fulgurite-plots]
opt-level = 0
[profile.dev.package.fulgurite-rates]
opt-level = 0
[profile.dev.package.fulgurite-view]
opt-level = 0

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
    fulgurite_command::main()
}
";

const TESTS: &str = "\
// Naming the crate links its declarations.
use CRATE as _;

fn main() -> std::process::ExitCode {
    fulgurite::main_of_crate!()
}
";

const SHARED_TARGET: &str = "\
# Builds go to the library's target folder, so that packages which are built there are not built again, and versions are
# those of its Cargo.lock. Without this file the crate has a target folder of its own.
[build]
target-dir = \"FULGURITE/target\"
";

/// The file of the test target of the crate `name`.
pub(super) fn test_file(name: &str) -> String {
    TESTS.replace("CRATE", name)
}

/// The manifest of a crate, with more dependencies and test targets than each crate has.
pub(super) fn manifest(dependencies: &str, targets: &str) -> String {
    let facade = "fulgurite = { path = \"FULGURITE/fulgurite\" }\n";
    MANIFEST.replace(facade, &format!("{facade}{dependencies}")).replace("TARGET", &format!("{TEST_TARGET}{targets}"))
}

/// Writes a crate of operators.
pub(super) fn write_all(folder: &Path, own_target: bool) -> Outcome {
    let manifest = manifest("", "");
    let files = [("Cargo.toml", manifest.as_str()), ("src/lib.rs", LIBRARY)];
    write(folder, &files, own_target)?;
    let folder = folder.display();
    say!("its first operator: cargo run -- ops new NAME --path src/NAME.rs, in {folder}; then cargo test")?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the files of the crate whose folder is `folder`, and whose name is the folder's, with a command and a test
/// target: the name, which takes the place of CRATE in them. Unless `own_target` is set, its builds go to the library's
/// target folder.
pub(super) fn write(folder: &Path, own: &[(&str, &str)], own_target: bool) -> Result<String, Failed> {
    let absolute = std::path::absolute(folder).map_err(|error| Failed::file(folder, error))?;
    let name = absolute.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = identifier(&name)
        .map_err(|message| Failed::file(folder, format!("its name becomes the crate's: {message}")))?;
    // Where the library of this command was built: the crate needs the same one.
    let own_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let repository = own_folder.parent().unwrap_or(own_folder);
    let lock = std::fs::read_to_string(repository.join("Cargo.lock")).unwrap_or_default();
    let shared = [(".cargo/config.toml", SHARED_TARGET), ("Cargo.lock", lock.as_str())];
    let shared = if own_target || lock.is_empty() { &[][..] } else { &shared };
    let files = [own, &[("src/main.rs", COMMAND), ("tests/generated.rs", TESTS)], shared].concat();
    if let Some((there, _)) = files.iter().find(|(file, _)| folder.join(file).exists()) {
        return Err(Failed::file(&folder.join(there), "is there already; nothing was written"));
    }
    for inner in ["src", "tests", ".cargo"].into_iter().take(2 + usize::from(!shared.is_empty())) {
        let inner = folder.join(inner);
        std::fs::create_dir_all(&inner).map_err(|error| Failed::file(&inner, error))?;
    }
    for (file, text) in files {
        write_new(
            &folder.join(file),
            &text.replace("CRATE", &name).replace("FULGURITE", &repository.display().to_string()),
        )?;
    }
    if !own_folder.join("Cargo.toml").is_file() {
        say!("{} is not there any more: write in Cargo.toml where the library is", repository.display())?;
    }
    Ok(name)
}
