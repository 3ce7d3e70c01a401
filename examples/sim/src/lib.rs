//! A kind of device from outside: `sim`, a simulated accelerator, in a crate that depends on Fulgurite alone.
//!
//! Naming the crate registers the kind, its executor [`sim`], and what the executor runs. There are two devices, each
//! with little memory of its own, whose addresses are none of the host ([`heap`]), and streams that work in threads of
//! their own after random delays ([`stream`]). Work that uses memory or code after either was given up is an error, as
//! it may be on any device. Kernels are closures of the host, and one library call is its own
//! ([`library`]). What the device lacks is decomposed, or run on the host, which the trace shows as `by host`.

pub mod code;
pub mod error;
pub mod heap;
pub mod kernels;
pub mod kind;
pub mod library;
pub mod stream;

fulgurite::operator_files! {
    cubed, executor, geglu, matmul, reductions,
}
