//! The CUDA floor on a device. Without one these tests say that they are skipped.
//!
//! The binary needs nothing but the driver and NVIDIA's libraries, so it can be built where Rust is and run where the
//! device is: `cargo test -p fulgurite-cuda --test cuda_device --no-run` prints its path.

#[path = "../common/mod.rs"]
mod common;

mod attention;
mod contexts;
mod faults;
mod fixture;
mod graphs;
mod kernels;
mod memory;
mod products;
