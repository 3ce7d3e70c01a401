//! A review as a page: a list of what changed, and both sides of each file in the explorer.

use fulgurite_view::{Entry, EntryProgram, Subject, report};

use super::counts::{counts, in_words};
use super::reviewed::{Change, Review, Reviewed};
use super::side::Text;
use super::words::{number, plural};
use crate::stored_subject::stored_subject;

/// The page. Programs beyond `limit` bytes of data are listed without their sides.
pub fn to_html(review: &Review, limit: usize) -> String {
    let entries = review.files.iter().map(|file| entry(review, file));
    let texts = review.texts.iter().map(|pair| pair.path.clone()).collect();
    report(&fulgurite_view::Report {
        between: review.between.clone(),
        summary: in_words(&counts(review)),
        entries: entries.collect(),
        texts,
        limit,
    })
}

fn entry(review: &Review, file: &Reviewed) -> Entry {
    let side = |at: usize, text: &Option<Text>| {
        let name = format!("{}, {}", file.subject, review.between[at]);
        let without_programs = |why: String| Subject { ending: Some(why), name: name.clone(), ..Subject::default() };
        match text {
            Some(Text { fault: Some(fault), .. }) => without_programs(format!("the file cannot be read: {fault}")),
            Some(Text { text, .. }) => stored_subject(name, text),
            None => without_programs("the file is not there".into()),
        }
    };
    let programs = file.programs.iter().map(|program| {
        let findings = match &program.change {
            Change::New(totals) => vec![("new", plural(totals.symbols as usize, "line"))],
            Change::Gone(totals) => vec![("gone", plural(totals.symbols as usize, "line"))],
            Change::Unreadable(faults) => faults.iter().map(|fault| ("error", fault.in_words())).collect(),
            Change::NotLinked(operator) => vec![("not linked", format!("this command does not have {operator}"))],
            Change::Differs { findings, .. } => findings.iter().map(|one| (one.about, one.text.clone())).collect(),
        };
        EntryProgram {
            stage: program.heading.clone(),
            heading: program.heading.clone(),
            target: program.target.clone(),
            findings: findings.into_iter().map(|(about, text)| (about.to_owned(), text)).collect(),
            trivial: program.is_trivial(),
        }
    });
    Entry {
        subject: file.subject.clone(),
        path: file.pair.path.clone(),
        state: file.state_in_words(),
        programs: programs.collect(),
        same: file.same,
        sides: [side(0, &file.pair.before), side(1, &file.pair.after)],
    }
}

/// `wrote review.html, 1.2 MiB, 3 files`.
pub fn written(path: &std::path::Path, bytes: usize, files: usize) -> String {
    format!("wrote {}, {}, {}", path.display(), number(bytes as u64, true), plural(files, "file"))
}
