//! What is changed and run.

use crate::array::Array;
use crate::trace::Trace;

/// A planned trace, and what it is run on.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Where it comes from.
    pub name: String,
    /// The last stage of its compilation.
    pub trace: Trace,
    /// One array for each input.
    pub inputs: Vec<Array>,
}
