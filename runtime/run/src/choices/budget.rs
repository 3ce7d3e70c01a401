//! For how long is measured, and what comes first.

use std::time::Duration;

/// Programs take about so many times their floor.
const ABOVE_FLOOR: f64 = 2.0;
/// A candidate is run about so often: warm up, alone, with neighbours.
const RUNS: f64 = 16.0;

/// What there is to win by measuring a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Worth {
    /// What one call takes at least; zero if that is not known.
    pub(super) floor: Duration,
    /// How often the program has it.
    pub(super) count: usize,
    /// How many could run it.
    pub(super) candidates: usize,
}

impl Worth {
    /// The part of a program that the calls take.
    fn total(&self) -> Duration {
        self.floor.saturating_mul(u32::try_from(self.count).unwrap_or(u32::MAX))
    }

    /// What running its candidates takes, without what compiling them does.
    fn expected(&self) -> Duration {
        self.floor.mul_f64(ABOVE_FLOOR * RUNS * self.candidates as f64)
    }
}

/// How measuring a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// It is known which executor runs it.
    Known,
    /// Time was up before that.
    OutOfTime,
    /// Nothing can be measured any more.
    Over,
}

/// The indices of calls in the order in which they are measured: where the most time is spent comes first, then what is
/// asked for first.
pub(super) fn order(worth: &[Worth]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..worth.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(worth[*at].total()));
    order
}

/// Has calls measured by `run` in their order, as long as `elapsed` is below `most`; a call that takes longer than what
/// is left is passed over. Gives the indices of those that were left, in their order.
pub(super) fn spend(
    worth: &[Worth],
    most: Option<Duration>,
    elapsed: &dyn Fn() -> Duration,
    run: &mut dyn FnMut(usize) -> Done,
) -> Vec<usize> {
    let mut left = Vec::new();
    let mut over = false;
    for at in order(worth) {
        let late = || most.is_some_and(|most| elapsed().saturating_add(worth[at].expected()) >= most);
        if over || late() {
            left.push(at);
            continue;
        }
        match run(at) {
            Done::Known => {}
            Done::OutOfTime => left.push(at),
            Done::Over => {
                over = true;
                left.push(at);
            }
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    fn worth(microseconds: u64, count: usize) -> Worth {
        Worth { floor: Duration::from_micros(microseconds), count, candidates: 2 }
    }

    /// Runs calls that take `each` seconds; the calls that ran, and those that were left.
    fn spent(worth: &[Worth], most: Option<u64>, each: &[u64], done: Done) -> (Vec<usize>, Vec<usize>) {
        let (now, ran) = (Cell::new(Duration::ZERO), RefCell::new(Vec::new()));
        let mut run = |at: usize| {
            ran.borrow_mut().push(at);
            now.set(now.get() + Duration::from_secs(each[at]));
            done
        };
        let left = spend(worth, most.map(Duration::from_secs), &|| now.get(), &mut run);
        (ran.into_inner(), left)
    }

    #[test]
    fn where_the_program_spends_most_comes_first() {
        // Twelve layers of 100 us are more than one head of 1 ms.
        let all = [worth(30, 1), worth(1000, 1), worth(100, 12), worth(30, 1), worth(0, 9)];
        assert_eq!(order(&all), [2, 1, 0, 3, 4]);
        assert_eq!(spent(&all, None, &[9; 5], Done::Known), (vec![2, 1, 0, 3, 4], vec![]));
    }

    #[test]
    fn nothing_begins_after_the_time() {
        let all = [worth(30, 1), worth(1000, 1), worth(100, 12)];
        assert_eq!(spent(&all, Some(10), &[4; 3], Done::Known), (vec![2, 1, 0], vec![]));
        assert_eq!(spent(&all, Some(10), &[5; 3], Done::Known), (vec![2, 1], vec![0]));
        assert_eq!(spent(&all, Some(0), &[5; 3], Done::Known), (vec![], vec![2, 1, 0]));
    }

    #[test]
    fn a_call_that_takes_longer_than_what_is_left_is_passed_over() {
        // 2 candidates, 16 runs each of twice 200 ms: 12.8 s.
        let all = [worth(200_000, 1), worth(100, 1)];
        assert_eq!(spent(&all, Some(12), &[1; 2], Done::Known), (vec![1], vec![0]));
        assert_eq!(spent(&all, Some(13), &[1; 2], Done::Known), (vec![0, 1], vec![]));
        assert_eq!(spent(&all, None, &[1; 2], Done::Known), (vec![0, 1], vec![]));
    }

    #[test]
    fn what_was_not_measured_to_its_end_is_left() {
        let all = [worth(30, 1), worth(1000, 1), worth(100, 12)];
        assert_eq!(spent(&all, Some(10), &[1; 3], Done::OutOfTime), (vec![2, 1, 0], vec![2, 1, 0]));
        assert_eq!(spent(&all, Some(10), &[1; 3], Done::Over), (vec![2], vec![2, 1, 0]));
    }
}
