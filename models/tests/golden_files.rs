//! Files that `tests/golden/files.py` wrote straight from the formats' descriptions: what is read from them is what the
//! program put in, and what is written is those files again, byte for byte. The debug state is a test of the model as
//! well.

use std::path::{Path, PathBuf};

use fulgurite_models::config::GptConfig;
use fulgurite_models::dropout::Dropout;
use fulgurite_models::gpt2::Gpt2;
use fulgurite_models::hugging_face::Names;
use fulgurite_models::llmc::{DebugState, LlmcCheckpoint, LlmcTokenizer, Shard, Version};
use fulgurite_models::parameter_list::Parameters;
use fulgurite_models::step::{BatchTensors, loss_and_gradients};
use fulgurite_models::tensor_file::TensorFile;
use fulgurite_models::tokens::Tokens;
use fulgurite_models::weight_files::{Format, load};
use fulgurite_models::weights::FamilyWeights;
use fulgurite_models::{ModelConfig, Tokenizer, Weights, hugging_face};

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
        dropout: 0.0,
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
    let rounded = LlmcCheckpoint::new(weights, Version::Bf16).to_bytes().unwrap();
    assert!(rounded == std::fs::read(file("model_v5.bin")).unwrap());
}

fn gpt2(weights: Weights<ModelConfig>) -> Weights {
    match weights.by_family() {
        FamilyWeights::Gpt2(weights) => weights,
        FamilyWeights::Decoder(_) => panic!("expected a GPT-2"),
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
    let ours = hugging_face::tensor_file(&weights, Names::Plain);
    assert_eq!(ours.metadata, theirs.metadata);
    assert_eq!((ours.tensors.len(), theirs.tensors.len()), (28, 32));
    for (name, tensor) in &ours.tensors {
        assert_eq!(tensor, &theirs.tensors[name], "{name}");
    }
    let prefixed = hugging_face::tensor_file(&weights, Names::Prefixed);
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

    let ids = |ids: &[i32]| {
        let ids: Vec<i64> = ids.iter().map(|&id| id.into()).collect();
        fulgurite_runtime::Array::new([state.rows, state.context], &ids).unwrap()
    };
    let batch = BatchTensors { tokens: ids(&state.inputs), targets: ids(&state.targets) };
    let params = checkpoint.weights.params().unwrap();
    type Arguments<T> = (Parameters<T>, BatchTensors<T>, T);
    use fulgurite_ops::prelude::Tensor;
    let step = fulgurite_runtime::jit(|(params, batch, generator): Arguments<Tensor>| {
        let logits = Gpt2::of(&config, &params).logits(&config, batch.tokens, &Dropout::none());
        (logits, loss_and_gradients(&config, params, &batch, generator))
    });
    let generator = fulgurite_runtime::Array::new([2], &[0_i64, 0]).unwrap();
    type Results<T> = (T, (T, Parameters<T>));
    let (logits, (loss, gradients)): Results<fulgurite_runtime::Array> = step.call((params, batch, generator)).unwrap();
    let near = |found: &[f32], expected: &[f32], what: &str| {
        assert_eq!(found.len(), expected.len(), "{what}");
        for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!((found - expected).abs() <= 1e-5, "{what}[{index}]: {found}, expected {expected}");
        }
    };
    near(&logits.to_vec::<f32>().unwrap(), &state.logits, "logits");
    near(&loss.to_vec::<f32>().unwrap(), &[state.loss], "loss");
    let gradients = Weights::of(&config, &gradients).unwrap();
    for (name, expected) in state.gradients.tensors() {
        near(&gradients.tensor(name).unwrap().to_f32().unwrap(), &expected.to_f32().unwrap(), name);
    }
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
