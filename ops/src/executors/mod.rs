//! Who runs the operators.

pub mod cpu;
pub mod cublaslt;
pub mod cuda;
pub mod flash;
pub mod fusion;
pub mod llmc;
pub mod optim;
pub mod reference;
pub mod region_program;
mod region_rules;
pub mod regions;
mod widening;
