//! Values that notebooks show.

use std::io::{Write, stdout};

use super::content::Content;

/// What a notebook shows as more than its `Debug` text.
pub trait Show {
    /// As plain text and as HTML.
    fn content(&self) -> Content;

    /// Writes both to standard output in the form that the kernel expects.
    fn evcxr_display(&self) {
        // A notebook that is closed reads nothing.
        let _ = write!(stdout().lock(), "{}", self.content().message());
    }
}
