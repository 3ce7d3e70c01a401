//! Who runs the operators.

pub mod cpu;
pub mod reference;
mod regions;
