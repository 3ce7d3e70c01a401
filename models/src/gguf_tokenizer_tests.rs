use std::path::{Path, PathBuf};

use crate::sentencepiece;
use crate::tokenizer::Tokenizer;
use crate::tokenizer_file::TokenizerFile;

use super::*;

/// The keys of a file without tensors.
#[derive(Clone, Default)]
struct Written {
    keys: Vec<(String, u32, Vec<u8>)>,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Written {
    fn set(&mut self, key: &str, kind: u32, value: &[u8]) {
        let key = format!("tokenizer.{key}");
        self.keys.retain(|(own, ..)| *own != key);
        self.keys.push((key, kind, value.to_vec()));
    }

    fn list(&mut self, key: &str, kind: u32, values: &[Vec<u8>]) {
        let count = (values.len() as u64).to_le_bytes();
        self.set(key, 9, &[&kind.to_le_bytes()[..], &count, &values.concat()].concat());
    }

    fn at(&self, path: &Path) -> PathBuf {
        let mut bytes = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        bytes.extend((self.keys.len() as u64).to_le_bytes());
        for (key, kind, value) in &self.keys {
            bytes.extend([text(key), kind.to_le_bytes().to_vec(), value.clone()].concat());
        }
        std::fs::write(path, bytes).unwrap();
        path.to_owned()
    }
}

/// A file that `tests/golden/tokenizer_files.py` wrote.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/tokenizer_files").join(name)
}

/// The vocabulary of SentencePiece's file, with two tokens of padding.
fn of_pieces() -> Written {
    let model = sentencepiece::parse(&std::fs::read(golden("bpe/tokenizer.model")).unwrap()).unwrap();
    let mut file = Written::default();
    let kinds = model.pieces.iter().map(|piece| match piece.kind {
        PieceKind::Normal => 1i32,
        PieceKind::Unknown => 2,
        PieceKind::Control => 3,
        PieceKind::UserDefined => 4,
        PieceKind::Unused | PieceKind::Padding => 5,
        PieceKind::Byte => 6,
    });
    let padding = ["[PAD0]", "[PAD1]"];
    let texts = model.pieces.iter().map(|piece| text(&piece.text)).chain(padding.map(text));
    let scores = model.pieces.iter().map(|piece| piece.score).chain([0.0; 2]);
    file.set("ggml.model", 8, &text("llama"));
    file.list("ggml.tokens", 8, &texts.collect::<Vec<_>>());
    file.list("ggml.scores", 6, &scores.map(|score| score.to_le_bytes().to_vec()).collect::<Vec<_>>());
    file.list("ggml.token_type", 5, &kinds.chain([5; 2]).map(|kind| kind.to_le_bytes().to_vec()).collect::<Vec<_>>());
    file.set("ggml.bos_token_id", 4, &(model.begin as u32).to_le_bytes());
    file.set("ggml.eos_token_id", 4, &(model.end as u32).to_le_bytes());
    file.set("ggml.unknown_token_id", 4, &0u32.to_le_bytes());
    file.set("ggml.add_space_prefix", 7, &[u8::from(model.dummy_prefix)]);
    file.set("ggml.remove_extra_whitespaces", 7, &[u8::from(model.remove_extra_whitespaces)]);
    file.set("chat_template", 8, &text("{{ messages }}"));
    file
}

/// The vocabulary of a `tokenizer.json` with the expression of Llama 3.
fn of_bytes() -> Written {
    let json: Value = serde_json::from_slice(&std::fs::read(golden("byte_level/tokenizer.json")).unwrap()).unwrap();
    let mut tokens = std::collections::BTreeMap::new();
    for (token, id) in json["model"]["vocab"].as_object().unwrap() {
        tokens.insert(id.as_u64().unwrap(), (token.clone(), 1i32));
    }
    for token in json["added_tokens"].as_array().unwrap() {
        tokens.insert(token["id"].as_u64().unwrap(), (token["content"].as_str().unwrap().to_owned(), 3));
    }
    let merges = json["model"]["merges"].as_array().unwrap().iter();
    let merges = merges.map(|pair| text(&format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap())));
    let id = |name: &str| *tokens.iter().find(|(_, (token, _))| token == name).unwrap().0 as u32;
    let mut file = Written::default();
    file.set("ggml.model", 8, &text("gpt2"));
    file.set("ggml.pre", 8, &text("llama-bpe"));
    file.list("ggml.tokens", 8, &tokens.values().map(|(token, _)| text(token)).collect::<Vec<_>>());
    let kinds = tokens.values().map(|(_, kind)| kind.to_le_bytes().to_vec());
    file.list("ggml.token_type", 5, &kinds.collect::<Vec<_>>());
    file.list("ggml.merges", 8, &merges.collect::<Vec<_>>());
    file.set("ggml.bos_token_id", 4, &id("<|begin_of_text|>").to_le_bytes());
    file.set("ggml.eos_token_id", 4, &id("<|end_of_text|>").to_le_bytes());
    file.set("ggml.eot_token_id", 4, &id("<|eot_id|>").to_le_bytes());
    file
}

/// Texts with words, digits, spaces, line feeds, other scripts, special tokens, and what no piece has.
const TEXTS: [&str; 10] = [
    "",
    "The cat sat on the mat.",
    "  two  spaces, and a tab\t ",
    "line\n\nfeeds\r\n",
    "12345 67.89, they'll it's I'D",
    "naïve café – 東京 🦊",
    "e\u{301}",
    "<s>text</s><|begin_of_text|>more<|eot_id|>",
    "[PAD0] <0x0A> <unk>",
    "x\u{0}y",
];

#[test]
fn tokens_are_those_of_the_files_that_the_vocabulary_is_from() {
    let folder = tempfile::tempdir().unwrap();
    for (name, file) in [("bpe/tokenizer.model", of_pieces()), ("byte_level/tokenizer.json", of_bytes())] {
        let path = file.at(&folder.path().join("model.gguf"));
        let [own, expected] = [&path, &golden(name)].map(|path| Tokenizer::open(path.to_str().unwrap()).unwrap());
        assert_eq!(own.begin(), expected.begin(), "{name}");
        for text in TEXTS {
            let tokens = expected.encode_prompt(text).unwrap();
            assert_eq!(own.encode_prompt(text).unwrap(), tokens, "{name}: {text:?}");
            assert_eq!(own.encode(text).unwrap(), expected.encode(text).unwrap(), "{name}: {text:?}");
            assert_eq!(own.decode(&tokens).unwrap(), expected.decode(&tokens).unwrap(), "{name}: {text:?}");
        }
        // What is copied is the same tokenizer, without the file of weights.
        let to = tempfile::tempdir().unwrap();
        TokenizerFile::load(&path).unwrap().copy_to(to.path(), false).unwrap();
        let copied = Tokenizer::open(to.path().to_str().unwrap()).unwrap();
        assert_eq!((copied.begin(), copied.ends()), (own.begin(), own.ends()), "{name}");
        assert_eq!(copied.encode_prompt(TEXTS[7]).unwrap(), own.encode_prompt(TEXTS[7]).unwrap(), "{name}");
        assert!(own.is_stored_as(&path.display().to_string(), &to.path().join("checkpoint.safetensors")), "{name}");
    }
}

/// Files beside a tokenizer say where texts begin and end: those of another one must not stay beside a copy.
#[test]
fn a_copy_has_no_files_of_another_tokenizer_beside_it() {
    let [from, to] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let path = of_bytes().at(&from.path().join("model.gguf"));
    let own = TokenizerFile::load(&path).unwrap();
    let at = |name: &str| to.path().join(name);
    std::fs::write(at("tokenizer_config.json"), "{\"add_bos_token\": false}").unwrap();
    let message = own.copy_to(to.path(), false).unwrap_err().to_string();
    assert!(message.contains("tokenizer_config.json': belongs to another tokenizer than that of"), "{message}");
    assert!(!at("tokenizer.json").exists(), "nothing is written");
    // The configuration of a model is written with its weights.
    std::fs::remove_file(at("tokenizer_config.json")).unwrap();
    std::fs::write(at("config.json"), "{}").unwrap();
    own.copy_to(to.path(), false).unwrap();
    std::fs::write(at("tokenizer_config.json"), "{\"add_bos_token\": false}").unwrap();
    own.copy_to(to.path(), true).unwrap();
    let copied = TokenizerFile::load(to.path()).unwrap();
    assert_eq!((copied.begin(), copied.ends()), (own.begin(), own.ends()));
    assert!(!at("tokenizer_config.json").exists() && !at("config.json").exists());
}

#[test]
fn texts_end_where_the_file_says() {
    let folder = tempfile::tempdir().unwrap();
    let ends = |file: &Written| {
        let path = file.at(&folder.path().join("model.gguf"));
        Tokenizer::open(path.to_str().unwrap()).unwrap().ends().to_vec()
    };
    assert_eq!(ends(&of_bytes()), [401, 402]);
    assert_eq!(ends(&of_pieces()), [2]);
    let mut one = of_bytes();
    one.set("ggml.eot_token_id", 4, &401u32.to_le_bytes());
    assert_eq!(ends(&one), [401, 402], "a control token of this name is an end as well");
}

/// Files differ in where special tokens are, what their types are, and what is beside them.
#[test]
fn files_of_other_converters_are_the_same_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let opened = |file: &Written| Tokenizer::open(file.at(&folder.path().join("model.gguf")).to_str().unwrap());
    let [pieces, bytes] = [of_pieces(), of_bytes()].map(|file| opened(&file).unwrap());
    let kinds = |file: &Written| {
        let (.., value) = file.keys.iter().find(|(key, ..)| key == "tokenizer.ggml.token_type").unwrap();
        value[12..].as_chunks::<4>().0.iter().map(|kind| kind.to_vec()).collect::<Vec<_>>()
    };
    // The unknown token is a control token.
    let mut other = of_pieces();
    let mut own = kinds(&other);
    own[0] = 3i32.to_le_bytes().to_vec();
    other.list("ggml.token_type", 5, &own);
    other.set("ggml.add_sep_token", 7, &[0]);
    other.set("huggingface.json", 8, &text("{}"));
    other.list("ggml.merges", 8, &[text("a b")]);
    for text in TEXTS {
        let found = opened(&other).unwrap().encode_prompt(text).unwrap();
        assert_eq!(found, pieces.encode_prompt(text).unwrap(), "{text:?}");
    }
    // One score for all tokens, and the merges by their order.
    let model = sentencepiece::parse(&std::fs::read(golden("bpe/tokenizer.model")).unwrap()).unwrap();
    let mut flat = of_pieces();
    flat.list("ggml.scores", 6, &vec![(-1000.0f32).to_le_bytes().to_vec(); kinds(&flat).len()]);
    let message = opened(&flat).unwrap_err().to_string();
    assert!(message.contains("scores has no two different scores, and there is no tokenizer.ggml.merges"), "{message}");
    let known: std::collections::HashSet<&str> = model.pieces.iter().map(|piece| &*piece.text).collect();
    let mut merged: Vec<&Piece> = model.pieces.iter().filter(|piece| piece.kind == PieceKind::Normal).collect();
    merged.sort_by(|a, b| b.score.total_cmp(&a.score));
    let merges = merged.iter().filter_map(|piece| {
        let mut places = piece.text.char_indices().skip(1).map(|(at, _)| piece.text.split_at(at));
        places.find(|(left, right)| known.contains(left) && known.contains(right))
    });
    let merges: Vec<Vec<u8>> = merges.map(|(left, right)| text(&format!("{left} {right}"))).collect();
    flat.list("ggml.merges", 8, &merges);
    for text in TEXTS {
        let found = opened(&flat).unwrap().encode_prompt(text).unwrap();
        assert_eq!(found, pieces.encode_prompt(text).unwrap(), "{text:?}");
    }
    // Tokens that fill the vocabulary up come after the special ones.
    let mut padded = of_bytes();
    let json: Value = serde_json::from_slice(&std::fs::read(golden("byte_level/tokenizer.json")).unwrap()).unwrap();
    let mut tokens = vec![String::new(); 403];
    json["model"]["vocab"].as_object().unwrap().iter().for_each(|(token, id)| {
        tokens[id.as_u64().unwrap() as usize] = token.clone();
    });
    for token in json["added_tokens"].as_array().unwrap() {
        tokens[token["id"].as_u64().unwrap() as usize] = token["content"].as_str().unwrap().to_owned();
    }
    tokens.extend(["[PAD403]", "[PAD404]"].map(str::to_owned));
    let mut types = kinds(&padded);
    types.extend([5i32; 2].map(|kind| kind.to_le_bytes().to_vec()));
    let write = |file: &mut Written, tokens: &[String], types: &[Vec<u8>]| {
        file.list("ggml.tokens", 8, &tokens.iter().map(|token| text(token)).collect::<Vec<_>>());
        file.list("ggml.token_type", 5, types);
    };
    write(&mut padded, &tokens, &types);
    for text in TEXTS {
        let found = opened(&padded).unwrap().encode_prompt(text).unwrap();
        assert_eq!(found, bytes.encode_prompt(text).unwrap(), "{text:?}");
    }
    // The special ones come first: ids are shifted by their number.
    let mut first = of_bytes();
    let moved = [&tokens[400..403], &tokens[..400]].concat();
    write(&mut first, &moved, &[&types[400..403], &types[..400]].concat());
    for (key, id) in [("bos", 0u32), ("eos", 1), ("eot", 2)] {
        first.set(&format!("ggml.{key}_token_id"), 4, &id.to_le_bytes());
    }
    let shifted =
        |ids: Vec<u32>| ids.into_iter().map(|id| if id >= 400 { id - 400 } else { id + 3 }).collect::<Vec<_>>();
    for text in TEXTS {
        let found = opened(&first).unwrap().encode_prompt(text).unwrap();
        assert_eq!(found, shifted(bytes.encode_prompt(text).unwrap()), "{text:?}");
    }
}

#[test]
fn keys_say_how_a_text_is_split() {
    let folder = tempfile::tempdir().unwrap();
    let opened =
        |file: &Written| Tokenizer::open(file.at(&folder.path().join("model.gguf")).to_str().unwrap()).unwrap();
    let of = |pre: &str| {
        let mut file = of_bytes();
        file.set("ggml.pre", 8, &text(pre));
        opened(&file)
    };
    assert_eq!(of("llama3").begin(), [400]);
    assert!(["gpt-2", "smollm", "qwen2"].iter().all(|pre| of(pre).begin().is_empty()));
    // A letter with its accent is one character for Qwen2.
    let accent = |pre: &str| of(pre).encode("e\u{301}").unwrap() == of(pre).encode("\u{e9}").unwrap();
    assert!(accent("qwen2") && !accent("llama3") && !accent("gpt-2") && !accent("smollm"));
    let mut without = of_bytes();
    without.set("ggml.add_bos_token", 7, &[0]);
    assert!(opened(&without).begin().is_empty());
    let mut with = of_bytes();
    with.set("ggml.pre", 8, &text("qwen2"));
    with.set("ggml.add_bos_token", 7, &[1]);
    assert_eq!(opened(&with).begin(), [400]);
    let mut plain = of_pieces();
    plain.set("ggml.add_bos_token", 7, &[0]);
    assert!(opened(&plain).begin().is_empty());
    let prefixed = opened(&plain).encode("cat").unwrap();
    plain.set("ggml.add_space_prefix", 7, &[0]);
    assert_ne!(opened(&plain).encode("cat").unwrap(), prefixed);
}

/// Converters write the spaces of these tokens as they are, and a text has U+2581 for them when they are looked for.
#[test]
fn spaces_in_user_defined_tokens_are_those_of_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let of = |content: &str| {
        let mut file = of_pieces();
        let model = sentencepiece::parse(&std::fs::read(golden("bpe/tokenizer.model")).unwrap()).unwrap();
        let texts = model.pieces.iter().map(|piece| &*piece.text).chain(["[PAD0]", "[PAD1]"]);
        let texts: Vec<Vec<u8>> = texts.map(|own| text(if own == "<|user|>" { content } else { own })).collect();
        file.list("ggml.tokens", 8, &texts);
        Tokenizer::open(file.at(&folder.path().join("model.gguf")).to_str().unwrap()).unwrap()
    };
    let [spaces, pieces] = ["<| my user |>", "<|▁my▁user▁|>"].map(of);
    let input = "The cat <| my user |> sat";
    let tokens = spaces.encode(input).unwrap();
    assert!(tokens.contains(&3), "{tokens:?}");
    assert_eq!(tokens, pieces.encode(input).unwrap());
    assert_eq!(spaces.decode(&tokens).unwrap(), input);
}

/// Files of gemma do not say that nothing is put before a text.
#[test]
fn a_gemma_has_no_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = |architecture: &str, prefix: Option<bool>| {
        let mut file = of_pieces();
        file.keys.retain(|(own, ..)| own != "tokenizer.ggml.add_space_prefix");
        if let Some(prefix) = prefix {
            file.set("ggml.add_space_prefix", 7, &[u8::from(prefix)]);
        }
        file.keys.push(("general.architecture".to_owned(), 8, text(architecture)));
        let tokenizer = Tokenizer::open(file.at(&folder.path().join("model.gguf")).to_str().unwrap()).unwrap();
        tokenizer.encode("cat").unwrap()
    };
    let [with, without] = [true, false].map(|prefix| tokens("llama", Some(prefix)));
    assert_ne!(with, without);
    assert_eq!(tokens("llama", None), with);
    assert_eq!(tokens("gemma", None), without);
    assert_eq!(tokens("gemma", Some(true)), with);
}

#[test]
fn what_is_wrong_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |file: &Written| {
        let path = file.at(&folder.path().join("model.gguf"));
        let message = TokenizerFile::load(&path).unwrap_err().to_string();
        assert!(message.contains("model.gguf"), "{message}");
        message
    };
    let (large, user) = (9_999u32.to_le_bytes(), 3u32.to_le_bytes());
    for (is_pieces, key, kind, value, expected) in [
        (true, "ggml.model", 8, &text("bert")[..], "tokenizer.ggml.model is 'bert', expected 'llama' or 'gpt2'"),
        (true, "ggml.eos_token_id", 4, &large, "tokenizer.ggml.eos_token_id is Integer(9999), expected one of"),
        (true, "ggml.bos_token_id", 4, &user, "tokenizer.ggml.bos_token_id is \"<|user|>\", which is no control token"),
        (true, "ggml.add_eos_token", 7, &[1], "add_eos_token is true"),
        (true, "ggml.something", 7, &[1], "has the key \"tokenizer.ggml.something\""),
        (true, "ggml.precompiled_charsmap", 8, &text("x"), "precompiled_charsmap is of a unigram"),
        (true, "ggml.pre", 8, &text("qwen2"), "tokenizer.ggml.pre is 'qwen2', expected 'default'"),
        (false, "ggml.pre", 8, &text("tekken"), "tokenizer.ggml.pre is 'tekken', expected one of gpt-2, smollm"),
        (false, "ggml.add_space_prefix", 7, &[1], "add_space_prefix is true"),
        (false, "ggml.merges", 8, &text("a b"), "tokenizer.ggml.merges is no list"),
        (false, "ggml.add_bos_token", 8, &text("yes"), "tokenizer.ggml.add_bos_token is no flag"),
    ] {
        let mut file = if is_pieces { of_pieces() } else { of_bytes() };
        file.set(key, kind, value);
        let message = refused(&file);
        assert!(message.contains(expected), "{key}: {message}");
    }
    let lists: [(&str, u32, Vec<Vec<u8>>, &str); 5] = [
        ("ggml.tokens", 8, vec![text("a"), text("b")], "token_type has "),
        ("ggml.tokens", 4, vec![vec![0; 4]], "is a list of values of another type"),
        ("ggml.token_type", 5, vec![7i32.to_le_bytes().to_vec()], "is a list of values of another type"),
        ("ggml.merges", 8, vec![text("a b c")], "expected two tokens with a space between them"),
        ("ggml.merges", 8, vec![text("ab")], "expected two tokens with a space between them"),
    ];
    for (key, kind, values, expected) in lists {
        let mut file = of_bytes();
        file.list(key, kind, &values);
        let message = refused(&file);
        assert!(message.contains(expected), "{key}: {message}");
    }
    for key in ["ggml.tokens", "ggml.pre", "ggml.merges", "ggml.model"] {
        let mut file = of_bytes();
        file.keys.retain(|(own, ..)| *own != format!("tokenizer.{key}"));
        let message = refused(&file);
        assert!(message.contains(&format!("tokenizer.{key} is missing")), "{key}: {message}");
    }
}
