//! Settings of what a thread traces.

use std::cell::Cell;
use std::thread::LocalKey;

/// Calls `f` with `value` in `cell`, which is as before then, also where `f` unwinds, as tracing does at some errors.
pub(crate) fn with_held<T: Copy + 'static, R>(cell: &'static LocalKey<Cell<T>>, value: T, f: impl FnOnce() -> R) -> R {
    struct Before<T: Copy + 'static>(&'static LocalKey<Cell<T>>, T);
    impl<T: Copy> Drop for Before<T> {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _before = Before(cell, cell.replace(value));
    f()
}
