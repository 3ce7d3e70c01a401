//! `trace snapshots`: how the snapshots of the working tree differ from those of a commit, program by program.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;
use fulgurite::comparison::Comparison;
use fulgurite::trace::{Trace, parse};
use serde_json::{Value, json};

use super::outcome::{Failed, Outcome};
use super::output::{say, say_json};
use super::stored_programs::programs;

/// Arguments of `trace snapshots`.
#[derive(Args)]
#[command(after_help = "\
Every program in a snapshot file is compared with the one of the same stage in the commit; what a failed test left
beside a file (`.snap.new`) stands for it. Programs whose cost changed most come first; files in which only texts that
are no programs changed are named at the end. Exits with 1 if anything differs.

Examples:
  fulgurite trace snapshots
  fulgurite trace snapshots main --markdown")]
pub struct Arguments {
    /// The commit to compare with.
    #[arg(default_value = "HEAD")]
    base: String,
    /// Only snapshots below this folder.
    #[arg(long, default_value = ".")]
    below: PathBuf,
    /// Prints JSON: one object for each program that differs.
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Prints Markdown, for a pull request.
    #[arg(long)]
    markdown: bool,
}

/// The change of one program of a snapshot.
enum Change {
    /// It is new, or gone.
    Whole { added: bool },
    /// It differs.
    Differs(Box<Comparison>),
    /// One of its texts cannot be read.
    Unreadable(String),
}

struct Found {
    /// The operator or model: the file's name.
    subject: String,
    /// The heading above the program.
    stage: String,
    change: Change,
}

impl Found {
    fn weight(&self) -> u64 {
        match &self.change {
            Change::Whole { .. } | Change::Unreadable(_) => u64::MAX,
            Change::Differs(comparison) => comparison.weight(),
        }
    }

    fn in_words(&self) -> String {
        match &self.change {
            Change::Whole { added: true } => "new".into(),
            Change::Whole { added: false } => "gone".into(),
            Change::Differs(comparison) => comparison.in_words(),
            Change::Unreadable(message) => format!("not compared: {message}"),
        }
    }
}

/// Compares the snapshots; 1 if any differs.
pub fn run(arguments: &Arguments) -> Outcome {
    let changed = changed_files(&arguments.below, &arguments.base)?;
    let (mut found, mut texts) = (Vec::new(), Vec::new());
    for file in &changed {
        let before = git_show(&arguments.base, file)?;
        let after = current(file)?;
        let (before, after) = (before.as_deref().map(by_heading), after.as_deref().map(by_heading));
        let changes = compare(subject(file), &before.unwrap_or_default(), &after.unwrap_or_default());
        match changes.is_empty() {
            true => texts.push(file.display().to_string()),
            false => found.extend(changes),
        }
    }
    found.sort_by(|a, b| b.weight().cmp(&a.weight()).then_with(|| (&a.subject, &a.stage).cmp(&(&b.subject, &b.stage))));
    if arguments.json {
        say_json(&to_json(&found, &texts))?;
    } else if arguments.markdown {
        say!("{}", to_markdown(&found, &texts).trim_end())?;
    } else {
        say!("{}", to_text(&found, &texts).trim_end())?;
    }
    Ok(if changed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn git(arguments: &[&str], folder: &Path) -> Result<Option<Vec<u8>>, Failed> {
    let ran = Command::new("git").args(arguments).current_dir(folder).output();
    let ran = ran.map_err(|error| Failed(format!("git: {error}; the commit to compare with is asked of git")))?;
    Ok(ran.status.success().then_some(ran.stdout))
}

/// The files of snapshots that are not as they are in `base`, each by its path from here.
fn changed_files(below: &Path, base: &str) -> Result<Vec<PathBuf>, Failed> {
    let here = Path::new(".");
    if git(&["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{base}^{{commit}}")], here)?.is_none() {
        return Err(Failed(format!("'{base}' is not a commit of this repository")));
    }
    let below = below.to_string_lossy();
    let tracked = git(&["diff", "--name-only", "--relative", "-z", base, "--", &below], here)?.unwrap_or_default();
    let others = git(&["ls-files", "--others", "-z", "--", &below], here)?.unwrap_or_default();
    let mut files: Vec<PathBuf> = Vec::new();
    for name in tracked.split(|byte| *byte == 0).chain(others.split(|byte| *byte == 0)) {
        let name = String::from_utf8_lossy(name);
        let name = name.strip_suffix(".new").unwrap_or(&name);
        if name.ends_with(".snap") && !name.starts_with("target/") {
            files.push(PathBuf::from(name));
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}

fn git_show(base: &str, file: &Path) -> Result<Option<String>, Failed> {
    let shown = git(&["show", &format!("{base}:./{}", file.display())], Path::new("."))?;
    Ok(shown.map(|text| String::from_utf8_lossy(&text).into_owned()))
}

/// The snapshot as the last tests found it: what they left beside the file, else the file.
fn current(file: &Path) -> Result<Option<String>, Failed> {
    for path in [file.with_extension("snap.new"), file.to_owned()] {
        match std::fs::read_to_string(&path) {
            Ok(text) => return Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failed::file(&path, error)),
        }
    }
    Ok(None)
}

fn subject(file: &Path) -> String {
    file.file_stem().map_or_else(String::new, |name| name.to_string_lossy().replace("__", "::"))
}

fn compare(subject: String, before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<Found> {
    let mut found = Vec::new();
    let stages = before.keys().chain(after.keys().filter(|stage| !before.contains_key(*stage)));
    for stage in stages {
        let change = match (before.get(stage), after.get(stage)) {
            (Some(before), Some(after)) if before == after => continue,
            (Some(before), Some(after)) => match (read(before), read(after)) {
                (Ok(before), Ok(after)) => Change::Differs(Box::new(Comparison::of(&before, &after))),
                (Err(message), _) => Change::Unreadable(format!("before, {message}")),
                (_, Err(message)) => Change::Unreadable(format!("after, {message}")),
            },
            (before, _) => Change::Whole { added: before.is_none() },
        };
        found.push(Found { subject: subject.clone(), stage: stage.clone(), change });
    }
    found
}

/// The programs of a snapshot by their headings.
fn by_heading(text: &str) -> BTreeMap<String, String> {
    programs(text).into_iter().collect()
}

fn read(text: &str) -> Result<Trace, String> {
    parse(text).map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())
}

fn to_text(found: &[Found], texts: &[String]) -> String {
    let mut text = String::new();
    for entry in found {
        let Found { subject, stage, change } = entry;
        let _ = match change {
            Change::Differs(comparison) => writeln!(text, "== {subject}, {stage}\n{comparison}"),
            _ => writeln!(text, "== {subject}, {stage}: {}\n", entry.in_words()),
        };
    }
    if !texts.is_empty() {
        let _ = writeln!(text, "Other texts: {}", texts.join(", "));
    }
    if text.is_empty() { "no snapshot differs".into() } else { text }
}

fn to_markdown(found: &[Found], texts: &[String]) -> String {
    if found.is_empty() && texts.is_empty() {
        return "No snapshot differs.".into();
    }
    let mut text =
        format!("**{} programs of snapshots differ.**\n\n| program | stage | change |\n|---|---|---|\n", found.len());
    for entry in found {
        let _ = writeln!(text, "| {} | {} | {} |", entry.subject, entry.stage, entry.in_words().replace('|', "\\|"));
    }
    for Found { subject, stage, change } in found {
        if let Change::Differs(comparison) = change {
            let _ = writeln!(text, "\n### {subject}, {stage}\n\n{}", comparison.to_markdown());
        }
    }
    if !texts.is_empty() {
        let _ = writeln!(text, "\nOther texts: {}", texts.join(", "));
    }
    text
}

fn to_json(found: &[Found], texts: &[String]) -> Value {
    let one = |entry: &Found| {
        let difference = match &entry.change {
            Change::Differs(comparison) => comparison.to_json(),
            _ => Value::Null,
        };
        json!({
            "subject": entry.subject,
            "stage": entry.stage,
            "change": entry.in_words(),
            "difference": difference,
        })
    };
    json!({"programs": found.iter().map(one).collect::<Vec<_>>(), "other_texts": texts})
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNAPSHOT: &str = "---\nsource: x\n---\n== forward, acquired\n\n# fulgurite trace 2\ntrace f for cpu () {\n}\n\n\
        == forward, claimed\n\n# fulgurite trace 2\ntrace f for cpu () {\n  return\n}\n";

    #[test]
    fn what_is_new_or_gone_is_said() {
        let (all, none) = (by_heading(SNAPSHOT), BTreeMap::new());
        let words = |found: Vec<Found>| found.iter().map(Found::in_words).collect::<Vec<_>>();
        assert_eq!(words(compare("f".into(), &none, &all)), ["new", "new"]);
        assert_eq!(words(compare("f".into(), &all, &none)), ["gone", "gone"]);
        assert!(compare("f".into(), &all, &all).is_empty());
    }
}
