//! What declarations are tested with: samples, the rules that give them, directives. The templates of the generated
//! tests are a crate of their own.

pub mod directives;
pub mod rules;
pub mod samples;
