//! Decoders as LitGPT stores them: `lit_model.pth`, a file of `torch.save`, with `model_config.yaml` beside it.
//!
//! The names are ours with the prefix `transformer.`. Queries, keys and values of all heads are one below the other in
//! one tensor, as in ours; older files have them group by group, under `attn.attn`. The output projection is always
//! there, also where it is the embedding.

use std::collections::BTreeMap;
use std::path::Path;

use fulgurite_kernels::DType;
use fulgurite_kernels::buffer::OutOfMemory;
use fulgurite_kernels::durable;
use fulgurite_kernels::scratch::try_room;
use serde_json::Value;

use super::config::{DecoderConfig, NormClass, NormQkType, OWN};
use super::files::{DecoderFilesError, folder_of, write_beside, write_failed};
use crate::foreign_file;
use crate::host_tensor::HostTensor;
use crate::model::Model;
use crate::run_file::fields::{self, Fault, Fields, Range};
use crate::run_file::yaml;
use crate::torch;
use crate::weights::Weights;

const CONFIG: &str = "model_config.yaml";
const PREFIX: &str = "transformer.";
const HEAD: &str = "lm_head.weight";

/// Keys of LitGPT's that are read by themselves, or change no result, each with the reason.
pub(crate) const OTHERS: [(&str, &str); 4] = [
    ("name", "tells Gemma's and OLMo's norms"),
    ("hf_config", "where the model was published"),
    ("vocab_size", "tells the rows of the embedding, where padded_vocab_size does not"),
    ("padding_multiple", "tells the rows of the embedding, where padded_vocab_size does not"),
];

/// Keys of what is not computed here, and the values that say that a model has none of it.
pub(crate) const ABSENT: [(&str, &[&str]); 9] = [
    ("rope_interleave", &["false"]),
    ("n_shared_expert", &["null"]),
    ("n_expert_groups", &["null"]),
    ("n_topk_groups", &["null"]),
    ("n_topk_scores_per_group", &["null"]),
    ("first_k_dense_replace", &["null"]),
    ("routed_scaling_factor", &["null", "1", "1.0"]),
    ("norm_topk_prob", &["false"]),
    ("latent_attention", &["null"]),
];

/// Fields that LitGPT has in the name of a model and in its tensors.
const DERIVED: [&str; 3] = ["norm_add_unit_offset", "norm_affine", "tie_embeddings"];

/// What of a configuration LitGPT does not compute: a field with its value.
fn beyond(config: &DecoderConfig) -> Result<Option<String>, serde_json::Error> {
    let fields = serde_json::to_value(config)?;
    let usual = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let own = OWN.iter().find(|(name, text)| fields[*name] != usual(text));
    let own = own.map(|(name, _)| format!("{name} is {}", fields[*name]));
    let heads = (config.norm_qk_type == NormQkType::PerHead).then(|| "norm_qk_type is per_head".to_owned());
    let norms = !config.norm_affine && config.norm_class_name != NormClass::LayerNorm;
    Ok(own.or(heads).or(norms.then(|| "norm_affine is false for RMSNorm".to_owned())))
}

/// Whether tensors have LitGPT's names.
pub(crate) fn is_one(tensors: &BTreeMap<String, HostTensor>) -> bool {
    tensors.keys().any(|name| name.starts_with(PREFIX) && (name.contains(".attn.qkv.") || name.contains(".attn.attn.")))
}

/// The configuration of a `model_config.yaml`.
pub(crate) fn configuration(text: &str) -> Result<DecoderConfig, Fault> {
    let document = yaml::parse(text)?;
    let all = Fields::of(&document, "")?;
    // What LitGPT takes where a file, of an older version, does not say.
    let defaults = DecoderConfig::named("pythia-70m", 1).map_err(|error| (1, error.to_string()))?;
    let mut config = DecoderConfig { block_size: 4096, n_layer: 16, n_embd: 4096, n_head: 32, ..defaults };
    let mut rows = None;
    for (key, line, value) in all.entries() {
        let text = fields::json(value)?;
        if let Some((_, absent)) = ABSENT.iter().find(|(known, _)| known == key) {
            if !absent.contains(&&*text) {
                let expected = absent.join(" or ");
                let message = format!("{key} is {text}, which is not supported, expected {expected}");
                return Err((*line, message));
            }
        } else if key == "padded_vocab_size" && text == "null" {
            // It follows from two other keys.
        } else if OWN.iter().any(|(own, _)| own == key) || DERIVED.contains(&key.as_str()) {
            return Err((*line, format!("LitGPT has no field '{key}'")));
        } else if !OTHERS.iter().any(|(other, _)| other == key) {
            config.set(&format!("{key}={text}")).map_err(|error| (*line, error.to_string()))?;
            rows = rows.or((key == "padded_vocab_size").then_some(config.padded_vocab_size));
        }
    }
    config.name = all.text("name")?.unwrap_or_default();
    if rows.is_none() {
        let (ids, multiple): (Option<usize>, Option<usize>) =
            (all.number("vocab_size", Range::NotNegative)?, all.number("padding_multiple", Range::NotNegative)?);
        let ids = ids.ok_or_else(|| (1, "has neither padded_vocab_size nor vocab_size".to_owned()))?;
        let padded = ids.checked_next_multiple_of(multiple.unwrap_or(512));
        config.padded_vocab_size = padded.ok_or_else(|| (1, "padding_multiple is 0, expected 1 or more".to_owned()))?;
    }
    // LitGPT tells these by the name too.
    config.norm_add_unit_offset = config.norm_class_name == NormClass::RMSNorm && config.name.contains("Gemma");
    config.norm_affine = config.norm_class_name != NormClass::LayerNorm || !config.name.contains("OLMo");
    config.validate().map_err(|error| (1, error.to_string()))?;
    Ok(config)
}

/// The decoder of these tensors, with the configuration that is in `folder`.
pub(crate) fn from_tensors(
    mut tensors: BTreeMap<String, HostTensor>,
    folder: &Path,
) -> Result<Weights<DecoderConfig>, DecoderFilesError> {
    let path = folder.join(CONFIG);
    let wrong = |message: String| DecoderFilesError::File { path: path.clone(), message };
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    if let Some(told) = foreign_file::told(text.as_bytes()) {
        return Err(DecoderFilesError::Foreign { path, told });
    }
    let mut config = configuration(&text).map_err(|(line, message)| wrong(format!("line {line}: {message}")))?;
    let embedding = tensors.get(&format!("{PREFIX}wte.weight"));
    config.tie_embeddings = !config.lm_head_bias && tensors.get(HEAD).is_some_and(|head| Some(head) == embedding);
    if config.tie_embeddings {
        tensors.remove(HEAD);
    }
    let mut weights = BTreeMap::new();
    for parameter in config.parameters() {
        let name = theirs(&parameter.name);
        let old = name.contains(".attn.qkv.").then(|| name.replace(".attn.qkv.", ".attn.attn."));
        let by_groups = old.and_then(|old| tensors.remove(&old));
        let of_old = by_groups.is_some();
        let tensor = by_groups.or_else(|| tensors.remove(&name));
        let tensor = tensor.ok_or_else(|| DecoderFilesError::Missing(name.clone()))?;
        if tensor.shape() != parameter.shape {
            let found = tensor.shape().to_vec();
            return Err(DecoderFilesError::Shape { name, found, expected: parameter.shape });
        }
        let found = tensor.dtype();
        if !matches!(found, DType::F32 | DType::BF16 | DType::F16) {
            return Err(DecoderFilesError::DType { name, found });
        }
        let lacking = |source| DecoderFilesError::Memory { name: name.clone(), source };
        let tensor = if of_old { parts_together(&config, tensor).map_err(lacking)? } else { Some(tensor) };
        weights.insert(parameter.name, tensor.ok_or(DecoderFilesError::Missing(name))?);
    }
    match tensors.into_keys().next() {
        Some(name) => Err(DecoderFilesError::Unexpected(name)),
        None => Ok(Weights::new(config, weights)?),
    }
}

/// LitGPT's name of a parameter.
fn theirs(name: &str) -> String {
    if name.starts_with("lm_head.") { name.to_owned() } else { format!("{PREFIX}{name}") }
}

/// Queries of all groups, then keys, then values, of a tensor that has those of a group together.
fn parts_together(config: &DecoderConfig, tensor: HostTensor) -> Result<Option<HostTensor>, OutOfMemory> {
    let (groups, width) = (config.groups(), config.head_width());
    let row = tensor.bytes().len() / tensor.shape()[0];
    let queries = config.n_head / groups * width;
    let group = queries + 2 * width;
    let parts = [(0, queries), (queries, width), (queries + width, width)];
    let mut bytes = try_room(tensor.bytes().len())?;
    for (start, rows) in parts {
        for number in 0..groups {
            let first = (number * group + start) * row;
            bytes.extend_from_slice(&tensor.bytes()[first..first + rows * row]);
        }
    }
    Ok(HostTensor::new(tensor.dtype(), tensor.shape(), bytes).ok())
}

/// The text of a `model_config.yaml`, one key a line.
pub(crate) fn configuration_text(config: &DecoderConfig) -> Result<String, serde_json::Error> {
    let mut fields = serde_json::to_value(config)?;
    // LitGPT tells by the name whether 1 is added to the weights of norms.
    let name = match (config.norm_add_unit_offset, config.name.contains("Gemma")) {
        (true, false) => format!("Gemma-{}", config.name),
        (false, true) => config.name.replace("Gemma", "gemma"),
        _ => config.name.clone(),
    };
    // And whether layer norms have weights.
    let name = match (config.norm_affine, name.contains("OLMo")) {
        (false, false) => format!("OLMo-{name}"),
        (true, true) if config.norm_class_name == NormClass::LayerNorm => name.replace("OLMo", "olmo"),
        _ => name,
    };
    fields["name"] = name.into();
    fields["vocab_size"] = config.padded_vocab_size.into();
    fields["intermediate_size"] = config.inner_width().into();
    let own = |key: &str| DERIVED.contains(&key) || OWN.iter().any(|(own, _)| *own == key);
    let lines = fields.as_object().into_iter().flatten().filter(|(key, _)| !own(key));
    Ok(lines.map(|(key, value)| format!("{key}: {}\n", yaml_of(value))).collect())
}

/// A value on one line. Python's YAML takes numbers with an exponent as texts unless they have a point and a sign, and
/// LitGPT takes a key that is null for one that is there.
fn yaml_of(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.to_string().split_once('e') {
            None => number.to_string(),
            Some((digits, exponent)) => {
                let point = if digits.contains('.') { "" } else { ".0" };
                let sign = if exponent.starts_with(['-', '+']) { "" } else { "+" };
                format!("{digits}{point}e{sign}{exponent}")
            }
        },
        Value::Array(items) => format!("[{}]", items.iter().map(yaml_of).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let there = fields.iter().filter(|(_, value)| !value.is_null());
            let fields: Vec<String> = there.map(|(key, value)| format!("{key}: {}", yaml_of(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// Writes a file of `torch.save` at `path` and `model_config.yaml` beside it. A configuration of another model is left
/// alone, and nothing is written.
pub(crate) fn save(weights: &Weights<DecoderConfig>, path: &Path) -> Result<(), DecoderFilesError> {
    let config = weights.config();
    let beside = folder_of(path).join(CONFIG);
    let wrong = |message: String| DecoderFilesError::File { path: beside.clone(), message };
    if let Some(said) = beyond(config).map_err(|error| wrong(error.to_string()))? {
        return Err(DecoderFilesError::NotOfLitGpt(said));
    }
    let text = configuration_text(config).map_err(|error| wrong(error.to_string()))?;
    let own = configuration(&text).map_err(|(line, message)| wrong(format!("line {line}: {message}")))?;
    write_beside(&beside, &text, |old| configuration(old).is_ok_and(|old| old == own))?;
    let mut tensors: BTreeMap<String, HostTensor> =
        weights.tensors().iter().map(|(name, tensor)| (theirs(name), tensor.clone())).collect();
    if config.tie_embeddings
        && let Some(embedding) = weights.tensor("wte.weight")
    {
        tensors.insert(HEAD.to_owned(), embedding.clone());
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    durable::replace(path, |writer| torch::write(&tensors, &name, writer)).map_err(write_failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `configuration` reads numbers as Rust does; LitGPT's reader is stricter.
    #[test]
    fn configurations_are_written_as_pythons_yaml_reads_them() {
        let mut config = DecoderConfig::named("Llama-3.1-8B", 1).unwrap();
        for (assignment, line) in [
            ("norm_eps=1e-6", "norm_eps: 1.0e-6\n"),
            ("norm_eps=2.5e-7", "norm_eps: 2.5e-7\n"),
            ("rope_base=1e22", "rope_base: 1.0e+22\n"),
            ("rope_base=500000", "rope_base: 500000.0\n"),
            ("rope_adjustments={\"factor\": 8}", "rope_adjustments: {factor: 8.0}\n"),
            ("rope_adjustments=null", "rope_adjustments: null\n"),
            ("sliding_window_size=4", "sliding_window_size: 4\n"),
        ] {
            config.set(assignment).unwrap();
            let text = configuration_text(&config).unwrap();
            assert!(text.contains(line), "{text}");
            assert_eq!(configuration(&text).unwrap(), config);
        }
        // By PyYAML itself, where there is one.
        let Some(python) = std::env::var_os("FULGURITE_TORCH_PYTHON") else { return };
        config.set("norm_eps=1e-6").unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), configuration_text(&config).unwrap()).unwrap();
        let script = "import sys, yaml; c = yaml.safe_load(open(sys.argv[1])); \
                      assert c['norm_eps'] == 1e-6 and c['rope_base'] == 500000.0 and c['name'] == 'Llama-3.1-8B', c";
        let ran = std::process::Command::new(python).args(["-c", script]).arg(file.path()).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }
}
