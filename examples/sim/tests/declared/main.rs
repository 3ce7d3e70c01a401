//! Declarations of these tests: kernels of the device that are wrong on purpose, a kernel symbol of the device and of
//! the host, and the kind of device that `ops new` writes, whose files name each other from the root of their crate.

mod choices_faults;
#[deny(warnings)]
#[path = "../written/npu/src/code.rs"]
mod code;
#[deny(warnings)]
#[path = "../written/npu/src/error.rs"]
mod error;
#[deny(warnings)]
#[path = "../written/npu/src/executor.rs"]
mod executor;
#[deny(warnings)]
#[path = "../written/npu/src/kernels.rs"]
mod kernels;
#[deny(warnings)]
#[path = "../written/npu/src/kind.rs"]
mod kind;
mod on_stream;
mod one_symbol;
#[deny(warnings)]
#[path = "../written/npu/src/stream.rs"]
mod stream;
mod written_kind;
mod wrong_kernel;
mod wrong_padding;
