//! Runs the tests that concern each mutant, and counts.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::find::Mutant;

/// What the tests say of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// A generated test fails.
    Killed,
    /// It ends the process, or never ends.
    Crashed,
    /// Snapshots alone differ.
    Snapshot,
    /// Nothing differs, and the list says why.
    Equivalent,
    /// Nothing differs.
    Survived,
}

/// A mutant in a line: where, what, and what it became.
pub fn line(mutant: &Mutant) -> String {
    let Mutant { file, line, function, kind, original, replacement, .. } = mutant;
    format!("{file}:{line} {function} | {kind} | {original} | {replacement}")
}

/// Runs as many of them as fit into the time; how many survived that are not known to change nothing.
pub fn run(root: &Path, runner: &Path, mutants: &[Mutant], time: Duration) -> Result<usize, String> {
    let declared = declared(runner)?;
    let equivalent = std::fs::read_to_string(root.join("tests/mutants/equivalent.txt")).unwrap_or_default();
    let mut counts: BTreeMap<Fate, usize> = BTreeMap::new();
    let mut limits: BTreeMap<String, Duration> = BTreeMap::new();
    let start = Instant::now();
    let mut ran = 0;
    for (at, mutant) in mutants.iter().enumerate() {
        if start.elapsed() >= time {
            println!("{} mutants were not run: the time is over", mutants.len() - ran);
            break;
        }
        ran += 1;
        let names = concerned(root, &mutant.file, &declared);
        if names.is_empty() {
            return Err(format!("{}: no operator is concerned", mutant.file));
        }
        if !limits.contains_key(&mutant.file) {
            // Without a mutant everything passes; how long that takes bounds how long a mutant may take.
            let begin = Instant::now();
            let (code, name) = one(root, runner, 0, &names, Duration::from_secs(900));
            if code != Some(0) {
                return Err(format!("{}: '{}' fails without a mutant", mutant.file, name.trim()));
            }
            limits.insert(mutant.file.clone(), begin.elapsed() * 4 + Duration::from_secs(20));
        }
        let (code, test) = one(root, runner, mutant.id, &names, limits[&mutant.file]);
        let known = || {
            let Mutant { file, function, original, replacement, .. } = mutant;
            equivalent.contains(&format!("{file} {function} | {original} | {replacement} | "))
        };
        let fate = match code {
            Some(1) => Fate::Killed,
            Some(3) if !known() => Fate::Snapshot,
            Some(0 | 3) => {
                if known() {
                    Fate::Equivalent
                } else {
                    Fate::Survived
                }
            }
            _ => Fate::Crashed,
        };
        *counts.entry(fate).or_default() += 1;
        println!("{:<10} {} [{}]", format!("{fate:?}").to_lowercase(), line(mutant), test.trim());
        if (at + 1) % 50 == 0 {
            eprintln!(
                "{} of {} after {:.1} min: {counts:?}",
                at + 1,
                mutants.len(),
                start.elapsed().as_secs_f64() / 60.0
            );
        }
    }
    let count = |fate: Fate| counts.get(&fate).copied().unwrap_or(0);
    let killed = count(Fate::Killed) + count(Fate::Crashed);
    let changing = ran - count(Fate::Equivalent);
    println!(
        "{} mutants in {:.1} min: {killed} killed by generated tests ({} of them crash or never end), {} by snapshots alone, {} \
         survived, {} change nothing: {:.1} % of those that change something are killed without snapshots",
        ran,
        start.elapsed().as_secs_f64() / 60.0,
        count(Fate::Crashed),
        count(Fate::Snapshot),
        count(Fate::Survived),
        count(Fate::Equivalent),
        100.0 * killed as f64 / changing.max(1) as f64
    );
    Ok(count(Fate::Survived) + count(Fate::Snapshot))
}

/// Operators and the files that declare them, or kernels for them.
fn declared(runner: &Path) -> Result<Vec<(String, String)>, String> {
    let output = Command::new(runner).arg("list").output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    Ok(pairs.map(|(name, file)| (name.to_owned(), file.to_owned())).collect())
}

/// The operators whose tests say something of a file: those that it declares or has kernels for; of a file of helpers, those of
/// the files that name it.
fn concerned(root: &Path, file: &str, declared: &[(String, String)]) -> String {
    let of = |file: &str| -> Vec<&str> {
        declared.iter().filter(|(_, own)| own.ends_with(file)).map(|(name, _)| name.as_str()).collect()
    };
    let mut names = of(file);
    if names.is_empty() {
        let stem = Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let mut files: Vec<&String> = declared.iter().map(|(_, file)| file).collect();
        files.sort();
        files.dedup();
        for other in files {
            let text = std::fs::read_to_string(root.join("target/mutants").join(other))
                .or_else(|_| std::fs::read_to_string(other));
            if text.is_ok_and(|text| text.contains(&format!("{stem}::"))) {
                names.extend(of(other));
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    names.join(",")
}

/// The exit code and what the runner says, or `None` if it is ended by a signal or takes too long.
fn one(root: &Path, runner: &Path, id: usize, names: &str, limit: Duration) -> (Option<i32>, String) {
    let child = Command::new(runner)
        .args(["run", &root.to_string_lossy(), names])
        .env("FULGURITE_MUTANT", id.to_string())
        .env("INSTA_UPDATE", "no")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return (None, "cannot be started".into()) };
    let begin = Instant::now();
    let mut wait = Duration::from_millis(2);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                let mut text = String::new();
                if let Some(out) = &mut child.stdout {
                    let _ = out.read_to_string(&mut text);
                }
                return (status.code(), text);
            }
            Ok(None) if begin.elapsed() < limit => std::thread::sleep(wait),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return (None, format!("takes more than {:.0} s", limit.as_secs_f64()));
            }
        }
        wait = (wait * 2).min(Duration::from_millis(50));
    }
}
