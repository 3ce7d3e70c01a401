//! How often candidates are run before it is clear which of them is the fastest.
//!
//! Runs alternate, so that a clock that drifts does so for all. Candidates that are slower beyond doubt are run no
//! more; it ends when one candidate is left. Only those that are close to one another are run as often as it goes.

/// Runs before a candidate may be stopped.
const FIRST: usize = 3;
/// The most runs of a candidate.
const MOST: usize = 9;
/// A fastest run of so many microseconds is a long one: its time varies less, and each run costs more.
const LONG: f64 = 5000.0;
/// Runs of long calls before a candidate may be stopped, and the most of them.
const FIRST_LONG: usize = 2;
const MOST_LONG: usize = 5;
/// A candidate that takes so many times as long as the fastest in each of its first two runs is not run again.
const HOPELESS: f64 = 5.0;
/// Runs before a candidate may be hopeless.
const FIRST_HOPELESS: usize = 2;
/// A candidate is slower beyond doubt if its fastest run takes longer than the leader's slowest, by more than this part
/// of it.
const DOUBT: f64 = 0.02;

/// The median time of each of `count` candidates in microseconds, or why it was dropped. `run` runs a candidate once
/// and gives its time. `late` is asked before each round: what was run often enough by then counts; `None` if nothing
/// was.
pub(super) fn rounds(
    count: usize,
    late: &dyn Fn() -> bool,
    run: &mut dyn FnMut(usize) -> Result<f64, String>,
) -> Option<Vec<Result<f64, String>>> {
    let mut runs: Vec<Result<Vec<f64>, String>> = vec![Ok(Vec::new()); count];
    let mut active = vec![true; count];
    let mut enough = false;
    for round in 1..=MOST {
        if late() {
            if !enough {
                return None;
            }
            break;
        }
        for at in 0..count {
            if !active[at] {
                continue;
            }
            match (run(at), &mut runs[at]) {
                (Ok(time), Ok(times)) => times.push(time),
                (Err(reason), outcome) => {
                    *outcome = Err(reason);
                    active[at] = false;
                }
                (Ok(_), Err(_)) => {}
            }
        }
        let times = |at: usize| runs[at].as_deref().unwrap_or_default();
        let of = |at: usize, more: fn(f64, f64) -> f64| times(at).iter().copied().reduce(more);
        let leader = (0..count).filter(|at| active[*at]).min_by(|a, b| median(times(*a)).total_cmp(&median(times(*b))));
        let Some(leader) = leader else { break };
        let (Some(best), Some(worst)) = (of(leader, f64::min), of(leader, f64::max)) else { break };
        let (first, most) = if best >= LONG { (FIRST_LONG, MOST_LONG) } else { (FIRST, MOST) };
        let slower = |at: usize| {
            let least = of(at, f64::min).unwrap_or(f64::INFINITY);
            (round >= FIRST_HOPELESS && least > HOPELESS * best) || (round >= first && least > worst * (1.0 + DOUBT))
        };
        let stopped: Vec<usize> = (0..count).filter(|at| active[*at] && *at != leader && slower(*at)).collect();
        stopped.into_iter().for_each(|at| active[at] = false);
        enough = round >= first;
        let left = active.iter().filter(|active| **active).count();
        if round >= most || (left <= 1 && round >= first) {
            break;
        }
    }
    Some(runs.into_iter().map(|times| times.map(|times| median(&times))).collect())
}

/// The median of times; those of an even number have the mean of the two in the middle.
fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::INFINITY,
        odd if odd % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of candidates whose times are scripted, the last one again and again; the medians, and how often each ran.
    fn scripted(script: &[&[f64]]) -> (Vec<Result<f64, String>>, Vec<usize>) {
        let mut ran = vec![0; script.len()];
        let mut run = |at: usize| {
            let time = script[at][ran[at].min(script[at].len() - 1)];
            ran[at] += 1;
            if time.is_nan() { Err(format!("broke in run {}", ran[at])) } else { Ok(time) }
        };
        let medians = rounds(script.len(), &|| false, &mut run).unwrap();
        (medians, ran)
    }

    #[test]
    fn a_clear_leader_ends_it_after_three_runs() {
        let (medians, ran) = scripted(&[&[100.0, 101.0, 99.0], &[80.0, 82.0, 81.0]]);
        assert_eq!((medians, ran), (vec![Ok(100.0), Ok(81.0)], vec![3, 3]));
    }

    #[test]
    fn close_ones_are_run_nine_times_while_others_are_stopped() {
        let (medians, ran) = scripted(&[&[100.0, 101.0, 99.0], &[100.0, 98.0, 102.0, 100.0], &[150.0]]);
        assert_eq!(ran, [9, 9, 3]);
        assert_eq!(medians, [Ok(99.0), Ok(100.0), Ok(150.0)]);
    }

    #[test]
    fn it_ends_as_soon_as_doubt_does() {
        // One slow run of the leader leaves doubt for ever: its slowest counts.
        let (_, ran) = scripted(&[&[80.0, 120.0, 80.0], &[100.0]]);
        assert_eq!(ran, [9, 9]);
        // A hopeless one goes earlier, and the leader is run three times all the same.
        let (medians, ran) = scripted(&[&[10.0, 12.0, 11.0], &[51.0]]);
        assert_eq!((medians, ran), (vec![Ok(11.0), Ok(51.0)], vec![3, 2]));
        // Within the margin it is not beyond doubt.
        let (_, ran) = scripted(&[&[100.0], &[101.9]]);
        assert_eq!(ran, [9, 9]);
        let (_, ran) = scripted(&[&[100.0], &[102.1]]);
        assert_eq!(ran, [3, 3]);
    }

    #[test]
    fn long_calls_are_run_less_often() {
        let (_, ran) = scripted(&[&[5000.0], &[6000.0]]);
        assert_eq!(ran, [2, 2]);
        let (_, ran) = scripted(&[&[5000.0], &[5000.0]]);
        assert_eq!(ran, [5, 5]);
        let (_, ran) = scripted(&[&[4999.0], &[6000.0]]);
        assert_eq!(ran, [3, 3]);
    }

    #[test]
    fn who_fails_is_dropped_with_the_reason() {
        let (medians, ran) = scripted(&[&[10.0, f64::NAN], &[90.0]]);
        assert_eq!(medians, [Err("broke in run 2".to_owned()), Ok(90.0)]);
        assert_eq!(ran, [2, 3]);
        let (medians, _) = scripted(&[&[f64::NAN], &[f64::NAN]]);
        assert!(medians.iter().all(Result::is_err));
    }

    #[test]
    fn no_round_begins_after_the_time() {
        // Two candidates that are close; time is up before this round.
        let before = |last: usize| {
            let ran = std::cell::Cell::new(0);
            let mut run = |_| {
                ran.set(ran.get() + 1);
                Ok(100.0)
            };
            (rounds(2, &|| ran.get() >= 2 * (last - 1), &mut run), ran.get())
        };
        assert_eq!(before(1), (None, 0));
        assert_eq!(before(2), (None, 2));
        assert_eq!(before(3), (None, 4), "who ran twice was not run often enough");
        assert_eq!(before(4), (Some(vec![Ok(100.0); 2]), 6));
        assert_eq!(before(9), (Some(vec![Ok(100.0); 2]), 16));
    }

    #[test]
    fn a_single_candidate_is_run_three_times() {
        assert_eq!(scripted(&[&[7.0, 9.0, 8.0]]), (vec![Ok(8.0)], vec![3]));
        assert_eq!(scripted(&[]), (vec![], vec![]));
    }
}
