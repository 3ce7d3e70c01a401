//! The kind of device `npu`, in a crate that depends on Fulgurite alone.
//!
//! Naming the crate registers the kind ([`kind`]), its executor ([`executor`]), and what the executor runs
//! ([`kernels`]). As it was written, memory of the device is memory of the host and work is done at once: replace what
//! is marked `TODO` by the calls of the device's driver. Operators without a kernel are decomposed, or run on the host,
//! which traces show as `by host`.

pub mod code;
pub mod error;
pub mod kind;
pub mod stream;

fulgurite::operator_files! {
    executor, kernels,
}
