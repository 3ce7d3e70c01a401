//! How much a review has found, in one sentence.

use super::reviewed::Review;
use super::words::{grouped, plural};

/// How many files and programs differ.
pub struct Counts {
    /// Programs that differ in more than names, or cannot be read.
    pub programs: usize,
    /// The files that these are in.
    pub files: usize,
    /// Programs that differ in names, order and places in memory alone.
    pub trivial: usize,
    /// Programs that are not compared, because their operators are not linked in.
    pub not_linked: usize,
    /// Files in which only other texts differ.
    pub texts: usize,
    /// Files that wait to be accepted.
    pub pending: usize,
}

/// Counts what a review has found.
pub fn counts(review: &Review) -> Counts {
    let programs = || review.files.iter().flat_map(|file| &file.programs);
    let pairs = review.files.iter().map(|file| &file.pair).chain(&review.texts);
    Counts {
        programs: programs().filter(|program| program.is_told()).count(),
        files: review.files.iter().filter(|file| file.is_told()).count(),
        trivial: programs().filter(|program| program.is_trivial()).count(),
        not_linked: programs().filter(|program| program.not_linked().is_some()).count(),
        texts: review.texts.len(),
        pending: pairs.filter(|pair| pair.pending).count(),
    }
}

/// `3 programs of 2 files changed; 1 more in names, order or memory alone; 1 other text`.
pub fn in_words(counts: &Counts) -> String {
    let mut words = Vec::new();
    if counts.programs > 0 {
        words.push(format!("{} of {} changed", plural(counts.programs, "program"), plural(counts.files, "file")));
    } else {
        words.push("no program changed".to_owned());
    }
    if counts.trivial > 0 {
        words.push(format!("{} more in names, order or memory alone", grouped(counts.trivial as u64)));
    }
    if counts.not_linked > 0 {
        words.push(format!("{} with operators that are not linked", plural(counts.not_linked, "program")));
    }
    if counts.texts > 0 {
        words.push(plural(counts.texts, "other text"));
    }
    if counts.pending > 0 {
        words.push(format!("{} not accepted yet", plural(counts.pending, "snapshot")));
    }
    words.join("; ")
}
