//! What is done with addresses that no graph has: another graph, an update, or launches.

use fulgurite_kernels::launch::DeviceAddress;

/// A graph is updated if no more than one step in so many has another address: recording a step again takes about as
/// long as launching it.
const FEW: usize = 4;
/// Addresses that had no graph, and are remembered in case they come again.
const MOST_MISSED: usize = 16;

/// How it is decided what to do with addresses that no graph has.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// Addresses that were run without a graph, the latest last.
    missed: Vec<Vec<DeviceAddress>>,
    /// A graph of this program could not be updated. No other is tried: what fails once fails each time, after the
    /// work of recording the steps.
    fixed: bool,
}

impl Choice {
    /// `graphs` are those that there are: for each the number of its steps that have other addresses in this run, if
    /// `count` is the number of all steps.
    pub(super) fn miss(
        &mut self,
        graphs: impl Iterator<Item = Vec<usize>>,
        count: usize,
        starts: &[DeviceAddress],
    ) -> Miss {
        if !self.fixed {
            // The graph with the fewest steps that are different.
            match graphs.enumerate().min_by_key(|(_, steps)| steps.len()) {
                None => return Miss::Record,
                Some((graph, steps)) if steps.len() * FEW <= count => return Miss::Update { graph, steps },
                Some(_) => {}
            }
        }
        if self.came_before(starts) { Miss::Record } else { Miss::Launch }
    }

    /// Whether these addresses were run without a graph, so that they may come again; they are remembered otherwise.
    pub(super) fn came_before(&mut self, starts: &[DeviceAddress]) -> bool {
        let known = self.missed.iter().position(|known| known == starts);
        match known {
            Some(at) => drop(self.missed.remove(at)),
            None => self.remember(starts),
        }
        known.is_some()
    }

    /// Remembers addresses for which nothing was recorded although they came before.
    pub(super) fn came_again(&mut self, starts: &[DeviceAddress]) {
        if !self.missed.iter().any(|known| known == starts) {
            self.remember(starts);
        }
    }

    /// Addresses that are run without a graph.
    fn remember(&mut self, starts: &[DeviceAddress]) {
        if self.missed.len() == MOST_MISSED {
            self.missed.remove(0);
        }
        self.missed.push(starts.to_vec());
    }

    /// A graph could not be updated for these addresses.
    pub(super) fn refuse(&mut self, starts: &[DeviceAddress]) {
        self.fixed = true;
        self.remember(starts);
    }
}

/// What is done where no graph has the addresses of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// Another graph is recorded.
    Record,
    /// Graph number `graph` is updated in these steps.
    Update { graph: usize, steps: Vec<usize> },
    /// Every step is launched by itself.
    Launch,
}

#[cfg(test)]
mod tests {
    use super::{Choice, DeviceAddress, MOST_MISSED, Miss};

    /// Two of eight steps have the input.
    const STEPS: [usize; 2] = [3, 4];

    fn miss(choice: &mut Choice, graphs: usize, address: u64) -> Miss {
        choice.miss((0..graphs).map(|_| STEPS.to_vec()), 8, &[DeviceAddress(address)])
    }

    #[test]
    fn a_graph_is_updated_as_long_as_that_works() {
        let mut choice = Choice::default();
        assert_eq!(miss(&mut choice, 0, 1), Miss::Record, "the first one");
        for address in 2..100 {
            assert_eq!(miss(&mut choice, 1, address), Miss::Update { graph: 0, steps: STEPS.to_vec() });
        }
    }

    #[test]
    fn where_updates_fail_no_graph_is_recorded_for_addresses_that_never_come_again() {
        let mut choice = Choice::default();
        assert!(matches!(miss(&mut choice, 1, 1), Miss::Update { .. }));
        choice.refuse(&[DeviceAddress(1)]);
        let mut recorded = 0;
        for address in 2..100 {
            // The one that could not be updated is gone, and another is there later.
            match miss(&mut choice, usize::from(address > 50), address) {
                Miss::Record => recorded += 1,
                Miss::Update { .. } => panic!("it is known to fail"),
                Miss::Launch => {}
            }
        }
        assert_eq!(recorded, 0);
        assert!(choice.missed.len() <= MOST_MISSED);
    }

    #[test]
    fn where_updates_fail_addresses_that_come_again_have_a_graph_each() {
        let mut choice = Choice::default();
        choice.refuse(&[DeviceAddress(1)]);
        assert_eq!(miss(&mut choice, 1, 2), Miss::Launch);
        assert_eq!(miss(&mut choice, 1, 1), Miss::Record, "it was run when the update failed");
        assert_eq!(miss(&mut choice, 2, 2), Miss::Record);
    }
}
