//! Collectives among devices by NCCL.
//!
//! Reference: <https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html>.

mod communicator;
pub(super) mod sys;

pub use communicator::{Communicator, Reduction, Transfer, Transferred};
