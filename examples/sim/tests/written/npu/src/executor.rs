//! The executor of the kind.

use fulgurite::prelude::*;

/// TODO: what it runs on the device, in a sentence.
#[executor(device = "npu", priority = 10)]
pub mod npu {}
