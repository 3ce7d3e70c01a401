//! Small models as `transformers` and LitGPT write them: their logits, what they generate, and what is written of them
//! again. The files are made by `llama_files.py`, `greedy.py` and `torch_files.py` of `tests/golden`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fulgurite_models::generate::{Request, generate};
use fulgurite_models::hugging_face::Names;
use fulgurite_models::sampling::Sampling;
use fulgurite_models::tensor_file::TensorFile;
use fulgurite_models::weight_files::{Format, load, save};
use fulgurite_models::{Dropout, HostTensor, Model, Parameters, Tokenizer};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::{Array, DType, Device, Tensor, jit};
use serde_json::Value;

const TYPES: [&str; 8] = ["llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "gpt_neox"];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/llama_files")
}

fn torch_files() -> PathBuf {
    golden().with_file_name("torch_files")
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
            complaint("llama", config, replaced("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3")),
            "tensor \"model.layers.2.input_layernorm.weight\" is missing",
        ),
        (
            complaint("llama", config, replaced("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1")),
            "tensor \"model.layers.1.input_layernorm.weight\" belongs to no parameter of the model",
        ),
        (
            complaint("qwen3", config, replaced("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true")),
            "tensor \"lm_head.weight\" differs from the embedding",
        ),
        (
            complaint("llama", config, replaced("\"llama3\"", "\"yarn\"")),
            "high_freq_factor is 4.0, and a rotation has no such field here",
        ),
        (
            complaint("llama", config, replaced("\"llama3\"", "\"proportional\"")),
            "rope_type is 'proportional', which is not supported, expected default, linear, llama3, yarn, dynamic or",
        ),
        (complaint("llama", config, |_| "{".into()), "config.json': EOF while parsing"),
        (
            complaint("llama", config, replaced("\"attention_bias\": false", "\"attention_bias\": true")),
            "tensor \"model.layers.0.self_attn.q_proj.bias\" is missing",
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

/// With a cache and without one, alone and in a batch of prompts of different lengths.
#[test]
fn the_tokens_of_transformers_are_generated() {
    let tokenizer = Tokenizer::open(golden().join("tokenizer.json").to_str().unwrap()).unwrap();
    let expected: Value = serde_json::from_slice(&std::fs::read(golden().join("greedy.json")).unwrap()).unwrap();
    let of = |name: &str| serde_json::from_value::<Vec<Vec<u32>>>(expected[name].clone()).unwrap();
    let words = |tokens: &Vec<u32>| tokens.iter().map(|token| format!("t{token}")).collect::<Vec<_>>().join(" ");
    let prompts: Vec<String> = of("prompts").iter().map(words).collect();
    for name in TYPES.into_iter().chain(["gpt2"]) {
        let weights = load(&golden().join(name), None).unwrap().weights;
        let params = weights.placed(DType::F32, Device::CPU).unwrap();
        let expected = of(name);
        for cache in [None, Some(0)] {
            let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
            let mut request = Request::new("", expected[0].len(), sampling);
            (request.prompts, request.cache) = (prompts.clone(), cache);
            let options = Options::default();
            let texts = generate(weights.config(), &tokenizer, &params, &request, &options, &mut |_, _| {}).unwrap();
            let found: Vec<Vec<u32>> = texts.into_iter().map(|text| text.tokens).collect();
            assert_eq!(found, expected, "{name}, cache {cache:?}");
        }
    }
}

#[test]
fn decoders_of_litgpt_have_their_logits_and_are_written_again() {
    let expected = TensorFile::load(&torch_files().join("expected.safetensors")).unwrap().tensors;
    let tokens = expected["tokens"].to_array().unwrap();
    for name in ["litgpt", "litgpt_old"] {
        let (folder, expected) = (torch_files().join(name), expected[name].to_f32().unwrap());
        let loaded = load(&folder, None).unwrap();
        assert_eq!(loaded.format, Format::LitGpt);
        let written = tempfile::tempdir().unwrap();
        let again = written.path().join("lit_model.pth");
        save(loaded.weights.clone(), Format::LitGpt, &Tokenizer::bytes(), Names::Plain, &again).unwrap();
        let other = written.path().join("model.safetensors");
        let write_other =
            || save(loaded.weights.clone(), Format::HuggingFace, &Tokenizer::bytes(), Names::Plain, &other);
        // transformers has no Gemma with biases.
        assert_eq!(write_other().is_ok(), name == "litgpt_old");
        let others = if name == "litgpt_old" { vec![other.as_path()] } else { vec![] };
        for path in [&folder, &again].into_iter().map(|path| path.as_path()).chain(others) {
            let largest = expected.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            for (found, expected) in logits(path, &tokens).iter().zip(&expected) {
                assert!((found - expected).abs() <= 1e-5 * largest, "{name}: {found}, LitGPT has {expected}");
            }
        }
        assert!(load(&again, None).unwrap().weights.tensors() == loaded.weights.tensors());
    }
}

#[test]
fn files_of_torch_save_are_the_same_models() {
    for (name, of) in [("bin", "qwen3"), ("gpt2", "gpt2")] {
        let [from_torch, expected] =
            [torch_files().join(name), golden().join(of)].map(|path| load(&path, None).unwrap());
        assert!(from_torch == expected, "{name}");
    }
    let index = load(&torch_files().join("bin/pytorch_model.bin.index.json"), None).unwrap();
    let file = load(&torch_files().join("gpt2/pytorch_model.bin"), None).unwrap();
    assert!(index == load(&torch_files().join("bin"), None).unwrap());
    assert!(file == load(&torch_files().join("gpt2"), None).unwrap());
}

#[test]
fn an_output_projection_that_is_the_embedding_is_one_for_litgpt_too() {
    let weights = load(&golden().join("qwen2"), None).unwrap().weights;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lit_model.pth");
    save(weights.clone(), Format::LitGpt, &Tokenizer::bytes(), Names::Plain, &path).unwrap();
    let both = fulgurite_models::torch::load(&path).unwrap();
    assert!(both["lm_head.weight"] == both["transformer.wte.weight"]);
    let read = load(folder.path(), None).unwrap().weights;
    assert!(read.tensors() == weights.tensors());
}

#[test]
fn faulty_files_of_litgpt_are_refused_with_what_is_wrong() {
    let complain = |from: &str, to: &str| {
        let folder = tempfile::tempdir().unwrap();
        let of = torch_files().join("litgpt_old");
        std::fs::copy(of.join("lit_model.pth"), folder.path().join("lit_model.pth")).unwrap();
        let text = std::fs::read_to_string(of.join("model_config.yaml")).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(folder.path().join("model_config.yaml"), text.replace(from, to)).unwrap();
        load(folder.path(), None).unwrap_err().to_string()
    };
    for (from, to, expected) in [
        ("n_layer: 2", "n_layer: 3", "tensor \"transformer.h.2.norm_1.weight\" is missing"),
        ("n_layer: 2", "n_layer: 1", "tensor \"transformer.h.1.attn.attn.weight\" belongs to no parameter"),
        ("intermediate_size: 24", "intermediate_size: 32", "has shape [24, 16], expected [32, 16]"),
        ("n_query_groups: 2", "n_query_groups: 3", "n_query_groups is 3, expected a divisor of n_head, 4"),
        ("n_layer: 2", "n_layers: 2", "model_config.yaml': line 21: a llama has no field 'n_layers', did you mean"),
        ("norm_1: true", "norm_1: false", "tensor \"transformer.h.0.norm_1.weight\" belongs to no parameter"),
        ("n_head: 4", "n_head: four", "n_head: invalid type: string"),
        ("n_head: 4", "n_head: [", "model_config.yaml': line "),
    ] {
        let message = complain(from, to);
        assert!(message.contains(expected), "{message}");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(torch_files().join("litgpt/lit_model.pth"), folder.path().join("lit_model.pth")).unwrap();
    let message = load(folder.path(), None).unwrap_err().to_string();
    assert!(message.contains("model_config.yaml': No such file"), "{message}");
    let message = load(&folder.path().join("absent"), None).unwrap_err().to_string();
    assert!(message.contains("absent"), "{message}");
}
