//! Kernels of executors, in programs that no sample has.

#[path = "../device/mod.rs"]
mod device;

mod adding_rows;
mod attention;
mod clipping;
mod cudnn;
mod experts;
mod flash;
mod fp8;
mod liger_fusion;
mod liger_losses;
mod losses;
mod preference_losses;
mod unsloth;
