//! What the library made of a problem.

use super::descriptor::Descriptor;

/// A plan of the library, which needs a handle to run.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) plan: Descriptor,
    pub(super) workspace_bytes: usize,
    /// The number of the engine.
    pub(super) engine: i64,
    /// What a record knows the engine and its knobs by.
    pub(super) configuration: String,
}
