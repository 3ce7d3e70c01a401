//! The tokenizer in a GGUF file, as the `tokenizer.json` that means the same.
//!
//! The keys are those that llama.cpp writes: `llama` is a BPE of SentencePiece, `gpt2` a BPE of bytes, whose text is
//! first split by the expression that `tokenizer.ggml.pre` names. These names stand for the tokenizers of published
//! models, whose own `tokenizer.json` has the expression.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::gguf_file::{GgufFile, GgufValue};
use crate::sentencepiece::{Algorithm, Piece, PieceKind, SentencePiece};
use crate::tokenizer_vocabulary::{Converted, added, beginning, file, of_sentencepiece};

/// The key that says what kind of tokenizer a file has.
const KIND: &str = "tokenizer.ggml.model";
const START: &str = "tokenizer.";

/// Words of one letter class, digits in threes: the one of GPT-4 and Llama 3.
const IN_THREES: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// The same with each digit alone: the one of Qwen2.
const ONE_BY_ONE: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// How text is split before the merges of a BPE of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Split {
    Gpt2,
    /// As GPT-2's, with each digit alone.
    SmolLm,
    Llama3,
    Qwen2,
}

/// The names of [`Split`]s in files.
const SPLITS: [(&str, Split); 7] = [
    ("gpt-2", Split::Gpt2),
    ("smollm", Split::SmolLm),
    ("llama-bpe", Split::Llama3),
    ("llama3", Split::Llama3),
    ("llama-v3", Split::Llama3),
    ("qwen2", Split::Qwen2),
    ("deepseek-r1-qwen", Split::Qwen2),
];

/// What keys behind `tokenizer.` begin with that change no token of a text, each with the reason.
const HARMLESS: [(&str, &str); 11] = [
    ("chat_template", "how a conversation becomes a text"),
    ("huggingface.json", "the same tokenizer in another form"),
    ("ggml.padding_token_id", "texts are not padded"),
    ("ggml.seperator_token_id", "one text at a time is encoded"),
    ("ggml.separator_token_id", "one text at a time is encoded"),
    ("ggml.add_sep_token", "one text at a time is encoded"),
    ("ggml.cls_token_id", "classifiers alone have it"),
    ("ggml.mask_token_id", "it stands for words to be guessed"),
    ("ggml.fim_", "these tokens enclose a gap in a text"),
    ("ggml.prefix_token_id", "these tokens enclose a gap in a text"),
    ("ggml.suffix_token_id", "these tokens enclose a gap in a text"),
];

/// Control tokens at which the texts of published models end, beside those that keys name.
const ENDS: [&str; 7] =
    ["<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"];

/// What a file has of a tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    /// One that [`converted`] reads.
    Read,
    /// One that it refuses.
    Refused,
    None,
}

/// What a file has of a tokenizer.
pub(crate) fn of_file(file: &GgufFile) -> Own {
    match file.keys.get(KIND) {
        None => Own::None,
        Some(_) if converted(file).is_ok() => Own::Read,
        Some(_) => Own::Refused,
    }
}

/// The `tokenizer.json` of a file, and the tokens at which its texts end.
///
/// # Errors
/// A tokenizer of another kind, and a key that is wrong, missing or not known. The message names it.
pub(crate) fn converted(file: &GgufFile) -> Result<Converted, String> {
    let keys = Keys { file, asked: std::cell::RefCell::default() };
    let vocabulary = vocabulary(&keys)?;
    let id = |name: &str| keys.id(&format!("{name}_token_id"), vocabulary.len());
    let (begin, end) = (id("bos")?, id("eos")?);
    let mut ends = vec![end, id("eot")?, id("eom")?];
    let is_end = |piece: &Piece| piece.kind == PieceKind::Control && ENDS.contains(&&*piece.text);
    ends.extend(vocabulary.iter().enumerate().filter(|(_, piece)| is_end(piece)).map(|(id, _)| Some(id)));
    if keys.flag("add_eos_token")?.unwrap_or(false) {
        return Err(format!("{START}ggml.add_eos_token is true, and nothing is added to the end of a text here"));
    }
    let json = match keys.text("model")? {
        Some("llama") => of_pieces(&keys, vocabulary, begin, end)?,
        Some("gpt2") => of_bytes(&keys, &vocabulary, begin)?,
        other => {
            let found = other.map_or("missing".to_owned(), |kind| format!("'{kind}'"));
            return Err(format!("{KIND} is {found}, expected 'llama' or 'gpt2': name the tokenizer of the model"));
        }
    };
    keys.end()?;
    let mut distinct: Vec<u32> = Vec::new();
    for id in ends.into_iter().flatten().filter_map(|id| u32::try_from(id).ok()) {
        if !distinct.contains(&id) {
            distinct.push(id);
        }
    }
    let json = serde_json::to_vec(&json).map_err(|error| error.to_string())?;
    Ok(Converted { json, ends: distinct, is_whole: true })
}

/// The keys behind `tokenizer.ggml.`, of which each is asked for, or is an error.
struct Keys<'a> {
    file: &'a GgufFile,
    asked: std::cell::RefCell<Vec<String>>,
}

impl<'a> Keys<'a> {
    fn get(&self, key: &str) -> Option<&'a GgufValue> {
        let name = format!("{START}ggml.{key}");
        let value = self.file.keys.get(&name);
        self.asked.borrow_mut().push(name);
        value
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(GgufValue::Text(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{START}ggml.{key} is no text")),
        }
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(GgufValue::Flag(flag)) => Ok(Some(*flag)),
            Some(_) => Err(format!("{START}ggml.{key} is no flag")),
        }
    }

    /// The number of a token, one of `count`.
    fn id(&self, key: &str, count: usize) -> Result<Option<usize>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(GgufValue::Integer(id)) if (0..count as i128).contains(id) => Ok(Some(*id as usize)),
            Some(other) => Err(format!("{START}ggml.{key} is {other:?}, expected one of {count} tokens")),
        }
    }

    /// A list, whose values `of` reads.
    fn list<T>(&self, key: &str, of: impl Fn(GgufValue) -> Option<T>) -> Result<Option<Vec<T>>, String> {
        let name = format!("{START}ggml.{key}");
        self.asked.borrow_mut().push(name.clone());
        self.file.list(&name, of)
    }

    /// A list of texts.
    fn texts(&self, key: &str) -> Result<Option<Vec<String>>, String> {
        self.list(key, |value| match value {
            GgufValue::Text(text) => Some(text),
            _ => None,
        })
    }

    /// An error for a key that nothing asked for, and that changes tokens as far as is known.
    fn end(&self) -> Result<(), String> {
        let asked = self.asked.borrow();
        let harmless = |key: &str| HARMLESS.iter().any(|(start, _)| key[START.len()..].starts_with(start));
        let own = self.file.keys.keys().filter(|key| key.starts_with(START));
        match own.into_iter().find(|key| !asked.contains(key) && !harmless(key)) {
            Some(key) => Err(format!("has the key {key:?}, which a tokenizer is not known to have")),
            None => Ok(()),
        }
    }
}

/// The tokens in the order of their numbers.
fn vocabulary(keys: &Keys<'_>) -> Result<Vec<Piece>, String> {
    let tokens = keys.texts("tokens")?.ok_or_else(|| format!("{START}ggml.tokens is missing"))?;
    let number = |value| match value {
        GgufValue::Number(number) => Some(number as f32),
        _ => None,
    };
    let scores = keys.list("scores", number)?;
    let kind = |value| match value {
        GgufValue::Integer(1) => Some(PieceKind::Normal),
        GgufValue::Integer(2) => Some(PieceKind::Unknown),
        GgufValue::Integer(3) => Some(PieceKind::Control),
        GgufValue::Integer(4) => Some(PieceKind::UserDefined),
        GgufValue::Integer(5) => Some(PieceKind::Padding),
        GgufValue::Integer(6) => Some(PieceKind::Byte),
        _ => None,
    };
    let kinds = keys.list("token_type", kind)?;
    for (name, length) in [("scores", scores.as_ref().map(Vec::len)), ("token_type", kinds.as_ref().map(Vec::len))] {
        if let Some(length) = length.filter(|length| *length != tokens.len()) {
            return Err(format!("{START}ggml.{name} has {length} values, expected {}, one a token", tokens.len()));
        }
    }
    let piece = |(id, text)| Piece {
        text,
        score: scores.as_ref().map_or(0.0, |scores| scores[id]),
        kind: kinds.as_ref().map_or(PieceKind::Normal, |kinds| kinds[id]),
    };
    Ok(tokens.into_iter().enumerate().map(piece).collect())
}

/// A BPE of SentencePiece. A file says less of it than a `tokenizer.model`: what is not said is as for Llama 2.
fn of_pieces(
    keys: &Keys<'_>,
    mut pieces: Vec<Piece>,
    begin: Option<usize>,
    end: Option<usize>,
) -> Result<Value, String> {
    if keys.get("precompiled_charsmap").is_some() {
        return Err(format!("{START}ggml.precompiled_charsmap is of a unigram, which is not read from here"));
    }
    // The vocabulary is not split by an expression.
    if let Some(other) = keys.text("pre")?.filter(|name| *name != "default") {
        return Err(format!("{START}ggml.pre is '{other}', expected 'default' for a vocabulary of SentencePiece"));
    }
    // Converters give the unknown token the type of all special ones.
    let unknown = keys.id("unknown_token_id", pieces.len())?.unwrap_or(0);
    if let Some(piece) = pieces.get_mut(unknown).filter(|piece| piece.kind == PieceKind::Control) {
        piece.kind = PieceKind::Unknown;
    }
    for piece in pieces.iter_mut().filter(|piece| piece.kind == PieceKind::UserDefined) {
        piece.text = piece.text.replace(' ', "▁");
    }
    order_by_merges(keys, &mut pieces)?;
    if let Some(piece) = begin.map(|id| &pieces[id]).filter(|piece| piece.kind != PieceKind::Control) {
        return Err(format!("{START}ggml.bos_token_id is {:?}, which is no control token", piece.text));
    }
    // A gemma reads a text as it is, also where its file does not say so.
    let is_gemma = keys.file.keys.get("general.architecture") == Some(&GgufValue::Text("gemma".to_owned()));
    let id = |id: Option<usize>| id.and_then(|id| i64::try_from(id).ok()).unwrap_or(-1);
    let begins = keys.flag("add_bos_token")?.unwrap_or(true);
    of_sentencepiece(&SentencePiece {
        byte_fallback: pieces.iter().any(|piece| piece.kind == PieceKind::Byte),
        pieces,
        algorithm: Algorithm::Bpe,
        begin: id(begin.filter(|_| begins)),
        end: id(end),
        charsmap: Vec::new(),
        dummy_prefix: keys.flag("add_space_prefix")?.unwrap_or(!is_gemma),
        remove_extra_whitespaces: keys.flag("remove_extra_whitespaces")?.unwrap_or(false),
    })
}

/// The order of merges is that of scores. Files of some converters have one score for all tokens, and the merges.
fn order_by_merges(keys: &Keys<'_>, pieces: &mut [Piece]) -> Result<(), String> {
    let mut normal = pieces.iter().filter(|piece| piece.kind == PieceKind::Normal).map(|piece| piece.score);
    let first = normal.next();
    if normal.any(|score| Some(score) != first) {
        // The scores say it already.
        let _ = keys.get("merges");
        return Ok(());
    }
    let merges = keys
        .texts("merges")?
        .ok_or_else(|| format!("{START}ggml.scores has no two different scores, and there is no {START}ggml.merges"))?;
    let ranks: HashMap<String, f32> =
        merges.iter().enumerate().map(|(rank, merge)| (merge.replacen(' ', "", 1), -(rank as f32))).collect();
    for piece in pieces.iter_mut() {
        piece.score = ranks.get(&piece.text).copied().unwrap_or(f32::MIN);
    }
    Ok(())
}

/// A BPE of bytes.
fn of_bytes(keys: &Keys<'_>, pieces: &[Piece], begin: Option<usize>) -> Result<Value, String> {
    let names = || SPLITS.map(|(name, _)| name).join(", ");
    let split = match keys.text("pre")? {
        Some(name) => SPLITS
            .into_iter()
            .find_map(|(own, split)| (own == name).then_some(split))
            .ok_or_else(|| format!("{START}ggml.pre is '{name}', expected one of {}", names()))?,
        // Older files do not say it, and no expression is that of all models.
        None => return Err(format!("{START}ggml.pre is missing, expected one of {}", names())),
    };
    for name in ["add_space_prefix", "remove_extra_whitespaces"] {
        if keys.flag(name)?.unwrap_or(false) {
            return Err(format!("{START}ggml.{name} is true, which a vocabulary of bytes has not"));
        }
    }
    let _ = keys.id("unknown_token_id", pieces.len())?;
    let merges = keys.texts("merges")?.ok_or_else(|| format!("{START}ggml.merges is missing"))?;
    let pair = |merge: &String| match merge.split_once(' ') {
        Some((left, right)) if !right.contains(' ') => Ok(json!([left, right])),
        _ => Err(format!("{START}ggml.merges has {merge:?}, expected two tokens with a space between them")),
    };
    let merges: Vec<Value> = merges.iter().map(pair).collect::<Result<_, _>>()?;
    let (mut known, mut own, mut tokens) = (HashMap::new(), Map::new(), Vec::new());
    for (id, piece) in pieces.iter().enumerate() {
        if let Some(first) = known.insert(&*piece.text, id) {
            return Err(format!("tokens {first} and {id} have the same text, {:?}", piece.text));
        }
        match piece.kind {
            PieceKind::Control | PieceKind::Unknown => tokens.push(added(id, &piece.text, true)),
            PieceKind::UserDefined => tokens.push(added(id, &piece.text, false)),
            _ => {}
        }
        // No merge makes a special token, wherever in the vocabulary it is.
        own.insert(piece.text.clone(), json!(id));
    }
    let bytes = |splits: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": splits });
    let by = |expression: &str| {
        let pattern = json!({ "Regex": expression });
        json!({ "type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false })
    };
    let steps = match split {
        Split::Gpt2 => vec![bytes(true)],
        Split::SmolLm => vec![json!({ "type": "Digits", "individual_digits": true }), bytes(true)],
        Split::Llama3 => vec![by(IN_THREES), bytes(false)],
        Split::Qwen2 => vec![by(ONE_BY_ONE), bytes(false)],
    };
    let normalizer = if split == Split::Qwen2 { json!({ "type": "NFC" }) } else { Value::Null };
    let begins = keys.flag("add_bos_token")?.unwrap_or(split == Split::Llama3);
    let processor = begin.filter(|_| begins).map_or(bytes(true), |id| beginning(id, &pieces[id].text));
    let model = json!({
        "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
        "ignore_merges": split == Split::Llama3, "vocab": own, "merges": merges,
    });
    let pre_tokenizer = json!({ "type": "Sequence", "pretokenizers": steps });
    Ok(file(tokens, normalizer, [pre_tokenizer, processor, bytes(true)], model))
}

#[cfg(test)]
#[path = "gguf_tokenizer_tests.rs"]
mod tests;
