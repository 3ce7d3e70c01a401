//! Scaled dot-product attention in tiles: scores of some queries and some keys exist at a time, and none are kept.
//! Memory grows with the lengths, not with their product (Dao et al., "FlashAttention", 2022).
//!
//! All is computed in f32. How the work is cut depends on shapes, windows and lengths alone, and each part of a result
//! is summed by one task, in the order of keys or of queries: so results have the same bits for any number of threads.
//! Tiles of keys that no query of a tile sees are passed by. Masks of 16-bit numbers are read as a copy in f32.

mod backward;
mod dropped;
mod forward;
mod operands;
mod problem;
mod products;
mod rows;
mod seen;
#[cfg(test)]
mod tests;

pub use backward::attention_backward;
pub use forward::attention_forward;
pub use problem::{Dropped, Scores};
