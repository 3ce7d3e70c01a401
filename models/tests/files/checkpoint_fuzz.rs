//! Damaged checkpoints: whatever the bytes, `Checkpoint::parse` answers with an error or with a checkpoint that writes
//! and reads back. 20 000 cases run with the suite;
//! `FULGURITE_FUZZ=1000000 cargo test -p fulgurite-models --test files checkpoint_fuzz::` runs more, and
//! `FULGURITE_FUZZ_CASE=n` one again.

use std::collections::BTreeMap;

use super::fuzzing::{self, mutate};
use fulgurite_models::optimizer::OptimizerSettings;
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
        model: GptConfig {
            vocabulary: 256,
            context: 8,
            layers: 1,
            heads: 2,
            channels: 4,
            dropout: 0.1,
            ..GptConfig::GPT2
        }
        .into(),
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

/// A case: the bytes of a damaged file. Every second is damaged within the metadata or the header and signed again, so
/// that checksum and lengths do not keep the damage from the readers behind them.
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
    let plain = seed().to_bytes().unwrap();
    let (cases, taken) = fuzzing::run(20_000, |number| check(&case(number, &plain)));
    assert!(cases == 1 || taken < cases / 4, "most damage should be noticed, but {taken} of {cases} cases were taken");
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
