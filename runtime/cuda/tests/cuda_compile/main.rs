//! Run-time compilation and generated kernels, on machines without a device: NVRTC is enough, and without it these
//! tests say that they are skipped.

#[path = "../../../../kernels/tests/host/cases/mod.rs"]
mod cases;
#[path = "../common/mod.rs"]
mod common;
#[path = "../../../../kernels/tests/host/operands.rs"]
mod operands;
#[path = "../generated/problems.rs"]
mod problems;

mod compile;
mod text;
