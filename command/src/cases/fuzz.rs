//! Reading a file of cases returns cases or errors for any content, and never panics.

use fulgurite::registry::operators;
use fulgurite::testing::samples::Random;

use super::{TensorFile, bind, parse_cases, resolve_operator};

/// Number of mutated inputs in the normal suite; `FULGURITE_FUZZ` sets another number.
const INPUTS: u64 = 20_000;

const SEEDS: [&str; 3] = [
    r#"{"version":1,"cases":[{"id":"gelu/0","op":"gelu","args":{"input":{"tensor":"gelu/0/input"},"approximate":"tanh"},
        "grad":{"cotangents":["gelu/0/d0"],"inputs":["input"]}}]}"#,
    r#"{"version":1,"cases":[{"id":"a","op":"torch.sum","args":{"input":{"tensor":"x"},"dim":[0,-1],"keepdim":true,
        "dtype":{"dtype":"torch.float32"}}},{"id":"b","op":"prims::full","args":{"size":[2,3],"fill_value":{"number":"-inf"},
        "dtype":"f32","device":"cpu"}},{"id":"c","op":"add","args":{"input":{"tensor":"x"},"other":1.5e-3,"alpha":null}}]}"#,
    r#"{"version":1,"cases":[{"id":"é\u0000","op":"cat","args":{"tensors":[{"tensor":"x"},{"tensor":"y"}],"dim":-9223372036854775808},
        "grad":{"cotangents":[],"inputs":["tensors.0"]}},{"id":"z","op":1,"args":[[[[]]]]}]}"#,
];

/// Pieces that mutations put in: what the format is made of, and what breaks parsers.
const PIECES: [&str; 32] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1e999",
    "1e308",
    "-0",
    "18446744073709551615",
    "9223372036854775808",
    "{\"tensor\":\"x\"}",
    "{\"number\":\"nan\"}",
    "{\"number\":1}",
    "{\"dtype\":\"bfloat16\"}",
    "{\"dtype\":\"x\"}",
    "\"op\":",
    "\"id\":\"a\",",
    "\"grad\":{},",
    "\\ud800",
    "\u{fffd}",
    "\0",
    "[[[[[[[[",
    "0.1",
    "\"tensors.0\"",
    "\"other\":[1,2.0,true],",
];

fn inputs() -> u64 {
    std::env::var("FULGURITE_FUZZ").ok().and_then(|count| count.parse().ok()).unwrap_or(INPUTS)
}

fn below(random: &mut Random, bound: usize) -> usize {
    (random.next() % bound.max(1) as u64) as usize
}

fn mutate(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + below(random, 6) {
        let at = below(random, bytes.len() + 1);
        let end = (at + below(random, 12)).min(bytes.len());
        match below(random, 6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << below(random, 8),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let piece = PIECES[below(random, PIECES.len())];
                bytes.splice(at..at, piece.bytes());
            }
            3 => {
                let piece = PIECES[below(random, PIECES.len())];
                bytes.splice(at..end, piece.bytes());
            }
            4 => {
                let copied = bytes[at..end].to_vec();
                let to = below(random, bytes.len() + 1);
                bytes.splice(to..to, copied);
            }
            _ => bytes.truncate(if below(random, 8) == 0 { at } else { bytes.len() }),
        }
    }
    bytes
}

/// Values of the JSON exchanged for others, so that most mutants are still files of cases.
fn mutate_values(text: &str, random: &mut Random) -> Vec<u8> {
    let Ok(mut json) = serde_json::from_str(text) else { return Vec::new() };
    for _ in 0..1 + below(random, 4) {
        mutate_value(&mut json, random, 0);
    }
    json.to_string().into_bytes()
}

fn mutate_value(json: &mut serde_json::Value, random: &mut Random, depth: usize) {
    let inside = depth < 3 || below(random, 3) > 0;
    match json {
        serde_json::Value::Object(object) if inside && !object.is_empty() => {
            // The list of cases is most of a file.
            let at = if depth == 0 && below(random, 16) > 0 { 0 } else { below(random, object.len()) };
            let key = object.keys().nth(at).cloned().unwrap_or_default();
            match (depth > 1, below(random, 8)) {
                (true, 0) => drop(object.remove(&key)),
                (true, 1) => {
                    let names = ["input", "other", "dim", "tensors", "alpha", "dtype", "x".repeat(200).leak()];
                    let value = object.remove(&key).unwrap_or_default();
                    object.insert(names[below(random, names.len())].to_owned(), value);
                }
                _ => {
                    if let Some(value) = object.get_mut(&key) {
                        mutate_value(value, random, depth + 1);
                    }
                }
            }
        }
        serde_json::Value::Array(items) if inside && !items.is_empty() => {
            let at = below(random, items.len());
            mutate_value(&mut items[at], random, depth + 1);
        }
        serde_json::Value::String(text) if depth > 2 && below(random, 2) == 0 && !operators().is_empty() => {
            // The name of some operator, so that arguments meet signatures that they were not written for.
            *text = operators()[below(random, operators().len())].name.to_owned();
        }
        _ => *json = serde_json::from_str(PIECES[below(random, PIECES.len())]).unwrap_or_default(),
    }
}

/// What a file of cases goes through before anything is run.
fn read(text: &[u8]) -> (usize, usize) {
    let Ok(cases) = parse_cases(text) else { return (0, 0) };
    let mut bound = 0;
    for case in &cases {
        let Ok(body) = &case.body else { continue };
        match resolve_operator(&body.operator) {
            Ok(def) => bound += usize::from(bind(def, &body.arguments).is_ok()),
            Err(error) => assert!(!error.message.is_empty()),
        }
    }
    (cases.len(), bound)
}

#[test]
fn any_text_gives_cases_or_errors() {
    let (mut files, mut bound) = (0u64, 0u64);
    for i in 0..inputs() {
        let mut random = Random::new(i);
        let seed = SEEDS[below(&mut random, SEEDS.len())];
        let text = if i % 2 == 0 { mutate(seed.as_bytes(), &mut random) } else { mutate_values(seed, &mut random) };
        let (cases, calls) = read(&text);
        files += u64::from(cases > 0);
        bound += u64::from(calls > 0);
    }
    // Mutations that break everything at once would test nothing but the reader of JSON.
    assert!(files > inputs() / 10, "only {files} files could be read");
    assert!(operators().is_empty() || bound > inputs() / 100, "only {bound} files had a call that fits");
}

#[test]
fn any_bytes_give_tensors_or_errors() {
    let arrays = [
        ("x".to_owned(), fulgurite::Array::new([2, 3], &[1.0f32; 6]).unwrap()),
        ("mask".to_owned(), fulgurite::Array::from_f64([3], fulgurite::DType::Bool, &[0.0, 1.0, 1.0]).unwrap()),
        ("empty".to_owned(), fulgurite::Array::zeros([0, 4], fulgurite::DType::I64).unwrap()),
    ];
    let seed = super::tensor_bytes(&arrays).unwrap();
    let mut read = 0;
    for i in 0..inputs() {
        let bytes = mutate(&seed, &mut Random::new(i));
        let Ok(file) = TensorFile::parse(bytes) else { continue };
        for key in file.keys() {
            read += u64::from(file.get(key).is_ok());
        }
    }
    assert!(read > inputs() / 100, "only {read} tensors could be read");
}
