//! The two sides of a review: the texts of stored programs in a commit, and in another or the working tree.

use std::collections::BTreeSet;

use super::side::{Content, Text, read};
use crate::git::{Commit, Files, Repository};
use crate::outcome::Failed;
use crate::output::{note, printable};
use crate::stored_programs::{ENDINGS, PENDING};

/// A file that differs between the sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Its path from the top of the repository.
    pub path: String,
    /// Its text before, if it was there.
    pub before: Option<Text>,
    /// Its text after, if it is there.
    pub after: Option<Text>,
    /// Whether the text after is one that a test left beside the file and that nobody has accepted.
    pub pending: bool,
}

/// What is compared with what.
pub struct Sides {
    /// The commit before the change.
    pub base: Commit,
    /// After: a commit, or the working tree.
    pub to: Option<Commit>,
}

impl Sides {
    /// The sides that these revisions name.
    pub fn of(repository: &Repository, base: Option<&str>, to: Option<&str>) -> Result<Sides, Failed> {
        let to = to.map(|revision| repository.commit(revision)).transpose()?;
        let base = match (base, &to) {
            (Some(revision), _) => repository.commit(revision)?,
            (None, Some(to)) => repository.base_of(to)?,
            (None, None) => {
                let head = repository.commit("HEAD")?;
                match working_files(repository, &head)?.is_empty() {
                    true => repository.base_of(&head)?,
                    false => head,
                }
            }
        };
        Ok(Sides { base, to })
    }

    /// `main (1a2b3c4d) and the working tree`.
    pub fn in_words(&self) -> [String; 2] {
        let to = self.to.as_ref().map_or_else(|| "working tree".to_owned(), Commit::in_words);
        [self.base.in_words(), to]
    }

    /// The files that differ, by their paths.
    pub fn pairs(&self, repository: &Repository) -> Result<Vec<Pair>, Failed> {
        let before = repository.files(&self.base, &ENDINGS)?;
        match &self.to {
            Some(to) => between(repository, &before, &repository.files(to, &ENDINGS)?),
            None => with_working_tree(repository, &self.base, &before),
        }
    }
}

/// The files of the working tree that differ from the commit; the ending of pending ones is left out.
fn working_files(repository: &Repository, commit: &Commit) -> Result<BTreeSet<String>, Failed> {
    // Repositories ignore what tests leave behind, and also the traces of training runs, which are no change.
    let changed = repository.changed_files(commit, &ENDINGS, &[PENDING])?;
    Ok(changed.into_iter().map(|path| path.strip_suffix(".new").map(str::to_owned).unwrap_or(path)).collect())
}

fn between(repository: &Repository, before: &Files, after: &Files) -> Result<Vec<Pair>, Failed> {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differing: Vec<&String> = paths.into_iter().filter(|path| before.get(*path) != after.get(*path)).collect();
    let old = contents(repository, &differing, before)?;
    let new = contents(repository, &differing, after)?;
    let pairs = differing.iter().zip(old.into_iter().zip(new));
    Ok(pairs.map(|(path, (before, after))| pair(path, before, after, false)).collect())
}

fn with_working_tree(repository: &Repository, base: &Commit, before: &Files) -> Result<Vec<Pair>, Failed> {
    let paths = working_files(repository, base)?;
    let paths: Vec<&String> = paths.iter().collect();
    let old = contents(repository, &paths, before)?;
    let mut pairs = Vec::new();
    for (path, before) in paths.into_iter().zip(old) {
        let waiting = or_note(&format!("{path}.new"), read(&repository.path(&format!("{path}.new"))));
        let pending = waiting.is_some();
        let after = if pending { waiting } else { read(&repository.path(path)) };
        // A folder in place of a file that was there is told with the file.
        let after = if before.is_none() { or_note(path, after) } else { after };
        if before != after {
            pairs.push(pair(path, before, after, pending));
        }
    }
    Ok(pairs)
}

/// The content of a file; none, with a note, for a folder of that name.
fn or_note(path: &str, content: Option<Content>) -> Option<Content> {
    if content == Some(Content::Folder) {
        note(&format!("{} is a folder, expected a file with programs; it is left out", printable(path)));
        return None;
    }
    content
}

fn pair(path: &str, before: Option<Content>, after: Option<Content>, pending: bool) -> Pair {
    Pair { path: path.to_owned(), before: before.map(Text::of), after: after.map(Text::of), pending }
}

/// The contents of these paths among `files`.
fn contents(repository: &Repository, paths: &[&String], files: &Files) -> Result<Vec<Option<Content>>, Failed> {
    let ids: Vec<Option<&str>> = paths.iter().map(|path| files.get(*path).map(String::as_str)).collect();
    let known: Vec<&str> = ids.iter().flatten().copied().collect();
    let mut contents = repository.contents(&known)?.into_iter();
    Ok(ids.into_iter().map(|id| id.and_then(|_| contents.next()).map(Content::Bytes)).collect())
}
