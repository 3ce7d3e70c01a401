//! What the ranks of a run agree on.

use fulgurite_kernels::ranks::{self, RankError};

use super::failure::TrainError;

/// Whether this rank writes what a run leaves: one of them does.
pub(super) fn writes() -> bool {
    ranks::rank() == 0
}

/// The least memory that a rank may use: all of them have the same programs.
///
/// # Errors
/// Those of the ranks.
pub(super) fn memory_limit(own: Option<u64>) -> Result<Option<u64>, RankError> {
    let least = fewest("the memory of a rank", own.unwrap_or(u64::MAX))?;
    Ok(Some(least).filter(|least| *least < u64::MAX))
}

/// The least of the numbers of all ranks.
pub(super) fn fewest(called: &str, own: u64) -> Result<u64, RankError> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    ranks::mesh().axes().iter().try_fold(own, |least, axis| {
        let given = ranks::exchange(axis, called, &least.to_le_bytes())?;
        Ok(given.iter().map(|bytes| number(bytes)).fold(least, u64::min))
    })
}

/// The sums of some numbers over all ranks, the same on each.
pub(super) fn sums<const N: usize>(called: &str, own: [f64; N]) -> Result<[f64; N], RankError> {
    let bytes = |numbers: [f64; N]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    ranks::mesh().axes().iter().try_fold(own, |own, axis| {
        let mut sums = [0.0; N];
        for given in ranks::exchange(axis, called, &bytes(own))? {
            for (sum, number) in sums.iter_mut().zip(given.chunks_exact(8)) {
                *sum += number.try_into().map_or(f64::NAN, f64::from_le_bytes);
            }
        }
        Ok(sums)
    })
}

/// What a rank says where all of them agree on how to go on.
#[derive(Clone)]
struct Said {
    stop: bool,
    /// The first rank that failed, whether the run's numbers were not finite, and why it failed.
    failed: Option<(usize, bool, String)>,
}

impl Said {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.stop)];
        if let Some((rank, diverged, message)) = &self.failed {
            bytes.push(u8::from(*diverged));
            bytes.extend_from_slice(&(*rank as u64).to_le_bytes());
            bytes.extend_from_slice(message.as_bytes());
        }
        bytes
    }

    fn of(bytes: &[u8]) -> Said {
        let failed = bytes.get(1).and_then(|diverged| {
            let (rank, message) = bytes[2..].split_first_chunk()?;
            let message = String::from_utf8_lossy(message).into_owned();
            Some((u64::from_le_bytes(*rank) as usize, *diverged == 1, message))
        });
        Said { stop: bytes.first() == Some(&1), failed }
    }
}

/// All ranks come here with what they have, and go on together: the result is this rank's, and whether one of them is
/// to stop.
///
/// # Errors
/// This rank's own; [`TrainError::OtherRank`] where another one has failed, also where that is a rank of a lower number
/// with the same error.
pub(super) fn agree<T>(called: &str, stop: bool, own: Result<T, TrainError>) -> Result<(T, bool), TrainError> {
    let rank = ranks::rank();
    let failed = own.as_ref().err().map(|error| (rank, matches!(error, TrainError::Diverged(_)), error.to_string()));
    let mut said = Said { stop, failed };
    for axis in ranks::mesh().axes() {
        let given = match ranks::exchange(axis, called, &said.bytes()) {
            Ok(given) => given,
            // Its own error says more than that others have ended.
            Err(error) => return Err(own.err().unwrap_or_else(|| error.into())),
        };
        let all: Vec<Said> = given.iter().map(|bytes| Said::of(bytes)).collect();
        said.stop |= all.iter().any(|said| said.stop);
        said.failed = all.into_iter().filter_map(|said| said.failed).min_by_key(|(rank, ..)| *rank);
    }
    match (own, said.failed) {
        (Ok(own), None) => Ok((own, said.stop)),
        (Err(error), Some((other, _, message))) if other == rank || message != error.to_string() => Err(error),
        (Err(error), None) => Err(error),
        (_, Some((rank, diverged, message))) => Err(TrainError::OtherRank { rank, diverged, message }),
    }
}

/// What the rank that writes does, and all wait for.
///
/// # Errors
/// As [`agree`].
pub(super) fn written(called: &str, write: impl FnOnce() -> Result<(), TrainError>) -> Result<(), TrainError> {
    let own = if writes() { write() } else { Ok(()) };
    agree(called, false, own).map(|_| ())
}
