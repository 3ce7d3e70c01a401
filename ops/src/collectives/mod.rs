//! Collectives: what the ranks of a mesh give each other. Each goes along one axis of the mesh, which it names with
//! its number of ranks (`data=4`). All ranks run the same program, so that each calls the same collectives in one
//! order.
//!
//! The gradient of a collective is the dual one. A rank's cotangent says how the sum of all ranks' losses depends on
//! its result.

pub mod among;

pub use among::Reduce;

fulgurite_ops_macros::operator_files! {
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    reduce_scatter,
    whole,
}
