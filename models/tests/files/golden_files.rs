//! Files that `tests/golden/files.py` wrote straight from the formats' descriptions: what is read from them is what the
//! program put in, and what is written is those files again, byte for byte. The debug state is a test of the model as
//! well.

use std::path::{Path, PathBuf};

use fulgurite_models::config::GptConfig;
use fulgurite_models::debug;
use fulgurite_models::hugging_face::Names;
use fulgurite_models::llmc::{DebugState, LlmcCheckpoint, LlmcTokenizer, Shard, Version};
use fulgurite_models::tensor_file::TensorFile;
use fulgurite_models::tokens::Tokens;
use fulgurite_models::weight_files::{Format, load};
use fulgurite_models::weights::FamilyWeights;
use fulgurite_models::{ModelConfig, Tokenizer, Weights, hugging_face};
use fulgurite_runtime::Device;
use fulgurite_runtime::compile::Options;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/files").join(name)
}

fn values() -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(file("values.json")).unwrap()).unwrap()
}

fn floats(value: &serde_json::Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

fn integers(value: &serde_json::Value) -> Vec<i32> {
    value.as_array().unwrap().iter().map(|number| number.as_i64().unwrap() as i32).collect()
}

/// Compares the tensors that the table lists; says how many they were.
fn compare(weights: &Weights, table: &serde_json::Value) -> usize {
    let table = table.as_object().unwrap();
    for (name, expected) in table {
        assert_eq!(weights.tensor(name).unwrap().to_f32().unwrap(), floats(expected), "{name}");
    }
    table.len()
}

fn check_model(weights: &Weights) {
    let size = |name: &str| values()["model"][name].as_u64().unwrap() as usize;
    let expected = GptConfig {
        vocabulary: size("vocabulary"),
        context: size("context"),
        layers: size("layers"),
        heads: size("heads"),
        channels: size("channels"),
        ..GptConfig::GPT2
    };
    assert_eq!(weights.config(), &expected);
}

#[test]
fn checkpoints_of_llmc_hold_what_was_written_and_write_back() {
    let values = values();
    for (name, version, rows, table, tensors) in [
        ("model_v3.bin", Version::F32, 128, "f32", 28),
        ("model_v1.bin", Version::F32Unpadded, 11, "f32", 28),
        ("model_v5.bin", Version::Bf16, 128, "bf16", 3),
    ] {
        let read = LlmcCheckpoint::load(&file(name)).unwrap();
        assert_eq!((read.version, read.padded_vocabulary), (version, rows), "{name}");
        check_model(&read.weights);
        assert_eq!(compare(&read.weights, &values[table]), tensors, "{name}");
        assert!(read.to_bytes().unwrap() == std::fs::read(file(name)).unwrap(), "{name}");
    }
    // Rounding to bf16 is the script's own.
    let weights = LlmcCheckpoint::load(&file("model_v3.bin")).unwrap().weights;
    let rounded = LlmcCheckpoint::new(weights, Version::Bf16).unwrap().to_bytes().unwrap();
    assert!(rounded == std::fs::read(file("model_v5.bin")).unwrap());
}

fn gpt2(weights: Weights<ModelConfig>) -> Weights {
    match weights.by_family() {
        FamilyWeights::Gpt2(weights) => weights,
        FamilyWeights::Decoder(_) | FamilyWeights::Images(_) => panic!("expected a GPT-2"),
    }
}

#[test]
fn safetensors_hold_what_was_written_under_either_names() {
    let values = values();
    for (name, table, tensors) in
        [("plain.safetensors", "f32", 28), ("prefixed.safetensors", "f16", 3), ("bf16.safetensors", "bf16", 3)]
    {
        let read = load(&file(name), None).unwrap();
        assert_eq!(read.format, Format::HuggingFace);
        let weights = gpt2(read.weights);
        check_model(&weights);
        assert_eq!(compare(&weights, &values[table]), tensors, "{name}");
    }
    // What is written has the tensors of the file, but for the buffers.
    let theirs = TensorFile::load(&file("plain.safetensors")).unwrap();
    let weights = gpt2(load(&file("plain.safetensors"), None).unwrap().weights);
    let ours = hugging_face::tensor_file(&weights, Names::Plain).unwrap();
    assert_eq!(ours.metadata, theirs.metadata);
    assert_eq!((ours.tensors.len(), theirs.tensors.len()), (28, 32));
    for (name, tensor) in &ours.tensors {
        assert_eq!(tensor, &theirs.tensors[name], "{name}");
    }
    let prefixed = hugging_face::tensor_file(&weights, Names::Prefixed).unwrap();
    let theirs = TensorFile::load(&file("prefixed.safetensors")).unwrap();
    assert!(prefixed.tensors.keys().all(|name| theirs.tensors.contains_key(name)));
}

#[test]
fn the_debug_state_is_what_the_model_computes() {
    let checkpoint = LlmcCheckpoint::load(&file("model_v3.bin")).unwrap();
    let config = checkpoint.weights.config().clone();
    let state = DebugState::load(&file("debug_state.bin"), &config, checkpoint.padded_vocabulary).unwrap();
    assert!(state.to_bytes(128).unwrap() == std::fs::read(file("debug_state.bin")).unwrap());
    let values = values();
    assert_eq!((&state.inputs, &state.targets), (&integers(&values["inputs"]), &integers(&values["targets"])));
    assert_eq!(state.logits, floats(&values["logits"]));
    assert_eq!(state.loss, values["loss"].as_f64().unwrap() as f32);
    assert_eq!(compare(&state.gradients, &values["gradients"]), 28);

    let batch = [state.inputs.clone(), state.targets.clone()];
    let shape = [state.rows, state.context];
    let mut found = debug::state_of(&checkpoint.weights, shape, batch, Device::CPU, &Options::default()).unwrap();
    let all = debug::compare(&found, &state);
    assert_eq!(all.len(), 2 + 28);
    for one in &all {
        assert!(one.difference <= 1e-5 && one.within(1e-4), "{one:?}");
    }
    // One wrong number is found in its place.
    found.logits[37] = f32::NAN;
    let wrong = &debug::compare(&found, &state)[0];
    assert!(!wrong.within(1.0) && wrong.indices() == [37 / 11 / state.context, 37 / 11 % state.context, 37 % 11]);
}

#[test]
fn the_tokenizer_and_the_shard_hold_what_was_written_and_write_back() {
    let values = values();
    let tokenizer = LlmcTokenizer::load(&file("tokenizer.bin")).unwrap();
    let expected: Vec<String> =
        values["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap().to_owned()).collect();
    let hex = |id: u32| tokenizer.token(id).unwrap().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!((0..tokenizer.vocabulary() as u32).map(hex).collect::<Vec<_>>(), expected);
    assert_eq!(tokenizer.end_of_text(), 10);
    assert_eq!(tokenizer.decode(&[0, 2, 4, 5, 3, 10]).unwrap(), "a the€\n<|endoftext|>");
    assert!(tokenizer.to_bytes().unwrap() == std::fs::read(file("tokenizer.bin")).unwrap());

    let bytes = std::fs::read(file("shard.bin")).unwrap();
    let tokens = Shard::parse(&bytes).unwrap();
    assert_eq!(tokens.iter().map(|&id| i32::from(id)).collect::<Vec<_>>(), integers(&values["shard"]));
    assert!(Shard::to_bytes(&tokens).unwrap() == bytes);
    let stream = Tokens::open_shards(&[file("shard.bin")], Tokenizer::gpt2()).unwrap();
    let wide: Vec<u32> = tokens[100..200].iter().map(|&id| id.into()).collect();
    assert_eq!(stream.read(100, 100).unwrap(), wide);
}
