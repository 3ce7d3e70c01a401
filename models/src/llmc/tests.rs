use std::collections::BTreeMap;

use super::*;
use crate::config::GptConfig;
use crate::host_tensor::HostTensor;
use crate::initialize::initial_values;
use crate::tokenizer::Tokenizer;
use crate::weights::Weights;

fn weights(seed: u64) -> Weights {
    let config = GptConfig { vocabulary: 11, context: 6, layers: 2, heads: 2, channels: 4, ..GptConfig::GPT2 };
    let tensors: BTreeMap<String, HostTensor> = config
        .parameters()
        .iter()
        .map(|p| (p.name.clone(), HostTensor::from_f32(&p.shape, &initial_values(p, seed)).unwrap()))
        .collect();
    Weights::new(config, tensors).unwrap()
}

fn debug_state() -> DebugState {
    let (rows, context) = (2, 5);
    DebugState {
        rows,
        context,
        inputs: (0..10).collect(),
        targets: (1..11).collect(),
        logits: (0..110).map(|value| value as f32 / 7.0).collect(),
        loss: 2.5,
        gradients: weights(2),
    }
}

/// `bytes` with another number at a field of the header.
fn with_field(bytes: &[u8], index: usize, value: i32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[4 * index..4 * index + 4].copy_from_slice(&value.to_le_bytes());
    bytes
}

#[test]
fn checkpoints_come_back_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.bin");
    for (version, length) in [(Version::F32Unpadded, 3280), (Version::F32, 5152), (Version::Bf16, 3088)] {
        let mut checkpoint = LlmcCheckpoint::new(weights(1), version).unwrap();
        checkpoint.save(&path).unwrap();
        let read = LlmcCheckpoint::load(&path).unwrap();
        assert_eq!(read.to_bytes().unwrap(), std::fs::read(&path).unwrap());
        assert_eq!(read.to_bytes().unwrap().len(), length);
        if version == Version::Bf16 {
            let wte = read.weights.tensor("wte.weight").unwrap().to_f32().unwrap();
            assert!(wte.iter().all(|value| value.to_bits() & 0xFFFF == 0));
            // What has been rounded is not rounded again.
            assert_eq!(LlmcCheckpoint::new(read.weights.clone(), version).unwrap(), read);
        } else {
            assert_eq!(read, checkpoint);
        }
        // Any padding is kept, but there is none in version 1, and none that cuts the vocabulary.
        checkpoint.padded_vocabulary = 12;
        if version == Version::F32Unpadded {
            let message = checkpoint.save(&path).unwrap_err().to_string();
            assert!(
                message.contains("model.bin': padded_vocabulary is 12, but a file of this kind holds 11"),
                "{message}"
            );
        } else {
            let bytes = checkpoint.to_bytes().unwrap();
            assert_eq!(LlmcCheckpoint::parse(&bytes).unwrap().to_bytes().unwrap(), bytes);
        }
        checkpoint.padded_vocabulary = 10;
        assert!(matches!(checkpoint.to_bytes(), Err(LlmcError::Unwritable { .. })));
    }
}

#[test]
fn a_model_goes_to_llmc_and_back_as_it_is() {
    let weights = weights(3);
    let params = weights.params().unwrap();
    assert_eq!(Weights::of(weights.config(), &params).unwrap(), weights);
}

#[test]
fn faults_of_checkpoints_are_told_apart_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.bin");
    let good = LlmcCheckpoint::new(weights(1), Version::F32).unwrap().to_bytes().unwrap();
    // The padding begins after 11 rows of 4.
    let padding = 1024 + 11 * 4 * 4;
    let mut padded = good.clone();
    padded[padding + 5] = 7;
    for (bytes, part) in [
        (b"abc".to_vec(), "3 bytes are too short for a checkpoint of llm.c, which starts with a header of 1024 bytes"),
        (
            with_field(&good, 0, 7),
            "field 'magic' at offset 0 is 7, expected 20240326, the mark of a checkpoint of llm.c",
        ),
        (with_field(&good, 0, 20_240_520), "(this is a token shard of llm.c)"),
        (with_field(&good, 1, 2), "field 'version' at offset 4 is 2, expected 1 or 3 or 5"),
        (with_field(&good, 2, 0), "field 'max_seq_len' at offset 8 is 0, expected 1 to 16777216"),
        (with_field(&good, 3, -1), "field 'vocab_size' at offset 12 is -1, expected 1 to"),
        (with_field(&good, 4, 1 << 20), "field 'num_layers' at offset 16 is 1048576, expected 1 to 1024"),
        (with_field(&good, 5, 3), "field 'num_heads' at offset 20 is 3, expected a divisor of the 4 channels"),
        (with_field(&good, 6, i32::MIN), "field 'channels' at offset 24 is -2147483648"),
        (with_field(&good, 7, 10), "field 'padded_vocab_size' at offset 28 is 10, expected 11 to"),
        (
            with_field(&good, 7, 1 << 25),
            "cut short: the padding of tensor 'wte' begins at offset 1200 and takes 536870736 bytes, \
             but the file ends at 5152 (the header describes 536874016 bytes)",
        ),
        (with_field(&good, 7, 100), "the file should end at offset 4704, but has 5152 bytes"),
        (good[..good.len() - 1].to_vec(), "cut short: tensor 'lnfb' begins at offset 5136 and takes 16 bytes"),
        (good[..3400].to_vec(), "cut short: layer 0 of tensor 'qkvw' begins at offset 3232 and takes 192 bytes"),
        ([&good[..], b"x"].concat(), "the file should end at offset 5152, but has 5153 bytes"),
        (padded, "a byte of tensor 'wte' in the rows beyond the vocabulary at offset 1205 is 7, expected 0"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let message = LlmcCheckpoint::load(&path).unwrap_err().to_string();
        assert!(message.contains(part), "{message} lacks {part}");
        assert_eq!(message.matches("model.bin").count(), 1, "{message}");
    }
    assert!(LlmcCheckpoint::load(&folder.path().join("absent")).unwrap_err().to_string().contains("absent"));
    let huge = with_field(&with_field(&with_field(&good, 6, 1 << 16), 4, 1 << 10), 3, 1 << 24);
    assert!(LlmcCheckpoint::parse(&huge).is_err());
}

#[test]
fn every_truncation_is_an_error() {
    let checkpoint = LlmcCheckpoint::new(weights(1), Version::Bf16).unwrap().to_bytes().unwrap();
    let state = debug_state().to_bytes(128).unwrap();
    let config = weights(1).config().clone();
    let tokenizer = LlmcTokenizer::new([&b"ab"[..], b"c"], 1).unwrap().to_bytes().unwrap();
    let shard = Shard::to_bytes(&[1, 2, 3]).unwrap();
    for length in 0..state.len() {
        assert!(length >= checkpoint.len() || LlmcCheckpoint::parse(&checkpoint[..length]).is_err(), "{length}");
        assert!(DebugState::parse(&state[..length], &config, 128).is_err(), "{length}");
        assert!(length >= tokenizer.len() || LlmcTokenizer::parse(&tokenizer[..length]).is_err(), "{length}");
        assert!(length >= shard.len() || Shard::parse(&shard[..length]).is_err(), "{length}");
    }
}

#[test]
fn debug_states_come_back_and_their_faults_are_named() {
    let state = debug_state();
    let config = state.gradients.config().clone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.bin");
    state.save(&path, 128).unwrap();
    assert_eq!(DebugState::load(&path, &config, 128).unwrap(), state);
    let good = std::fs::read(&path).unwrap();
    let length = 1024 + 8 * 10 + 4 * 110 + 4 + (5152 - 1024);
    assert_eq!(good.len(), length);
    let target = 1024 + 4 * 10 + 4 * 9;
    for (bytes, part) in [
        (with_field(&good, 1, 3), "field 'version' at offset 4 is 3, expected 1 or 2"),
        (with_field(&good, 1, 1), "the file should end at offset 3804, but has 5676 bytes"),
        (with_field(&good, 2, 0), "field 'batch_size' at offset 8 is 0, expected 1 to 2147483647"),
        (with_field(&good, 3, 7), "field 'seq_len' at offset 12 is 7, expected 1 to 6"),
        (with_field(&good, 2, i32::MAX), "cut short: the inputs begins at offset 1024"),
        (with_field(&good, 256, 11), "input 0 at offset 1024 is 11, expected a token id from 0 to 10"),
        (with_field(&good, target / 4, -1), "target 9 at offset 1100 is -1, expected a token id from 0 to 10"),
        (good[..1500].to_vec(), "cut short: the logits begins at offset 1104 and takes 440 bytes"),
        ([&good[..], b"xx"].concat(), "the file should end at offset 5676, but has 5678 bytes"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let message = DebugState::load(&path, &config, 128).unwrap_err().to_string();
        assert!(message.contains(part), "{message} lacks {part}");
        assert!(message.contains("state.bin"), "{message}");
    }
    // Version 1 has the rows of the vocabulary alone.
    state.save_version_1(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1024 + 8 * 10 + 4 * 110 + 4 + (3280 - 1024));
    assert_eq!(DebugState::load(&path, &config, 128).unwrap(), state);
    // The file does not say what model it is of: another one's does not fit.
    assert!(DebugState::parse(&good, &config, 11).is_err());
    assert!(DebugState::parse(&good, &config, 10).is_err());
    assert!(DebugState::parse(&good, &GptConfig { layers: 0, ..config.clone() }, 128).is_err());
    for wrong in [
        DebugState { inputs: vec![0; 9], ..state.clone() },
        DebugState { targets: vec![11; 10], ..state.clone() },
        DebugState { logits: Vec::new(), ..state.clone() },
        DebugState { rows: usize::MAX, ..state.clone() },
    ] {
        assert!(matches!(wrong.to_bytes(128), Err(LlmcError::Unwritable { .. })));
    }
    assert!(matches!(state.to_bytes(10), Err(LlmcError::Unwritable { .. })));
}

#[test]
fn gpt2s_vocabulary_goes_to_both_versions_and_decodes() {
    let gpt2 = LlmcTokenizer::of(&Tokenizer::gpt2()).unwrap();
    assert_eq!((gpt2.vocabulary(), gpt2.end_of_text()), (50_257, 50_256));
    assert_eq!(LlmcTokenizer::parse(&gpt2.to_bytes().unwrap()).unwrap(), gpt2);
    let version_1 = gpt2.to_version_1().unwrap();
    assert_eq!(version_1[4..16], [[1, 0, 0, 0], 50_257_i32.to_le_bytes(), [0; 4]].concat());
    assert_eq!(LlmcTokenizer::parse(&version_1).unwrap(), gpt2);
    let text = "naïve 🦀 日本\n";
    let tokens = Tokenizer::gpt2().encode(text).unwrap();
    assert_eq!(gpt2.decode(&tokens).unwrap(), text);
    assert!(gpt2.decode(&[50_257]).is_err());
    assert_eq!(gpt2.token(50_256), Some(&b"<|endoftext|>"[..]));
    let message = LlmcTokenizer::of(&Tokenizer::bytes()).unwrap_err().to_string();
    assert!(message.contains("the tokenizer 'bytes' is without an end of text"), "{message}");
    let small = LlmcTokenizer::new([&b"ab"[..], b"c"], 1).unwrap();
    assert!(matches!(small.to_version_1(), Err(LlmcError::Unwritable { .. })));
}

#[test]
fn faults_of_tokenizers_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.bin");
    let tokenizer = LlmcTokenizer::new([&b"ab"[..], b"c", b"d"], 1).unwrap();
    tokenizer.save(&path).unwrap();
    assert_eq!(LlmcTokenizer::load(&path).unwrap(), tokenizer);
    let good = std::fs::read(&path).unwrap();
    let mut empty = good.clone();
    empty[1027] = 0;
    for (bytes, part) in [
        (with_field(&good, 1, 3), "field 'version' at offset 4 is 3, expected 1 or 2"),
        (with_field(&good, 1, 1), "field 'vocab_size' at offset 8 is 3, expected 50257 to 50257"),
        (with_field(&good, 2, 0), "field 'vocab_size' at offset 8 is 0"),
        (with_field(&good, 3, 3), "field 'eot_token' at offset 12 is 3, expected 0 to 2"),
        (with_field(&good, 2, 4), "cut short: the length of token 3 of 4 begins at offset 1031 and takes 1 bytes"),
        (good[..1030].to_vec(), "cut short: token 2 of 3 begins at offset 1030 and takes 1 bytes"),
        (with_field(&good, 2, 2), "the file should end at offset 1029, but has 1031 bytes"),
        (empty, "the length of token 1 at offset 1027 is 0, expected 1 to 255"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let message = LlmcTokenizer::load(&path).unwrap_err().to_string();
        assert!(message.contains(part) && message.contains("tokenizer.bin"), "{message} lacks {part}");
    }
    for (tokens, end) in [(&[&b""[..]][..], 0), (&[&[0; 256][..]], 0), (&[b"a"], 1), (&[], 0)] {
        assert!(matches!(LlmcTokenizer::new(tokens.iter().copied(), end), Err(LlmcError::Unwritable { .. })));
    }
}

#[test]
fn faults_of_shards_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shard.bin");
    Shard::save(&path, &[1, 65_535, 3]).unwrap();
    let shard = Shard::open(&path).unwrap();
    assert_eq!((shard.tokens(), shard.read(1, 2).unwrap()), (3, vec![65_535, 3]));
    assert!(shard.read(2, 2).is_err() && shard.read(u64::MAX, 2).is_err());
    assert!(shard.read(3, 0).unwrap().is_empty());
    let good = std::fs::read(&path).unwrap();
    assert_eq!(Shard::parse(&good).unwrap(), [1, 65_535, 3]);
    for (bytes, part) in [
        (with_field(&good, 0, 20_240_801), "field 'magic' at offset 0 is 20240801, expected 20240520"),
        (with_field(&good, 1, 7), "field 'version' at offset 4 is 7, expected 1"),
        (with_field(&good, 2, 0), "field 'num_tokens' at offset 8 is 0, expected 1 to"),
        (with_field(&good, 2, -5), "field 'num_tokens' at offset 8 is -5"),
        (with_field(&good, 2, 2), "the file should end at offset 1028, but has 1030 bytes"),
        (
            with_field(&good, 2, i32::MAX),
            "cut short: token 3 of 2147483647 begins at offset 1030 and takes 2 bytes, but the file ends at 1030 \
             (the header describes 4294968318 bytes)",
        ),
        (good[..1029].to_vec(), "cut short: token 2 of 3 begins at offset 1028 and takes 2 bytes"),
        ([&good[..], b"x"].concat(), "the file should end at offset 1030, but has 1031 bytes"),
    ] {
        let parsed = Shard::parse(&bytes).unwrap_err().to_string();
        assert!(parsed.contains(part), "{parsed} lacks {part}");
        std::fs::write(&path, bytes).unwrap();
        let opened = Shard::open(&path).unwrap_err().to_string();
        assert!(opened.contains(part) && opened.contains("shard.bin"), "{opened} lacks {part}");
    }
    assert!(matches!(Shard::to_bytes(&[]), Err(LlmcError::Unwritable { .. })));
}

#[test]
fn shards_without_a_header_are_read_where_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.bin");
    let write = |ids: &[i32]| std::fs::write(&path, ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>());
    write(&[50_256, 0, 65_535]).unwrap();
    assert_eq!(Shard::read_headerless(&path).unwrap(), [50_256, 0, 65_535]);
    assert!(Shard::open(&path).is_err());
    let fault = || Shard::read_headerless(&path).unwrap_err().to_string();
    write(&[1, 65_536]).unwrap();
    assert!(fault().contains("old.bin': token 1 at offset 4 is 65536, expected an id from 0 to 65535"), "{}", fault());
    // A shard that has a header begins with its mark.
    Shard::save(&path, &[1, 2]).unwrap();
    assert!(fault().contains("token 0 at offset 0 is 20240520"), "{}", fault());
    for length in [0, 3, 5] {
        std::fs::write(&path, vec![0; length]).unwrap();
        assert!(fault().contains("cut short: token"), "{}", fault());
    }
}

#[test]
fn nothing_is_written_where_the_format_cannot_hold_it_or_the_disk_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shard.bin");
    Shard::save(&path, &[1]).unwrap();
    assert!(Shard::save(&path, &[]).unwrap_err().to_string().contains("shard.bin"));
    assert_eq!(Shard::open(&path).unwrap().read(0, 1).unwrap(), [1]);
    let message =
        LlmcCheckpoint::new(weights(1), Version::F32).unwrap().save(&folder.path().join("no/model.bin")).unwrap_err();
    let message = message.to_string();
    assert!(message.contains("model.bin': cannot write, what was there is untouched: creating"), "{message}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
