//! The sources of the repository: layers, facts, prose.

mod facts;
mod imports;
mod prose;
mod tables;
