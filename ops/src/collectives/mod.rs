//! Collectives: what the ranks of a mesh give each other. Each goes along one axis of the mesh, which it names with
//! its number of ranks (`data=4`). All ranks run the same program, so that each calls the same collectives in one
//! order.
//!
//! Those that strategies use for many tensors take a list of them, of one dtype, and give a list: one exchange, without
//! a copy that puts the tensors together. [`all_reduce_one`] and its like are for one tensor.
//!
//! There is no barrier: what orders the lines of a trace is their data, and collectives, which keep one order on all
//! ranks. A line without data would order nothing more, and devices wait for each other in every collective.
//!
//! The gradient of a collective is the dual one. A rank's cotangent says how the sum of all ranks' losses depends on
//! its result.

pub mod among;
mod one;

pub use among::Reduce;
pub use one::{all_gather_one, all_reduce_one, reduce_scatter_one};

fulgurite_ops_macros::operator_files! {
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    draws_of_rank,
    place,
    reduce_scatter,
    send_recv,
    whole,
}
