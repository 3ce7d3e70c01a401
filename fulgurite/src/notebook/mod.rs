//! Arrays and programs show themselves in a notebook: Jupyter with the Rust kernel `evcxr`.
//!
//! The last expression of a cell is shown by its method `evcxr_display`, which [`Show`] gives to arrays, traces and
//! compiled functions once it is in scope (`use fulgurite::notebook::*`). Each is shown as HTML, and as plain text
//! where HTML is not: arrays as a table with statistics, programs as the explorer of [`page`](fulgurite_view::page())
//! in a frame of its own.
//!
//! What is shown is bounded: a table has at most 12 rows and 12 columns, a frame at most [`MAX_PAGE`] bytes.

mod array;
mod content;
mod program;
mod show;

pub use content::Content;
pub use program::MAX_PAGE;
pub use show::Show;
