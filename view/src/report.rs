//! A page of many comparisons: a list of what changed, each of whose files opens as the page of its two sides.

use fulgurite_plots::escape_text;
use serde_json::{Value, json};

use crate::page::{data, document};
use crate::subject::Subject;

/// What a change did to stored programs.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What is compared: before and after.
    pub between: [String; 2],
    /// How much changed, as a sentence.
    pub summary: String,
    /// The files whose programs changed, the weightiest first.
    pub entries: Vec<Entry>,
    /// Paths of files in which only other texts changed.
    pub texts: Vec<String>,
    /// Bytes of programs that the page may hold. Entries beyond are listed and cannot be opened.
    pub limit: usize,
}

/// A file whose programs changed.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The operator or model.
    pub subject: String,
    /// The file.
    pub path: String,
    /// Whether it is new, gone or changed.
    pub state: String,
    /// Its programs that changed, the weightiest first.
    pub programs: Vec<EntryProgram>,
    /// How many of its programs are as they were.
    pub same: usize,
    /// The file before and after.
    pub sides: [Subject; 2],
}

/// A program that changed.
#[derive(Debug, Clone)]
pub struct EntryProgram {
    /// What people call its stage.
    pub stage: String,
    /// The name of the stage in both sides.
    pub heading: String,
    /// What it is compiled for.
    pub target: String,
    /// What changed: about what, and a sentence; the weightiest first.
    pub findings: Vec<(String, String)>,
    /// Whether nothing but names, order and places in memory changed.
    pub trivial: bool,
}

/// The page. It holds everything that it needs.
pub fn report(report: &Report) -> String {
    let mut left = report.limit;
    let (mut entries, mut sides): (Vec<Value>, Vec<(String, String)>) = Default::default();
    for (number, entry) in report.entries.iter().enumerate() {
        // What is alike in both sides is written once; a page may be much shorter than its texts.
        let data = data(&entry.sides);
        let fits = data.len() <= left;
        entries.push(entry_to_json(entry, fits));
        if fits {
            left -= data.len();
            sides.push((format!("data-{number}"), data));
        }
    }
    let [before, after] = &report.between;
    let list = json!({
        "between": report.between,
        "summary": report.summary,
        "entries": entries,
        "texts": report.texts,
    });
    let mut elements = vec![("review".to_owned(), list.to_string())];
    elements.extend(sides);
    document(&escape_text(&format!("{before} → {after}")), &elements)
}

fn entry_to_json(entry: &Entry, opens: bool) -> Value {
    let programs = entry.programs.iter().map(|program| {
        json!({
            "stage": program.stage,
            "heading": program.heading,
            "target": program.target,
            "findings": program.findings,
            "trivial": program.trivial,
        })
    });
    json!({
        "subject": entry.subject,
        "path": entry.path,
        "state": entry.state,
        "programs": programs.collect::<Vec<_>>(),
        "same": entry.same,
        "opens": opens,
    })
}
