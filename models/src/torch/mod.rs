//! Files of `torch.save`: `.pth`, `.pt`, `pytorch_model.bin`. A zip archive, not compressed, with a pickle of how
//! tensors are made (`NAME/data.pkl`) and the numbers of each storage (`NAME/data/0`, ...).
//!
//! A pickle is a program. Here a small machine runs it that knows dictionaries, lists, tuples, numbers, texts, and how
//! PyTorch makes a tensor; anything else that a file asks for is an error with its name, and nothing is imported or
//! called.

mod archive;
mod error;
mod instruction;
mod machine;
mod names;
mod read;
mod start;
mod write;

pub use error::TorchError;
pub(crate) use names::unwrapped;
pub use read::{load, parse};
pub(crate) use start::{is_archive, is_old};
pub use write::write;

#[cfg(test)]
mod tests;
