//! Collectives among devices.
//!
//! Between the devices of one host tensors go by the devices' copy engines ([`Peers`]), which leave all
//! multiprocessors to the program's kernels, and a kernel adds what came, in the order of ranks. Where a device cannot
//! write to the memory of all others, NCCL moves and adds them.
//!
//! Reference of NCCL: <https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html>.

mod combine;
mod nccl;
mod parts;
mod peer_memory;
mod peers;
pub(super) mod sys;
mod transfer;
mod watch;

pub use combine::Combine;
pub use nccl::Communicator;
pub use peers::{Peers, PeersMemory};
pub use transfer::{Reduction, Tensors, Transfer, Transferred};
pub(crate) use watch::{Waiting, Watch, Watched};
