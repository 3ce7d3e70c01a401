//! Tokenizers of others: `tokenizer.json` as Hugging Face's `tokenizers` writes it, and what the files beside it say of
//! the beginning and the end of a text.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use fulgurite_kernels::durable;
use serde_json::{Value, json};
use tokenizers::Normalizer as _;

use crate::foreign_file;
use crate::gguf_file::{self, GgufFile};
use crate::gguf_tokenizer;
use crate::tokenizer_copy;
use crate::tokenizer_error::TokenizerError;
use crate::tokenizer_vocabulary::{self as vocabulary, Converted};

/// The file of a tokenizer.
pub const FILE: &str = "tokenizer.json";

/// The files beside it that say where texts begin and end.
const BESIDE: [&str; 3] = ["tokenizer_config.json", GENERATION, MODEL];
const GENERATION: &str = "generation_config.json";
const MODEL: &str = "config.json";

/// A tokenizer that was read from a `tokenizer.json`, or from the files of a vocabulary.
#[derive(Debug)]
pub struct TokenizerFile {
    path: PathBuf,
    tokenizer: tokenizers::Tokenizer,
    /// The same for text whose special tokens are plain text.
    plain: OnceLock<tokenizers::Tokenizer>,
    vocabulary: usize,
    begin: Vec<u32>,
    ends: Vec<u32>,
    warnings: Vec<String>,
    /// What means the same as the vocabulary it was read from.
    converted: Option<Converted>,
}

impl TokenizerFile {
    /// Reads a `tokenizer.json`, SentencePiece's `tokenizer.model`, or `vocab.json` with `merges.txt`, or the first of
    /// these that a folder has, and the `tokenizer_config.json`, `generation_config.json` and
    /// `config.json` that are beside it. Of a GGUF file it reads the tokenizer, and nothing beside it.
    ///
    /// - A prompt begins with the tokens that the file's own post-processor puts before a text, unless `add_bos_token`
    ///   of `tokenizer_config.json` is false; if that is true, with its `bos_token`.
    /// - A text ends at each `eos_token_id` of `generation_config.json`, or else of `config.json`, or else at the
    ///   `eos_token` of `tokenizer_config.json`.
    ///
    /// An id beyond the tokenizer's is a [warning](TokenizerFile::warnings): no text ends there, and files that others
    /// read have such.
    ///
    /// # Errors
    /// A file that cannot be read or is damaged, and a field of another type or with a token that the tokenizer does
    /// not have. Each names the file.
    pub fn load(path: &Path) -> Result<Self, TokenizerError> {
        let of_folder = |folder: &Path| vocabulary::in_folder(folder).unwrap_or_else(|| folder.join(FILE));
        let path = if path.is_dir() { of_folder(path) } else { path.to_owned() };
        if gguf_file::is_one(&path) {
            return TokenizerFile::of_gguf(&path);
        }
        let mut bytes = std::fs::read(&path).map_err(|error| in_file(&path, error))?;
        let mut converted = None;
        if vocabulary::is_one(&path, &bytes) {
            let made = vocabulary::converted(&path, &bytes).map_err(|error| in_file(&path, error))?;
            bytes.clone_from(&made.json);
            converted = Some(made);
        } else if let Some(told) = foreign_file::told(&bytes) {
            return Err(in_file(&path, told));
        }
        let mut read = TokenizerFile::parse(&bytes).map_err(|error| in_file(&path, error))?;
        if converted.is_some() {
            check_kept(&read.tokenizer).map_err(|error| in_file(&path, error))?;
        }
        let beside = |name: &str| Neighbour::open(path.with_file_name(name));
        let [config, generation, model] = BESIDE.map(beside);
        let config = config?;
        read.begin = read.beginning(&config)?;
        for neighbour in [generation?, model?] {
            if read.ends.is_empty() {
                let (ids, warning) = neighbour.ids("eos_token_id", read.vocabulary)?;
                read.ends = ids;
                read.warnings.extend(warning);
            }
        }
        if read.ends.is_empty() {
            read.ends.extend(config.token("eos_token", &read)?);
        }
        if read.ends.is_empty() {
            read.ends.extend(converted.iter().flat_map(|converted| &converted.ends));
        }
        // Of every folder that a checkpoint with this name is read in.
        read.path = std::path::absolute(&path).map_err(|error| in_file(&path, error))?;
        read.converted = converted;
        Ok(read)
    }

    /// The tokenizer in a file of weights.
    fn of_gguf(path: &Path) -> Result<Self, TokenizerError> {
        let wrong = |message: String| in_file(path, message);
        let file = GgufFile::open(path).map_err(wrong)?;
        let converted = gguf_tokenizer::converted(&file).map_err(wrong)?;
        let mut read = TokenizerFile::parse(&converted.json).map_err(wrong)?;
        check_kept(&read.tokenizer).map_err(wrong)?;
        read.ends.clone_from(&converted.ends);
        read.path = std::path::absolute(path).map_err(|error| in_file(path, error))?;
        read.converted = Some(converted);
        Ok(read)
    }

    /// Reads the bytes of a `tokenizer.json` alone. The message says what is wrong with them.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        // The crate's parsers check little of what belongs together, and index by it.
        let tokenizer = guarded(|| tokenizers::Tokenizer::from_bytes(bytes))?;
        let mut tokenizer = tokenizer.map_err(|error| error.to_string())?;
        // Lengths are the caller's concern.
        let truncation = tokenizer.with_truncation(None).map(drop);
        truncation.map_err(|error| error.to_string())?;
        tokenizer.with_padding(None);
        check_added(&tokenizer)?;
        check_ids(&tokenizer, bytes)?;
        let vocabulary = tokenizer.get_vocab(true).into_values().max().map_or(0, |largest| largest as usize + 1);
        if vocabulary == 0 {
            return Err("has no tokens".to_owned());
        }
        let path = PathBuf::from(FILE);
        let mut read = TokenizerFile {
            path,
            tokenizer,
            plain: OnceLock::new(),
            vocabulary,
            begin: Vec::new(),
            ends: Vec::new(),
            warnings: Vec::new(),
            converted: None,
        };
        read.begin = read.processed_beginning()?;
        Ok(read)
    }

    /// Writes the tokenizer, and the files beside it that were read with it, into another folder. `replace` is whether
    /// other files of these names there are replaced, and those that it has not are removed, since they would be read
    /// with it.
    ///
    /// # Errors
    /// A file that cannot be read or written, and another one of its name that is not to be replaced; it is named.
    pub fn copy_to(&self, folder: &Path, replace: bool) -> Result<(), TokenizerError> {
        let (mut files, mut stale) = (Vec::new(), Vec::new());
        let own = self.files()?;
        for name in BESIDE.iter().filter(|name| own.iter().all(|(own, _)| own != *name)) {
            let path = folder.join(name);
            match path.is_file() {
                true if replace => stale.push(path),
                // The model's own, which is written after the tokenizer.
                true if *name != MODEL => return Err(tokenizer_copy::of_another(&path, &self.path)),
                _ => {}
            }
        }
        // Another one that is there is an error before anything is written.
        for (name, bytes) in own {
            let to = folder.join(name);
            let there = std::fs::read(&to);
            if there.as_ref().is_ok_and(|there| *there == bytes) {
                continue;
            }
            if there.is_ok() && !replace {
                let message =
                    format!("is another one than that of '{}', which would take its place", self.path.display());
                return Err(in_file(&to, message));
            }
            files.push((to, bytes));
        }
        for path in stale {
            std::fs::remove_file(&path).map_err(|error| in_file(&path, error))?;
        }
        for (to, bytes) in files {
            durable::write(&to, &bytes).map_err(|error| in_file(&to, error))?;
        }
        Ok(())
    }

    /// The bytes of its `tokenizer.json`, or of the one that means the same.
    pub(crate) fn json(&self) -> Result<Vec<u8>, TokenizerError> {
        match &self.converted {
            Some(converted) => Ok(converted.json.clone()),
            None => std::fs::read(&self.path).map_err(|error| in_file(&self.path, error)),
        }
    }

    /// The names and bytes of its files: those that it was read from, or for a GGUF files that say the same.
    fn files(&self) -> Result<Vec<(&'static str, Vec<u8>)>, TokenizerError> {
        let mut files = vec![(FILE, self.json()?)];
        if let Some(converted) = self.converted.as_ref().filter(|converted| converted.is_whole) {
            if !converted.ends.is_empty() {
                let ends = format!("{:#}\n", json!({ "eos_token_id": converted.ends }));
                files.push((GENERATION, ends.into_bytes()));
            }
            return Ok(files);
        }
        for name in BESIDE {
            let from = self.path.with_file_name(name);
            match std::fs::read(&from) {
                Ok(bytes) => files.push((name, bytes)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(in_file(&from, error)),
            }
        }
        Ok(files)
    }

    /// Where it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of ids: one more than the largest.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The tokens that a prompt begins with.
    pub fn begin(&self) -> &[u32] {
        &self.begin
    }

    /// The tokens at which a text ends.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Warnings about the files beside it, each with the file's name.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Token ids of a text. Special tokens in it become one token each, or plain text if `plain`; added tokens that are
    /// not special become one token in both cases. Nothing is added at the beginning or the end.
    pub fn encode(&self, text: &str, plain: bool) -> Result<Vec<u32>, TokenizerError> {
        let tokenizer = match plain {
            false => &self.tokenizer,
            true => self.plain.get_or_init(|| {
                let mut plain = self.tokenizer.clone();
                plain.set_encode_special_tokens(true);
                plain
            }),
        };
        encoded(tokenizer, text, false).map_err(|error| in_file(&self.path, error))
    }

    /// The text of token ids without special tokens. Ids that no token has give nothing.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TokenizerError> {
        let decoded = guarded(|| self.tokenizer.decode(tokens, true).map_err(|error| error.to_string()));
        decoded.flatten().map_err(|error| in_file(&self.path, error))
    }

    /// What the post-processor puts before a text.
    fn processed_beginning(&self) -> Result<Vec<u32>, String> {
        let [alone, processed] = [false, true].map(|processed| encoded(&self.tokenizer, "a", processed));
        let (alone, processed) = (alone?, processed?);
        let start = processed.windows(alone.len().max(1)).position(|window| window == alone).unwrap_or(0);
        Ok(processed[..start].to_vec())
    }

    fn beginning(&self, config: &Neighbour) -> Result<Vec<u32>, TokenizerError> {
        match config.flag("add_bos_token")? {
            Some(false) => Ok(Vec::new()),
            Some(true) if self.begin.is_empty() => Ok(config.token("bos_token", self)?.into_iter().collect()),
            _ => Ok(self.begin.clone()),
        }
    }
}

fn encoded(tokenizer: &tokenizers::Tokenizer, text: &str, processed: bool) -> Result<Vec<u32>, String> {
    let encoding = guarded(|| tokenizer.encode_fast(text, processed).map_err(|error| error.to_string()));
    Ok(encoding.flatten()?.get_ids().to_vec())
}

/// The added tokens that are looked for in normalized text, each with what its own text then is.
fn normalized_tokens(tokenizer: &tokenizers::Tokenizer) -> Result<Vec<(String, String)>, String> {
    let tokens = tokenizer.get_added_tokens_decoder().into_values().filter(|token| token.normalized);
    let normalized = |content: String| {
        let mut text = tokenizers::NormalizedString::from(content.as_str());
        if let Some(normalizer) = tokenizer.get_normalizer() {
            guarded(|| normalizer.normalize(&mut text).map_err(|error| error.to_string())).flatten()?;
        }
        Ok((content, text.get().to_owned()))
    };
    tokens.map(|token| normalized(token.content)).collect()
}

/// Refuses added tokens that the crate gives other ids than the file: it numbers them behind the vocabulary.
fn check_ids(tokenizer: &tokenizers::Tokenizer, bytes: &[u8]) -> Result<(), String> {
    #[derive(serde::Deserialize)]
    struct Added {
        id: u32,
        content: String,
    }
    #[derive(serde::Deserialize)]
    struct File {
        #[serde(default)]
        added_tokens: Vec<Added>,
    }
    let file: File = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    for Added { id, content } in file.added_tokens {
        let given = tokenizer.token_to_id(&content);
        if given != Some(id) {
            let given = given.map_or("none".to_owned(), |given| given.to_string());
            return Err(format!(
                "the added token {content:?} has the id {id}, expected {given}, the next one behind the vocabulary"
            ));
        }
    }
    Ok(())
}

/// Refuses an added token that no text is left of: the crate finds it everywhere, until memory ends.
fn check_added(tokenizer: &tokenizers::Tokenizer) -> Result<(), String> {
    match normalized_tokens(tokenizer)?.into_iter().find(|(_, normalized)| normalized.is_empty()) {
        Some((content, _)) => Err(format!("the added token {content:?} is empty once it is normalized")),
        None => Ok(()),
    }
}

/// Refuses a piece of SentencePiece's that normalization would change, as the library does not.
fn check_kept(tokenizer: &tokenizers::Tokenizer) -> Result<(), String> {
    match normalized_tokens(tokenizer)?.into_iter().find(|(content, normalized)| content != normalized) {
        Some((content, normalized)) => Err(format!(
            "the user-defined piece {content:?} becomes {normalized:?} by the rules of normalization, which is not read"
        )),
        None => Ok(()),
    }
}

/// What `f` returns; its panic as a message.
fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|_| "is damaged: its parts do not belong together".to_owned())
}

fn in_file(path: &Path, message: impl std::fmt::Display) -> TokenizerError {
    TokenizerError::File { path: path.to_owned(), message: message.to_string() }
}

/// A JSON file beside a tokenizer; without fields if there is none.
struct Neighbour {
    path: PathBuf,
    fields: Value,
}

impl Neighbour {
    fn open(path: PathBuf) -> Result<Self, TokenizerError> {
        let fields = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| in_file(&path, error))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Value::Null,
            Err(error) => return Err(in_file(&path, error)),
        };
        Ok(Neighbour { path, fields })
    }

    /// A field that is there and not null.
    fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn wrong(&self, name: &str, value: &Value, expected: &str) -> TokenizerError {
        in_file(&self.path, format!("{name} is {value}, expected {expected}"))
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, TokenizerError> {
        let read = |value: &Value| value.as_bool().ok_or_else(|| self.wrong(name, value, "true or false"));
        self.get(name).map(read).transpose()
    }

    /// One id or several, without those that the tokenizer does not have, of which there is a warning.
    fn ids(&self, name: &str, vocabulary: usize) -> Result<(Vec<u32>, Option<String>), TokenizerError> {
        let Some(value) = self.get(name) else { return Ok((Vec::new(), None)) };
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids: Option<Vec<u32>> = match value {
            Value::Array(values) => values.iter().map(id).collect(),
            value => id(value).map(|id| vec![id]),
        };
        let ids = ids.ok_or_else(|| self.wrong(name, value, &format!("ids of the tokenizer's {vocabulary}")))?;
        let (known, beyond): (Vec<u32>, Vec<u32>) = ids.into_iter().partition(|id| (*id as usize) < vocabulary);
        let warning = (!beyond.is_empty()).then(|| {
            let path = self.path.display();
            format!("'{path}': {name} is {value}, but the tokenizer has {vocabulary} ids: no text ends at {beyond:?}")
        });
        Ok((known, warning))
    }

    /// The id of a token that is given as a text, or as an object with its text.
    fn token(&self, name: &str, of: &TokenizerFile) -> Result<Option<u32>, TokenizerError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let text = value.as_str().or_else(|| value.get("content")?.as_str());
        let id = text.and_then(|text| of.tokenizer.token_to_id(text));
        id.map(Some).ok_or_else(|| self.wrong(name, value, "a token of the tokenizer"))
    }
}

#[cfg(test)]
#[path = "tokenizer_file_tests.rs"]
mod tests;
