//! Damaged checkpoints: whatever the bytes, `Checkpoint::parse` answers with an error or with a checkpoint that writes
//! and reads back. 20 000 cases run with the suite;
//! `FULGURITE_FUZZ=1000000 cargo test -p fulgurite-models --test checkpoint_fuzz` runs more, and
//! `FULGURITE_FUZZ_CASE=n` one again.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite_models::checkpoint::OptimizerSettings;
use fulgurite_models::random::Stream;
use fulgurite_models::tensor_file::TensorFile;
use fulgurite_models::{BatchPosition, Checkpoint, GptConfig, HostTensor, Schedule, TrainingState, batches::Order};

fn seed() -> Checkpoint {
    let data = BatchPosition {
        seed: 7,
        order: Order::Sequential,
        epoch: 1,
        batch: 2,
        rows: 3,
        context: 8,
        tokens: 1000,
        fingerprint: 0x1234,
    };
    let state = TrainingState {
        step: 12,
        model: GptConfig { vocabulary: 256, context: 8, layers: 1, heads: 2, channels: 4, dropout: 0.1 }.into(),
        tokenizer: "bytes".to_owned(),
        data,
        accumulation: 2,
        schedule: Schedule { peak: 6e-4, floor: 6e-5, warmup_steps: 10, total_steps: 100 },
        optimizer: OptimizerSettings::default(),
        seed: 1,
        random_offset: 99,
        notes: BTreeMap::from([("text".to_owned(), "täxt".to_owned())]),
    };
    let tensors = BTreeMap::from([
        ("ln_f.bias".to_owned(), HostTensor::from_f32(&[4], &[0.0, 1.0, 2.0, f32::NAN]).unwrap()),
        ("h.0.attn.c_proj.bias".to_owned(), HostTensor::from_f64(&[2, 1], &[0.5, -0.5]).unwrap()),
        ("mask".to_owned(), HostTensor::new("bool".parse().unwrap(), &[3], vec![0, 1, 0]).unwrap()),
        ("none".to_owned(), HostTensor::from_i64(&[0, 3], &[]).unwrap()),
    ]);
    Checkpoint { state, tensors }
}

/// Texts that numbers, names and structure are replaced by.
const TEXTS: [&str; 26] = [
    "0",
    "-1",
    "1",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775808",
    "4294967296",
    "1e999",
    "1e-999",
    "0.1",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "[[[[[[[[",
    "\"F64\"",
    "\"BOOL\"",
    "\"U8\"",
    "\"\\ud800\"",
    "\"\\u0000\"",
    "__metadata__",
    ",",
    "}",
    "\\\"",
    "100000000",
];

/// Changes bytes in one of the ways in which files get damaged, or in one that a reader may stumble over.
fn mutate(bytes: &mut Vec<u8>, random: &mut Stream) {
    let below = |random: &mut Stream, bound: usize| random.below(bound as u64) as usize;
    let position = below(random, bytes.len().max(1));
    if bytes.is_empty() {
        bytes.push(random.next_u64() as u8);
        return;
    }
    match random.below(9) {
        0 => bytes[position] ^= 1 << random.below(8),
        1 => bytes[position] = random.next_u64() as u8,
        2 => bytes.truncate(position),
        3 => bytes.extend((0..below(random, 40)).map(|_| 0)),
        4 => {
            let end = (position + below(random, 64)).min(bytes.len());
            bytes.drain(position..end);
        }
        5 => {
            let end = (position + below(random, 64)).min(bytes.len());
            let piece = bytes[position..end].to_vec();
            let target = below(random, bytes.len());
            bytes.splice(target..target, piece);
        }
        6 => {
            let text = TEXTS[below(random, TEXTS.len())];
            bytes.splice(position..position, text.bytes());
        }
        7 => replace_number(bytes, position, random),
        _ => {
            let declared = [random.below(4096), u64::MAX - random.below(9), 1 << random.below(64)][below(random, 3)];
            let prefix = bytes.len().min(8);
            bytes[..prefix].copy_from_slice(&declared.to_le_bytes()[..prefix]);
        }
    }
}

/// Puts something else in the place of the first number at or after `position`.
fn replace_number(bytes: &mut Vec<u8>, position: usize, random: &mut Stream) {
    let Some(start) = bytes[position..].iter().position(u8::is_ascii_digit).map(|offset| position + offset) else {
        return;
    };
    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = TEXTS[random.below(TEXTS.len() as u64) as usize];
    bytes.splice(start..start + length, text.bytes());
}

/// A case: the bytes of a damaged file. Every second is damaged within the metadata or the header and signed again, so
/// that checksum and lengths do not keep the damage from what lies behind them.
fn case(number: u64, plain: &[u8]) -> Vec<u8> {
    let mut random = Stream::new(number, 0xF022);
    let mut bytes = plain.to_vec();
    let rounds = 1 + random.below(3);
    match number % 4 {
        1 => {
            let mut file = TensorFile::parse(plain).unwrap();
            let mut text = file.metadata.remove("fulgurite").unwrap().into_bytes();
            (0..rounds).for_each(|_| mutate(&mut text, &mut random));
            let text = String::from_utf8_lossy(&text).into_owned();
            file.metadata.insert("fulgurite_crc32".to_owned(), format!("{:08x}", crc32fast::hash(text.as_bytes())));
            file.metadata.insert("fulgurite".to_owned(), text);
            bytes.clear();
            TensorFile::write(&file.metadata, &file.tensors, &mut bytes).unwrap();
        }
        3 => {
            let header_length = u64::from_le_bytes(plain[..8].try_into().unwrap()) as usize;
            let (header, data) = plain[8..].split_at(header_length);
            // Half of the damage goes to the descriptions of tensors, which follow the metadata.
            let tensors = header.windows(3).position(|window| window == b"\"},").unwrap();
            let keep = if random.below(2) == 0 { tensors } else { 0 };
            let mut tail = header[keep..].to_vec();
            (0..rounds).for_each(|_| mutate(&mut tail, &mut random));
            bytes = ((keep + tail.len()) as u64).to_le_bytes().to_vec();
            bytes.extend(&header[..keep]);
            bytes.extend(tail);
            bytes.extend(data);
        }
        _ => (0..rounds).for_each(|_| mutate(&mut bytes, &mut random)),
    }
    bytes
}

/// Whether the case was accepted; panics if it was and is no whole checkpoint.
fn check(bytes: &[u8]) -> bool {
    let checkpoint = match Checkpoint::parse(bytes) {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    let written = checkpoint.to_bytes().expect("a checkpoint that was read can be written");
    let again = Checkpoint::parse(&written).expect("a checkpoint that was written can be read");
    assert_eq!(again, checkpoint);
    // What it says of the model must be safe to act on, if only to find that the tensors are not the model's.
    assert!(checkpoint.validate_tensors().is_err());
    true
}

#[test]
fn damaged_checkpoints_are_errors() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let plain = seed().to_bytes().unwrap();
    if let Some(one) = number("FULGURITE_FUZZ_CASE") {
        check(&case(one, &plain));
        return;
    }
    let cases = number("FULGURITE_FUZZ").unwrap_or(20_000);
    let mut accepted = 0;
    for number in 0..cases {
        let bytes = case(number, &plain);
        match catch_unwind(AssertUnwindSafe(|| check(&bytes))) {
            Ok(taken) => accepted += u64::from(taken),
            Err(_) => panic!("case {number} fails; repeat it with FULGURITE_FUZZ_CASE={number}"),
        }
    }
    println!("{cases} cases, {accepted} accepted");
    assert!(accepted < cases / 4, "most damage should be noticed, but {accepted} of {cases} cases were accepted");
}

/// Inputs that once went wrong, here or in another reader of the format; they stay.
#[test]
fn inputs_that_once_went_wrong() {
    let wrong: [&[u8]; 5] = [
        b"",
        b"\0\0\0\0\0\0\0\0",
        b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F{}",
        b"\x02\0\0\0\0\0\0\0{}",
        b"\x3b\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[9,9]}}   ",
    ];
    for bytes in wrong {
        assert!(Checkpoint::parse(bytes).is_err());
    }
}
