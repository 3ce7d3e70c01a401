//! The deadline of a case of `fuzz`: a case that hangs is named, and ends the search.

use std::io::{Write, stderr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fulgurite::kernels::machine::exit_at_once;

use super::outcome::Failed;

/// The case at hand, and when it must be done.
type Current = Option<(u64, Instant)>;

#[derive(Default)]
struct Shared {
    current: Mutex<Current>,
    changed: Condvar,
}

impl Shared {
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a case is overdue: its number.
    fn overdue(&self) -> u64 {
        let mut current = self.current();
        loop {
            current = match *current {
                None => self.changed.wait(current).unwrap_or_else(PoisonError::into_inner),
                Some((case, due)) => {
                    let left = due.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return case;
                    }
                    self.changed.wait_timeout(current, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// A thread that ends the process when a case takes too long: nothing else can end what a case does.
pub(super) struct Watch {
    shared: Arc<Shared>,
    limit: Duration,
}

impl Watch {
    /// Allows each case so much time. `again` is the command that repeats a case.
    pub(super) fn start(limit: Duration, again: impl FnOnce(u64) -> String + Send + 'static) -> Result<Watch, Failed> {
        let shared = Arc::new(Shared::default());
        let watched = Arc::clone(&shared);
        let watcher = thread::Builder::new().name("deadline".into()).spawn(move || {
            let case = watched.overdue();
            let again = again(case);
            let _ = writeln!(
                stderr().lock(),
                "error: case {case} takes longer than its deadline of {limit:?}\n  again:    {again}"
            );
            // An orderly exit tears down what the case still uses: it could wait for that, or abort.
            exit_at_once(1);
        });
        watcher.map_err(|error| Failed(format!("the thread that watches deadlines: {error}")))?;
        Ok(Watch { shared, limit })
    }

    /// A case begins, or a part of it that may take `more` besides.
    pub(super) fn begins(&self, case: u64, more: Duration) {
        let due = self.limit.checked_add(more).and_then(|limit| Instant::now().checked_add(limit));
        *self.shared.current() = due.map(|due| (case, due));
        self.shared.changed.notify_one();
    }

    /// Nothing is waited for.
    pub(super) fn ends(&self) {
        *self.shared.current() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_at_hand_is_overdue_and_no_other() {
        let shared = Arc::new(Shared::default());
        let watch = Watch { shared: Arc::clone(&shared), limit: Duration::ZERO };
        // Not due for an hour; done; and begun again, due at once.
        watch.begins(1, Duration::from_secs(3600));
        watch.ends();
        let watcher = thread::spawn(move || shared.overdue());
        watch.begins(2, Duration::from_secs(3600));
        watch.begins(3, Duration::ZERO);
        assert_eq!(watcher.join().unwrap(), 3);
    }
}
