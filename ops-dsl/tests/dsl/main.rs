//! What declarations expand to, and how much of it.

mod expansions;
mod size;
