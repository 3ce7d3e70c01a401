//! How much of a device's memory candidates may use, and whether all of them are there at once.

use crate::program::Program;

/// One part in so many of what is free is left to others: to the driver, which has code there, and to libraries.
const RESERVE: u64 = 16;
/// So many bytes may be used at once, however little the program needs.
const LITTLE: u64 = 1 << 30;

/// What a candidate needs of the device's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    /// Operands, which all candidates share.
    pub(super) inputs: u64,
    /// Results and what is between.
    pub(super) own: u64,
}

impl Need {
    /// What a program's plan says.
    pub(super) fn of(program: &Program) -> Need {
        let memory = program.memory();
        Need { inputs: memory.inputs, own: memory.outputs.saturating_add(memory.transient) }
    }

    fn total(&self) -> u64 {
        self.inputs.saturating_add(self.own)
    }
}

/// Which candidates are measured, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Residency {
    /// The indices of those that do not fit, with what they need.
    pub(super) lacking: Vec<(usize, String)>,
    /// Whether the memory of one is given back before another is run.
    pub(super) one_at_a_time: bool,
}

/// The candidates that fit, if `free` bytes of the device's memory are free; `None` if that is not known. All are there
/// at once if they then need little, or no more than `peak`, what the program whose call is measured does.
pub(super) fn residency(needs: &[Need], free: Option<u64>, peak: Option<u64>) -> Residency {
    let room = free.map(|free| free - free / RESERVE);
    let fits = |need: &Need| room.is_none_or(|room| need.total() <= room);
    let lack = |(i, need): (usize, &Need)| {
        let (needed, room) = (mebibytes(need.total()), mebibytes(room.unwrap_or_default()));
        (i, format!("needs {needed} MiB of memory, {room} MiB are free for it"))
    };
    let lacking = needs.iter().enumerate().filter(|(_, need)| !fits(need)).map(lack).collect();
    let fitting = || needs.iter().filter(|need| fits(need));
    let inputs = fitting().map(|need| need.inputs).max().unwrap_or(0);
    let all = fitting().map(|need| need.own).fold(inputs, u64::saturating_add);
    let most = [room, peak.map(|peak| peak.max(LITTLE))].into_iter().flatten().min();
    Residency { lacking, one_at_a_time: most.is_some_and(|most| all > most) }
}

/// In MiB, rounded up.
fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In tens of MiB.
    const UNIT: u64 = 10 << 20;

    fn need(inputs: u64, own: u64) -> Need {
        Need { inputs: inputs * UNIT, own: own * UNIT }
    }

    fn of(needs: &[Need], free: Option<u64>, peak: Option<u64>) -> (Vec<usize>, bool) {
        let Residency { lacking, one_at_a_time } = residency(needs, free.map(|f| f * UNIT), peak.map(|p| p * UNIT));
        (lacking.into_iter().map(|(i, _)| i).collect(), one_at_a_time)
    }

    #[test]
    fn who_needs_more_than_is_free_without_the_reserve_is_named() {
        let needs = [need(100, 50), need(100, 51)];
        assert_eq!(of(&needs, Some(160), None), (vec![1], false));
        assert_eq!(of(&needs, Some(159), None), (vec![0, 1], false));
        let Residency { lacking, .. } = residency(&needs, Some(160 * UNIT), None);
        assert_eq!(lacking, [(1, "needs 1510 MiB of memory, 1500 MiB are free for it".to_owned())]);
        assert_eq!(of(&needs, None, None), (vec![], false));
    }

    #[test]
    fn all_are_there_at_once_where_the_program_itself_needs_as_much() {
        let needs = [need(100, 50), need(100, 60), need(100, 1000)];
        // 210 MiB of those that fit.
        assert_eq!(of(&needs, Some(320), Some(210)), (vec![2], false));
        assert_eq!(of(&needs, Some(320), Some(209)), (vec![2], true));
        assert_eq!(of(&needs, Some(200), None), (vec![2], true));
        assert_eq!(of(&needs, Some(320), None), (vec![2], false));
        // A GiB is little.
        assert_eq!(of(&[need(10, 40), need(10, 50)], Some(320), Some(1)), (vec![], false));
        assert_eq!(of(&[need(10, 40), need(10, 60)], Some(320), Some(1)), (vec![], true));
        assert_eq!(of(&[], Some(1), Some(1)), (vec![], false));
    }
}
