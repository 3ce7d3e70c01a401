//! Devices other than the host: the interface that a device kind implements, the plans of kernels, the memory of
//! arrays, and the state of an opened device.
//!
//! # A kind of device
//!
//! A backend is a crate, such as `fulgurite-cuda`, that implements six traits and registers one
//! value:
//!
//! ```text
//! #[linkme::distributed_slice(fulgurite::device::DEVICE_KINDS)]
//! static TOY: &dyn DeviceKind = &Toy;
//! ```
//!
//! | trait | meaning |
//! |---|---|
//! | [`DeviceKind`] | the kind: how many devices there are, what they are, how one is opened, the language of its kernels |
//! | [`DeviceContext`] | an opened device: allocates, makes streams and events, loads code |
//! | [`DeviceMemory`], [`HostMemory`] | a block of device memory; a block of host memory that copies are fast with |
//! | [`DeviceStream`] | a queue of work: copies, fills, waiting |
//! | [`DeviceEvent`] | a mark in a stream, maybe with the time |
//! | [`LoadedCode`] | a program's work made ready: enqueues a step, and may replay a whole run at once |
//!
//! Everything else knows kinds by their name alone: [`crate::meta::Device`] and [`crate::meta::Target`] carry it, an
//! executor says the kind that it runs on, and [`find_kind`] finds the value where memory or code is needed. An address
//! is a number that the backend gives ([`fulgurite_kernels::launch::DeviceAddress`]); the runtime adds to it, and never
//! reads memory through it.
//!
//! # What runs where
//!
//! An executor's plan rule writes commands into a [`Plan`], with places instead of addresses and without a device. A
//! command is a launch of a kernel (a [`Source`] in the kind's language, an entry, a shape, parameters), a fill, a
//! copy, or a [`LibraryCall`], whose payload is a type of the backend's own: problems of cuBLASLt, or closures of a
//! simulated device. The runtime gathers the commands into [`DeviceCode`], allocates the program's memory, and has the
//! backend load the code.
//!
//! A run is driven by the runtime for every kind in the same way: inputs are staged or moved, the code is stepped or
//! replayed, records of faults are fetched, outputs are handed out. The backend implements only [`LoadedCode`]:
//!
//! 1. `load`: sources are compiled, calls of libraries are planned or replaced by what is done instead.
//! 2. The first run calls `step` for each step in order, on the stream of the device.
//! 3. Later runs call `replay`. A backend without graphs returns false, and the steps are enqueued as in the first run.
//! 4. Checked and profiled runs, and runs that look for an error, always call `step`.
//!
//! # Streams
//!
//! Programs run on the compute stream. A kind says which others its devices have ([`DeviceKind::streams`]); without
//! one, its work is on the compute stream too. The runtime reads results on the copy stream, copies small inputs on
//! one more stream while the compute stream is busy, and enqueues each step on the stream that its line of the trace
//! says, with events around it. A backend that replays sees to the same order ([`CodeStep::stream`],
//! [`CodeStep::after`]).
//!
//! # Properties
//!
//! Kernels are planned by [`Properties`]: those of the device at hand if it has the target's architecture, otherwise
//! those that the kind's table has for the architecture. What decides the order of a sum must not differ between
//! devices of one architecture; it asks [`Plan::typical`].
//!
//! # Errors
//!
//! A backend's error is any type with a [`Category`] ([`BackendError`]). The next synchronizing call reports work that
//! failed on the device; the error names the functions that may have caused it. Kernels write invalid data that they
//! find to a record ([`RECORD_BYTES`]); reading an array that depends on it returns the error.

pub mod block;
pub mod code;
pub mod command;
pub mod context;
pub mod error;
pub mod faults;
pub mod fences;
pub mod host_time;
pub mod host_work;
mod kept;
pub mod kind;
pub mod memory;
pub mod plan;
pub mod properties;
pub mod state;
pub mod stream;
pub mod tensor;
pub mod timeline;
mod upload;
pub mod uploader;

pub use crate::stream_kind::StreamKind;
pub use code::{
    Addresses, CodeError, CodeStep, DeviceCode, LoadedCode, Location, RECORD_BYTES, ReplayCounts, Room, Root,
    same_addresses,
};
pub use command::{Address, Command, LibraryCall, Parameter, Payload, Place, Report, Source};
pub use context::{DeviceContext, MemoryHeld};
pub use error::{BackendError, Category, DeviceError};
pub use host_time::HostTime;
pub use kind::{DEVICE_KINDS, DeviceKind, device_kinds, find_kind};
pub use memory::DeviceBuffer;
pub use plan::{Plan, PlanRule, SourceText};
pub use properties::{Entry, Properties, Rates};
pub(crate) use state::Awaited;
pub use state::DeviceState;
pub use stream::{DeviceEvent, DeviceMemory, DeviceStream, HostMemory};
pub use tensor::DeviceTensor;
pub use timeline::Activity;
pub use uploader::Uploader;
