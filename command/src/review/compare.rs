//! The programs of files that differ, each compared with the one of the same title, the weightiest first.

use std::collections::BTreeMap;

use fulgurite::Error;
use fulgurite::comparison::Comparison;
use fulgurite::cost::Totals;
use fulgurite::trace::{Trace, parse};

use super::findings::findings;
use super::reviewed::{Change, Fault, Program, Review, Reviewed, WHOLE, subject_of};
use super::side::Text;
use super::sides::Pair;
use crate::stored_programs::programs;

/// Compares the files.
pub fn review(between: [String; 2], pairs: Vec<Pair>) -> Review {
    let (mut files, mut texts) = (Vec::new(), Vec::new());
    for pair in pairs {
        let (before, after) = (by_title(pair.before.as_ref()), by_title(pair.after.as_ref()));
        let mut found = Vec::new();
        let mut same = 0;
        let faults = faults(&pair);
        let holds_programs = !before.is_empty() || !after.is_empty() || pair.path.ends_with(".trace");
        if holds_programs && !faults.is_empty() {
            let change = Change::Unreadable(faults);
            found.push(Program { heading: WHOLE.to_owned(), target: String::new(), change });
        } else {
            let titles = before.keys().chain(after.keys().filter(|title| !before.contains_key(*title)));
            for title in titles {
                match compared(title, before.get(title), after.get(title)) {
                    Some(program) => found.push(program),
                    None => same += 1,
                }
            }
        }
        if found.is_empty() {
            texts.push(pair);
            continue;
        }
        found.sort_by(|a, b| b.weight().cmp(&a.weight()).then_with(|| a.heading.cmp(&b.heading)));
        files.push(Reviewed { subject: subject_of(&pair.path), pair, programs: found, same });
    }
    // What nobody can compare comes last.
    let place = |file: &Reviewed| (!file.is_told() && !file.is_trivial(), std::cmp::Reverse(file.weight()));
    files.sort_by(|a, b| place(a).cmp(&place(b)).then_with(|| a.subject.cmp(&b.subject)));
    Review { between, files, texts }
}

/// Why the texts of a file cannot be read as a whole.
fn faults(pair: &Pair) -> Vec<Fault> {
    let sides = [("before", &pair.before), ("after", &pair.after)];
    let fault = |(side, text): (&'static str, &Option<Text>)| {
        let message = text.as_ref()?.fault.clone()?;
        Some(Fault { side, message })
    };
    sides.into_iter().filter_map(fault).collect()
}

fn by_title(text: Option<&Text>) -> BTreeMap<String, String> {
    text.map(|side| programs(&side.text)).unwrap_or_default().into_iter().collect()
}

/// One program, before and after; `None` if its text is the same.
fn compared(title: &str, before: Option<&String>, after: Option<&String>) -> Option<Program> {
    if before == after {
        return None;
    }
    let (was, is) = (before.map(|text| read(text)), after.map(|text| read(text)));
    let (target, change) = match (was, is) {
        (Some(Ok(was)), Some(Ok(is))) => {
            let comparison = Comparison::of(&was, &is);
            let findings = findings(&was, &is, &comparison);
            (is.target.to_string(), Change::Differs { comparison: Box::new(comparison), findings })
        }
        (Some(Ok(trace)), None) => (trace.target.to_string(), Change::Gone(Totals::of(&trace))),
        (None, Some(Ok(trace))) => (trace.target.to_string(), Change::New(Totals::of(&trace))),
        (was, is) => (String::new(), unread([("before", was), ("after", is)])?),
    };
    Some(Program { heading: title.to_owned(), target, change })
}

/// What is told of sides one of which, or neither, can be read; `None` if all can.
fn unread(sides: [(&'static str, Option<Result<Trace, Unread>>); 2]) -> Option<Change> {
    let there: Vec<_> = sides.into_iter().filter_map(|(side, text)| Some((side, text?))).collect();
    let operators = there.iter().map(|(_, text)| text.as_ref().err()?.operator.clone());
    if let Some(operator) = operators.collect::<Option<Vec<_>>>().and_then(|operators| operators.into_iter().next()) {
        return Some(Change::NotLinked(operator));
    }
    let fault = |(side, text): (_, Result<Trace, Unread>)| Some(Fault { side, message: text.err()?.message });
    let faults: Vec<Fault> = there.into_iter().filter_map(fault).collect();
    (!faults.is_empty()).then_some(Change::Unreadable(faults))
}

/// Why a program cannot be read.
struct Unread {
    message: String,
    /// The operator that this command does not have, if that is why.
    operator: Option<String>,
}

/// How the parser begins to say that it does not know an operator.
const NO_OPERATOR: &str = "no operator is called ";

/// Reads a program; the message of an error names the line of the program's text.
fn read(text: &str) -> Result<Trace, Unread> {
    let first_line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    parse(text).map_err(|error| match error {
        Error::Parse { line, column, message } => {
            let at = text.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
            let at = if at.is_empty() { String::new() } else { format!(", in `{at}`") };
            let message = first_line(&message);
            let operator = message.strip_prefix(NO_OPERATOR).map(|rest| {
                let name = rest.split_once(", did you mean").map_or(rest, |(name, _)| name);
                name.trim_matches(['\'', '"']).to_owned()
            });
            Unread { message: format!("line {line}, column {column} of the program: {message}{at}"), operator }
        }
        other => Unread { message: first_line(&other.to_string()), operator: None },
    })
}
