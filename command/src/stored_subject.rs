//! A text with stored programs as a subject of a page.

use fulgurite::Error;
use fulgurite::executor::ExecutorOptions;
use fulgurite::trace::parse;
use fulgurite::trace::verify::verify_marked;
use fulgurite_view::{Shown, Subject, Unread};

use super::claim_options::about_options;
use super::lsp::document::Program;
use super::lsp::lines::Lines;
use super::stored_programs::{Stored, titled};

/// The programs of a text, up to the first that cannot be read, verified under the values of executors' options.
pub fn stored_subject(name: String, text: &str, options: &ExecutorOptions) -> Subject {
    let _given = options.enter();
    let mut subject = Subject { name, ..Subject::default() };
    let mut found = titled(text);
    let whole = || Stored { heading: None, version: None, range: Some(0..text.len()), text: text.to_owned() };
    if found.len() < 2 && text.trim_start().starts_with("# fulgurite trace") {
        // With what may be behind the program's end.
        found = vec![(String::new(), whole())];
    } else if found.is_empty() {
        found = vec![("text".into(), whole())];
    }
    for (name, stored) in found {
        match parse(&stored.text) {
            Ok(trace) => {
                let last = trace.history.last().cloned().unwrap_or_else(|| "program".into());
                let name = if name.is_empty() { last } else { name };
                // It is shown all the same, with the first fault above it.
                let (checked, wrong) = verify_marked(&trace);
                if let (None, Err(fault)) = (&subject.ending, checked) {
                    let place = line_of_fault(text, &stored).map_or_else(String::new, |line| format!("line {line}: "));
                    let about = about_options(wrong);
                    subject.ending = Some(format!("{name} is not valid: {place}{fault}{about}"));
                }
                subject.stages.push(Shown { name, trace });
            }
            Err(error) => {
                let (line, column, message) = match error {
                    Error::Parse { line, column, message } => (line, column, message),
                    other => (1, 1, other.to_string()),
                };
                let place = line_of_fault(text, &stored).unwrap_or(line);
                subject.unread = Some(Unread { text: stored.text, line, place, column, message });
                break;
            }
        }
    }
    subject
}

/// The line of the text, from 1, where the first fault of one of its programs is.
fn line_of_fault(text: &str, stored: &Stored) -> Option<usize> {
    let program = Program::read(text, stored.range.clone()?, stored.version.as_deref(), None);
    Some(Lines::of(text).line(program.fault?.range.start) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patient::{CLAIMED, command_patient};
    use fulgurite::compile::Options;

    fn subject_of(name: &str, text: &str) -> Subject {
        stored_subject(name.into(), text, &ExecutorOptions::default())
    }

    #[test]
    fn claims_are_verified_under_the_given_options() {
        let given = Options::default().with_option(&command_patient::FEWEST, 2).executor_options;
        assert_eq!(stored_subject("a.trace".into(), CLAIMED, &given).ending, None);
        let ending = subject_of("a.trace", CLAIMED).ending.unwrap();
        assert!(ending.contains("takes 4 or more"), "{ending}");
        assert!(ending.contains("command_patient has options, and a trace does not carry their values"), "{ending}");
        let other = Options::default().with_option(&command_patient::FEWEST, 5).executor_options;
        let ending = stored_subject("a.trace".into(), CLAIMED, &other).ending.unwrap();
        assert!(ending.contains("verified with command_patient.fewest=5"), "{ending}");
        let fault = Program::read(CLAIMED, 0..CLAIMED.len(), None, None).fault.unwrap();
        assert!(fault.message.contains("verified with their defaults"), "{fault:?}");
    }

    /// A snapshot whose second program has these lines.
    fn snapshot(lines: &str) -> String {
        let program = |lines: &str| format!("# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {{\n{lines}}}\n");
        let good = program("  return x\n");
        format!("---\nsource: x\n---\n== acquired\n\n{good}\n== claimed\n\n{}", program(lines))
    }

    #[test]
    fn faults_name_the_line_of_the_file() {
        let subject = subject_of("a.snap", &snapshot("  y = no_such_call(x)\n  return y\n"));
        let unread = subject.unread.unwrap();
        assert_eq!((unread.line, unread.place, subject.stages.len()), (3, 15, 1));
        let subject = subject_of("a.snap", &snapshot("  y: f32[5] = exp(x)\n  return y\n"));
        let ending = subject.ending.unwrap();
        assert!(ending.starts_with("claimed is not valid: line 15: "), "{ending}");
        // A version that is said once for all programs is no line of each.
        let once = snapshot("  y = no_such_call(x)\n").replacen("\n\n# fulgurite trace 2\n", "\n\n", 2);
        let once = once.replacen("== acquired", "# fulgurite trace 2\n== acquired", 1);
        let unread = subject_of("a.snap", &once).unread.unwrap();
        assert_eq!((unread.line, unread.place), (3, 14));
    }
}
