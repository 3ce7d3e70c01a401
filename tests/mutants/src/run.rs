//! Runs the tests that concern each mutant, several mutants at once, and counts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::prepared::{Listed, Prepared};

/// How long the tests of one operator may take without a mutant.
const WITHOUT_MUTANT: Duration = Duration::from_secs(600);

/// What the tests say of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// A generated test fails.
    Killed,
    /// A test takes several times as long as all of them together, and is stopped.
    Endless,
    /// A signal ends the process: the stack or the memory is exhausted. No test is named.
    Aborted,
    /// Snapshots alone differ.
    Snapshot,
    /// Nothing differs, and the list says why.
    Equivalent,
    /// Nothing differs.
    Survived,
}

/// How mutants are run.
pub struct Settings {
    /// The repository: its snapshots, golden vectors and list of equivalent mutants.
    pub root: PathBuf,
    /// How many mutants run at once.
    pub jobs: usize,
    /// No mutant is started later.
    pub time: Duration,
    /// Whether mutants that a test kills are shown.
    pub show_killed: bool,
}

/// Why a mutant that `equivalent.txt` names changes nothing, by its key.
pub type Equivalents = BTreeMap<String, String>;

/// Reads `equivalent.txt`. Each entry must name a mutant of `keys` and give its reason.
pub fn equivalents(text: &str, keys: &BTreeSet<String>) -> Result<Equivalents, String> {
    let mut found = Equivalents::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let parts = line.rsplit_once(" | ").filter(|(_, reason)| !reason.trim().is_empty());
        let (key, reason) = parts.ok_or_else(|| format!("equivalent.txt: '{line}' gives no reason"))?;
        if !keys.contains(key) {
            return Err(format!("equivalent.txt: no mutant is called '{key}'; remove the line or correct it"));
        }
        found.insert(key.to_owned(), reason.to_owned());
    }
    Ok(found)
}

/// Runs as many of the mutants as fit into the time; how many survived that are not known to change nothing.
pub fn run(prepared: &Prepared, known: &Equivalents, settings: &Settings) -> Result<usize, String> {
    let start = Instant::now();
    let limits = without_mutants(prepared, settings)?;
    let baseline = start.elapsed();
    let mut counts: BTreeMap<Fate, usize> = BTreeMap::new();
    let mut templates: BTreeMap<String, usize> = BTreeMap::new();
    let mutants = &prepared.mutants;
    let is_over = || start.elapsed() >= settings.time;
    parallel(
        mutants.len(),
        settings.jobs,
        is_over,
        |at| one(prepared, &mutants[at], &limits, settings),
        |at, ran| {
            let mutant = &mutants[at];
            let fate = fate_of(&ran, known.contains_key(&mutant.key));
            *counts.entry(fate).or_default() += 1;
            if fate == Fate::Killed {
                let template = ran.test.split("::").nth(1).unwrap_or(&ran.test).to_owned();
                *templates.entry(template).or_default() += 1;
            }
            let done: usize = counts.values().sum();
            if fate != Fate::Killed || settings.show_killed {
                println!("{:<10} {} [{}]", format!("{fate:?}").to_lowercase(), mutant.line, ran.test);
            }
            if fate <= Fate::Snapshot && known.contains_key(&mutant.key) {
                println!("           it is listed as equivalent: remove it from the list");
            }
            if done.is_multiple_of(100) {
                eprintln!(
                    "{done} of {} after {:.1} min: {counts:?}",
                    mutants.len(),
                    start.elapsed().as_secs_f64() / 60.0
                );
            }
        },
    );
    let count = |fate: Fate| counts.get(&fate).copied().unwrap_or(0);
    let ran: usize = counts.values().sum();
    if ran < mutants.len() {
        println!("{} mutants were not run: the time is over", mutants.len() - ran);
    }
    println!("killed, by template: {templates:?}");
    let changing = ran - count(Fate::Equivalent);
    let share = |count: usize| 100.0 * count as f64 / changing.max(1) as f64;
    let killed = count(Fate::Killed) + count(Fate::Endless);
    println!(
        "{ran} mutants in {:.1} min ({:.1} of them without mutants): {} fail a generated test, {} never end, {} abort the process, \
         {} change snapshots alone, {} survive, {} change nothing",
        start.elapsed().as_secs_f64() / 60.0,
        baseline.as_secs_f64() / 60.0,
        count(Fate::Killed),
        count(Fate::Endless),
        count(Fate::Aborted),
        count(Fate::Snapshot),
        count(Fate::Survived),
        count(Fate::Equivalent),
    );
    println!(
        "killed: {:.1} % of the {changing} that change something ({:.1} % with those that abort)",
        share(killed),
        share(killed + count(Fate::Aborted)),
    );
    Ok(count(Fate::Survived) + count(Fate::Snapshot))
}

fn fate_of(ran: &Ran, known: bool) -> Fate {
    match ran.end {
        End::Code(1) => Fate::Killed,
        End::Late => Fate::Endless,
        End::Code(0 | 3) if known => Fate::Equivalent,
        End::Code(3) => Fate::Snapshot,
        End::Code(0) => Fate::Survived,
        End::Code(_) | End::Signal => Fate::Aborted,
    }
}

/// Runs the tests of every operator that a mutant concerns, without a mutant: all must pass. How long that takes bounds
/// how long a mutant may take.
fn without_mutants(prepared: &Prepared, settings: &Settings) -> Result<BTreeMap<String, Duration>, String> {
    let operators: BTreeSet<&String> = prepared.mutants.iter().flat_map(|mutant| &mutant.operators).collect();
    let operators: Vec<&String> = operators.into_iter().collect();
    let mut taken = BTreeMap::new();
    let mut failing = Vec::new();
    let run = |at: usize| process(prepared, 0, operators[at], WITHOUT_MUTANT, settings);
    parallel(
        operators.len(),
        settings.jobs,
        || false,
        run,
        |at, ran| {
            if !matches!(ran.end, End::Code(0)) {
                failing.push(format!("'{}' fails without a mutant: {}", operators[at], ran.test));
            }
            taken.insert(operators[at].clone(), ran.time);
        },
    );
    if failing.is_empty() { Ok(taken) } else { Err(failing.join("\n")) }
}

fn one(prepared: &Prepared, mutant: &Listed, taken: &BTreeMap<String, Duration>, settings: &Settings) -> Ran {
    let usual: Duration = mutant.operators.iter().filter_map(|name| taken.get(name)).sum();
    process(prepared, mutant.id, &mutant.operators.join(","), usual * 4 + Duration::from_secs(20), settings)
}

/// Calls `work` of every number below `count` on several threads, until `is_over`, and hands what it gives to `done` on
/// this one.
fn parallel<T: Send>(
    count: usize,
    jobs: usize,
    is_over: impl Fn() -> bool + Sync,
    work: impl Fn(usize) -> T + Sync,
    mut done: impl FnMut(usize, T),
) {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, count.max(1)) {
            let (next, sender, work, is_over) = (&next, sender.clone(), &work, &is_over);
            scope.spawn(move || {
                while !is_over() {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count || sender.send((at, work(at))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        receiver.iter().for_each(|(at, result)| done(at, result));
    });
}

/// How a process ended.
enum End {
    Code(i32),
    Signal,
    Late,
}

/// How a process ended, what it says (the test that fails), and how long it took.
struct Ran {
    end: End,
    test: String,
    time: Duration,
}

fn process(prepared: &Prepared, id: usize, operators: &str, limit: Duration, settings: &Settings) -> Ran {
    let begin = Instant::now();
    // Several processes share the machine; two threads each, so that work is still divided.
    let threads = if settings.jobs > 1 { "2" } else { "0" };
    let child = Command::new(&prepared.runner)
        .args(["run", &settings.root.to_string_lossy(), operators])
        .env("FULGURITE_MUTANT", id.to_string())
        .env("INSTA_UPDATE", "no")
        .env("RAYON_NUM_THREADS", threads)
        // Mutants are of what runs on the host.
        .env("CUDA_VISIBLE_DEVICES", "")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let (end, test) = match child.map(|child| ended(child, begin + limit)) {
        Ok((Some(status), test)) => (status.code().map_or(End::Signal, End::Code), test),
        Ok((None, test)) => (End::Late, format!("{test} takes more than {:.0} s", limit.as_secs_f64())),
        Err(error) => (End::Code(2), error.to_string()),
    };
    let test = match end {
        End::Signal => format!("a signal, after {}", test.trim()),
        _ => test.trim().to_owned(),
    };
    Ran { end, test, time: begin.elapsed() }
}

/// Waits for a process, and ends it at the deadline; what it wrote.
fn ended(mut child: Child, deadline: Instant) -> (Option<ExitStatus>, String) {
    let mut wait = Duration::from_millis(2);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(wait),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
        wait = (wait * 2).min(Duration::from_millis(50));
    };
    let mut text = String::new();
    if let Some(out) = &mut child.stdout {
        let _ = out.read_to_string(&mut text);
    }
    (status, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_list_names_a_mutant_and_gives_a_reason() {
        let keys: BTreeSet<String> = ["a.rs b::meta #1 | x | y".to_owned()].into();
        let read = |text: &str| equivalents(text, &keys);
        assert_eq!(read("# a comment\n\na.rs b::meta #1 | x | y | both are 0").map(|found| found.len()), Ok(1));
        assert!(read("a.rs b::meta #2 | x | y | both are 0").is_err_and(|message| message.contains("#2")));
        assert!(read("a.rs b::meta #1 | x | y").is_err());
    }

    #[test]
    fn what_ends_a_process_is_told_apart() {
        let fate = |end: End, known: bool| fate_of(&Ran { end, test: String::new(), time: Duration::ZERO }, known);
        assert_eq!(fate(End::Code(1), true), Fate::Killed);
        assert_eq!(fate(End::Late, false), Fate::Endless);
        assert_eq!(fate(End::Signal, true), Fate::Aborted);
        assert_eq!((fate(End::Code(3), false), fate(End::Code(3), true)), (Fate::Snapshot, Fate::Equivalent));
        assert_eq!((fate(End::Code(0), false), fate(End::Code(0), true)), (Fate::Survived, Fate::Equivalent));
    }

    #[test]
    fn everything_is_done_once_until_it_is_over() {
        let mut done = Vec::new();
        parallel(50, 4, || false, |at| at * 2, |at, twice| done.push((at, twice)));
        done.sort_unstable();
        assert_eq!(done, (0..50).map(|at| (at, 2 * at)).collect::<Vec<_>>());
        parallel(50, 4, || true, |_| panic!("it is over"), |_, ()| ());
    }
}
