//! The files of a tokenizer that go with weights into another folder.

use std::path::Path;

use fulgurite_kernels::durable;
use serde_json::Value;

use crate::tokenizer_error::TokenizerError;

/// Files of tokenizers, and the one that says where generation ends.
const FILES: [&str; 9] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "generation_config.json",
];

/// Those of them that have the tokens. The others alone are beside weights of models that have none.
const VOCABULARIES: [&str; 4] = ["tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"];

/// The configuration of a model, and the fields of it that belong to its tokenizer.
const CONFIG: &str = "config.json";
const IDS: [&str; 3] = ["bos_token_id", "eos_token_id", "pad_token_id"];

/// Copies the files of a tokenizer from the folder `from` to the folder `to`.
///
/// # Errors
/// A file that cannot be read or written, and one of `to` that has another content, or that `from` has not and that
/// would be read with what is copied: nothing is copied then.
pub fn copy(from: &Path, to: &Path) -> Result<(), TokenizerError> {
    let mut files = Vec::new();
    let has_tokens = VOCABULARIES.iter().any(|name| from.join(name).is_file());
    for name in FILES {
        let (source, target) = (from.join(name), to.join(name));
        let Some(bytes) = there(&source)? else {
            if has_tokens && target.is_file() {
                return Err(of_another(&target, from));
            }
            continue;
        };
        match there(&target)? {
            Some(old) if old != bytes => {
                let message = format!("is another one than '{}', which would take its place", source.display());
                return Err(wrong(&target, message));
            }
            Some(_) => {}
            None => files.push((target, bytes)),
        }
    }
    for (target, bytes) in files {
        durable::write(&target, &bytes).map_err(|error| wrong(&target, error))?;
    }
    Ok(())
}

/// Adds the ids at which texts begin and end to the `config.json` of `to`, where that of `from` has them.
///
/// # Errors
/// A file that cannot be read or written.
pub fn copy_ids(from: &Path, to: &Path) -> Result<(), TokenizerError> {
    let read = |path: &Path| -> Result<Option<Value>, TokenizerError> {
        let parse = |bytes: Vec<u8>| serde_json::from_slice(&bytes).map_err(|error| wrong(path, error));
        there(path)?.map(parse).transpose()
    };
    let target = to.join(CONFIG);
    let (Some(source), Some(mut file)) = (read(&from.join(CONFIG))?, read(&target)?) else { return Ok(()) };
    let Some(fields) = file.as_object_mut() else { return Ok(()) };
    let mut added = false;
    for name in IDS {
        if let Some(ids) = source.get(name).filter(|ids| !ids.is_null())
            && !fields.contains_key(name)
        {
            fields.insert(name.to_owned(), ids.clone());
            added = true;
        }
    }
    if added {
        durable::write(&target, format!("{file:#}\n").as_bytes()).map_err(|error| wrong(&target, error))?;
    }
    Ok(())
}

/// The error for a file beside a copied tokenizer that the one at `source` has not: where texts begin and end would be
/// read from it.
pub(crate) fn of_another(path: &Path, source: &Path) -> TokenizerError {
    wrong(path, format!("belongs to another tokenizer than that of '{}', which has no such file", source.display()))
}

fn there(path: &Path) -> Result<Option<Vec<u8>>, TokenizerError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrong(path, error)),
    }
}

fn wrong(path: &Path, message: impl std::fmt::Display) -> TokenizerError {
    TokenizerError::File { path: path.to_owned(), message: message.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tokenizer_is_copied_whole_or_not_at_all() {
        let [from, to] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let write = |folder: &tempfile::TempDir, name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        let text = |name: &str| std::fs::read_to_string(to.path().join(name));
        write(&from, "vocab.json", "{}");
        write(&from, "merges.txt", "a b");
        write(&from, "notes.txt", "no tokenizer");
        write(&from, CONFIG, "{\"eos_token_id\": [7, 8], \"bos_token_id\": null, \"vocab_size\": 9}");
        write(&to, "merges.txt", "other");
        let message = copy(from.path(), to.path()).unwrap_err().to_string();
        assert!(message.contains("merges.txt': is another one than"), "{message}");
        assert!(text("vocab.json").is_err());
        write(&to, "merges.txt", "a b");
        // What would be read beside it.
        for stale in ["tokenizer_config.json", "tokenizer.json", "generation_config.json"] {
            write(&to, stale, "{}");
            let message = copy(from.path(), to.path()).unwrap_err().to_string();
            let expected = format!("{stale}': belongs to another tokenizer than that of '{}'", from.path().display());
            assert!(message.contains(&expected) && text("vocab.json").is_err(), "{message}");
            std::fs::remove_file(to.path().join(stale)).unwrap();
        }
        copy(from.path(), to.path()).unwrap();
        assert_eq!(text("vocab.json").unwrap(), "{}");
        assert!(text("notes.txt").is_err() && text(CONFIG).is_err());
        // A folder without a tokenizer says nothing of the one that is there.
        copy(tempfile::tempdir().unwrap().path(), to.path()).unwrap();
        copy_ids(from.path(), to.path()).unwrap();
        assert!(text(CONFIG).is_err(), "none is made");
        write(&to, CONFIG, "{\"vocab_size\": 10}");
        copy_ids(from.path(), to.path()).unwrap();
        let file: Value = serde_json::from_str(&text(CONFIG).unwrap()).unwrap();
        assert_eq!(file, serde_json::json!({"vocab_size": 10, "eos_token_id": [7, 8]}));
    }
}
