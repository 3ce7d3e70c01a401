//! Run-time compilation and generated kernels, on machines without a device: NVRTC is enough, and without it these
//! tests say that they are skipped.

#[path = "../generated/cases/mod.rs"]
mod cases;
#[path = "../common/mod.rs"]
mod common;
#[path = "../generated/operands.rs"]
mod operands;

mod compile;
mod text;
