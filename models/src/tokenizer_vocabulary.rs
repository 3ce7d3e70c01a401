//! Vocabularies of other files than `tokenizer.json`, as the `tokenizer.json` that means the same: SentencePiece's
//! `tokenizer.model`, and the `vocab.json` and `merges.txt` of byte-level BPE (GPT-2 and its relatives).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use base64::Engine;
use serde_json::{Map, Value, json};

use crate::sentencepiece::{self, Algorithm, Piece, PieceKind, SentencePiece};

/// The files that a folder's tokenizer may be in, the first one that is there.
const FILES: [&str; 4] = ["tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"];
/// Files of other tokenizers, which are refused where none of [`FILES`] is: those of T5 and ALBERT, XLM-R, Mistral,
/// Qwen, OpenAI, and half of a byte-level BPE.
const OTHERS: [&str; 7] = [
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "qwen.tiktoken",
    "tokenizer.tiktoken",
    "encoder.json",
    "merges.txt",
];
const MERGES: &str = "merges.txt";
/// The special token of GPT-2.
const END_OF_TEXT: &str = "<|endoftext|>";
/// What SentencePiece writes for a space.
const SPACE: &str = "▁";
/// The longest piece of BPE whose merges are looked for, in bytes: there is one for each place in it. Published models
/// have pieces of up to 100 bytes.
const LONGEST_PIECE: usize = 256;

/// The file of a folder's tokenizer, if it has one.
pub(crate) fn in_folder(folder: &Path) -> Option<PathBuf> {
    FILES.iter().chain(&OTHERS).map(|name| folder.join(name)).find(|path| path.is_file())
}

/// Whether the bytes are those of a vocabulary that [`converted`] reads, and not of a `tokenizer.json`.
pub(crate) fn is_one(path: &Path, bytes: &[u8]) -> bool {
    let named = |name: &str| path.file_name().is_some_and(|own| own == name);
    OTHERS.iter().any(|name| named(name))
        || named("vocab.json")
        || named("vocab.txt")
        || named("tokenizer.model")
        || bytes.starts_with(b"\n\x0e\n\x05<unk>")
}

/// The `tokenizer.json` that means the same as a vocabulary.
#[derive(Debug)]
pub(crate) struct Converted {
    pub json: Vec<u8>,
    /// The tokens at which texts end, if the vocabulary's own file says them.
    pub ends: Vec<u32>,
    /// Whether it has all that is known of the tokenizer, so that no file beside it is read.
    pub is_whole: bool,
}

/// The `tokenizer.json` that means the same as the file `path` of these bytes.
///
/// # Errors
/// What is wrong with the file or the ones that belong to it, and a vocabulary that is not read.
pub(crate) fn converted(path: &Path, bytes: &[u8]) -> Result<Converted, String> {
    let named = |name: &str| path.file_name().is_some_and(|own| own == name);
    let (file, end) = if named("vocab.json") {
        (byte_level(path, bytes)?, None)
    } else if named("vocab.txt") {
        return Err("is a vocabulary of WordPiece, which is not read: load it with transformers' AutoTokenizer and \
                    save it with save_pretrained, which writes a tokenizer.json"
            .into());
    } else if OTHERS.iter().any(|name| named(name)) {
        let files = FILES.join(", ");
        return Err(format!(
            "is a tokenizer's file that is not read, and none of {files} is beside it: load it with transformers' \
             AutoTokenizer and save it with save_pretrained, which writes a tokenizer.json"
        ));
    } else {
        let model = sentencepiece::parse(bytes)?;
        let control = |end: &usize| model.pieces.get(*end).is_some_and(|piece| piece.kind == PieceKind::Control);
        let end = usize::try_from(model.end).ok().filter(control);
        (of_sentencepiece(&model)?, end.and_then(|end| u32::try_from(end).ok()))
    };
    let json = serde_json::to_vec(&file).map_err(|error| error.to_string())?;
    Ok(Converted { json, ends: end.into_iter().collect(), is_whole: false })
}

/// A token that is found in text before the vocabulary is used.
pub(crate) fn added(id: usize, content: &str, special: bool) -> Value {
    json!({
        "id": id, "content": content, "special": special,
        "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
    })
}

/// The `tokenizer.json` of these parts.
pub(crate) fn file(
    added_tokens: Vec<Value>,
    normalizer: Value,
    [pre_tokenizer, processor, decoder]: [Value; 3],
    model: Value,
) -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added_tokens, "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "post_processor": processor, "decoder": decoder, "model": model,
    })
}

/// Byte-level BPE. Tokens such as `<|endoftext|>` are those of `special_tokens_map.json`, of `tokenizer_config.json`
/// and of `added_tokens.json`, or those of GPT-2 where no such file is.
fn byte_level(path: &Path, bytes: &[u8]) -> Result<Value, String> {
    let vocabulary: Map<String, Value> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let merges = path.with_file_name(MERGES);
    let text = std::fs::read_to_string(&merges).map_err(|error| format!("'{}': {error}", merges.display()))?;
    let lines =
        text.lines().enumerate().filter(|(i, line)| !line.is_empty() && (*i > 0 || !line.starts_with("#version")));
    let pair = |(i, line): (usize, &str)| match line.split_once(' ') {
        Some((left, right)) if !right.contains(' ') => Ok(json!([left, right])),
        _ => Err(format!("'{}': line {} is not two tokens with a space between them", merges.display(), i + 1)),
    };
    let merges: Vec<Value> = lines.map(pair).collect::<Result<_, String>>()?;
    let beside = |name: &str| -> Result<Value, String> {
        let path = path.with_file_name(name);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| format!("'{}': {error}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
            Err(error) => Err(format!("'{}': {error}", path.display())),
        }
    };
    let [config, map, more] =
        [beside("tokenizer_config.json")?, beside("special_tokens_map.json")?, beside("added_tokens.json")?];
    match config.get("tokenizer_class").and_then(Value::as_str) {
        None | Some("GPT2Tokenizer" | "GPT2TokenizerFast") => {}
        Some(other) => {
            return Err(format!(
                "is the vocabulary of a {other}, expected a GPT2Tokenizer's: load it with transformers' AutoTokenizer \
                 and save it with save_pretrained, which writes a tokenizer.json"
            ));
        }
    }
    let content = |value: &Value| value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_owned);
    let named = ["bos_token", "eos_token", "unk_token", "pad_token"];
    let mut special: Vec<String> = Vec::new();
    for file in [&config, &map] {
        special.extend(named.iter().filter_map(|name| content(file.get(name)?)));
        let additional = file.get("additional_special_tokens").and_then(Value::as_array);
        special.extend(additional.into_iter().flatten().filter_map(content));
    }
    let mut more: Map<String, Value> = more.as_object().cloned().unwrap_or_default();
    // The same tokens by their ids, in files of newer versions.
    for (id, token) in config.get("added_tokens_decoder").and_then(Value::as_object).into_iter().flatten() {
        let known = id.parse::<u64>().ok().zip(content(token));
        let (id, text) = known.ok_or_else(|| format!("tokenizer_config.json: the added token {id:?} is {token}"))?;
        if token.get("special").and_then(Value::as_bool).unwrap_or(false) {
            special.push(text.clone());
        }
        more.insert(text, id.into());
    }
    let id = |token: &str| more.get(token).or_else(|| vocabulary.get(token)).and_then(Value::as_u64);
    if special.is_empty() && id(END_OF_TEXT).is_some() {
        special.push(END_OF_TEXT.to_owned());
    }
    let mut tokens: Vec<(u64, String, bool)> = Vec::new();
    for token in &special {
        let id = id(token).ok_or_else(|| format!("has no id for the special token {token:?}"))?;
        tokens.push((id, token.clone(), true));
    }
    for (token, value) in &more {
        let id = value.as_u64().ok_or_else(|| format!("added_tokens.json: {token:?} has the id {value}"))?;
        tokens.push((id, token.clone(), special.contains(token)));
    }
    tokens.sort();
    tokens.dedup_by(|a, b| a.1 == b.1);
    let added = tokens.iter().map(|(id, token, special)| added(*id as usize, token, *special)).collect();
    let prefix = config.get("add_prefix_space").and_then(Value::as_bool).unwrap_or(false);
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": true });
    let model = json!({
        "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
        "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": merges,
    });
    Ok(file(added, Value::Null, [bytes.clone(), bytes.clone(), bytes], model))
}

/// What puts a token before a text.
pub(crate) fn beginning(id: usize, token: &str) -> Value {
    let begin = json!({ "SpecialToken": { "id": token, "type_id": 0 } });
    let [first, second] = ["A", "B"].map(|text| json!({ "Sequence": { "id": text, "type_id": 0 } }));
    json!({
        "type": "TemplateProcessing", "single": [begin, first], "pair": [begin, first, begin, second],
        "special_tokens": { token: { "id": token, "ids": [id], "tokens": [token] } },
    })
}

/// The `tokenizer.json` of a model of SentencePiece.
pub(crate) fn of_sentencepiece(model: &SentencePiece) -> Result<Value, String> {
    let ids: HashMap<&str, usize> = model.pieces.iter().enumerate().map(|(i, piece)| (&*piece.text, i)).collect();
    if ids.len() != model.pieces.len() {
        return Err("is damaged: two pieces have the same text".into());
    }
    let known = |id: i64| usize::try_from(id).ok().filter(|id| *id < model.pieces.len());
    let unknown = model.pieces.iter().position(|piece| piece.kind == PieceKind::Unknown);
    let unknown = unknown.ok_or("has no piece for what is unknown")?;
    check_pieces(&model.pieces)?;
    let added_tokens = model.pieces.iter().enumerate().filter_map(|(id, piece)| match piece.kind {
        PieceKind::Control | PieceKind::Unknown => Some(added(id, &piece.text, true)),
        // The library looks for these in the normalized text.
        PieceKind::UserDefined => {
            let mut token = added(id, &piece.text, false);
            token["normalized"] = json!(true);
            Some(token)
        }
        _ => None,
    });
    let replace = |pattern: &str, content: &str| {
        let pattern = json!({ "Regex": pattern });
        json!({ "type": "Replace", "pattern": pattern, "content": content })
    };
    let mut normalizers = Vec::new();
    if !model.charsmap.is_empty() {
        let rules = base64::engine::general_purpose::STANDARD.encode(&model.charsmap);
        normalizers.push(json!({ "type": "Precompiled", "precompiled_charsmap": rules }));
    }
    if model.remove_extra_whitespaces {
        // Spaces alone: a line feed stays where no rule above makes a space of it.
        normalizers.push(replace(r"\A +| +\z", ""));
        normalizers.push(replace(" {2,}", " "));
    }
    if model.dummy_prefix {
        let own = |piece: &&Piece| piece.kind == PieceKind::UserDefined;
        let own: Vec<String> = model.pieces.iter().filter(own).map(|piece| escaped(&piece.text)).collect();
        // The crate normalizes the user's pieces as it does a text. They get no prefix, and so a text that is such a
        // piece as a whole gets none either.
        normalizers.push(match own.is_empty() {
            true => json!({ "type": "Prepend", "prepend": SPACE }),
            false => replace(&format!(r"\A(?!(?:{})\z)(?=[\s\S])", own.join("|")), SPACE),
        });
    }
    normalizers.push(json!({ "type": "Replace", "pattern": { "String": " " }, "content": SPACE }));
    if model.remove_extra_whitespaces {
        normalizers.push(replace(&format!(r"{SPACE}+\z"), ""));
    }
    let mut decoders = vec![json!({ "type": "Replace", "pattern": { "String": SPACE }, "content": " " })];
    if model.byte_fallback {
        decoders.push(json!({ "type": "ByteFallback" }));
    }
    decoders.push(json!({ "type": "Fuse" }));
    // The library's prefix, or all spaces where it keeps none of a text's own at the beginning.
    let leading = if model.remove_extra_whitespaces { u32::MAX } else { u32::from(model.dummy_prefix) };
    if leading > 0 {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": leading, "stop": 0 }));
    }
    let begin = known(model.begin).filter(|id| model.pieces[*id].kind == PieceKind::Control);
    let processor = begin.map(|id| beginning(id, &model.pieces[id].text));
    let inner = match model.algorithm {
        Algorithm::Bpe => json!({
            "type": "BPE", "dropout": null, "unk_token": model.pieces[unknown].text, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": model.byte_fallback,
            "vocab": ids, "merges": merges(&model.pieces, &ids)?,
        }),
        Algorithm::Unigram => json!({
            "type": "Unigram", "unk_id": unknown, "byte_fallback": model.byte_fallback,
            "vocab": model.pieces.iter().map(|piece| json!([piece.text, f64::from(piece.score)])).collect::<Vec<_>>(),
        }),
    };
    let sequence = |kind: &str, steps: Vec<Value>| json!({ "type": "Sequence", kind: steps });
    let pre_tokenizer = match model.algorithm {
        Algorithm::Bpe => Value::Null,
        Algorithm::Unigram => apart(&model.pieces),
    };
    let normalizer = sequence("normalizers", normalizers);
    let decoder = sequence("decoders", decoders);
    Ok(file(added_tokens.collect(), normalizer, [pre_tokenizer, processor.unwrap_or_default(), decoder], inner))
}

/// Refuses pieces that the library and the crate do not treat alike.
fn check_pieces(pieces: &[Piece]) -> Result<(), String> {
    let hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
    for (id, Piece { text, kind, .. }) in pieces.iter().enumerate() {
        let wrong = match kind {
            _ if text.is_empty() => "is damaged: its text is empty",
            PieceKind::Unused => "is not used, which is not read",
            PieceKind::Control if text.chars().count() == 1 => "is of one character, which would be found in text",
            PieceKind::Byte => match text.as_bytes() {
                [b'<', b'0', b'x', high, low, b'>'] if hexadecimal(*high) && hexadecimal(*low) => continue,
                _ => "is damaged: a byte has the form <0x00>",
            },
            _ => continue,
        };
        return Err(format!("piece {id} ({text:?}) {wrong}"));
    }
    Ok(())
}

/// Splits text before the last character of what looks like a control piece, the unknown one, or a byte's. The library
/// never finds these in text; the crate's unigram looks for all pieces.
fn apart(pieces: &[Piece]) -> Value {
    let mut patterns: Vec<String> = Vec::new();
    for piece in pieces.iter().filter(|piece| matches!(piece.kind, PieceKind::Control | PieceKind::Unknown)) {
        if let Some((at, _)) = piece.text.char_indices().next_back().filter(|(at, _)| *at > 0) {
            let (start, last) = piece.text.split_at(at);
            patterns.push(format!("(?<={}){}", escaped(start), escaped(last)));
        }
    }
    if pieces.iter().any(|piece| piece.kind == PieceKind::Byte) {
        patterns.push("(?<=<0x[0-9A-F]{2})>".to_owned());
    }
    if patterns.is_empty() {
        return Value::Null;
    }
    let pattern = json!({ "Regex": patterns.join("|") });
    json!({ "type": "Split", "pattern": pattern, "behavior": "MergedWithNext", "invert": false })
}

/// The regular expression of a text.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

/// The merges of a BPE model, the first one first. Its file has scores of pieces alone: the pair that is merged is the
/// one whose whole has the highest score.
fn merges(pieces: &[Piece], ids: &HashMap<&str, usize>) -> Result<Vec<Value>, String> {
    let mut found: Vec<(f32, usize, [usize; 2], [&str; 2])> = Vec::new();
    for (id, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.kind == PieceKind::Normal) {
        if piece.text.len() > LONGEST_PIECE {
            return Err(format!("piece {id} has {} bytes, expected at most {LONGEST_PIECE}", piece.text.len()));
        }
        for (at, _) in piece.text.char_indices().skip(1) {
            let (left, right) = piece.text.split_at(at);
            if let (Some(first), Some(second)) = (ids.get(left), ids.get(right)) {
                found.push((piece.score, id, [*first, *second], [left, right]));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| (a.1, a.2).cmp(&(b.1, b.2))));
    Ok(found.into_iter().map(|(_, _, _, pair)| json!(pair)).collect())
}
