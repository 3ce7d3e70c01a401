//! The files of llm.c: checkpoints, the record of one training step that its tests compare with (`debug_state`), the
//! tokenizer's vocabulary, and shards of tokens.
//!
//! All of them start with 256 little-endian i32, of which the first is a number that tells the kind and the second the
//! version of the format. Fields that a version does not use are written as 0 and not looked at. Every reader checks
//! each size against the length of the file before it allocates anything, and every error names the field or the place,
//! its offset in bytes from the start of the file, what is there and what was expected.

pub mod checkpoint;
pub mod debug_state;
pub mod error;
mod header;
mod layout;
pub mod shard;
mod stream;
pub mod tokenizer;

pub use checkpoint::{LlmcCheckpoint, Version};
pub use debug_state::DebugState;
pub use error::LlmcError;
pub use header::{HEADER_BYTES, Kind};
pub use layout::padded_vocabulary;
pub use shard::Shard;
pub use tokenizer::LlmcTokenizer;

#[cfg(test)]
mod tests;
