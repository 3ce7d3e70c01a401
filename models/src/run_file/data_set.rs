//! LitGPT's sets of data as files: folders of texts, and TinyStories.

use std::path::{Path, PathBuf};

use super::fields::{self, Fault, Fields, Range};
use super::yaml::{Node, Value};

/// The value of `data`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataSet {
    /// Files, patterns and folders of texts to train on, and those to validate with.
    Files {
        /// Files of training data.
        train: Vec<PathBuf>,
        /// To validate with; none are said if it is empty.
        validation: Vec<PathBuf>,
    },
    /// The folder of TinyStories.
    TinyStories(PathBuf),
}

/// Where LitGPT keeps TinyStories if nothing is said.
const TINY_STORIES: &str = "data/tinystories";
/// The folder that the archive of TinyStories has its files in.
const ALL_STORIES: &str = "TinyStories_all_data";

/// A list of files, or a class of LitGPT's with arguments.
pub(super) fn read(node: &Node) -> Result<DataSet, Fault> {
    if let Value::List(_) = node.value {
        return Ok(DataSet::Files { train: fields::paths(node, "data")?, validation: Vec::new() });
    }
    if let Value::Scalar(name) = &node.value {
        return match known(name) {
            Some(Class::TinyStories) => Ok(DataSet::TinyStories(TINY_STORIES.into())),
            Some(Class::TextFiles) => {
                Err((node.line, "data is TextFiles, expected train_data_path in init_args with it".into()))
            }
            None => Err((node.line, format!("data is '{name}', {EXPECTED}"))),
        };
    }
    let class = Fields::of(node, "data")?;
    let name = class.one_of("class_path", |name| known(name).ok_or_else(|| EXPECTED.to_owned()))?;
    let arguments = class.map("init_args")?;
    let set = match name {
        Some(Class::TinyStories) => {
            let path = match &arguments {
                // The argument's older name.
                Some(arguments) => match (arguments.text("data_path")?, arguments.text("path")?) {
                    (Some(path), Some(other)) if path != other => {
                        return Err((
                            node.line,
                            format!("data has data_path '{path}' and path '{other}', expected one"),
                        ));
                    }
                    (path, other) => path.or(other),
                },
                None => None,
            };
            DataSet::TinyStories(path.unwrap_or_else(|| TINY_STORIES.to_owned()).into())
        }
        Some(Class::TextFiles) => {
            let (train, validation) = match &arguments {
                Some(arguments) => (arguments.paths("train_data_path")?, arguments.paths("val_data_path")?),
                None => (Vec::new(), Vec::new()),
            };
            if train.is_empty() {
                return Err((node.line, "data is TextFiles, expected train_data_path in init_args with it".into()));
            }
            DataSet::Files { train, validation }
        }
        None => return Err((node.line, format!("data has no class_path, {EXPECTED}"))),
    };
    if let Some(arguments) = arguments {
        for (name, _) in HARMLESS {
            let _: Option<u64> = arguments.number(name, Range::NotNegative)?;
        }
        arguments.end()?;
    }
    class.end()?;
    Ok(set)
}

/// Arguments of all sets that change nothing here, each with the reason.
pub(super) const HARMLESS: [(&str, &str); 2] =
    [("seed", "the order of the data follows from the seed of the run"), ("num_workers", "batches are read on demand")];

const EXPECTED: &str =
    "expected a list of files, litgpt.data.TextFiles or litgpt.data.TinyStories; shards of tokens are a list of files";

enum Class {
    TextFiles,
    TinyStories,
}

fn known(name: &str) -> Option<Class> {
    match name.rsplit('.').next() {
        Some("TextFiles") => Some(Class::TextFiles),
        Some("TinyStories") => Some(Class::TinyStories),
        _ => None,
    }
}

impl DataSet {
    /// The files, to train on and to validate with, as LitGPT finds them: of a folder the `.txt` in the order of their
    /// names. Where nothing is said to validate with, it is the first file of a folder that has several. Of
    /// TinyStories, which is not downloaded, they are the `.json` files, the first of which is to validate with.
    ///
    /// # Errors
    /// A folder that has no such files.
    pub fn files(&self) -> Result<(Vec<PathBuf>, Vec<PathBuf>), String> {
        match self {
            DataSet::Files { train, validation } => {
                let whole_folder = matches!(&train[..], [folder] if folder.is_dir());
                let (mut train, mut validation) = (expanded(train)?, expanded(validation)?);
                if validation.is_empty() && whole_folder && train.len() > 1 {
                    validation.push(train.remove(0));
                }
                Ok((train, validation))
            }
            DataSet::TinyStories(folder) => {
                let inner = folder.join(ALL_STORIES);
                let own = if inner.is_dir() { &inner } else { folder };
                let mut files = if own.is_dir() { in_folder(own, "json")? } else { Vec::new() };
                if files.len() < 2 {
                    return Err(format!(
                        "TinyStories: '{}' has {} files that end in .json, expected at least 2, the first to validate \
                         with: nothing is downloaded here; unpack TinyStories_all_data.tar.gz of its authors there",
                        own.display(),
                        files.len()
                    ));
                }
                let first = files.remove(0);
                Ok((files, vec![first]))
            }
        }
    }
}

/// Folders as the texts in them; all else as it is.
fn expanded(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let found = in_folder(path, "txt")?;
        if found.is_empty() {
            return Err(format!("the folder '{}' has no file that ends in .txt", path.display()));
        }
        files.extend(found);
    }
    Ok(files)
}

fn in_folder(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("the folder '{}': {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|own| own == ending) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_the_files_in_them_as_litgpt_finds_them() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for name in ["texts/b.txt", "texts/a.txt", "texts/c.md", "val/x.txt", "one/only.txt", "empty/none.md"] {
            std::fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            std::fs::write(path(name), "text").unwrap();
        }
        let files = |train: &[&str], validation: &[&str]| {
            let all = |names: &[&str]| names.iter().map(|name| path(name)).collect();
            DataSet::Files { train: all(train), validation: all(validation) }.files()
        };
        let paths = |names: &[&str]| names.iter().map(|name| path(name)).collect::<Vec<_>>();
        let both = (paths(&["texts/a.txt", "texts/b.txt"]), paths(&["val/x.txt"]));
        assert_eq!(files(&["texts"], &["val"]), Ok(both));
        assert_eq!(files(&["texts"], &[]), Ok((paths(&["texts/b.txt"]), paths(&["texts/a.txt"]))));
        // The last tenth of what there is, as of files that are named.
        assert_eq!(files(&["one"], &[]), Ok((paths(&["one/only.txt"]), Vec::new())));
        assert_eq!(files(&["texts/a.txt"], &[]), Ok((paths(&["texts/a.txt"]), Vec::new())));
        assert!(files(&["empty"], &[]).unwrap_err().contains("empty' has no file that ends in .txt"));

        let stories = DataSet::TinyStories(root.path().to_owned());
        assert!(stories.files().unwrap_err().contains("has 0 files that end in .json, expected at least 2"));
        std::fs::create_dir(path(ALL_STORIES)).unwrap();
        for name in ["data01.json", "data00.json", "data02.json"] {
            std::fs::write(path(ALL_STORIES).join(name), "[]").unwrap();
        }
        let (train, validation) = stories.files().unwrap();
        let all = path(ALL_STORIES);
        assert_eq!(
            (train, validation),
            (vec![all.join("data01.json"), all.join("data02.json")], vec![all.join("data00.json")])
        );
        assert_eq!(DataSet::TinyStories(path(ALL_STORIES)).files(), stories.files());
    }
}
