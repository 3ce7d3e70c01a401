//! When ranks that wait for each other say so.

use std::time::{Duration, Instant};

/// How long ranks wait before they say so.
const FIRST_WORD: Duration = Duration::from_secs(5);
/// How long until they say it again.
const NEXT_WORD: Duration = Duration::from_secs(30);

/// When a wait is told of.
pub(super) struct Told(Instant);

impl Told {
    /// A wait that begins.
    pub(super) fn new() -> Told {
        Told(Instant::now() + FIRST_WORD)
    }

    /// Whether it is time to tell of it.
    pub(super) fn is_time(&mut self) -> bool {
        let now = Instant::now();
        let is_time = now >= self.0;
        if is_time {
            self.0 = now + NEXT_WORD;
        }
        is_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_of_after_a_while_and_not_all_the_time() {
        let mut told = Told::new();
        assert!(!told.is_time());
        let mut long = Told(Instant::now());
        assert!(long.is_time() && !long.is_time());
        assert!(long.0 > Instant::now() + NEXT_WORD / 2);
    }
}
