//! Candidates are run against each other.
//!
//! Their runs alternate, each with cold caches, and the medians count. Where the decomposition is a candidate, each is
//! measured twice: alone, and with neighbours that an executor may fuse with the decomposition, conversions of operands
//! and sums with results. Alone, the decomposition looks slower than it is in a program where it is fused with what is
//! beside it; with neighbours, a kernel looks slower than it is where nothing elementwise is beside it. Another
//! candidate takes the place of the list's only if it is faster in both, so that no program gets slower by a choice
//! that its neighbours decide.

use super::candidates::candidates;
use super::clock::Clock;
use super::entry::{DECOMPOSED, Times, Tried};
use super::program;
use super::ranking::Question;
use super::rounds::rounds;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::meta::Device;
use crate::program::Program;

/// Runs before anything is measured: the first ones launch, record a graph, and replay it.
const WARM_UP: usize = 3;
/// Times that differ by no more than this part are equal.
pub(super) const NOISE: f64 = 0.02;

/// What was measured of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    pub(super) winner: String,
    pub(super) tried: Vec<Tried>,
}

/// The candidates of a call, and why some were dropped.
struct Candidates<'a> {
    question: &'a Question<'a>,
    names: Vec<&'static str>,
    dropped: Vec<Option<String>>,
}

/// Measures the candidates of a call on `device`; `None` if fewer than two of them can be run.
///
/// # Errors
/// If the call itself cannot be traced, or the device has no memory for its operands.
pub(super) fn measure(question: &Question<'_>, device: Device) -> Result<Option<Measured>> {
    let names = candidates(question);
    if names.len() < 2 {
        return Ok(None);
    }
    let mut clock = Clock::new(device)?;
    let opens = names.contains(&DECOMPOSED);
    let mut candidates = Candidates { question, dropped: vec![None; names.len()], names };
    // One after the other: programs of both at once need twice the memory.
    let alone = candidates.medians(&mut clock, device, false)?;
    let beside = if opens { candidates.medians(&mut clock, device, true)? } else { vec![None; alone.len()] };
    let Candidates { names, mut dropped, .. } = candidates;
    let tried = |(at, name): (usize, &&'static str)| {
        let outcome = match (dropped[at].take(), alone[at]) {
            (None, Some(alone)) => Ok(Times { alone, beside: beside[at] }),
            (reason, _) => Err(reason.unwrap_or_else(|| "was not run".into())),
        };
        Tried { by: (*name).to_owned(), outcome }
    };
    let tried: Vec<Tried> = names.iter().enumerate().map(tried).collect();
    Ok(winner(&tried).map(|winner| Measured { winner, tried }))
}

impl Candidates<'_> {
    /// The median time of each candidate in microseconds, alone or with a neighbour; `None` of those that were dropped.
    fn medians(&mut self, clock: &mut Clock, device: Device, neighbour: bool) -> Result<Vec<Option<f64>>> {
        let trace = program::trace(self.question, neighbour)?;
        let mut inputs: Vec<Array> = Vec::new();
        let mut running: Vec<(usize, Program)> = Vec::new();
        for (at, name) in self.names.iter().enumerate() {
            if self.dropped[at].is_some() {
                continue;
            }
            let warm = program::compiled(self.question, &trace, name).and_then(|program| {
                if inputs.is_empty() {
                    inputs = program::inputs(&program, device)?;
                }
                (0..WARM_UP).try_for_each(|_| clock.run(&program, &inputs))?;
                Ok(program)
            });
            match warm {
                Ok(program) => running.push((at, program)),
                Err(error) => self.dropped[at] = Some(reason(&error)),
            }
        }
        let mut run = |i: usize| -> std::result::Result<f64, String> {
            clock.microseconds(&running[i].1, &inputs, program::NAME).map_err(|error| reason(&error))
        };
        let times = rounds(running.len(), &mut run);
        let mut medians = vec![None; self.names.len()];
        for ((at, _), time) in running.iter().zip(times) {
            match time {
                Ok(time) => medians[*at] = Some(time),
                Err(reason) => self.dropped[*at] = Some(reason),
            }
        }
        Ok(medians)
    }
}

/// The first line of an error.
fn reason(error: &Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Who wins; `None` if nobody could be run. The first of `tried` that could be run is the list's.
pub(super) fn winner(tried: &[Tried]) -> Option<String> {
    let run: Vec<(&str, Times)> =
        tried.iter().filter_map(|one| Some((one.by.as_str(), one.outcome.clone().ok()?))).collect();
    let (listed, own) = run.first()?;
    // By how much it is slower than the list's where it is slowest.
    let part = |times: &Times| {
        let beside = times.beside.zip(own.beside).map_or(0.0, |(other, own)| other / own);
        (times.alone / own.alone).max(beside)
    };
    let least = run.iter().map(|(_, times)| part(times)).fold(1.0, f64::min);
    if least >= 1.0 - NOISE {
        return Some((*listed).to_owned());
    }
    // Of those that are as fast as the fastest, the first.
    let first = run.iter().find(|(_, times)| part(times) <= least * (1.0 + NOISE));
    first.map(|(name, _)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(all: &[(&str, Option<(f64, f64)>)]) -> Vec<Tried> {
        let one = |(by, times): &(&str, Option<(f64, f64)>)| Tried {
            by: (*by).to_owned(),
            outcome: times.map(|(alone, beside)| Times { alone, beside: Some(beside) }).ok_or("no".to_owned()),
        };
        all.iter().map(one).collect()
    }

    fn who(all: &[(&str, Option<(f64, f64)>)]) -> Option<String> {
        winner(&tried(all))
    }

    #[test]
    fn the_fastest_wins_and_a_tie_goes_to_the_order_of_the_list() {
        let won = |all: &[(&str, Option<(f64, f64)>)]| who(all).unwrap();
        assert_eq!(won(&[("a", Some((10.0, 12.0))), ("b", Some((9.0, 11.0)))]), "b");
        assert_eq!(won(&[("a", Some((10.0, 12.0))), ("b", Some((9.9, 11.9)))]), "a", "within the noise");
        let close = [("a", Some((10.0, 12.0))), ("b", Some((5.05, 6.05))), ("c", Some((5.0, 6.0)))];
        assert_eq!(won(&close), "b", "both are faster than the list's, and as fast as one another");
    }

    #[test]
    fn who_wins_with_or_without_a_neighbour_alone_does_not_win() {
        let won = |all: &[(&str, Option<(f64, f64)>)]| who(all).unwrap();
        assert_eq!(won(&[("a", Some((10.0, 12.0))), ("b", Some((8.0, 13.0)))]), "a");
        assert_eq!(won(&[("a", Some((10.0, 12.0))), ("b", Some((11.0, 9.0)))]), "a");
    }

    #[test]
    fn candidates_that_were_dropped_do_not_count() {
        assert_eq!(who(&[("a", None), ("b", Some((9.0, 11.0)))]).as_deref(), Some("b"));
        assert_eq!(who(&[("a", None)]), None);
    }
}
