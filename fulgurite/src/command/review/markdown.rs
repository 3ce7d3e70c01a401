//! A review for a pull request: a table of the programs that changed, and what happened to each, folded.

use std::fmt::Write as _;

use super::compare::{Change, Program, Review, Reviewed};
use super::counts::{counts, in_words};
use super::words::{number, percent, shortened};

/// Comments of GitHub have at most 65,536 characters.
const LIMIT: usize = 60_000;

/// Rows of the table.
const ROWS: usize = 40;

/// Changed lines of a program.
const LINES: usize = 60;

/// The review as Markdown.
pub fn to_markdown(review: &Review) -> String {
    let [before, after] = &review.between;
    let mut out = format!("## Stored programs: {} → {}\n\n", code(before), code(after));
    let _ = writeln!(out, "{}.", in_words(&counts(review)));
    let told: Vec<(&Reviewed, &Program)> = review.files.iter().flat_map(told).collect();
    if !told.is_empty() {
        out += "\n| program | stage | target | launches | bytes | FLOPs | peak memory | most of all |\n";
        out += "|---|---|---|---:|---:|---:|---:|---|\n";
        told.iter().take(ROWS).for_each(|(file, program)| out += &row(file, program));
        if told.len() > ROWS {
            let _ = writeln!(out, "\n{} more programs are not in the table.", told.len() - ROWS);
        }
    }
    for (i, (file, program)) in told.iter().enumerate() {
        let details = details(file, program);
        if out.len() + details.len() > LIMIT {
            let _ = writeln!(out, "\nDetails of {} programs are left out: the comment is full.", told.len() - i);
            break;
        }
        out += &details;
    }
    let trivial: Vec<String> = review
        .files
        .iter()
        .flat_map(|file| file.programs.iter().map(move |program| (file, program)))
        .filter(|(_, program)| program.is_trivial())
        .map(|(file, program)| format!("- {}, {}\n", code(&file.subject), code(&program.stage)))
        .collect();
    let texts: Vec<String> = review.texts.iter().map(|pair| format!("- {}\n", code(&pair.path))).collect();
    for (what, items) in [("in names, order or memory alone", trivial), ("other texts", texts)] {
        let list = items.concat();
        if !items.is_empty() && out.len() + list.len() < LIMIT + 4000 {
            let _ = write!(out, "\n<details><summary>{} {what}</summary>\n\n{list}\n</details>\n", items.len());
        } else if !items.is_empty() {
            let _ = writeln!(out, "\n{} {what}.", items.len());
        }
    }
    out
}

/// The programs of a file that changed in more than names.
fn told(file: &Reviewed) -> impl Iterator<Item = (&Reviewed, &Program)> {
    file.programs.iter().filter(|program| !program.is_trivial()).map(move |program| (file, program))
}

fn row(file: &Reviewed, program: &Program) -> String {
    let mut cells = vec![code(&file.subject), code(&program.stage), code(&program.target)];
    let costs = match &program.change {
        Change::Differs { comparison, .. } => {
            let (before, after) = (comparison.before.rows(), comparison.after.rows());
            (1..5).map(|i| cost(before[i].1, after[i].1, before[i].0)).collect()
        }
        _ => vec![String::new(); 4],
    };
    cells.extend(costs);
    cells.push(headline(program).map_or_else(String::new, |text| code(&shortened(&text, 160))));
    format!("| {} |\n", cells.join(" | "))
}

/// `-3.4 %`; empty if nothing changed.
fn cost(before: Option<u64>, after: Option<u64>, name: &str) -> String {
    match (before, after) {
        (Some(before), Some(after)) if before != after => percent(before, after),
        (None, Some(after)) => number(after, name == "peak memory"),
        (Some(_), None) => "none".into(),
        _ => String::new(),
    }
}

/// The weightiest thing that is not a cost, which the table has its columns for; else a cost.
fn headline(program: &Program) -> Option<String> {
    match &program.change {
        Change::New(_) => Some("new".into()),
        Change::Gone(_) => Some("gone".into()),
        Change::Unreadable { side, message } => Some(format!("the text {side} cannot be read: {message}")),
        Change::Differs { findings, .. } => {
            let costs = ["launches", "bytes", "FLOPs", "peak memory"];
            let reason = findings.iter().find(|finding| !costs.contains(&finding.about));
            let finding = reason.or(findings.first())?;
            Some(format!("{}: {}", finding.about, finding.text))
        }
    }
}

fn details(file: &Reviewed, program: &Program) -> String {
    let (subject, stage) = (escaped(&file.subject), escaped(&program.stage));
    let mut out = format!("\n<details><summary><code>{subject}</code>, {stage}</summary>\n\n");
    let _ = writeln!(out, "{}: {}\n", code(&file.pair.path), file.state());
    match &program.change {
        Change::Differs { comparison, findings } => {
            for finding in findings {
                let _ = writeln!(out, "- **{}** {}", finding.about, code(&finding.text));
            }
            let text = comparison.changes.to_string();
            let lines: Vec<&str> = text.lines().collect();
            let shown: String = lines.iter().take(LINES).map(|line| format!("{}\n", shortened(line, 400))).collect();
            let fence = "`".repeat(longest_run(&shown).max(2) + 1);
            let _ = write!(out, "\n{fence}diff\n{shown}{fence}\n");
            if lines.len() > LINES {
                let _ = writeln!(out, "\n{} more changed lines.", lines.len() - LINES);
            }
        }
        _ => {
            let _ = writeln!(out, "- {}", headline(program).map_or_else(String::new, |text| code(&text)));
        }
    }
    out + "\n</details>\n"
}

/// Text as code: nothing in it is markup or mentions anybody, in a table too.
fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let fence = "`".repeat(longest_run(&text) + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    // A table ends a cell at a bar, in code too.
    format!("{fence}{pad}{}{pad}{fence}", text.replace('|', "\\|"))
}

/// Text between tags of HTML.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    // What Markdown would read as its own.
    text.replace('`', "&#96;").replace('*', "&#42;").replace('_', "&#95;").replace('[', "&#91;").replace('@', "&#64;")
}

fn longest_run(text: &str) -> usize {
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_shown() {
        assert_eq!(code("a|`b` <script>"), "``a\\|`b` <script>``");
        assert_eq!(code("`"), "`` ` ``");
        assert_eq!(escaped("<b>_x_ @all"), "&lt;b&gt;&#95;x&#95; &#64;all");
    }
}
