//! Whether a run that failed had begun to write to its donated inputs.

use std::cell::Cell;

thread_local! {
    /// Whether a run of this thread that failed had begun to write to its donated inputs.
    static OVERWRITTEN: Cell<bool> = const { Cell::new(false) };
}

/// Says that a run which failed had begun to write to its donated inputs.
pub(super) fn note_overwritten() {
    OVERWRITTEN.set(true);
}

/// What `work` returns, and whether a program that failed in it, on this thread, had begun to write to its donated
/// inputs: what is in them then is a part of the update. Where it had not, they are as they were, for a caller that
/// has kept the memory that [was lent](crate::array::Array::lent).
pub fn with_overwritten<T>(work: impl FnOnce() -> T) -> (T, bool) {
    let before = OVERWRITTEN.replace(false);
    let done = work();
    (done, OVERWRITTEN.replace(before))
}
