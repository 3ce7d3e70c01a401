//! What a command gives back: an exit code, or why it failed.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

/// What a command gives back.
pub type Outcome = Result<ExitCode, Failed>;

/// The exit code of a run whose numbers were no longer finite.
#[cfg(feature = "models")]
pub const DIVERGED: u8 = 3;

/// Why a command failed, as a sentence for standard error.
#[derive(Debug)]
pub struct Failed(pub String);

impl Failed {
    /// Something is wrong with that file.
    pub fn file(path: &Path, message: impl Display) -> Failed {
        Failed(format!("{}: {message}", path.display()))
    }
}

impl From<fulgurite::Error> for Failed {
    fn from(error: fulgurite::Error) -> Failed {
        Failed(error.to_string())
    }
}

impl From<crate::cases::CaseError> for Failed {
    fn from(error: crate::cases::CaseError) -> Failed {
        Failed(error.message)
    }
}
