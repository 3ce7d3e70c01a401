//! Text to tokens and back, without a network: GPT-2's byte-pair encoding, plain bytes for small quick models, and the
//! tokenizers of files.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use tiktoken_rs::CoreBPE;

use crate::tokenizer_file::{self, TokenizerFile};

pub use crate::tokenizer_error::TokenizerError;

/// The longest run without a change from visible characters to white space that is encoded in one piece, in bytes.
/// Longer runs are cut: the encoder's regular expression gives up on very long ones.
const LONGEST_PIECE: usize = 1 << 16;

/// The text of GPT-2's token between documents.
const GPT2_END_OF_TEXT: &str = "<|endoftext|>";

/// How text becomes token ids. Clones share the vocabulary.
#[derive(Debug, Clone)]
pub enum Tokenizer {
    /// GPT-2's byte-pair encoding of 50 257 tokens (`r50k_base`), compiled into the program.
    Gpt2,
    /// One token a byte of UTF-8, 256 tokens.
    Bytes,
    /// Another one, from a file.
    File(Arc<TokenizerFile>),
}

impl Tokenizer {
    /// GPT-2's byte-pair encoding.
    pub const fn gpt2() -> Self {
        Tokenizer::Gpt2
    }

    /// One token a byte.
    pub const fn bytes() -> Self {
        Tokenizer::Bytes
    }

    /// The tokenizer of a stored name, which is compiled into the program.
    pub fn from_name(name: &str) -> Result<Self, TokenizerError> {
        [Tokenizer::Gpt2, Tokenizer::Bytes]
            .into_iter()
            .find(|tokenizer| tokenizer.name() == name)
            .ok_or_else(|| TokenizerError::UnknownName(name.to_owned()))
    }

    /// The tokenizer of this name, or of this file or folder: see [`TokenizerFile::load`].
    pub fn open(name: &str) -> Result<Self, TokenizerError> {
        match Tokenizer::from_name(name) {
            Err(_) if Path::new(name).exists() => Ok(Tokenizer::File(Arc::new(TokenizerFile::load(Path::new(name))?))),
            named => named.map_err(|_| TokenizerError::UnknownFile(name.to_owned())),
        }
    }

    /// Whether a name that a checkpoint stores is that of a file, which may be at another place by now: a path from the
    /// root, or of earlier versions any path of a `.json`.
    pub fn names_file(name: &str) -> bool {
        Tokenizer::from_name(name).is_err() && (Path::new(name).is_absolute() || name.ends_with(".json"))
    }

    /// The name under which the tokenizer of a checkpoint is found: where it is of a file, that of the copy beside the
    /// checkpoint's file if there is one, since the named file may have changed; otherwise the stored one.
    pub fn found(stored: String, checkpoint: &Path) -> String {
        let copy = checkpoint.with_file_name(tokenizer_file::FILE);
        match Tokenizer::names_file(&stored) && copy.is_file() {
            true => copy.display().to_string(),
            false => stored,
        }
    }

    /// Whether this is the tokenizer that a checkpoint stores as `stored`: of the same name, or of a file with the same
    /// content as the one that [`Tokenizer::found`] gives.
    pub(crate) fn is_stored_as(&self, stored: &str, checkpoint: &Path) -> bool {
        let Tokenizer::File(file) = self else { return self.name() == stored };
        let found = Tokenizer::found(stored.to_owned(), checkpoint);
        let other = TokenizerFile::load(Path::new(&found)).and_then(|other| other.json()).ok();
        let same = file.json().ok().zip(other).map(|(own, other)| own == other);
        same.unwrap_or_else(|| self.name() == stored)
    }

    /// `gpt2` or `bytes`, or the file's path from the root. Checkpoints store it.
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Tokenizer::Gpt2 => "gpt2".into(),
            Tokenizer::Bytes => "bytes".into(),
            Tokenizer::File(file) => file.path().display().to_string().into(),
        }
    }

    /// Number of ids; every id is below it.
    pub fn vocabulary(&self) -> usize {
        match self {
            Tokenizer::Gpt2 => 50_257,
            Tokenizer::Bytes => 256,
            Tokenizer::File(file) => file.vocabulary(),
        }
    }

    /// The id that is put between documents, where there is one.
    pub fn end_of_text(&self) -> Option<u32> {
        self.ends().first().copied()
    }

    /// The ids at which a text ends.
    pub fn ends(&self) -> &[u32] {
        match self {
            Tokenizer::Gpt2 => &[50_256],
            Tokenizer::Bytes => &[],
            Tokenizer::File(file) => file.ends(),
        }
    }

    /// The ids that a prompt begins with.
    pub fn begin(&self) -> &[u32] {
        match self {
            Tokenizer::Gpt2 | Tokenizer::Bytes => &[],
            Tokenizer::File(file) => file.begin(),
        }
    }

    /// Warnings about its files.
    pub fn warnings(&self) -> &[String] {
        match self {
            Tokenizer::Gpt2 | Tokenizer::Bytes => &[],
            Tokenizer::File(file) => file.warnings(),
        }
    }

    /// Token ids of a text. Special tokens in the text, such as `<|endoftext|>`, are ordinary text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        match self {
            Tokenizer::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Tokenizer::Gpt2 => {
                let encoder = gpt2_encoder()?;
                Ok(pieces(text).flat_map(|piece| encoder.encode_ordinary(piece)).collect())
            }
            Tokenizer::File(file) => file.encode(text, true),
        }
    }

    /// Token ids of a prompt: special tokens in it, such as `<|endoftext|>` or `<s>`, become one token each, and the
    /// tokens that a prompt begins with are put before it, unless it has them. `bytes` has none of either.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        match self {
            Tokenizer::Bytes => self.encode(text),
            Tokenizer::Gpt2 => {
                let mut tokens = Vec::new();
                for (index, piece) in text.split(GPT2_END_OF_TEXT).enumerate() {
                    tokens.extend(self.end_of_text().filter(|_| index > 0));
                    tokens.extend(self.encode(piece)?);
                }
                Ok(tokens)
            }
            Tokenizer::File(file) => {
                let tokens = file.encode(text, false)?;
                let begin = if tokens.starts_with(file.begin()) { &[][..] } else { file.begin() };
                Ok([begin, &tokens].concat())
            }
        }
    }

    /// The bytes of token ids; `<|endoftext|>` of `gpt2` gives its own name. A file's special tokens give nothing, and
    /// its tokens that split a character U+FFFD.
    pub fn decode_bytes(&self, tokens: &[u32]) -> Result<Vec<u8>, TokenizerError> {
        let vocabulary = self.vocabulary();
        if let Some((index, &id)) = tokens.iter().enumerate().find(|&(_, &id)| id as usize >= vocabulary) {
            let tokenizer = self.name().into_owned();
            return Err(TokenizerError::UnknownToken { tokenizer, index, id, vocabulary });
        }
        match self {
            Tokenizer::Bytes => Ok(tokens.iter().map(|&id| id as u8).collect()),
            Tokenizer::Gpt2 => {
                gpt2_encoder()?.decode_bytes(tokens).map_err(|error| TokenizerError::Vocabulary(format!("{error:?}")))
            }
            Tokenizer::File(file) => Ok(file.decode(tokens)?.into_bytes()),
        }
    }

    /// The text of token ids. Tokens may split a character, so incomplete UTF-8 becomes U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TokenizerError> {
        Ok(String::from_utf8_lossy(&self.decode_bytes(tokens)?).into_owned())
    }
}

fn gpt2_encoder() -> Result<&'static CoreBPE, TokenizerError> {
    static ENCODER: OnceLock<Result<CoreBPE, String>> = OnceLock::new();
    ENCODER
        .get_or_init(|| tiktoken_rs::r50k_base().map_err(|error| error.to_string()))
        .as_ref()
        .map_err(|error| TokenizerError::Vocabulary(error.clone()))
}

/// Cuts a text into stretches of about [`LONGEST_PIECE`] bytes that encode independently: no token of GPT-2 goes from a
/// visible character on to white space. Where a stretch has no such place, it is cut between two characters, which
/// still decodes to the same text.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(cut(rest));
        rest = after;
        Some(piece)
    })
}

fn cut(text: &str) -> usize {
    if text.len() <= LONGEST_PIECE {
        return text.len();
    }
    let limit = text.floor_char_boundary(LONGEST_PIECE);
    let mut after_white = true;
    let mut best = None;
    for (index, character) in text.char_indices().take_while(|&(index, _)| index <= limit) {
        let white = character.is_whitespace();
        if white && !after_white {
            best = Some(index);
        }
        after_white = white;
    }
    best.unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streaming::StreamingDecoder;

    #[test]
    fn gpt2_gives_the_known_ids() {
        let gpt2 = Tokenizer::gpt2();
        assert_eq!(gpt2.encode("Hello, world!").unwrap(), [15496, 11, 995, 0]);
        assert_eq!(gpt2.encode("").unwrap(), [0u32; 0]);
        assert_eq!(gpt2.decode(&[15496, 11, 995, 0]).unwrap(), "Hello, world!");
        assert_eq!(gpt2.decode(&[50_256]).unwrap(), "<|endoftext|>");
        assert_eq!(gpt2.encode("<|endoftext|>").unwrap().len(), 7);
        let prompt = "<|endoftext|>Hello<|endoftext|>, world!<|endoftext|>";
        assert_eq!(gpt2.encode_prompt(prompt).unwrap(), [50_256, 15496, 50_256, 11, 995, 0, 50_256]);
        assert_eq!(gpt2.encode_prompt("<|endoftext>").unwrap(), gpt2.encode("<|endoftext>").unwrap());
        assert_eq!(gpt2.encode_prompt("").unwrap(), [0u32; 0]);
    }

    #[test]
    fn every_id_decodes_and_none_beyond() {
        for tokenizer in [Tokenizer::Gpt2, Tokenizer::Bytes] {
            assert_eq!(Tokenizer::from_name(&tokenizer.name()).unwrap().name(), tokenizer.name());
            let vocabulary = tokenizer.vocabulary();
            for id in 0..vocabulary as u32 {
                assert!(!tokenizer.decode_bytes(&[id]).unwrap().is_empty());
            }
            let error = tokenizer.decode(&[0, vocabulary as u32]).unwrap_err();
            assert!(matches!(error, TokenizerError::UnknownToken { index: 1, .. }), "{error}");
        }
        assert!(Tokenizer::from_name("words").is_err());
    }

    #[test]
    fn partial_characters_are_lossy_and_streaming_waits() {
        let text = "naïve 🦀 日本";
        for tokenizer in [Tokenizer::Gpt2, Tokenizer::Bytes] {
            let tokens = tokenizer.encode(text).unwrap();
            assert_eq!(tokenizer.decode(&tokens).unwrap(), text);
            let mut decoder = StreamingDecoder::after(tokenizer.clone(), &[]).unwrap();
            let streamed: String = tokens.iter().map(|&token| decoder.push(token).unwrap()).collect();
            assert_eq!(streamed + &decoder.finish(), text);
        }
        assert_eq!(Tokenizer::Bytes.decode(&[0xF0, 0x9F]).unwrap(), "\u{FFFD}");
        let mut decoder = StreamingDecoder::after(Tokenizer::Bytes, &[]).unwrap();
        let pushed: Vec<String> = [0xF0, 0x41, 0x9F].iter().map(|&byte| decoder.push(byte).unwrap()).collect();
        assert_eq!(pushed, ["", "\u{FFFD}A", "\u{FFFD}"]);
        assert_eq!(decoder.finish(), "");
    }

    #[test]
    fn cutting_changes_no_token_of_ordinary_text() {
        let text = crate::corpus::TINY_SHAKESPEARE;
        let gpt2 = Tokenizer::gpt2();
        let tokens = gpt2.encode(text).unwrap();
        assert_eq!(tokens, gpt2_encoder().unwrap().encode_ordinary(text));
        assert_eq!(tokens.len(), 338_025);
        assert_eq!(gpt2.decode(&tokens).unwrap(), text);
    }

    #[test]
    fn endless_runs_neither_panic_nor_lose_text() {
        for run in [" ", "a", "\n", "é", "\u{3000}", "'", "a1"] {
            let text = run.repeat(1_500_000) + "x";
            let tokens = Tokenizer::Gpt2.encode(&text).unwrap();
            assert!(Tokenizer::Gpt2.decode(&tokens).unwrap() == text, "a run of {run:?}");
        }
    }
}
