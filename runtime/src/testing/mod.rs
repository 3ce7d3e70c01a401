//! What declarations are tested with: samples, directives, tolerances, and the templates of the generated tests.

pub mod directives;
pub mod samples;
