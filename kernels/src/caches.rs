//! Where this library keeps what it need not compute again.

use std::path::PathBuf;

/// The folder of all caches; by default the user's cache folder.
pub const CACHE_VARIABLE: &str = "FULGURITE_CACHE";

/// The folder of all caches, if the system has one.
pub fn caches() -> Option<PathBuf> {
    let chosen = std::env::var_os(CACHE_VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    chosen.or_else(|| Some(directories::ProjectDirs::from("", "", "fulgurite")?.cache_dir().to_owned()))
}
