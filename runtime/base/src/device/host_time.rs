//! What the host's time of calls goes to, by part, and apart from waiting for a device. Each thread counts its own.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// What a thread has spent on calls of compiled functions and on reading arrays, since it began. The difference of two
/// readings is what was spent between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostTime {
    /// Waiting for a device: for a copy, for the run that wrote an array that is read, for all work. No other part
    /// includes it. Where the driver's launch of a graph waits for room in its queue, that is part of `launching`.
    pub waiting: Duration,
    /// Small inputs of runs are gathered, and their copies are enqueued.
    pub inputs: Duration,
    /// Graphs or single kernels are launched. On the host it is the run itself.
    pub launching: Duration,
    /// Results of runs are handed out: records of faults are fetched, small results copied, the end of the run marked.
    pub results: Duration,
}

thread_local! {
    static SPENT: Cell<HostTime> = const { Cell::new(HostTime {
        waiting: Duration::ZERO,
        inputs: Duration::ZERO,
        launching: Duration::ZERO,
        results: Duration::ZERO,
    }) };
}

impl HostTime {
    /// What this thread has spent so far.
    pub fn now() -> HostTime {
        SPENT.get()
    }

    /// What was spent since `earlier`, a reading of the same thread.
    pub fn since(&self, earlier: &HostTime) -> HostTime {
        let HostTime { waiting, inputs, launching, results } = *earlier;
        HostTime {
            waiting: self.waiting.saturating_sub(waiting),
            inputs: self.inputs.saturating_sub(inputs),
            launching: self.launching.saturating_sub(launching),
            results: self.results.saturating_sub(results),
        }
    }

    /// All parts together, waiting included.
    pub fn total(&self) -> Duration {
        self.waiting + self.inputs + self.launching + self.results
    }
}

/// Does `wait`, and counts its time as waiting. It must not contain another part.
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = wait();
    let mut spent = SPENT.get();
    spent.waiting += begun.elapsed();
    SPENT.set(spent);
    done
}

/// Does `work`, and counts its time as `part` but for what other parts within it count.
pub fn counted<T>(part: fn(&mut HostTime) -> &mut Duration, work: impl FnOnce() -> T) -> T {
    let (begun, before) = (Instant::now(), SPENT.get().total());
    let done = work();
    let mut spent = SPENT.get();
    let within = spent.total().saturating_sub(before);
    *part(&mut spent) += begun.elapsed().saturating_sub(within);
    SPENT.set(spent);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_counted_without_what_is_waited_for_within_it() {
        let sleep = |milliseconds| std::thread::sleep(Duration::from_millis(milliseconds));
        let before = HostTime::now();
        let begun = Instant::now();
        let answer = counted(
            |spent| &mut spent.inputs,
            || {
                sleep(2);
                waiting(|| sleep(30));
                counted(|spent| &mut spent.results, || sleep(3));
                7
            },
        );
        let (spent, all) = (HostTime::now().since(&before), begun.elapsed());
        assert_eq!(answer, 7);
        let least = |duration: Duration, milliseconds| duration >= Duration::from_millis(milliseconds);
        assert!(least(spent.inputs, 2) && least(spent.waiting, 30) && least(spent.results, 3), "{spent:?}");
        // Nothing is counted twice.
        assert!(spent.total() <= all && spent.launching == Duration::ZERO, "{spent:?} of {all:?}");
        // Other threads have their own.
        assert_eq!(std::thread::spawn(HostTime::now).join().unwrap(), HostTime::default());
    }
}
