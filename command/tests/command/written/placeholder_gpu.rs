use fulgurite::prelude::*;

/// PLACEHOLDER: describe the kernels of this executor. Lower priorities come first in the device's default list. An
/// executor without a priority must be named.
#[executor(device = "cuda", priority = 5)]
pub mod placeholder_gpu {}
