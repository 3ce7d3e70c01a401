//! Every key of every foreign configuration: with another value the logits are others, the file is refused, or the key
//! is in a list of those that change nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fulgurite_ops::prelude::Tensor;
use fulgurite_runtime::{Array, jit};
use serde_json::{Value, json};

use super::{Format, load, save};
use crate::config_fields::HARMLESS;
use crate::decoder::{DecoderConfig, MlpClass, families, litgpt};
use crate::gpt2_config_file::HARMLESS_OF_GPT2;
use crate::hugging_face::Names;
use crate::initialize::initial_values;
use crate::{Dropout, GptConfig, HostTensor, Model, ModelConfig, Parameters, Tokenizer, Weights};

/// Tokens of a vocabulary of 31 or more.
fn tokens(length: usize) -> Array {
    Array::new([2, length], &(0..2 * length as i64).map(|i| i * 7 % 31).collect::<Vec<i64>>()).unwrap()
}

/// Those of 8 positions, and where rotations depend on the length, of 4 as well.
fn logits(weights: &Weights<ModelConfig>) -> Vec<f32> {
    let config = weights.config().clone();
    let is_scaled = matches!(&config, ModelConfig::Decoder(decoder) if decoder.rope_scaling.is_some());
    let compute = jit(move |(params, tokens): (Parameters<Tensor>, Tensor)| {
        config.head(&params, config.hidden(&params, tokens, &Dropout::none()))
    });
    let params = weights.params().unwrap();
    let lengths = if is_scaled { &[8, 4][..] } else { &[8] };
    let of = |length: &usize| -> Vec<f32> {
        let logits: Array = compute.call((params.clone(), tokens(*length))).unwrap();
        logits.to_vec().unwrap()
    };
    lengths.iter().flat_map(of).collect()
}

/// Other values in place of one.
fn others(key: &str, value: &Value) -> Vec<Value> {
    match value {
        // Of a name, another function of the same kind too.
        _ if ["activation_function", "hidden_act"].contains(&key) => ["relu", "gelu_new", "silu", "other"]
            .into_iter()
            .map(Value::from)
            .filter(|other| other != value && !(value == "gelu_pytorch_tanh" && other == "gelu_new"))
            .collect(),
        Value::Bool(is) => vec![json!(!is), json!("other")],
        Value::Number(number) => match number.as_u64() {
            Some(whole) => vec![json!(whole + 1), json!(whole * 2 + 2), json!("other")],
            None => vec![json!(number.as_f64().unwrap() * 1.5 + 1e-3), json!("other")],
        },
        Value::String(_) => vec![json!("other"), json!(3)],
        Value::Null => vec![json!(2), json!(0.75), json!(true), json!("other"), json!([1, 0]), json!({"factor": 2.0})],
        Value::Array(items) => vec![Value::from(items.iter().rev().cloned().collect::<Vec<_>>()), json!([]), json!(3)],
        Value::Object(fields) => {
            let changed = |key: &String, value: &Value| -> Vec<Value> {
                let with = |other: Value| {
                    let mut fields = fields.clone();
                    fields.insert(key.clone(), other);
                    Value::Object(fields)
                };
                others(key, value).into_iter().map(with).collect()
            };
            let unknown = changed(&"surprise".to_owned(), &json!(1));
            fields.iter().flat_map(|(key, value)| changed(key, value)).chain(unknown).chain([json!(3)]).collect()
        }
    }
}

/// How many changed values of a family's keys ended in which way.
#[derive(Debug, Default, PartialEq)]
struct Count {
    moved: usize,
    refused: usize,
    harmless: usize,
}

/// Writes every file with one key changed, and loads the folder. `more` are keys that the file lacks; `harmless` says
/// which ones are in a list, and `unused` are those that this model does not need, though their values are checked.
fn each_key(
    (of, file): (&str, &Value),
    more: &[&str],
    (harmless, unused): (&dyn Fn(&str) -> bool, &[&str]),
    write: &dyn Fn(&Value),
    folder: &Path,
) -> Count {
    write(file);
    let base = load(folder, None).unwrap().weights;
    let own = logits(&base);
    let mut keys: BTreeMap<&str, &Value> = more.iter().map(|key| (*key, &Value::Null)).collect();
    keys.extend(file.as_object().unwrap().iter().map(|(key, value)| (key.as_str(), value)));
    let mut count = Count::default();
    for (key, value) in keys {
        for other in others(key, value).into_iter().filter(|other| other != value) {
            let mut changed = file.clone();
            changed[key] = other.clone();
            write(&changed);
            let what = format!("{of}: {key} is {other} in place of {value}");
            match load(folder, None) {
                Err(_) if harmless(key) => panic!("{what}: is in the list of what changes nothing, but refused"),
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    count.refused += 1;
                }
                Ok(loaded) if loaded.weights.config() == base.config() => {
                    assert!(harmless(key), "{what}: is read as if it said nothing");
                    assert_eq!(loaded.weights.tensors(), base.tensors());
                    count.harmless += 1;
                }
                // A longer or shorter context has the same logits within both.
                Ok(loaded) if loaded.weights.config().context() != base.config().context() => count.moved += 1,
                Ok(loaded) => {
                    let moved = logits(&loaded.weights) != own;
                    assert!(moved || harmless(key) || unused.contains(&key), "{what}: the logits are the same");
                    count.moved += usize::from(moved);
                }
            }
        }
    }
    count
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/llama_files").join(name)
}

/// A copy of a folder, and its `config.json`.
fn copied(from: &Path) -> (tempfile::TempDir, Value) {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let file = serde_json::from_slice(&std::fs::read(folder.path().join("config.json")).unwrap()).unwrap();
    (folder, file)
}

/// The folder of a model of `decoder_files`, with random weights, and its `config.json`.
fn made(name: &str) -> (tempfile::TempDir, Value) {
    let path = golden("").with_file_name("decoder_files").join(format!("{name}.json"));
    let case: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut random = crate::random::Stream::new(7, 0xC0F2);
    let mut tensors = BTreeMap::new();
    for (name, known) in case["tensors"].as_object().unwrap() {
        let shape: Vec<usize> = serde_json::from_value(known["shape"].clone()).unwrap();
        let gain = if shape.len() == 1 && name.ends_with(".weight") { 1.0 } else { 0.0 };
        let mut value = |_| random.below(1000) as f32 / 1400.0 - 0.35 + gain;
        let values: Vec<f32> = (0..shape.iter().product()).map(&mut value).collect();
        tensors.insert(name.clone(), HostTensor::from_f32(&shape, &values).unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let mut file = std::fs::File::create(folder.path().join("model.safetensors")).unwrap();
    crate::tensor_file::TensorFile::write(&BTreeMap::new(), &tensors, &mut file).unwrap();
    (folder, case["config"].clone())
}

/// Random weights that are large enough for every number to show in the logits.
fn weights(config: ModelConfig) -> Weights<ModelConfig> {
    let made = |parameter: &crate::config::Parameter| {
        let values: Vec<f32> = initial_values(parameter, 3).iter().map(|value| value * 10.0 + 0.05).collect();
        (parameter.name.clone(), HostTensor::from_f32(&parameter.shape, &values).unwrap())
    };
    let tensors = config.parameters().iter().map(made).collect();
    Weights::new(config, tensors).unwrap()
}

/// Keys of `transformers` that one type or another has.
const MORE: [&str; 66] = [
    "surprise",
    "attention_bias",
    "mlp_bias",
    "quantization_config",
    "auto_map",
    "is_encoder_decoder",
    "add_cross_attention",
    "pruned_heads",
    "sliding_window",
    "use_sliding_window",
    "use_mrope",
    "layer_types",
    "rope_theta",
    "rope_scaling",
    "partial_rotary_factor",
    "rotary_pct",
    "rotary_emb_base",
    "head_dim",
    "hidden_act",
    "hidden_activation",
    "use_bidirectional_attention",
    "query_pre_attn_scalar",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "num_local_experts",
    "num_experts_per_tok",
    "use_parallel_residual",
    "attention_multiplier",
    "embedding_multiplier",
    "logits_scaling",
    "residual_multiplier",
    "no_rope_layers",
    "n_inner",
    "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx",
    "layer_norm_epsilon",
    "activation_function",
    "clip_qkv",
    "use_bias",
    "bias",
    "enable_bias",
    "use_qkv_bias",
    "qk_layernorm",
    "alibi",
    "multi_query",
    "new_decoder_architecture",
    "parallel_attn",
    "num_kv_heads",
    "num_ln_in_parallel_attn",
    "ffn_hidden_size",
    "ffn_dim",
    "word_embed_proj_dim",
    "do_layer_norm_before",
    "_remove_final_layer_norm",
    "layer_norm_elementwise_affine",
    "num_experts",
    "moe_intermediate_size",
    "norm_topk_prob",
    "decoder_sparse_step",
    "mlp_only_layers",
    "no_rope_layer_interval",
    "original_max_position_embeddings",
    "rope_local_base_freq",
    "sliding_window_pattern",
    "norm_epsilon",
    "activation",
];

/// The keys of a type's `config.json` in a folder with a model of it.
fn each_key_of_type(name: &str, (folder, file): &(tempfile::TempDir, Value)) -> Count {
    let of_type = |(_, own, ..): &&(_, &str, _, _)| *own == file["model_type"];
    let (kind, ..) = families::KINDS.iter().find(of_type).unwrap();
    let path = folder.path().join("config.json");
    let write = |file: &Value| std::fs::write(&path, file.to_string()).unwrap();
    let list = families::harmless(*kind, file);
    let harmless = |key: &str| key != "model_type" && list.iter().any(|(own, _)| *own == key);
    // All of its layers have experts, which have a width of their own.
    let unused: &[&str] = if name == "qwen3_moe_window" { &["intermediate_size"] } else { &[] };
    each_key((name, file), &MORE, (&harmless, unused), &write, folder.path())
}

#[test]
fn each_key_of_transformers_decoders_moves_the_logits_or_is_refused() {
    for name in ["llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "gpt_neox"] {
        let (folder, mut file) = copied(&golden(name));
        if name == "gpt_neox" {
            // Half of a head of 4 is one rotation, which is the same with every base.
            file["rope_parameters"]["partial_rotary_factor"] = json!(1.0);
        }
        let count = each_key_of_type(name, &(folder, file));
        assert!(count.moved >= 4 && count.refused > 60 && count.harmless > 10, "{name}: {count:?}");
    }
}

#[test]
fn each_key_of_newer_decoders_moves_the_logits_or_is_refused() {
    for (_, name, ..) in families::KINDS.into_iter().skip(8) {
        let count = each_key_of_type(name, &made(name));
        assert!(count.moved >= 2 && count.refused > 60 && count.harmless > 10, "{name}: {count:?}");
    }
}

/// The keys of what a type has beside its usual form.
#[test]
fn each_key_of_other_forms_moves_the_logits_or_is_refused() {
    let with = |name: &str, changes: &[(&str, Value)]| {
        let (folder, mut file) = made(name);
        changes.iter().for_each(|(pointer, value)| *file.pointer_mut(pointer).unwrap() = value.clone());
        (folder, file)
    };
    let longrope = ["/original_max_position_embeddings", "/rope_parameters/original_max_position_embeddings"];
    let longrope = longrope.map(|key| (key, json!(6)));
    for (name, made) in [
        ("llama_yarn", made("llama_yarn")),
        // Sequences of 8 positions are longer than these contexts.
        ("llama_dynamic", with("llama_dynamic", &[("/max_position_embeddings", json!(4))])),
        ("phi3_longrope", with("phi3_longrope", &longrope)),
        ("qwen2_window", made("qwen2_window")),
        ("qwen3_moe_window", made("qwen3_moe_window")),
        ("phi_qk", made("phi_qk")),
        ("stablelm_qk", made("stablelm_qk")),
        ("falcon_grouped", made("falcon_grouped")),
        ("falcon_serial", made("falcon_serial")),
        ("opt_after", made("opt_after")),
    ] {
        let count = each_key_of_type(name, &made);
        assert!(count.moved >= 2 && count.refused > 60 && count.harmless > 10, "{name}: {count:?}");
    }
}

#[test]
fn each_key_of_gpt2_moves_the_logits_or_is_refused() {
    let usual = GptConfig { vocabulary: 31, context: 8, layers: 2, heads: 2, channels: 16, ..GptConfig::GPT2 };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let model = folder.path().join("model.safetensors");
    save(weights(usual.into()), Format::HuggingFace, &Tokenizer::bytes(), Names::Plain, &model).unwrap();
    // As others write it: without the number of heads.
    let mut tensors = crate::tensor_file::TensorFile::load(&model).unwrap();
    tensors.metadata.remove("n_head");
    let mut bytes = Vec::new();
    crate::tensor_file::TensorFile::write(&tensors.metadata, &tensors.tensors, &mut bytes).unwrap();
    std::fs::write(&model, bytes).unwrap();
    let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let write = |file: &Value| std::fs::write(&path, file.to_string()).unwrap();
    let listed = [&HARMLESS[..], &HARMLESS_OF_GPT2].concat();
    let harmless = |key: &str| key != "model_type" && listed.iter().any(|(own, _)| *own == key);
    let keys: Vec<&str> = MORE.into_iter().chain(listed.iter().map(|(key, _)| *key)).collect();
    let count = each_key(("gpt2", &file), &keys, (&harmless, &[]), &write, folder.path());
    // Two functions, the epsilon and the two flags of scores; sizes are those of the tensors, or refused.
    assert!(count.moved == 5 && count.refused > 60 && count.harmless > 100, "{count:?}");
    // Every name of an activation is a function of its own, or another name for one.
    let mut found: Vec<Vec<f32>> = Vec::new();
    for name in crate::activation::Activation::names().split(", ") {
        let mut changed = file.clone();
        changed["activation_function"] = json!(name);
        write(&changed);
        let of_name = logits(&load(folder.path(), None).unwrap().weights);
        if !found.contains(&of_name) {
            found.push(of_name);
        }
    }
    assert_eq!(found.len(), 14, "14 functions");
}

#[test]
fn each_key_of_litgpt_moves_the_logits_or_is_refused() {
    let small = |name: &str, more: &[&str]| {
        let mut config = DecoderConfig::named(name, 64).unwrap();
        let sizes =
            ["n_layer=2", "n_embd=16", "n_head=4", "padded_vocab_size=64", "block_size=8", "intermediate_size=24"];
        sizes.iter().chain(more).for_each(|field| config.set(field).unwrap());
        config
    };
    for config in [
        small("pythia-70m", &["rotary_percentage=0.5", "n_query_groups=4", "head_size=8"]),
        small("Llama-2-7b", &["n_query_groups=2", "head_size=4"]),
        small("Gemma-2-2b", &["n_query_groups=2", "head_size=4", "sliding_window_size=3"]),
        small("Mixtral-8x7B-v0.1", &["n_query_groups=2", "head_size=4", "n_expert=4"]),
        small(
            "Gemma-3-1b-it",
            &[
                "n_query_groups=2",
                "head_size=4",
                "sliding_window_size=3",
                "sliding_window_indices=[1,0]",
                "rope_indices=[1,0]",
            ],
        ),
        small("OLMo-1B-hf", &["n_query_groups=2", "head_size=4"]),
        small("OLMo-2-1124-7B", &["n_query_groups=2", "head_size=4"]),
    ] {
        let name = config.name.clone();
        // All layers of the first have a bias, and the others have no GELU, or Gemma's.
        let unused: &[&str] = match (config.bias, config.mlp_class_name) {
            (true, _) => &["attn_bias"],
            (false, MlpClass::Gemma) => &[],
            (false, _) => &["gelu_approximate"],
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model_config.yaml");
        let model = folder.path().join("lit_model.pth");
        save(weights(config.into()), Format::LitGpt, &Tokenizer::bytes(), Names::Plain, &model).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let read = |text: &str| match text.parse::<f64>() {
            Ok(number) if text.contains('.') => json!(number),
            _ => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        };
        let fields = text.lines().map(|line| line.split_once(": ").unwrap());
        let mut file: Value = fields.map(|(key, value)| (key.to_owned(), read(value))).collect();
        for (key, values) in litgpt::ABSENT {
            file[key] = read(values[0]);
        }
        let write = |file: &Value| {
            let lines = file.as_object().unwrap().iter().map(|(key, value)| format!("{key}: {value}\n"));
            std::fs::write(&path, lines.collect::<String>()).unwrap();
        };
        // A name of Gemma's moves the norms, one of OLMo's takes their weights away, and others do not.
        let has_weights = !name.contains("OLMo-1B");
        let harmless = |key: &str| litgpt::OTHERS.iter().any(|(own, _)| *own == key) && (has_weights || key != "name");
        let more = ["surprise", "hf_config", "padding_multiple"];
        let count = each_key((&name, &file), &more, (&harmless, unused), &write, folder.path());
        assert!(count.moved >= 8 && count.refused > 60, "{name}: {count:?}");
    }
}

#[test]
fn keys_are_listed_once_and_with_a_reason() {
    let mut seen = std::collections::BTreeSet::new();
    let of_others = litgpt::OTHERS.iter().map(|(key, reason)| (format!("litgpt {key}"), reason));
    let of_json = HARMLESS.iter().chain(&HARMLESS_OF_GPT2).map(|(key, reason)| ((*key).to_owned(), reason));
    let of_types = families::KINDS.into_iter().flat_map(|(kind, name, ..)| {
        let list = families::harmless(kind, &json!({}));
        list.into_iter().skip(HARMLESS.len()).map(move |(key, reason)| (format!("{name} {key}"), reason))
    });
    let of_types: Vec<(String, &str)> = of_types.collect();
    let of_types = of_types.iter().map(|(key, reason)| (key.clone(), reason));
    for (key, reason) in of_json.chain(of_others).chain(of_types) {
        assert!(reason.split(' ').count() >= 3, "{key}: {reason}");
        assert!(seen.insert(key.clone()), "{key} is there twice");
    }
}
