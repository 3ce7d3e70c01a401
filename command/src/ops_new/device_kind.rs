//! The crate of a kind of device: a device whose memory is the host's, to be replaced part by part by a driver's calls.

use std::path::Path;
use std::process::ExitCode;

use super::super::outcome::Outcome;
use super::super::output::say;
use super::crate_files::{manifest, write};

/// What the crate needs beside the library: the registration of the kind, and its errors.
const DEPENDENCIES: &str = "linkme = \"0.3\"\nthiserror = \"2\"\n";

/// The test target of all operators on the device.
const SUITE_TARGET: &str = "
[[test]]
name = \"suite\"
harness = false
";

const SUITE: &str = "\
//! Every operator on the device, those that run on the host too.

// Naming the crate registers the kind.
use CRATE as _;

fn main() -> std::process::ExitCode {
    fulgurite::testing::main_of_device(\"CRATE\")
}
";

/// Files of `src`, in which KIND is the kind's name.
const SOURCES: [(&str, &str); 7] = [
    ("src/lib.rs", include_str!("device_kind/lib.rs.txt")),
    ("src/kind.rs", include_str!("device_kind/kind.rs.txt")),
    ("src/stream.rs", include_str!("device_kind/stream.rs.txt")),
    ("src/code.rs", include_str!("device_kind/code.rs.txt")),
    ("src/error.rs", include_str!("device_kind/error.rs.txt")),
    ("src/executor.rs", include_str!("device_kind/executor.rs.txt")),
    ("src/kernels.rs", include_str!("device_kind/kernels.rs.txt")),
];

/// Writes the crate whose folder is `folder`; the folder's name is the crate's, and the kind's.
pub(super) fn write_all(folder: &Path, own_target: bool) -> Outcome {
    let manifest = manifest(DEPENDENCIES, SUITE_TARGET);
    // `DEVICE_KINDS` is a name of the library's.
    let named =
        SOURCES.map(|(file, text)| (file, text.replace("KIND", "CRATE").replace("DEVICE_CRATES", "DEVICE_KINDS")));
    let sources = named.iter().map(|(file, text)| (*file, text.as_str()));
    let files: Vec<(&str, &str)> =
        [("Cargo.toml", manifest.as_str()), ("tests/suite.rs", SUITE)].into_iter().chain(sources).collect();
    write(folder, &files, own_target)?;
    let folder = folder.display();
    say!("cargo test --test suite, in {folder}: every operator on the device; then replace what is marked TODO")?;
    Ok(ExitCode::SUCCESS)
}
