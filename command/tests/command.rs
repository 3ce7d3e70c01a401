//! The `fulgurite` command as its users run it: each subcommand, good and bad input, exit codes.
#![cfg(feature = "models")]

// What `ops new --crate` writes names its own library.
extern crate self as placeholder_crate;

#[path = "command/axe.rs"]
mod axe;
#[path = "command/bench.rs"]
mod bench;
#[path = "command/book.rs"]
mod book;
#[path = "command/browser.rs"]
mod browser;
#[path = "command/cases.rs"]
mod cases;
#[path = "command/changed.rs"]
mod changed;
#[path = "command/config.rs"]
mod config;
#[path = "command/doctor.rs"]
mod doctor;
#[path = "command/editor.rs"]
mod editor;
#[path = "command/files.rs"]
mod files;
#[path = "command/fuzz.rs"]
mod fuzz;
#[path = "command/generate.rs"]
mod generate;
#[path = "command/golden.rs"]
mod golden;
#[path = "command/logits.rs"]
mod logits;
#[path = "command/lsp.rs"]
mod lsp;
#[path = "command/models.rs"]
mod models;
#[path = "command/new.rs"]
mod new;
#[path = "command/notebook.rs"]
mod notebook;
#[path = "command/operators.rs"]
mod operators;
#[path = "command/profile.rs"]
mod profile;
#[path = "command/ranks.rs"]
mod ranks;
#[path = "command/reference.rs"]
mod reference;
#[path = "command/report.rs"]
mod report;
#[path = "command/review.rs"]
mod review;
#[path = "command/review_faults.rs"]
mod review_faults;
#[path = "command/scale.rs"]
mod scale;
#[path = "command/serve.rs"]
mod serve;
#[path = "command/time.rs"]
mod time;
#[path = "command/traces.rs"]
mod traces;
#[path = "command/tune.rs"]
mod tune;
#[path = "command/view.rs"]
mod view;
#[path = "command/view_compare.rs"]
mod view_compare;
#[path = "command/view_files.rs"]
mod view_files;
#[path = "command/view_graph.rs"]
mod view_graph;
#[path = "command/view_sources.rs"]
mod view_sources;

use std::path::Path;
use std::process::Command;

/// What a run of the command gave.
struct Ran {
    code: i32,
    out: String,
    /// Without the mark of a debug build.
    err: String,
    /// Whether times were marked as those of a debug build.
    marked: bool,
}

/// What the command says beside times of a debug build.
const MARK: &str = "note: this is a debug build: ";

/// Runs the command in `folder`.
fn run_in(folder: &Path, arguments: &[&str]) -> Ran {
    run_with(folder, arguments, &[])
}

/// Runs the command in `folder` with these variables.
fn run_with(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("FULGURITE_LOG")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    let (marks, others): (Vec<&str>, Vec<&str>) = err.split_inclusive('\n').partition(|line| line.starts_with(MARK));
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: others.concat(),
        marked: !marks.is_empty(),
    }
}

/// Runs the command somewhere.
fn run(arguments: &[&str]) -> Ran {
    run_in(Path::new(env!("CARGO_MANIFEST_DIR")), arguments)
}

impl Ran {
    /// The output, if all went well and nothing was complained of.
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}", self.err);
        assert_eq!(self.err, "");
        self.out
    }

    /// The output, if all went well and there are notes at most.
    #[track_caller]
    fn noted(self) -> String {
        assert_eq!(self.code, 0, "{}", self.err);
        assert!(self.err.lines().all(|line| line.starts_with("note: ")), "{}", self.err);
        self.out
    }

    /// The complaint, if the command failed with this code and wrote nothing else.
    #[track_caller]
    fn fails(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        assert_eq!(self.out, "");
        assert!(self.err.starts_with("error: "), "{}", self.err);
        self.err
    }
}

/// The output as JSON.
#[track_caller]
fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn usage_errors_exit_with_two() {
    for arguments in [&["nonsense"][..], &["ops", "show"], &["ops", "list", "--kind", "x"], &["trace", "run"]] {
        run(arguments).fails(2);
    }
    assert_eq!(run(&[]).code, 2);
}

#[test]
fn help_has_examples() {
    for arguments in [
        &["--help"][..],
        &["ops", "list", "--help"],
        &["ops", "show", "--help"],
        &["ops", "new", "--help"],
        &["ops", "run", "--help"],
        &["ops", "samples", "--help"],
        &["trace", "show", "--help"],
        &["trace", "run", "--help"],
        &["trace", "verify", "--help"],
        &["trace", "diff", "--help"],
        &["train", "gpt2", "--help"],
        &["generate", "--help"],
        &["convert", "--help"],
        &["tokenize", "--help"],
        &["doctor", "--help"],
        &["review", "--help"],
        &["test", "--help"],
        &["ops", "golden", "--help"],
        &["ops", "docs", "--help"],
        &["fuzz", "--help"],
    ] {
        let help = run(arguments).ok();
        assert!(help.contains("Example"), "{arguments:?}: {help}");
    }
    assert!(run(&["--version"]).ok().starts_with("fulgurite "));
}

#[test]
fn a_reader_may_stop_early() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
        .args(["ops", "list", "--json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
}
