//! Kernels of the host: through views, with extents that do not fit, in random fused programs.

mod cases;
#[allow(dead_code)]
mod operands;

mod fused_random;
mod views;
mod wrong_extents;
