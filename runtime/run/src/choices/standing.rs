//! A recorded winner is kept unless another is faster by more than the noise: measuring twice gives no other programs
//! for two candidates that are equally fast.

use super::entry::{Entry, Times};
use super::measure::{NOISE, slowest_part};

/// The times of `new` with the winner of an earlier record of the call; `None` where that winner was not run, is the
/// same, or where the new one is faster by more than the noise.
pub fn with_winner_of(new: &Entry, earlier: &Entry) -> Option<Entry> {
    let listed = times_of(new, new.listed()?)?;
    let before = times_of(new, &earlier.winner).filter(|_| earlier.winner != new.winner)?;
    // A candidate that is not faster alone than the list's is not measured with neighbours: its times alone count.
    let part = |times: Times| slowest_part(times, listed, 0.0);
    let is_faster = part(new.best()?) < part(before) * (1.0 - NOISE);
    (!is_faster).then(|| Entry { winner: earlier.winner.clone(), ..new.clone() })
}

fn times_of(entry: &Entry, by: &str) -> Option<Times> {
    entry.tried.iter().find(|tried| tried.by == by)?.outcome.clone().ok()
}

#[cfg(test)]
mod tests {
    use super::super::call::{Call, Purpose};
    use super::super::entry::Tried;
    use super::*;
    use crate::precision::Precisions;

    fn entry(winner: &str, times: &[(&str, f64, Option<f64>)]) -> Entry {
        let call = Call {
            operator: "softmax".into(),
            arguments: String::new(),
            purpose: Purpose::Forward,
            precisions: Precisions::named("exact").unwrap(),
            executors: String::new(),
            is_program: false,
        };
        let tried = |(by, alone, beside): &(&str, f64, Option<f64>)| Tried {
            by: (*by).to_owned(),
            outcome: if *alone > 0.0 { Ok(Times { alone: *alone, beside: *beside }) } else { Err("no".to_owned()) },
        };
        let text = String::new;
        Entry {
            call,
            target: text(),
            device: text(),
            libraries: text(),
            version: text(),
            winner: winner.into(),
            tried: times.iter().map(tried).collect(),
            note: None,
        }
    }

    /// The winner where `recorded` was the winner and `winner` is now.
    fn wins(recorded: &str, winner: &str, times: &[(&str, f64, Option<f64>)]) -> String {
        let new = entry(winner, times);
        let earlier = entry(recorded, &[(recorded, 1.0, None)]);
        let stays = with_winner_of(&new, &earlier);
        assert!(stays.as_ref().is_none_or(|stays| stays.tried == new.tried), "the times are the new ones");
        stays.unwrap_or(new).winner
    }

    #[test]
    fn a_record_stands_within_the_noise_and_yields_beyond_it() {
        // The list's is slower than what was recorded by less than the noise decides.
        assert_eq!(wins("b", "a", &[("a", 100.0, None), ("b", 98.5, None)]), "b");
        assert_eq!(wins("b", "a", &[("a", 100.0, None), ("b", 101.5, None)]), "b");
        assert_eq!(wins("b", "a", &[("a", 100.0, None), ("b", 103.0, None)]), "a");
        assert_eq!(wins("b", "c", &[("a", 100.0, None), ("b", 91.0, None), ("c", 90.0, None)]), "b");
        assert_eq!(wins("b", "c", &[("a", 100.0, None), ("b", 95.0, None), ("c", 90.0, None)]), "c");
        assert_eq!(wins("a", "b", &[("a", 100.0, None), ("b", 97.0, None)]), "b");
        assert_eq!(wins("b", "b", &[("a", 100.0, None), ("b", 97.0, None)]), "b");
    }

    #[test]
    fn it_counts_where_a_candidate_is_slowest() {
        let with = |b: [f64; 2], c: [f64; 2]| {
            let times = [("a", 100.0, Some(100.0)), ("b", b[0], Some(b[1])), ("c", c[0], Some(c[1]))];
            wins("b", "c", &times)
        };
        assert_eq!(with([90.0, 95.0], [70.0, 94.0]), "b");
        assert_eq!(with([90.0, 95.0], [92.0, 92.0]), "c");
        // What was recorded is no longer faster alone, so that it was not run with neighbours.
        let times = [("a", 100.0, Some(100.0)), ("b", 99.0, None), ("c", 90.0, Some(99.5))];
        assert_eq!(wins("b", "a", &times), "b");
    }

    #[test]
    fn who_was_not_run_does_not_stand() {
        assert_eq!(wins("b", "a", &[("a", 100.0, None), ("b", 0.0, None)]), "a");
        assert_eq!(wins("gone", "a", &[("a", 100.0, None), ("b", 100.0, None)]), "a");
    }
}
