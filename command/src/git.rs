//! What a repository has: commits, and files of theirs by the names of their contents. Nothing is checked out.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::outcome::Failed;

/// The repository that a folder is in.
pub struct Repository {
    /// The top of its working tree.
    pub root: PathBuf,
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// As it was named: `main`.
    pub name: String,
    /// Its full object name.
    pub id: String,
}

impl Commit {
    /// `main (1a2b3c4d)`.
    pub fn in_words(&self) -> String {
        let short = self.id.get(..8).unwrap_or(&self.id);
        if self.id.starts_with(&self.name) { short.to_owned() } else { format!("{} ({short})", self.name) }
    }
}

/// Files by their paths from the top of the repository, with the names of their contents.
pub type Files = BTreeMap<String, String>;

impl Repository {
    /// The repository of the current folder. `purpose` says what it is for: `review compares commits of a git
    /// repository`.
    pub fn open(purpose: &str) -> Result<Repository, Failed> {
        let ran = Command::new("git").args(["rev-parse", "--show-toplevel"]).output().map_err(no_git)?;
        if !ran.status.success() {
            let message = String::from_utf8_lossy(&ran.stderr);
            let message = message.lines().next().unwrap_or("no working tree").trim_start_matches("fatal: ").to_owned();
            return Err(Failed(format!("{purpose}: {message}")));
        }
        Ok(Repository { root: PathBuf::from(String::from_utf8_lossy(&ran.stdout).trim_end_matches('\n')) })
    }

    /// What git prints, or `None` if it fails.
    fn ask(&self, arguments: &[&str]) -> Result<Option<Vec<u8>>, Failed> {
        let ran = Command::new("git").args(arguments).current_dir(&self.root).stderr(Stdio::null()).output();
        let ran = ran.map_err(no_git)?;
        Ok(ran.status.success().then_some(ran.stdout))
    }

    /// What git prints; an error if it fails.
    fn tell(&self, arguments: &[&str]) -> Result<Vec<u8>, Failed> {
        let ran = Command::new("git").args(arguments).current_dir(&self.root).output().map_err(no_git)?;
        match ran.status.success() {
            true => Ok(ran.stdout),
            false => {
                Err(Failed(format!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&ran.stderr).trim_end())))
            }
        }
    }

    /// The commit that a revision names.
    pub fn commit(&self, revision: &str) -> Result<Commit, Failed> {
        let message = "is not a commit of this repository, expected a branch, a tag or a commit";
        self.find(revision)?.ok_or_else(|| Failed(format!("'{revision}' {message}")))
    }

    fn find(&self, revision: &str) -> Result<Option<Commit>, Failed> {
        let wanted = format!("{revision}^{{commit}}");
        let found = self.ask(&["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted])?;
        Ok(found.map(|id| Commit { name: revision.to_owned(), id: String::from_utf8_lossy(&id).trim_end().to_owned() }))
    }

    /// What `tip` began from: the commit that it shares with the main branch; the one before it where it is on that
    /// branch itself.
    pub fn base_of(&self, tip: &Commit) -> Result<Commit, Failed> {
        for branch in ["main", "origin/main", "master", "origin/master"] {
            let Some(main) = self.find(branch)? else { continue };
            let Some(shared) = self.ask(&["merge-base", &tip.id, &main.id])? else { continue };
            let id = String::from_utf8_lossy(&shared).trim_end().to_owned();
            if id != tip.id {
                return Ok(Commit { name: format!("merge base with {branch}"), id });
            }
        }
        if let Some(found) = self.find(&format!("{}~1", tip.id))? {
            // `HEAD^0~1` would be read as something else than `HEAD~1`.
            let plain = tip.name.chars().all(|c| c.is_alphanumeric() || "-_./".contains(c));
            let name = if plain { format!("{}~1", tip.name) } else { format!("commit before {}", tip.name) };
            return Ok(Commit { name, ..found });
        }
        let shallow =
            self.ask(&["rev-parse", "--is-shallow-repository"])?.is_some_and(|told| told.starts_with(b"true"));
        let reason = match shallow {
            true => "the clone is shallow: `git fetch --deepen 1` fetches the commit before",
            false => "it is the first commit, so that there is nothing to compare it with",
        };
        Err(Failed(format!("there is no commit before {}: {reason}", tip.name)))
    }

    /// The files of a commit whose names end in one of these.
    pub fn files(&self, commit: &Commit, endings: &[&str]) -> Result<Files, Failed> {
        let listed = self.tell(&["ls-tree", "-r", "-z", "--full-tree", &commit.id])?;
        let mut files = Files::new();
        for entry in listed.split(|byte| *byte == 0) {
            // `100644 blob 1a2b...<tab>path`; links and submodules are no texts.
            let entry = String::from_utf8_lossy(entry);
            let Some((what, path)) = entry.split_once('\t') else { continue };
            if let [mode, "blob", id] = what.split(' ').collect::<Vec<_>>()[..]
                && mode != "120000"
                && endings.iter().any(|ending| path.ends_with(ending))
            {
                files.insert(path.to_owned(), id.to_owned());
            }
        }
        Ok(files)
    }

    /// The files of the working tree that are not as in the commit: changed, new or gone. Those whose names end in one
    /// of `endings` count unless git ignores them, and those that end in one of `pending` in any case.
    pub fn changed_files(&self, commit: &Commit, endings: &[&str], pending: &[&str]) -> Result<Vec<String>, Failed> {
        let patterns: Vec<String> = endings.iter().chain(pending).map(|ending| format!("*{ending}")).collect();
        let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
        let tracked = [&["diff", "--name-only", "--no-renames", "-z", &commit.id, "--"][..], &patterns].concat();
        let mut paths = paths_of(&self.tell(&tracked)?);
        paths.extend(self.untracked_files(endings, false)?);
        paths.extend(self.untracked_files(pending, true)?);
        paths.sort();
        paths.dedup();
        Ok(paths)
    }

    /// All files of the working tree that are not as in the commit: changed, new or gone, without those that git
    /// ignores. A renamed file counts with both names.
    pub fn all_changed(&self, commit: &Commit) -> Result<Vec<String>, Failed> {
        let mut paths = paths_of(&self.tell(&["diff", "--name-only", "--no-renames", "-z", &commit.id, "--"])?);
        paths.extend(paths_of(&self.tell(&["ls-files", "--others", "--exclude-standard", "-z"])?));
        paths.sort();
        paths.dedup();
        Ok(paths)
    }

    /// The files of the working tree, without those that git ignores.
    pub fn all_files(&self) -> Result<Vec<String>, Failed> {
        let listed = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
        let mut paths = paths_of(&self.tell(&listed)?);
        paths.sort();
        paths.dedup();
        Ok(paths)
    }

    /// The files of the working tree that git does not keep and whose names end in one of these; with `ignored` also
    /// those that git ignores.
    pub fn untracked_files(&self, endings: &[&str], ignored: bool) -> Result<Vec<String>, Failed> {
        let patterns: Vec<String> = endings.iter().map(|ending| format!("*{ending}")).collect();
        let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
        // What builds write is no source, and there is much of it.
        let standard = if ignored { &[][..] } else { &["--exclude-standard"] };
        let others = [&["ls-files", "--others", "-z"], standard, &["--"], &patterns, &[":(exclude)target"]].concat();
        Ok(paths_of(&self.tell(&others)?))
    }

    /// The content of a file of a commit; `path` is from the top of the repository.
    pub fn file_of(&self, commit: &Commit, path: &str) -> Result<Vec<u8>, Failed> {
        let found = self.ask(&["cat-file", "blob", &format!("{}:{path}", commit.id)])?;
        found.ok_or_else(|| {
            Failed(format!("{} has no file '{path}', a path from the top of the repository", commit.in_words()))
        })
    }

    /// The contents of these names, in their order, with one run of git.
    pub fn contents(&self, ids: &[&str]) -> Result<Vec<Vec<u8>>, Failed> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut child = Command::new("git")
            .args(["cat-file", "--batch"])
            .current_dir(&self.root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(no_git)?;
        let stdin = child.stdin.take();
        let asked: String = ids.iter().map(|id| format!("{id}\n")).collect();
        // Written beside the reading: both pipes hold only so much.
        let writer = std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(asked.as_bytes())));
        let output = child.wait_with_output().map_err(no_git)?;
        let _ = writer.join();
        let mut rest = &output.stdout[..];
        let short = || Failed("git cat-file: its answer ended early".into());
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(short)?;
            let head = String::from_utf8_lossy(&rest[..end]);
            let size = head.rsplit(' ').next().and_then(|size| size.parse::<usize>().ok());
            let size = size.ok_or_else(|| Failed(format!("git cat-file: {id} is missing: {head}")))?;
            let content = rest.get(end + 1..end + 1 + size).ok_or_else(short)?;
            found.push(content.to_vec());
            rest = rest.get(end + 2 + size..).unwrap_or_default();
        }
        Ok(found)
    }

    /// A path from the top of the repository on this machine.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(Path::new(path))
    }
}

fn paths_of(listed: &[u8]) -> Vec<String> {
    let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| String::from_utf8_lossy(path).into_owned()).collect()
}

fn no_git(error: std::io::Error) -> Failed {
    Failed(format!("git: {error}; commits are read with the program git"))
}
