//! Interruptions: Ctrl-C, and what else asks a process to end.

use std::time::{Duration, Instant};

use super::outcome::Failed;

/// The exit code of what an interruption ended.
pub const INTERRUPTED: u8 = 130;

/// Signals that follow each other so closely are one: `timeout` sends its signal to the process and to its group.
const TOGETHER: Duration = Duration::from_millis(200);

/// Which signals are interruptions of their own.
#[derive(Default)]
struct Apart {
    /// When the last of them was done with.
    last: Option<Instant>,
}

impl Apart {
    /// Calls `interrupted` unless the signal that came `now` is one with the last.
    fn signal(&mut self, now: Instant, interrupted: impl FnOnce()) {
        if self.last.is_none_or(|last| now.saturating_duration_since(last) > TOGETHER) {
            let called = Instant::now();
            interrupted();
            // What came while it worked comes now.
            self.last = Some(now + called.elapsed());
        }
    }
}

/// Calls `interrupted` at each Ctrl-C, SIGTERM and SIGHUP, and once for those that come within a fifth of a second. A
/// SIGHUP that is ignored, as under `nohup`, stays ignored.
///
/// # Errors
/// Those of the system.
pub fn listen(mut interrupted: impl FnMut() + Send + 'static) -> Result<(), Failed> {
    let mut apart = Apart::default();
    let signal = move || apart.signal(Instant::now(), &mut interrupted);
    fulgurite_kernels::machine::with_hangups_ignored_still(|| ctrlc::set_handler(signal))
        .map_err(|error| Failed(format!("interruptions cannot be listened to: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_come_together_are_one() {
        let begin = Instant::now();
        let count = |milliseconds: &[u64]| {
            let (mut apart, mut count) = (Apart::default(), 0);
            milliseconds.iter().for_each(|at| apart.signal(begin + Duration::from_millis(*at), || count += 1));
            count
        };
        assert_eq!([count(&[0, 5]), count(&[0, 1000]), count(&[0, 5, 1000])], [1, 2, 2]);
        // Those that are no interruptions of their own do not put off the next one.
        assert_eq!(count(&[0, 150, 290, 430]), 2);
    }
}
