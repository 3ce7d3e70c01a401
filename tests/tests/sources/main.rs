//! The sources of the repository: layers, facts, prose.

mod facts;
mod imports;
mod libraries;
mod prose;
mod tables;
