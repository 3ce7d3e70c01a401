//! Devices beside the host: what a kernel's author plans, the memory of arrays, and the device in use.
//!
//! Only CUDA devices exist today. A program for one is traced, claimed, fused and planned without it; see
//! [`crate::program`] for how it runs.

pub(crate) mod faults;
pub mod memory;
pub mod plan;
pub mod state;

pub use memory::DeviceBuffer;
pub use plan::{Address, Command, DeviceTensor, Parameter, Plan, PlanRule, Report, Source};
pub use state::DeviceState;
