//! Collectives among devices by NCCL.
//!
//! Reference: <https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html>.

mod communicator;
pub(super) mod sys;
mod watch;

pub use communicator::{Communicator, Reduction, Transfer, Transferred};
pub(crate) use watch::{Watch, Watched};
