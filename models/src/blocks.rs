//! The blocks of models, which are checkpoints where that is asked for.

use std::cell::Cell;

use fulgurite_ops::prelude::*;

use crate::held::with_held;

thread_local! {
    static CHECKPOINTED: Cell<bool> = const { Cell::new(false) };
}

/// What the backward pass does not keep, but computes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActivationCheckpointing {
    /// It keeps what it needs, but for what is cheap to compute.
    #[default]
    None,
    /// Of each block it keeps the result alone.
    Blocks,
}

impl ActivationCheckpointing {
    /// Traces `f`, with the blocks of the models in it as this says. It holds for what `f` traces on this thread, as
    /// the name of a [`scope`] does.
    pub fn within<R>(self, f: impl FnOnce() -> R) -> R {
        with_held(&CHECKPOINTED, self == ActivationCheckpointing::Blocks, f)
    }
}

/// Traces a block of a model, with names below `name`.
#[track_caller]
pub(crate) fn block(name: &str, f: impl FnOnce() -> Tensor) -> Tensor {
    if CHECKPOINTED.get() { checkpoint(name, f) } else { scope(name, f) }
}
