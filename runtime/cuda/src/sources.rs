//! Sources that are edited without building anything: the files of a folder take the place of those that the program
//! was built with. What is compiled is the new text, which is part of the key of the cache of kernels.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A folder whose `.cu` and `.cuh` files, and those of its folders, replace embedded sources of the same name. It is
/// read once by each process.
pub const SOURCES_VARIABLE: &str = "FULGURITE_CUDA_SOURCES";

/// What a source says before the text of a file.
const MARK: &str = "#line 1 \"";

/// Paths below a folder, and what the files hold.
#[derive(Debug, Default)]
struct Files(Vec<(PathBuf, String)>);

impl Files {
    fn read(folder: &Path) -> io::Result<Files> {
        let mut files = Files::default();
        files.add(folder)?;
        files.0.sort();
        Ok(files)
    }

    fn add(&mut self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                self.add(&path)?;
            } else if path.extension().is_some_and(|end| end == "cu" || end == "cuh") {
                let text = fs::read_to_string(&path)?;
                self.0.push((path, text));
            }
        }
        Ok(())
    }

    /// The file that is called so. A name may begin with `../`, as it does beside the source that includes it.
    fn named(&self, name: &str) -> Result<Option<&str>, String> {
        let name = name.trim_start_matches("../");
        let mut found = self.0.iter().filter(|(path, _)| path.ends_with(name));
        match (found.next(), found.next()) {
            (Some((first, _)), Some((second, _))) => {
                Err(format!("{} and {} are both called {name}", first.display(), second.display()))
            }
            (first, _) => Ok(first.map(|(_, text)| text.as_str())),
        }
    }

    /// The source `name`, with each of the files that it was put together from replaced by that of this folder.
    fn edited(&self, name: &str, text: &str) -> Result<String, String> {
        let mut edited = String::with_capacity(text.len());
        for part in parts(text) {
            let (line, own, body) = match part.strip_prefix(MARK).and_then(|rest| rest.split_once("\"\n")) {
                Some((own, body)) => (format!("{MARK}{own}\"\n"), own, body),
                None => (String::new(), name, part),
            };
            edited += &line;
            edited += self.named(own)?.unwrap_or(body);
            if !edited.ends_with('\n') {
                edited.push('\n');
            }
        }
        Ok(edited)
    }
}

/// The text before the first mark, unless it is empty, and from each mark to the next.
fn parts(text: &str) -> Vec<&str> {
    let later = text.match_indices(MARK).map(|(at, _)| at).filter(|at| *at > 0 && text[..*at].ends_with('\n'));
    let starts: Vec<usize> = std::iter::once(0).chain(later).collect();
    let ends = starts[1..].iter().copied().chain([text.len()]);
    starts.iter().zip(ends).map(|(start, end)| &text[*start..end]).collect()
}

/// The files of [`SOURCES_VARIABLE`]; none without it.
fn files() -> Result<Option<&'static Files>, String> {
    static FILES: OnceLock<Result<Option<Files>, String>> = OnceLock::new();
    let read = || {
        let Some(folder) = std::env::var_os(SOURCES_VARIABLE).filter(|folder| !folder.is_empty()) else {
            return Ok(None);
        };
        let folder = PathBuf::from(folder);
        let files =
            Files::read(&folder).map_err(|error| format!("{SOURCES_VARIABLE}={}: {error}", folder.display()))?;
        // Says so, since a variable that was left set changes results.
        tracing::warn!("{SOURCES_VARIABLE}: {} sources are taken from {}", files.0.len(), folder.display());
        Ok(Some(files))
    };
    FILES.get_or_init(read).as_ref().map(Option::as_ref).map_err(Clone::clone)
}

/// The source `name` as it is compiled: `text`, unless [`SOURCES_VARIABLE`] names a folder with files of its names. A
/// text that was put together from several files has a line `#line 1 "FILE"` before each.
///
/// # Errors
/// If the folder cannot be read, or two of its files have the name.
pub fn edited<'a>(name: &str, text: &'a str) -> Result<Cow<'a, str>, String> {
    match files()? {
        Some(files) => files.edited(name, text).map(Cow::Owned),
        None => Ok(Cow::Borrowed(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, Files) {
        let home = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = home.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let files = Files::read(home.path()).unwrap();
        (home, files)
    }

    #[test]
    fn a_source_is_replaced_as_a_whole_and_others_stay() {
        let (_home, files) = folder(&[("cuda/topk.cu", "new\n"), ("cuda/notes.txt", "none")]);
        assert_eq!(files.edited("topk.cu", "old\n").unwrap(), "new\n");
        assert_eq!(files.edited("k.cu", "old\n").unwrap(), "old\n", "the end of another name");
        assert_eq!(files.edited("notes.txt", "old\n").unwrap(), "old\n");
    }

    #[test]
    fn each_file_of_a_source_is_replaced_by_its_own() {
        let (_home, files) = folder(&[("llmc/vectors.cuh", "new vectors"), ("flash/rows.cuh", "new rows\n")]);
        let text =
            "#line 1 \"../llmc/vectors.cuh\"\nold vectors\n#line 1 \"rows.cuh\"\nold\nrows\n#line 1 \"a.cu\"\nold\n";
        let expected =
            "#line 1 \"../llmc/vectors.cuh\"\nnew vectors\n#line 1 \"rows.cuh\"\nnew rows\n#line 1 \"a.cu\"\nold\n";
        assert_eq!(files.edited("a.cu", text).unwrap(), expected);
    }

    #[test]
    fn a_header_is_replaced_by_the_file_of_its_folder() {
        let (_home, files) = folder(&[("cuda/fulgurite/vectors.cuh", "new\n"), ("llmc/copies.cuh", "other\n")]);
        assert_eq!(files.edited("fulgurite/vectors.cuh", "old\n").unwrap(), "new\n");
        assert_eq!(files.edited("fulgurite/copies.cuh", "old\n").unwrap(), "old\n", "a file of another folder");
    }

    #[test]
    fn two_files_of_one_name_are_an_error_where_it_is_asked_for() {
        let (_home, files) = folder(&[("one/a.cu", "1"), ("other/a.cu", "2"), ("b.cu", "3\n")]);
        let error = files.edited("a.cu", "old").unwrap_err();
        assert!(error.contains("are both called a.cu"), "{error}");
        assert_eq!(files.edited("../one/a.cu", "old").unwrap(), "1\n");
        assert_eq!(files.edited("b.cu", "old").unwrap(), "3\n");
    }
}
