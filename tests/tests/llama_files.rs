//! Small models as `transformers` writes them: their logits, and what is written of them again. The files are made by
//! `tests/golden/llama_files.py`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fulgurite_models::hugging_face::Names;
use fulgurite_models::tensor_file::TensorFile;
use fulgurite_models::weight_files::{Format, load, save};
use fulgurite_models::{Dropout, HostTensor, Model, Parameters, Tokenizer};
use fulgurite_runtime::{Array, Tensor, jit};
use serde_json::Value;

const TYPES: [&str; 8] = ["llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "gpt_neox"];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/llama_files")
}

/// All tensors of a folder, whatever files they are in.
fn tensors(folder: &Path) -> BTreeMap<String, HostTensor> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    files.flat_map(|path| TensorFile::load(&path).unwrap().tensors).collect()
}

fn logits(folder: &Path, tokens: &Array) -> Vec<f32> {
    let weights = load(folder, None).unwrap().weights;
    let config = weights.config().clone();
    let compute = jit(|(params, tokens): (Parameters<Tensor>, Tensor)| {
        config.head(&params, config.hidden(&params, tokens, &Dropout::none()))
    });
    let logits: Array = compute.call((weights.params().unwrap(), tokens.clone())).unwrap();
    logits.to_vec().unwrap()
}

#[test]
fn models_of_transformers_have_their_logits_and_are_written_again() {
    let root = golden();
    let expected = TensorFile::load(&root.join("expected.safetensors")).unwrap().tensors;
    let tokens = &expected["tokens"];
    let tokens = Array::from_bytes(tokens.shape(), tokens.dtype(), tokens.bytes()).unwrap();
    for name in TYPES {
        let (folder, expected) = (root.join(name), expected[name].to_f32().unwrap());
        let written = tempfile::tempdir().unwrap();
        let again = written.path().join("model.safetensors");
        let loaded = load(&folder, None).unwrap();
        assert_eq!(loaded.format, Format::HuggingFace);
        save(loaded.weights, Format::HuggingFace, &Tokenizer::bytes(), Names::Plain, &again).unwrap();
        assert!(tensors(written.path()) == tensors(&folder), "{name}: the same names and values");
        for folder in [&folder, written.path()] {
            let largest = expected.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            for (found, expected) in logits(folder, &tokens).iter().zip(&expected) {
                assert!((found - expected).abs() <= 1e-5 * largest, "{name}: {found}, transformers has {expected}");
            }
        }
        // What is written says the same of each field that both have.
        let [ours, theirs] = [written.path(), &folder].map(|folder| -> Value {
            serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap()
        });
        for (field, value) in ours.as_object().unwrap() {
            let other = theirs.get(field).filter(|other| !other.is_null());
            assert!(other.is_none_or(|other| other == value), "{name}: {field} is {value}, not {other:?}");
        }
    }
}

/// A copy of a folder in which `change` replaces the text of a file; the message that loading it gives.
fn complaint(of: &str, file: &str, change: impl Fn(String) -> String) -> String {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(golden().join(of)).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = folder.path().join(file);
    std::fs::write(&path, change(std::fs::read_to_string(&path).unwrap())).unwrap();
    load(folder.path(), None).unwrap_err().to_string()
}

#[test]
fn faulty_files_are_refused_with_what_is_wrong() {
    let (config, index) = ("config.json", "model.safetensors.index.json");
    let replaced = |from: &'static str, to: &'static str| {
        move |text: String| {
            assert!(text.contains(from), "{text}");
            text.replace(from, to)
        }
    };
    let [first, second] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    for (message, expected) in [
        (
            complaint("llama", config, replaced("\"llama\"", "\"gpt2\"")),
            "config.json': model_type is 'gpt2', which is not supported, expected one of llama, mistral",
        ),
        (
            complaint("llama", config, replaced("\"num_attention_heads\": 4", "\"num_attention_heads\": 3")),
            "config.json': n_query_groups is 2, expected a divisor of n_head, 3",
        ),
        (
            complaint("qwen3", config, replaced("\"hidden_size\": 16", "\"hidden_size\": 20")),
            "tensor \"model.embed_tokens.weight\" has shape [31, 16], expected [31, 20]",
        ),
        (
            complaint("qwen3", config, replaced("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3")),
            "tensor \"model.layers.2.input_layernorm.weight\" is missing",
        ),
        (
            complaint("qwen3", config, replaced("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1")),
            "tensor \"model.layers.1.input_layernorm.weight\" belongs to no parameter of the model",
        ),
        (
            complaint("qwen3", config, replaced("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true")),
            "tensor \"lm_head.weight\" differs from the embedding",
        ),
        (complaint("llama", config, replaced("\"llama3\"", "\"yarn\"")), "rope_type is 'yarn', which is not supported"),
        (complaint("llama", config, |_| "{".into()), "config.json': EOF while parsing"),
        (
            complaint("llama", config, replaced("\"attention_bias\": false", "\"attention_bias\": true")),
            "attention_bias is true, which is not supported, expected false",
        ),
        (complaint("llama", index, |_| "{}".into()), "index.json': has no object weight_map"),
        (
            complaint("llama", index, replaced(second, "../model.safetensors")),
            "weight_map has a value that is no name of a file",
        ),
        (complaint("llama", index, replaced(second, first)), "which its file does not have"),
        (
            complaint("llama", index, replaced("\"lm_head.weight\"", "\"lm_head\"")),
            "has the tensor \"lm_head.weight\", which weight_map does not say",
        ),
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn an_index_that_is_absent_is_not_replaced_by_another_file() {
    let path = golden().join("qwen3/model-typo.safetensors.index.json");
    let message = load(&path, None).unwrap_err().to_string();
    assert!(message.contains("model-typo.safetensors.index.json': No such file"), "{message}");
}

#[test]
fn a_whole_file_comes_before_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let weights = load(&golden().join("llama"), None).unwrap().weights;
    std::fs::write(folder.path().join("model.safetensors.index.json"), "{}").unwrap();
    let path = folder.path().join("model.safetensors");
    save(weights.clone(), Format::HuggingFace, &Tokenizer::bytes(), Names::Plain, &path).unwrap();
    assert!(load(folder.path(), None).unwrap().weights == weights);
}

#[test]
fn a_head_that_the_model_does_not_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(golden().join("qwen3/config.json"), folder.path().join("config.json")).unwrap();
    let mut all = tensors(&golden().join("qwen3"));
    all.insert("embed_out.weight".into(), HostTensor::from_f32(&[1], &[0.0]).unwrap());
    let mut file = std::fs::File::create(folder.path().join("model.safetensors")).unwrap();
    TensorFile::write(&BTreeMap::new(), &all, &mut file).unwrap();
    let message = load(folder.path(), None).unwrap_err().to_string();
    assert!(message.contains("\"embed_out.weight\" belongs to no parameter"), "{message}");
}

#[test]
fn a_configuration_of_another_model_is_not_replaced() {
    let weights = |name: &str| load(&golden().join(name), None).unwrap().weights;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let write = |name: &str| save(weights(name), Format::HuggingFace, &Tokenizer::bytes(), Names::Plain, &path);
    write("llama").unwrap();
    write("llama").unwrap();
    let message = write("qwen2").unwrap_err().to_string();
    assert!(message.contains("config.json': is there already"), "{message}");
}
