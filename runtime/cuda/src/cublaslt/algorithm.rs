//! How the library computes a product: its own name for one of its ways.

/// A way to compute a problem, as the library names it to itself. It can be recorded, and used again with the same
/// version of the library on the same kind of device; [`MatmulPlan::with_algorithm`](super::MatmulPlan::with_algorithm)
/// checks that.
#[derive(Debug, Clone, PartialEq)]
pub struct Algorithm {
    /// The library's own encoding.
    pub encoding: [u64; 8],
    /// Workspace that it needs, in bytes.
    pub workspace_bytes: usize,
    /// How often its blocks fill the device; near to a whole number from below is good.
    pub waves: f32,
    /// Into how many parts `k` is split.
    pub split_k: u32,
}
