//! Files of TinyStories: a list of objects, each with the text of a story in `story`.

use std::path::Path;

use serde::Deserialize;

use crate::corpus::CorpusError;
use crate::foreign_file;

/// A story; its source and the instructions that it was written by are not read.
#[derive(Deserialize)]
struct Story {
    story: String,
}

/// The stories of a file without white space around them, where it is one: its name ends in `.json`, and it begins with
/// a list of objects. Other files are none.
///
/// # Errors
/// A file that cannot be read, or is damaged.
pub fn read(path: &Path) -> Result<Option<Vec<String>>, CorpusError> {
    if path.extension().is_none_or(|extension| extension != "json") {
        return Ok(None);
    }
    let bytes = std::fs::read(path).map_err(|source| CorpusError::Read { path: path.to_owned(), source })?;
    if let Some(told) = foreign_file::told(&bytes) {
        return Err(CorpusError::Foreign { path: path.to_owned(), told });
    }
    let mut visible = bytes.iter().filter(|byte| !byte.is_ascii_whitespace());
    if (visible.next(), visible.next()) != (Some(&b'['), Some(&b'{')) {
        return Ok(None);
    }
    let stories: Vec<Story> = serde_json::from_slice(&bytes)
        .map_err(|error| CorpusError::Stories { path: path.to_owned(), message: error.to_string() })?;
    Ok(Some(stories.into_iter().map(|story| story.story.trim().to_owned()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_objects_is_stories_and_other_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            read(&path)
        };
        let two = "[\n {\"story\": \"\\n Once.\", \"source\": \"GPT-4\"}, {\"story\": \"Twice. \"}]";
        assert_eq!(read("a.json", two).unwrap().unwrap(), ["Once.", "Twice."]);
        assert!(read("a.txt", two).unwrap().is_none());
        for other in ["{\"story\": \"x\"}", "[1, 2]", "[]", "", "Once."] {
            assert!(read("b.json", other).unwrap().is_none(), "{other}");
        }
        for damaged in ["[{\"text\": \"x\"}]", "[{\"story\": 3}]", "[{\"story\": \"x\"}"] {
            let message = read("c.json", damaged).unwrap_err().to_string();
            assert!(message.contains("c.json' is no list of stories"), "{message}");
        }
    }
}
