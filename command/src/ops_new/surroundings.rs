//! Where a declaration is written: the crate of a file, and what that crate can name.

use std::path::{Path, PathBuf};

/// The crate that has everything, for crates outside of this repository.
const FACADE: &str = "fulgurite";

/// What the crate of a declaration can name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Surroundings {
    /// The crate of the operators.
    Operators,
    /// Another crate of this repository, which has them from that one.
    BesideOperators,
    /// A crate that has everything from the facade.
    Outside,
}

impl Surroundings {
    /// As the manifest of the file's crate says.
    pub(super) fn of(path: &Path) -> Surroundings {
        let manifest =
            folders_above(path).iter().find_map(|folder| std::fs::read_to_string(folder.join("Cargo.toml")).ok());
        match manifest {
            // Crates of this repository name the runtime; others have it from the facade.
            Some(manifest) if manifest.lines().any(|line| line.starts_with("fulgurite-runtime")) => {
                match manifest.contains("name = \"fulgurite-ops\"") {
                    true => Surroundings::Operators,
                    false => Surroundings::BesideOperators,
                }
            }
            _ => Surroundings::Outside,
        }
    }

    /// The crate that has the macros.
    pub(super) fn macros(self) -> &'static str {
        if self == Surroundings::Outside { FACADE } else { "fulgurite_ops_macros" }
    }
}

/// The folders above a file, from the nearest on.
pub(super) fn folders_above(path: &Path) -> Vec<PathBuf> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.ancestors().skip(1).map(Path::to_owned).collect()
}
