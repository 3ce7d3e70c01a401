//! Kernels of the device that are wrong on purpose: what tests, compilation and choices say of them.

mod choices_faults;
mod wrong_kernel;
mod wrong_padding;
