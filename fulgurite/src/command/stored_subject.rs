//! A text with stored programs as a subject of a page.

use fulgurite::Error;
use fulgurite::trace::parse;
use fulgurite_view::{Shown, Subject, Unread};

use super::stored_programs::programs;

/// The programs of a text, up to the first that cannot be read.
pub fn stored_subject(name: String, text: &str) -> Subject {
    let mut subject = Subject { name, ..Subject::default() };
    let mut texts = programs(text);
    if texts.len() < 2 && text.trim_start().starts_with("# fulgurite trace") {
        // The whole text, whose lines are those of the file.
        texts = vec![(String::new(), text.to_owned())];
    } else if texts.is_empty() {
        texts = vec![("text".into(), text.to_owned())];
    }
    for (name, text) in texts {
        match parse(&text) {
            Ok(trace) => {
                let last = trace.history.last().cloned().unwrap_or_else(|| "program".into());
                let name = if name.is_empty() { last } else { name };
                // It is shown all the same, with the first fault above it.
                if let (None, Err(fault)) = (&subject.ending, trace.verify()) {
                    subject.ending = Some(format!("{name} is not valid: {fault}"));
                }
                subject.stages.push(Shown { name, trace });
            }
            Err(error) => {
                let (line, column, message) = match error {
                    Error::Parse { line, column, message } => (line, column, message),
                    other => (1, 1, other.to_string()),
                };
                subject.unread = Some(Unread { text, line, column, message });
                break;
            }
        }
    }
    subject
}
