//! Who runs the operators.

pub mod cpu;
pub mod cuda;
pub mod reference;
mod regions;
