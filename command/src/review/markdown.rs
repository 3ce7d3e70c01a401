//! A review for a pull request: a table of the programs that changed, and what happened to each, folded.

use std::fmt::Write as _;

use fulgurite::comparison::Comparison;

use super::comment::{Comment, cell, code, escaped, fenced};
use super::counts::{counts, in_words};
use super::not_linked;
use super::reviewed::{Change, Fault, Program, Review, Reviewed};
use super::words::{change, grouped, is_bytes, number, plural, shortened};

/// Totals with a column of their own.
const TOTALS: [&str; 4] = ["launches", "bytes", "FLOPs", "peak memory"];

/// Rows of the table.
const ROWS: usize = 40;

/// Bytes of the table, so that there is room for details.
const TABLE: usize = 20_000;

/// Bytes of details, so that there is room for what comes after them.
const DETAILS: usize = 58_000;

/// Changed lines of a program.
const LINES: usize = 60;

/// Characters of a name, of a finding, and of a changed line.
const NAME: usize = 160;
const FINDING: usize = 1000;
const LINE: usize = 400;

/// The review as Markdown, of as many characters as a comment may have.
pub fn to_markdown(review: &Review) -> String {
    let [before, after] = review.between.each_ref().map(|name| code(&shortened(name, NAME)));
    let mut out = Comment::default();
    out.push(&format!("## Stored programs: {before} → {after}\n\n{}.\n", in_words(&counts(review))));
    let told: Vec<(&Reviewed, &Program)> = review.files.iter().flat_map(told).collect();
    table(&told, &mut out);
    let left_out = told.iter().filter(|(file, program)| !out.push_up_to(&details(file, program), DETAILS)).count();
    if left_out > 0 {
        out.push(&format!("\nDetails of {} are left out: the comment is full.\n", plural(left_out, "program")));
    }
    let trivial: Vec<String> = review
        .files
        .iter()
        .flat_map(|file| file.programs.iter().map(move |program| (file, program)))
        .filter(|(_, program)| program.is_trivial())
        .map(|(file, program)| format!("{}, {}", named(&file.subject), named(&program.heading)))
        .collect();
    let texts: Vec<String> = review.texts.iter().map(|pair| named(&pair.path)).collect();
    for (what, items) in [("in names, order or memory alone", trivial), ("other texts", texts)] {
        list(what, &items, &mut out);
    }
    if let Some(note) = not_linked::note(review) {
        out.push(&format!("\n{}.\n", code(&shortened(&note, FINDING))));
    }
    out.text()
}

/// The programs of a file that changed in more than names.
fn told(file: &Reviewed) -> impl Iterator<Item = (&Reviewed, &Program)> {
    file.programs.iter().filter(|program| program.is_told()).map(move |program| (file, program))
}

fn named(name: &str) -> String {
    code(&shortened(name, NAME))
}

/// A row for each program, as far as there is room.
fn table(told: &[(&Reviewed, &Program)], out: &mut Comment) {
    if told.is_empty() {
        return;
    }
    out.push(&format!("\n| program | stage | target | {} | most of all |\n", TOTALS.join(" | ")));
    out.push("|---|---|---|---:|---:|---:|---:|---|\n");
    let rows = told.iter().take(ROWS).take_while(|(file, program)| out.push_up_to(&row(file, program), TABLE)).count();
    if told.len() > rows {
        out.push(&format!("\n{} not in the table.\n", plural_are(told.len() - rows, "more program")));
    }
}

/// `1 more program is`, `2 more programs are`.
fn plural_are(count: usize, what: &str) -> String {
    format!("{} {}", plural(count, what), if count == 1 { "is" } else { "are" })
}

fn row(file: &Reviewed, program: &Program) -> String {
    let cell_of = |text: &str| cell(&shortened(text, NAME));
    let mut cells = vec![cell_of(&file.subject), cell_of(&program.heading), cell_of(&program.target)];
    cells.extend(TOTALS.map(|name| match &program.change {
        Change::Differs { comparison, .. } => cost(comparison, name),
        _ => String::new(),
    }));
    cells.push(headline(program).map_or_else(String::new, |text| cell_of(&text)));
    format!("| {} |\n", cells.join(" | "))
}

/// By how much the total of this name changed: `-3.4 %`; empty if it did not.
fn cost(comparison: &Comparison, name: &str) -> String {
    let [before, after] = [&comparison.before, &comparison.after]
        .map(|totals| totals.rows().into_iter().find(|(own, _)| *own == name).and_then(|(_, total)| total));
    match (before, after) {
        (Some(before), Some(after)) if before != after => change(before, after, is_bytes(name)),
        (None, Some(after)) => number(after, is_bytes(name)),
        (Some(_), None) => "none".into(),
        _ => String::new(),
    }
}

/// The weightiest thing that is not a cost, which the table has its columns for; else a cost.
fn headline(program: &Program) -> Option<String> {
    match &program.change {
        Change::New(_) => Some("new".into()),
        Change::Gone(_) => Some("gone".into()),
        Change::Unreadable(faults) => Some(faults.iter().map(Fault::in_words).collect::<Vec<_>>().join("; ")),
        Change::NotLinked(operator) => Some(format!("this command does not have {operator}")),
        Change::Differs { findings, .. } => {
            let reason = findings.iter().find(|finding| !TOTALS.contains(&finding.about));
            let finding = reason.or(findings.first())?;
            Some(format!("{}: {}", finding.about, finding.text))
        }
    }
}

fn details(file: &Reviewed, program: &Program) -> String {
    let [subject, stage] = [&file.subject, &program.heading].map(|name| escaped(&shortened(name, NAME)));
    let mut out = format!("\n<details><summary><code>{subject}</code>, {stage}</summary>\n\n");
    let _ = writeln!(out, "{}: {}\n", named(&file.pair.path), file.state_in_words());
    match &program.change {
        Change::Differs { comparison, findings } => {
            for finding in findings {
                let _ = writeln!(out, "- **{}** {}", finding.about, code(&shortened(&finding.text, FINDING)));
            }
            let text = comparison.changes.to_string();
            let lines: Vec<&str> = text.lines().collect();
            let shown: String = lines.iter().take(LINES).map(|line| format!("{}\n", shortened(line, LINE))).collect();
            out += &format!("\n{}", fenced("diff", &shown));
            if lines.len() > LINES {
                let _ = writeln!(out, "\n{}.", plural(lines.len() - LINES, "more changed line"));
            }
        }
        Change::Unreadable(faults) => {
            for fault in faults {
                let _ = writeln!(out, "- {}", code(&shortened(&fault.in_words(), FINDING)));
            }
        }
        _ => {
            let text = headline(program).map_or_else(String::new, |text| code(&shortened(&text, FINDING)));
            let _ = writeln!(out, "- {text}");
        }
    }
    out + "\n</details>\n"
}

/// A folded list, as far as there is room for its items.
fn list(what: &str, items: &[String], out: &mut Comment) {
    if items.is_empty() {
        return;
    }
    let end = "\n</details>\n";
    let mut text = format!("\n<details><summary>{} {what}</summary>\n\n", items.len());
    // Half of the room, so that the next list has some too.
    let room = out.room() / 2;
    for (i, item) in items.iter().enumerate() {
        let item = format!("- {item}\n");
        let rest = format!("- and {} more\n", grouped((items.len() - i) as u64));
        if text.len() + item.len() + rest.len() + end.len() > room {
            text += &rest;
            break;
        }
        text += &item;
    }
    out.push(&(text + end));
}
