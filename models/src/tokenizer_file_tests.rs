use std::path::PathBuf;

use serde_json::json;

use super::*;
use crate::random::Stream;
use crate::streaming::StreamingDecoder;
use crate::tokenizer::Tokenizer;

/// A file that `tests/golden/tokenizer_files.py` wrote.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/tokenizer_files").join(name)
}

fn expected() -> Value {
    serde_json::from_slice(&std::fs::read(golden("expected.json")).unwrap()).unwrap()
}

fn list<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn texts_have_the_tokens_that_transformers_gives_them() {
    let expected = expected();
    for name in ["byte_level", "metaspace"] {
        let tokenizer = Tokenizer::open(golden(name).to_str().unwrap()).unwrap();
        let expected = &expected[name];
        let [prompts, plain] = ["prompts", "plain"].map(|kind| list::<Vec<u32>>(&expected[kind]));
        let [texts, decoded] = ["texts", "decoded"].map(|kind| list::<String>(&expected[kind]));
        for (((text, prompt), plain), decoded) in texts.iter().zip(&prompts).zip(&plain).zip(&decoded) {
            assert_eq!(tokenizer.encode(text).unwrap(), *plain, "{name}: {text:?}");
            assert_eq!(tokenizer.decode(prompt).unwrap(), *decoded, "{name}: {text:?}");
            // A text that has its beginning gets no second one, unlike there.
            let once = if text.starts_with("<|begin_of_text|>") && name == "byte_level" { 1 } else { 0 };
            assert_eq!(tokenizer.encode_prompt(text).unwrap(), prompt[once..], "{name}: {text:?}");
            // Shown one by one, after any part of them, it is the same text.
            for start in 0..prompt.len() {
                let mut decoder = StreamingDecoder::after(tokenizer.clone(), &prompt[..start]).unwrap();
                let mut shown = tokenizer.decode(&prompt[..start]).unwrap();
                if shown.contains(char::REPLACEMENT_CHARACTER) {
                    continue;
                }
                for token in &prompt[start..] {
                    let piece = decoder.push(*token).unwrap();
                    assert!(!piece.contains(char::REPLACEMENT_CHARACTER), "{name}: half a character of {text:?}");
                    shown += &piece;
                }
                assert_eq!(shown + &decoder.finish(), *decoded, "{name}: {text:?} after {start}");
            }
        }
    }
}

#[test]
fn a_character_that_is_cut_short_is_shown_at_the_end() {
    let tokenizer = Tokenizer::open(golden("metaspace").to_str().unwrap()).unwrap();
    let bytes: Vec<u32> = [0xF0, 0x9F, 0xA6].map(|byte| 3 + byte).to_vec();
    let mut decoder = StreamingDecoder::after(tokenizer.clone(), &[]).unwrap();
    assert!(bytes.iter().all(|token| decoder.push(*token).unwrap().is_empty()));
    assert!(decoder.finish().starts_with(char::REPLACEMENT_CHARACTER));
    // What is shown stays, though the decoder of the file makes no character of a byte beside one that breaks off.
    let broken = [3 + 0x75, 3 + 0xE8, 3 + 0x76];
    assert_eq!(tokenizer.decode(&broken).unwrap(), "\u{FFFD}\u{FFFD}\u{FFFD}");
    let mut decoder = StreamingDecoder::after(tokenizer.clone(), &[]).unwrap();
    let shown: String = broken.iter().map(|token| decoder.push(*token).unwrap()).collect();
    assert_eq!(shown + &decoder.finish(), "u\u{FFFD}\u{FFFD}");
    // A model may have rows that no token has. What is drawn after one of them is shown.
    let mut decoder = StreamingDecoder::after(tokenizer.clone(), &[]).unwrap();
    assert!(decoder.push(440).is_err());
    assert_eq!(decoder.push(3 + 0x75).unwrap(), "u");
    let message = tokenizer.decode(&[1, 440]).unwrap_err().to_string();
    assert!(message.contains("token 1 has id 440") && message.ends_with("has 440 ids"), "{message}");
}

/// A copy of a golden folder with files replaced.
fn folder(name: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(golden(name)).unwrap().map(|entry| entry.unwrap()) {
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
    folder
}

#[test]
fn the_files_beside_it_say_how_texts_begin_and_end() {
    let of = |name: &str, files: &[(&str, &str)]| {
        let folder = folder(name, files);
        let read = TokenizerFile::load(folder.path()).unwrap();
        (read.begin().to_vec(), read.ends().to_vec())
    };
    let config = "tokenizer_config.json";
    assert_eq!(of("byte_level", &[]), (vec![400], vec![401, 402]));
    assert_eq!(of("metaspace", &[]), (vec![1], vec![2]));
    assert_eq!(of("metaspace", &[(config, r#"{"add_bos_token": false}"#)]), (vec![], vec![]));
    let object = r#"{"add_bos_token": true, "bos_token": {"content": "</s>"}, "eos_token": {"content": "<s>"}}"#;
    assert_eq!(of("metaspace", &[(config, object)]), (vec![1], vec![1]));
    assert_eq!(of("metaspace", &[("config.json", r#"{"eos_token_id": 7}"#)]), (vec![1], vec![7]));
    let generation = [("config.json", r#"{"eos_token_id": 7}"#), ("generation_config.json", r#"{"eos_token_id": 8}"#)];
    assert_eq!(of("metaspace", &generation), (vec![1], vec![8]));
    // Without a post-processor only the configuration says it.
    let mut file: Value = serde_json::from_slice(&std::fs::read(golden("metaspace/tokenizer.json")).unwrap()).unwrap();
    file["post_processor"] = Value::Null;
    let file = file.to_string();
    assert_eq!(of("metaspace", &[(FILE, &file)]).0, [0u32; 0]);
    assert_eq!(of("metaspace", &[(FILE, &file), (config, object)]).0, [2]);
}

/// Files that others read have such ids; those that there are still end a text.
#[test]
fn an_end_beyond_the_tokenizer_is_a_warning() {
    let folder = folder(
        "metaspace",
        &[("generation_config.json", r#"{"eos_token_id": 440}"#), ("config.json", r#"{"eos_token_id": [7, 999]}"#)],
    );
    let read = TokenizerFile::load(folder.path()).unwrap();
    assert_eq!(read.ends(), [7]);
    let [first, second] = read.warnings() else { panic!("{:?}", read.warnings()) };
    let expected = "generation_config.json': eos_token_id is 440, but the tokenizer has 440 ids: no text ends at [440]";
    assert!(first.ends_with(expected), "{first}");
    assert!(
        second.ends_with("config.json': eos_token_id is [7,999], but the tokenizer has 440 ids: no text ends at [999]")
    );
}

#[test]
fn faults_name_the_file_and_the_field() {
    for (name, text, expected) in [
        (FILE, "{", "tokenizer.json': EOF while parsing"),
        (FILE, r#"{"version": "2.0"}"#, "tokenizer.json': "),
        (FILE, r#"{"model": {"type": "BPE", "vocab": {}, "merges": []}}"#, "tokenizer.json': has no tokens"),
        ("tokenizer_config.json", "[", "tokenizer_config.json': EOF while parsing"),
        ("tokenizer_config.json", r#"{"add_bos_token": 1}"#, "add_bos_token is 1, expected true or false"),
        (
            "tokenizer_config.json",
            r#"{"eos_token": "<end>"}"#,
            "eos_token is \"<end>\", expected a token of the tokenizer",
        ),
        (
            "config.json",
            r#"{"eos_token_id": -1}"#,
            "config.json': eos_token_id is -1, expected ids of the tokenizer's 440",
        ),
        ("generation_config.json", r#"{"eos_token_id": [2, "x"]}"#, "eos_token_id is [2,\"x\"], expected ids of"),
        (FILE, "version https://git-lfs.github.com/spec/v1\n", "tokenizer.json': is a pointer of git-lfs"),
    ] {
        let folder = folder("metaspace", &[(name, text)]);
        let message = TokenizerFile::load(folder.path()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let message = Tokenizer::open("no such tokenizer").unwrap_err().to_string();
    assert_eq!(
        message,
        "unknown tokenizer 'no such tokenizer', expected 'gpt2', 'bytes', or the name of a tokenizer.json or of its folder"
    );
    let folder = tempfile::tempdir().unwrap();
    assert!(TokenizerFile::load(folder.path()).unwrap_err().to_string().contains("tokenizer.json': No such file"));
}

/// Whatever the values are, the answer is an error, or a tokenizer that encodes and decodes without a panic.
#[test]
fn damaged_files_are_errors_or_tokenizers() {
    let whole = ["byte_level", "metaspace"].map(|name| std::fs::read(golden(name).join(FILE)).unwrap());
    let others = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(3),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("a"),
        json!("▁"),
        json!("<s>"),
        json!("(("),
        json!([]),
        json!({}),
        json!(["a", "b"]),
        json!({"type": "BPE"}),
    ];
    let mut taken = 0;
    for case in 0..2000 {
        let mut random = Stream::new(case, 0x70C);
        let mut one = |bound: usize| random.below(bound as u64) as usize;
        let mut file: Value = serde_json::from_slice(&whole[one(2)]).unwrap();
        for _ in 0..1 + one(2) {
            // One of the top or one further down, most of which are merges and ids.
            let mut place = &mut file;
            while let Some(count) = match &*place {
                Value::Array(items) => Some(items.len()),
                Value::Object(fields) => Some(fields.len()),
                _ => None,
            }
            .filter(|count| *count > 0 && one(6) > 0)
            {
                let number = one(count);
                place = match place {
                    Value::Array(items) => &mut items[number],
                    Value::Object(fields) => fields.values_mut().nth(number).unwrap(),
                    _ => unreachable!("a leaf has no count"),
                };
            }
            *place = others[one(others.len())].clone();
        }
        let Ok(read) = TokenizerFile::parse(file.to_string().as_bytes()) else { continue };
        for text in ["a b", "The glass 🦀 <s>", ""] {
            for plain in [true, false] {
                let Ok(tokens) = read.encode(text, plain) else { continue };
                assert!(tokens.iter().all(|token| (*token as usize) < read.vocabulary()), "case {case}: {tokens:?}");
                let _ = read.decode(&tokens);
            }
        }
        taken += 1;
    }
    assert!(taken > 100, "{taken}");
}

/// What `tests/golden/vocabulary_files.py` wrote: tokens by the libraries that these files are of.
#[test]
fn vocabularies_of_other_files_give_the_tokens_of_their_own_libraries() {
    let expected: Value = serde_json::from_slice(&std::fs::read(golden("vocabularies.json")).unwrap()).unwrap();
    for (name, begin, ends) in [
        ("bpe", vec![1], vec![2]),
        ("unigram", vec![1], vec![2]),
        ("unigram_bytes", vec![1], vec![2]),
        ("runs", vec![1], vec![2]),
        ("gpt2", vec![], vec![]),
    ] {
        let tokenizer = TokenizerFile::load(&golden(name)).unwrap();
        let texts = list::<String>(&expected[name]["texts"]);
        let tokens = list::<Vec<u32>>(&expected[name]["tokens"]);
        let decoded = list::<String>(&expected[name]["decoded"]);
        for ((text, tokens), decoded) in texts.iter().zip(&tokens).zip(&decoded) {
            assert_eq!(tokenizer.encode(text, true).unwrap(), *tokens, "{name}: {text:?}");
            // SentencePiece shows an unknown character as " ⁇ ", which no other library does.
            if !decoded.contains('⁇') {
                assert_eq!(tokenizer.decode(tokens).unwrap(), *decoded, "{name}: {text:?}");
            }
        }
        assert_eq!((tokenizer.begin(), tokenizer.ends()), (&begin[..], &ends[..]), "{name}");
        assert_eq!(tokenizer.vocabulary() as u64, expected[name]["vocabulary"].as_u64().unwrap(), "{name}");
        // What goes with a checkpoint is a tokenizer.json that gives the same.
        let folder = tempfile::tempdir().unwrap();
        tokenizer.copy_to(folder.path(), false).unwrap();
        let copy = TokenizerFile::load(&folder.path().join(FILE)).unwrap();
        for (text, tokens) in texts.iter().zip(&tokens) {
            assert_eq!(copy.encode(text, true).unwrap(), *tokens, "the copy of {name}: {text:?}");
        }
    }
}

#[test]
fn vocabularies_that_are_not_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| std::fs::write(folder.path().join(name), text).unwrap();
    let complain = || TokenizerFile::load(folder.path()).unwrap_err().to_string();
    assert!(complain().contains("tokenizer.json"), "{}", complain());
    write("vocab.txt", b"[UNK]\n");
    assert!(complain().contains("vocab.txt': is a vocabulary of WordPiece"), "{}", complain());
    write("vocab.json", b"{\"a\": 0}");
    assert!(complain().contains("vocab.json': ") && complain().contains("merges.txt': "), "{}", complain());
    write("merges.txt", b"#version: 0.2\na b c\n");
    assert!(complain().contains("merges.txt': line 2 is not two tokens"), "{}", complain());
    write("tokenizer.model", b"\n\x09\n\x05<unk>");
    assert!(complain().contains("tokenizer.model': is cut short"), "{}", complain());
}

/// A piece of SentencePiece's message, of this kind.
fn piece(text: &str, kind: u8) -> Vec<u8> {
    let inner = [&[0x0A, text.len() as u8], text.as_bytes(), &[0x18, kind]].concat();
    [&[0x0A, inner.len() as u8][..], &inner].concat()
}

/// A model of the unknown piece and others, with more fields behind them.
fn model(pieces: &[(&str, u8)], more: &[u8]) -> Vec<u8> {
    let others = pieces.iter().flat_map(|(text, kind)| piece(text, *kind));
    piece("<unk>", 2).into_iter().chain(others).chain(more.iter().copied()).collect()
}

#[test]
fn pieces_that_would_give_other_tokens_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let complain = |pieces: &[(&str, u8)], more: &[u8]| {
        std::fs::write(folder.path().join("tokenizer.model"), model(pieces, more)).unwrap();
        TokenizerFile::load(folder.path()).map(drop).unwrap_err().to_string()
    };
    for (pieces, expected) in [
        (&[("", 1)][..], "piece 1 (\"\") is damaged: its text is empty"),
        (&[("a", 1), ("b", 5)], "piece 2 (\"b\") is not used"),
        (&[("a", 1), ("x", 3)], "piece 2 (\"x\") is of one character"),
        (&[("a", 1), ("<0xg0>", 6)], "is damaged: a byte has the form <0x00>"),
        // Of spaces at the end of a text nothing is left.
        (&[("a", 1), ("▁▁", 4)], "the added token \"▁▁\" is empty once it is normalized"),
        (&[("a", 1), ("b▁", 4)], "the user-defined piece \"b▁\" becomes \"b\" by the rules of normalization"),
    ] {
        let message = complain(pieces, &[]);
        assert!(message.contains("tokenizer.model': ") && message.contains(expected), "{message}");
    }
    // BPE.
    let long = "a".repeat(100);
    assert!(complain(&[("a", 1), (&long, 1), ("b", 5)], &[0x12, 2, 0x18, 2]).contains("piece 3"));
}

/// The crate would find the token at every place of a text and end by memory.
#[test]
fn an_added_token_of_which_nothing_is_left_is_refused() {
    let mut file: Value = serde_json::from_slice(&std::fs::read(golden("metaspace/tokenizer.json")).unwrap()).unwrap();
    file["normalizer"] = json!({"type": "Strip", "strip_left": true, "strip_right": true});
    let id = 440;
    let token = json!({"id": id, "content": "  ", "special": false, "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": true});
    file["added_tokens"].as_array_mut().unwrap().push(token);
    let message = TokenizerFile::parse(file.to_string().as_bytes()).unwrap_err();
    assert_eq!(message, "the added token \"  \" is empty once it is normalized");
}

#[test]
fn files_of_other_tokenizers_are_refused_by_name() {
    for name in
        ["spiece.model", "sentencepiece.bpe.model", "tekken.json", "qwen.tiktoken", "encoder.json", "merges.txt"]
    {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), "x").unwrap();
        let message = TokenizerFile::load(folder.path()).unwrap_err().to_string();
        assert!(message.contains(&format!("{name}': is a tokenizer's file that is not read")), "{message}");
    }
}
