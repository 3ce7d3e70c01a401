//! Decoders as llama.cpp stores them: one GGUF file, whose keys say the configuration.
//!
//! The keys become those of a `config.json`, which [`super::hugging_face_config`] reads. Of a `llama` the rows of
//! queries and keys in a head are in another order: a rotation there takes neighbours, and here numbers that are half a
//! head apart. Norms of a `gemma` have the 1 added to their weights that is added here.

use std::path::Path;

use fulgurite_kernels::DType;
use fulgurite_kernels::buffer::OutOfMemory;
use fulgurite_kernels::scratch::{try_room, try_zeroed};
use rayon::prelude::*;
use serde_json::{Map, Value, json};

use super::config::DecoderConfig;
use super::families::{KINDS, Kind};
use super::files::DecoderFilesError;
use super::hugging_face_config::from_json;
use super::hugging_face_names::pieces;
use crate::gguf_blocks;
use crate::gguf_file::{GgufFile, GgufTensor, GgufType, GgufValue, LARGEST_BLOCK};
use crate::gguf_tokenizer;
use crate::host_tensor::HostTensor;
use crate::layer_weight::{HEAD, beside};
use crate::model::Model;
use crate::packed::{Packed, Rows};
use crate::tensor_bytes::TensorBytes;
use crate::weights::Weights;

/// The architectures that are read.
const ARCHITECTURES: [(&str, Kind); 4] =
    [("llama", Kind::Llama), ("qwen2", Kind::Qwen2), ("qwen3", Kind::Qwen3), ("gemma", Kind::Gemma)];

/// Keys behind the architecture's name that become one of a `config.json`.
const SIZES: [(&str, &str); 6] = [
    ("block_count", "num_hidden_layers"),
    ("context_length", "max_position_embeddings"),
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
];
const NUMBERS: [(&str, &str); 2] =
    [("attention.layer_norm_rms_epsilon", "rms_norm_eps"), ("rope.freq_base", "rope_theta")];

/// What keys begin with that change no result, each with the reason.
pub(crate) const HARMLESS: [(&str, &str); 4] = [
    ("general.", "who made the file of what, and when"),
    ("tokenizer.", "the tokenizer, which is read by itself"),
    ("quantize.", "how the integers were found"),
    ("mradermacher.", "who made the file"),
];

/// Keys behind the architecture's name of what is not computed here, and the values that say that a model has none.
pub(crate) const ABSENT: [(&str, &[f64]); 8] = [
    ("expert_count", &[0.0]),
    ("expert_used_count", &[0.0]),
    ("rope.scale_linear", &[1.0]),
    ("rope.scaling.attn_factor", &[1.0]),
    ("attention.sliding_window", &[0.0]),
    ("attention.max_alibi_bias", &[0.0]),
    ("attention.clamp_kqv", &[0.0]),
    ("logit_scale", &[1.0]),
];

/// The slower rotations of Llama 3.1 and 3.2, whose factors files have in the place of what they follow from.
const SLOWER: [f64; 2] = [8.0, 32.0];
const ROTATIONS: &str = "rope_freqs.weight";

/// The decoder of a file, and what the file has of a tokenizer.
pub(crate) fn read(path: &Path) -> Result<(Weights<DecoderConfig>, gguf_tokenizer::Own), DecoderFilesError> {
    let wrong = |message: String| DecoderFilesError::File { path: path.to_owned(), message };
    let file = GgufFile::open(path).map_err(wrong)?;
    let (kind, config) = configuration(&file).map_err(wrong)?;
    let tokenizer = gguf_tokenizer::of_file(&file);
    let mut weights = std::collections::BTreeMap::new();
    let mut used = vec![ROTATIONS.to_owned()];
    for parameter in config.parameters() {
        let mut parts = Vec::new();
        for piece in pieces(kind, &config, &parameter.name, parameter.shape[0]) {
            let name = name_in_file(&piece.name);
            let tensor = file.tensors.get(&name).ok_or_else(|| DecoderFilesError::Missing(name.clone()))?;
            let expected = [&[piece.rows], &parameter.shape[1..]].concat();
            if tensor.shape != expected {
                return Err(DecoderFilesError::Shape { name, found: tensor.shape.clone(), expected });
            }
            let half = config.head_width() / 2;
            let turned = kind == Kind::Llama && (name.contains(".attn_q.") || name.contains(".attn_k."));
            parts.push((tensor, turned.then_some(half)));
            used.push(name);
        }
        let is_layer = config.may_be_quantized(&parameter.name) || parameter.name == HEAD;
        let mut keep = |name, tensor| drop(weights.insert(name, tensor));
        store(&file, &parameter.name, &parts, is_layer, &mut keep)?;
    }
    match file.tensors.into_keys().find(|name| !used.contains(name)) {
        Some(name) => Err(DecoderFilesError::Unexpected(name)),
        None => Ok((Weights::new(config, weights)?, tokenizer)),
    }
}

/// Tensors one below the other as a parameter: as they are where all of them are of one type, and otherwise in f32.
/// Q4_K is kept in layers alone, whose scales are rounded to f16, and where f16 has a place for all of them. Where half
/// the width of a head is given, the file has rows side by side that are half a head apart here.
fn store(
    file: &GgufFile,
    name: &str,
    parts: &[(&GgufTensor, Option<usize>)],
    is_layer: bool,
    keep: &mut dyn FnMut(String, HostTensor),
) -> Result<(), DecoderFilesError> {
    let lacking = |source| DecoderFilesError::Memory { name: name.to_owned(), source };
    let shape_error = |_| DecoderFilesError::Missing(name.to_owned());
    let Some((first, half)) = parts.first() else { return Ok(()) };
    let alike = parts.iter().all(|(part, _)| part.kind == first.kind);
    let dense = dense_type(first.kind);
    if let ([_], None, Some(dtype)) = (parts, half, dense) {
        // It stays in the file.
        let bytes = TensorBytes::Mapped(file.file.clone(), first.bytes.clone());
        keep(name.to_owned(), HostTensor::of(dtype, &first.shape, bytes).map_err(shape_error)?);
        return Ok(());
    }
    let rows: usize = parts.iter().map(|(part, _)| part.shape[0]).sum();
    let inputs: usize = first.shape[1..].iter().product();
    let is_kept = alike && first.shape.len() == 2 && (is_layer || first.kind != GgufType::Q4K);
    let codes = if is_kept { Rows::new(first.kind, [rows, inputs]).map_err(lacking)? } else { None };
    let packed = match codes {
        Some(mut codes) => {
            for (part, half) in parts {
                codes.push(file.bytes(part), part.shape[0], &|row| row_in_file(row, *half));
            }
            codes.finish().map_err(shape_error)?
        }
        None => None,
    };
    if let Some(Packed { codes, scales, offsets }) = packed {
        keep(name.to_owned(), codes);
        keep(beside(name, "scales"), scales);
        if let Some(offsets) = offsets {
            keep(beside(name, "offsets"), offsets);
        }
        return Ok(());
    }
    let dtype = dense.filter(|_| alike).unwrap_or(DType::F32);
    let mut bytes = try_room(rows * inputs * dtype.size()).map_err(lacking)?;
    for (part, half) in parts {
        let numbers = match dense_type(part.kind) {
            Some(own) => HostTensor::of(own, &part.shape, TensorBytes::Mapped(file.file.clone(), part.bytes.clone())),
            None => HostTensor::new(DType::F32, &part.shape, widened(part.kind, file.bytes(part)).map_err(lacking)?),
        };
        let numbers = numbers.map_err(shape_error)?;
        let numbers =
            if numbers.dtype() == dtype { Some(numbers) } else { numbers.converted(dtype).map_err(lacking)? };
        let numbers = numbers.ok_or_else(|| DecoderFilesError::Missing(name.to_owned()))?;
        let width = inputs * dtype.size();
        for row in 0..part.shape[0] {
            let start = row_in_file(row, *half) * width;
            bytes.extend_from_slice(&numbers.bytes()[start..start + width]);
        }
    }
    let shape = [&[rows], &first.shape[1..]].concat();
    keep(name.to_owned(), HostTensor::new(dtype, &shape, bytes).map_err(shape_error)?);
    Ok(())
}

/// The type of numbers that are stored as they are.
fn dense_type(kind: GgufType) -> Option<DType> {
    match kind {
        GgufType::F32 => Some(DType::F32),
        GgufType::F16 => Some(DType::F16),
        GgufType::Bf16 => Some(DType::BF16),
        _ => None,
    }
}

/// The numbers of blocks in f32.
fn widened(kind: GgufType, blocks: &[u8]) -> Result<Vec<u8>, OutOfMemory> {
    let (values, size) = kind.block();
    let mut bytes = try_zeroed(blocks.len() / size * values * DType::F32.size())?;
    bytes.par_chunks_mut(values * DType::F32.size()).zip(blocks.par_chunks(size)).for_each(|(to, block)| {
        let mut numbers = [0.0; LARGEST_BLOCK];
        gguf_blocks::numbers(kind, block, &mut numbers[..values]);
        to.as_chunks_mut().0.iter_mut().zip(numbers).for_each(|(to, number)| *to = number.to_le_bytes());
    });
    Ok(bytes)
}

/// Which row of a file is row `row`, where heads have neighbours for what is `half` a head apart.
fn row_in_file(row: usize, half: Option<usize>) -> usize {
    let Some(half) = half.filter(|half| *half > 0) else { return row };
    let (head, place) = (row / (2 * half), row % (2 * half));
    head * 2 * half + place % half * 2 + place / half
}

/// The name of one of `transformers`' tensors in these files.
fn name_in_file(name: &str) -> String {
    let (path, end) = name.rsplit_once('.').unwrap_or((name, "weight"));
    let outside = match path {
        "model.embed_tokens" => Some("token_embd"),
        "model.norm" => Some("output_norm"),
        "lm_head" => Some("output"),
        _ => None,
    };
    if let Some(outside) = outside {
        return format!("{outside}.{end}");
    }
    let (layer, part) = path.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')).unwrap_or(("", path));
    let part = match part {
        "input_layernorm" => "attn_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "post_attention_layernorm" => "ffn_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        other => other,
    };
    format!("blk.{layer}.{part}.{end}")
}

/// The keys of a file, of which each is asked for, or is an error.
struct Keys<'a> {
    file: &'a GgufFile,
    architecture: &'a str,
    asked: std::cell::RefCell<Vec<String>>,
}

impl<'a> Keys<'a> {
    /// The value behind the architecture's name.
    fn get(&self, key: &str) -> Option<&'a GgufValue> {
        let name = format!("{}.{key}", self.architecture);
        let value = self.file.keys.get(&name);
        self.asked.borrow_mut().push(name);
        value
    }

    fn wrong<T>(&self, key: &str, value: &GgufValue, expected: &str) -> Result<T, String> {
        Err(format!("{}.{key} is {}, expected {expected}", self.architecture, in_words(value)))
    }

    fn size(&self, key: &str) -> Result<Option<u64>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(GgufValue::Integer(size)) if (0..=1 << 40).contains(size) => Ok(Some(*size as u64)),
            Some(other) => self.wrong(key, other, "a whole number"),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(GgufValue::Number(number)) if (*number as f32).is_finite() => Ok(Some(*number)),
            Some(GgufValue::Integer(number)) => Ok(Some(*number as f64)),
            Some(other) => self.wrong(key, other, "a number of 32 bits"),
        }
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(GgufValue::Text(text)) => Ok(Some(text)),
            Some(other) => self.wrong(key, other, "a text"),
        }
    }

    /// An error for a key that nothing asked for, and that changes results as far as is known.
    fn end(&self) -> Result<(), String> {
        let asked = self.asked.borrow();
        let harmless = |key: &str| HARMLESS.iter().any(|(start, _)| key.starts_with(start));
        match self.file.keys.keys().find(|key| !asked.contains(key) && !harmless(key)) {
            Some(key) => {
                let value = self.file.keys.get(key).map_or(String::new(), in_words);
                Err(format!("has the key {key:?} ({value}), which a {} is not known to have", self.architecture))
            }
            None => Ok(()),
        }
    }
}

fn in_words(value: &GgufValue) -> String {
    match value {
        GgufValue::Integer(value) => value.to_string(),
        GgufValue::Number(value) => value.to_string(),
        GgufValue::Flag(value) => value.to_string(),
        GgufValue::Text(value) => format!("'{}'", value.chars().take(80).collect::<String>()),
        GgufValue::List { count, .. } => format!("a list of {count}"),
    }
}

/// The type and the configuration that the keys of a file say.
fn configuration(file: &GgufFile) -> Result<(Kind, DecoderConfig), String> {
    let names = ARCHITECTURES.map(|(name, _)| name).join(", ");
    let architecture = match file.keys.get("general.architecture") {
        Some(GgufValue::Text(name)) => name.as_str(),
        other => {
            let found = other.map_or("missing".to_owned(), in_words);
            return Err(format!("general.architecture is {found}, expected one of {names}"));
        }
    };
    let kind = ARCHITECTURES.iter().find(|(name, _)| *name == architecture).map(|(_, kind)| *kind);
    let unknown = || {
        format!(
            "general.architecture is '{architecture}', which is not read, expected one of {names}: take the model's \
             safetensors"
        )
    };
    let kind = kind.ok_or_else(unknown)?;
    if let Some(other) = file.keys.get("general.type").filter(|kind| **kind != GgufValue::Text("model".into())) {
        return Err(format!("general.type is {}, expected 'model'", in_words(other)));
    }
    let keys = Keys { file, architecture, asked: std::cell::RefCell::default() };
    let type_name = KINDS.iter().find(|(own, ..)| *own == kind).map_or("", |(_, name, ..)| *name);
    let mut said = Map::from_iter([("model_type".to_owned(), json!(type_name))]);
    for (key, name) in SIZES {
        if let Some(size) = keys.size(key)? {
            said.insert(name.to_owned(), json!(size));
        }
    }
    // A file says it where it is another number than that of queries.
    if !said.contains_key("num_key_value_heads") {
        said.insert("num_key_value_heads".into(), said.get("num_attention_heads").cloned().unwrap_or_default());
    }
    for (key, name) in NUMBERS {
        if let Some(number) = keys.number(key)? {
            // A base is whole, and a number of 32 bits.
            said.insert(name.to_owned(), json!(rounded(number)));
        }
    }
    for (key, allowed) in ABSENT {
        let found = keys.number(key)?;
        if let Some(found) = found.filter(|found| !allowed.contains(found)) {
            return Err(format!("{architecture}.{key} is {found}, which is not computed here"));
        }
    }
    widths(&keys, &mut said)?;
    scaling(&keys, &mut said)?;
    let embedding = file.tensors.get("token_embd.weight").ok_or("tensor \"token_embd.weight\" is missing")?;
    let rows = embedding.shape.first().copied().unwrap_or_default();
    if let Some(other) = keys.size("vocab_size")?.filter(|size| *size != rows as u64) {
        return Err(format!("{architecture}.vocab_size is {other}, token_embd.weight has {rows} rows"));
    }
    said.insert("vocab_size".into(), json!(rows));
    said.insert("tie_word_embeddings".into(), json!(!file.tensors.contains_key("output.weight")));
    keys.end()?;
    let mut config = from_json(kind, &Value::Object(said))?;
    config.norm_add_unit_offset = false;
    config.validate().map_err(|error| error.to_string())?;
    Ok((kind, config))
}

/// The nearest number with few digits that is the same in 32 bits: 1e-5 is written as 0.00000999999974737875.
fn rounded(number: f64) -> f64 {
    let short = format!("{}", number as f32).parse().unwrap_or(number);
    if short as f32 == number as f32 { short } else { number }
}

/// Widths of heads.
fn widths(keys: &Keys<'_>, said: &mut Map<String, Value>) -> Result<(), String> {
    let of = |name: &str| said.get(name).and_then(Value::as_u64);
    let usual = of("hidden_size").zip(of("num_attention_heads")).and_then(|(width, heads)| width.checked_div(heads));
    let width = keys.size("attention.key_length")?.or(usual);
    for key in ["attention.value_length", "rope.dimension_count"] {
        let found = keys.size(key)?;
        if let (Some(found), Some(width)) = (found.filter(|found| Some(*found) != width), width) {
            let architecture = keys.architecture;
            return Err(format!("{architecture}.{key} is {found}, expected {width}, the width of a head"));
        }
    }
    if let Some(width) = width {
        said.insert("head_dim".into(), json!(width));
    }
    Ok(())
}

/// Slower rotations.
fn scaling(keys: &Keys<'_>, said: &mut Map<String, Value>) -> Result<(), String> {
    // Whether the model was trained with them, which changes no result.
    let _ = keys.get("rope.scaling.finetuned");
    let (factor, named) = (keys.number("rope.scaling.factor")?, keys.text("rope.scaling.type")?);
    let context = keys.size("rope.scaling.original_context_length")?;
    match named {
        Some("none") => {}
        // Without a type a factor is that of positions, as in llama.cpp.
        None if factor.is_none_or(|factor| factor == 0.0 || factor == 1.0) => {}
        None | Some("linear") => {
            let factor = factor.ok_or("rope.scaling.factor is missing")?;
            said.insert("rope_scaling".into(), json!({"rope_type": "linear", "factor": factor}));
        }
        Some(other) => {
            return Err(format!("{}.rope.scaling.type is '{other}', expected none or linear", keys.architecture));
        }
    }
    let Some(tensor) = keys.file.tensors.get(ROTATIONS) else { return Ok(()) };
    if said.contains_key("rope_scaling") {
        return Err(format!("positions are scaled by rope.scaling.factor and by tensor {ROTATIONS:?}, expected one"));
    }
    let found: Vec<f32> = match tensor.kind {
        GgufType::F32 => keys.file.bytes(tensor).as_chunks().0.iter().map(|one| f32::from_le_bytes(*one)).collect(),
        _ => return Err(format!("tensor {ROTATIONS:?} is {:?}, expected F32", tensor.kind)),
    };
    let halves = said.get("head_dim").and_then(Value::as_u64).map(|width| width / 2);
    if halves.is_some_and(|halves| halves != found.len() as u64) || found.is_empty() {
        let halves = halves.unwrap_or(1);
        return Err(format!("tensor {ROTATIONS:?} has {} elements, expected {halves}, half of a head", found.len()));
    }
    let base = said.get("rope_theta").and_then(Value::as_f64).unwrap_or(10_000.0);
    let context = context.unwrap_or(8192) as f64;
    let factor = SLOWER.into_iter().find(|factor| {
        let expected = (0..found.len()).map(|i| slower(base, i as f64 / found.len() as f64, *factor, context));
        found.iter().zip(expected).all(|(found, expected)| (f64::from(*found) / expected - 1.0).abs() < 1e-3)
    });
    let Some(factor) = factor else {
        return Err(format!("tensor {ROTATIONS:?} has other factors than those of Llama 3.1 and 3.2"));
    };
    let llama3 = json!({
        "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": context as u64,
    });
    said.insert("rope_scaling".into(), llama3);
    Ok(())
}

/// What a rotation of Llama 3 is slower by, which is at `place` of all: 1 for waves shorter than a fourth of the
/// context, `factor` for those longer than it, and in between in between.
fn slower(base: f64, place: f64, factor: f64, context: f64) -> f64 {
    let length = std::f64::consts::TAU * base.powf(place);
    if length < context / 4.0 {
        return 1.0;
    }
    if length > context {
        return factor;
    }
    let share = (context / length - 1.0) / 3.0;
    1.0 / ((1.0 - share) / factor + share)
}

#[cfg(test)]
#[path = "gguf_tests.rs"]
mod tests;
