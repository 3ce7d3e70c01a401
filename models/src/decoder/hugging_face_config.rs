//! `config.json` of Hugging Face's models as a configuration, and back. Fields that a file leaves out have the defaults
//! of `transformers`; each that is there is used, known to change nothing, or an error.

use serde_json::{Value, json};

use super::config::{DecoderConfig, GeluApproximate, MlpClass, RopeAdjustments};
use crate::activation::Activation;
use crate::config_fields::{Fields, HARMLESS};
use crate::gpt2_config_file::MODEL_TYPE;

/// A type of models, as `model_type` calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Llama,
    Mistral,
    Mixtral,
    Qwen2,
    Qwen3,
    Gemma,
    Gemma2,
    NeoX,
}

/// A type, its name, the class of `transformers`, and a model of the registry that has what all of the type share.
pub(crate) const KINDS: [(Kind, &str, &str, &str); 8] = [
    (Kind::Llama, "llama", "LlamaForCausalLM", "Llama-2-7b"),
    (Kind::Mistral, "mistral", "MistralForCausalLM", "Mistral-7B-v0.3"),
    (Kind::Mixtral, "mixtral", "MixtralForCausalLM", "Mixtral-8x7B-v0.1"),
    (Kind::Qwen2, "qwen2", "Qwen2ForCausalLM", "Qwen2.5-7B"),
    (Kind::Qwen3, "qwen3", "Qwen3ForCausalLM", "Qwen3-8B"),
    (Kind::Gemma, "gemma", "GemmaForCausalLM", "Gemma-2b"),
    (Kind::Gemma2, "gemma2", "Gemma2ForCausalLM", "Gemma-2-2b"),
    (Kind::NeoX, "gpt_neox", "GPTNeoXForCausalLM", "pythia-70m"),
];

/// Keys of a type that change no result, each with the reason.
pub(crate) fn harmless(kind: Kind) -> Vec<(&'static str, &'static str)> {
    let own: &[(&str, &str)] = match kind {
        Kind::Qwen2 | Kind::Qwen3 => &[
            ("sliding_window", "a window, which use_sliding_window turns on"),
            ("max_window_layers", "layers with a window, which use_sliding_window turns on"),
        ],
        _ => &[],
    };
    [&HARMLESS[..], own].concat()
}

/// The type of a `config.json`, if it is one of those that a decoder computes.
pub(super) fn kind_of(file: &Value) -> Result<Kind, String> {
    let name = Fields::of(file).text("model_type")?.ok_or("model_type is missing")?;
    let found = KINDS.iter().find(|(_, own, ..)| *own == name).map(|(kind, ..)| *kind);
    found.ok_or_else(|| {
        let types = KINDS.map(|(_, own, ..)| own).join(", ");
        format!("model_type is '{name}', which is not supported, expected one of {types}; a gpt2 has other tensors")
    })
}

/// The message for a `config.json` whose tensors are not a decoder's, by its `model_type` alone.
pub(crate) fn fault_of_type(file: &Value) -> Option<String> {
    let name = file.get("model_type")?.as_str().filter(|name| *name != MODEL_TYPE)?;
    let types = KINDS.map(|(_, own, ..)| own);
    Some(match types.contains(&name) {
        true => format!("model_type is '{name}', but the tensors beside it are not those of such a model"),
        false => format!(
            "model_type is '{name}', a model that is not computed here, expected one of {MODEL_TYPE}, {}",
            types.join(", ")
        ),
    })
}

/// The configuration of a `config.json` of this type. The error says which field is wrong.
pub(super) fn from_json(kind: Kind, file: &Value) -> Result<DecoderConfig, String> {
    let fields = Fields::of(file);
    let Some((_, name, _, template)) = KINDS.into_iter().find(|(own, ..)| *own == kind) else {
        return Err("model_type is not known".to_owned());
    };
    let mut config = DecoderConfig::named(template, 1).map_err(|error| error.to_string())?;
    let neox = kind == Kind::NeoX;
    config.name = name.to_owned();
    config.n_layer = fields.size("num_hidden_layers")?;
    config.n_head = fields.size("num_attention_heads")?;
    config.n_embd = fields.size("hidden_size")?;
    config.padded_vocab_size = fields.size("vocab_size")?;
    config.block_size = fields.size("max_position_embeddings")?;
    config.intermediate_size = Some(fields.size("intermediate_size")?);
    let usual_groups = match kind {
        Kind::Mistral | Kind::Mixtral => Some(8),
        Kind::Qwen2 | Kind::Qwen3 => Some(32),
        Kind::Gemma => Some(16),
        Kind::Gemma2 => Some(4),
        Kind::Llama | Kind::NeoX => None,
    };
    let groups = fields.whole("num_key_value_heads")?;
    config.n_query_groups = groups.or(usual_groups.filter(|_| !fields.has("num_key_value_heads")));
    let usual_width = match kind {
        Kind::Qwen3 => Some(128),
        Kind::Gemma | Kind::Gemma2 => Some(256),
        _ => None,
    };
    config.head_size = fields.whole("head_dim")?.or(usual_width);
    let eps = if neox { "layer_norm_eps" } else { "rms_norm_eps" };
    let usual_eps = if matches!(kind, Kind::NeoX | Kind::Mixtral) { 1e-5 } else { 1e-6 };
    config.norm_eps = fields.number(eps)?.unwrap_or(usual_eps);
    let ties = matches!(kind, Kind::Gemma | Kind::Gemma2);
    config.tie_embeddings = fields.flag("tie_word_embeddings", ties)?;
    fields.must_be("attention_bias", &[json!(neox)])?;
    fields.must_be("mlp_bias", &[json!(false)])?;
    fields.must_be("rope_interleaved", &[json!(false)])?;
    match kind {
        Kind::Gemma | Kind::Gemma2 => {
            // The first files of Gemma say gelu here, and mean this one all the same.
            fields.must_be("hidden_act", &[json!("gelu_pytorch_tanh"), json!("gelu")])?;
            fields.must_be("hidden_activation", &[json!("gelu_pytorch_tanh")])?;
            fields.must_be("use_bidirectional_attention", &[json!(false)])?;
        }
        Kind::NeoX => {
            let name = fields.text("hidden_act")?.unwrap_or(Activation::Gelu.name());
            config.gelu_approximate = match Activation::named(name) {
                Some(Activation::Gelu) => GeluApproximate::None,
                Some(Activation::GeluNew) => GeluApproximate::Tanh,
                _ => return Err(format!("hidden_act is \"{name}\", which is not supported, expected a gelu")),
            };
        }
        _ => fields.must_be("hidden_act", &[json!("silu"), json!("swish")])?,
    }
    if neox {
        config.parallel_residual = fields.flag("use_parallel_residual", true)?;
    }
    rotations(kind, &fields, &mut config)?;
    windows(kind, &fields, &mut config)?;
    if kind == Kind::Mixtral {
        config.n_expert = fields.whole("num_local_experts")?.unwrap_or(8);
        config.n_expert_per_token = fields.whole("num_experts_per_tok")?.unwrap_or(2);
    }
    if kind == Kind::Gemma2 {
        config.attention_scores_scalar = Some(fields.whole("query_pre_attn_scalar")?.unwrap_or(256));
        // Without a cap where the file says null.
        let cap = |name: &'static str, usual: f64| match fields.has(name) {
            true => fields.number(name),
            false => Ok(Some(usual)),
        };
        config.attention_logit_softcapping = cap("attn_logit_softcapping", 50.0)?;
        config.final_logit_softcapping = cap("final_logit_softcapping", 30.0)?;
    }
    fields.end(&format!("a {name}"), &harmless(kind))?;
    config.validate().map_err(|error| error.to_string())?;
    Ok(config)
}

/// The one value that several fields have; an error where two differ, of which readers do not agree which one counts.
fn agreed(said: &[(&str, Option<f64>)]) -> Result<Option<f64>, String> {
    let mut there = said.iter().filter_map(|(name, value)| value.map(|value| (name, value)));
    let Some((first, value)) = there.next() else { return Ok(None) };
    match there.find(|(_, other)| *other != value) {
        Some((name, other)) => Err(format!("{first} is {value} and {name} is {other}, expected the same")),
        None => Ok(Some(value)),
    }
}

/// Since version 5 of `transformers` all of it is in `rope_parameters`.
fn rotations(kind: Kind, fields: &Fields<'_>, config: &mut DecoderConfig) -> Result<(), String> {
    let nothing = json!({});
    let object = |name| fields.read(name, "an object with rope_type", |value| value.is_object().then_some(value));
    let (own, older) = (object("rope_parameters")?, object("rope_scaling")?);
    // Readers do not agree on which one counts.
    if let (Some(own), Some(older)) = (own, older)
        && !agree(own, older)
    {
        return Err(format!("rope_parameters is {own} and rope_scaling is {older}, expected one of them, or the same"));
    }
    let rope = Fields::of(own.or(older).unwrap_or(&nothing));
    let mut bases =
        vec![("rope_theta of the rotations", rope.number("rope_theta")?), ("rope_theta", fields.number("rope_theta")?)];
    let mut shares = vec![
        ("partial_rotary_factor of the rotations", rope.number("partial_rotary_factor")?),
        ("partial_rotary_factor", fields.number("partial_rotary_factor")?),
    ];
    if kind == Kind::NeoX {
        bases.push(("rotary_emb_base", fields.number("rotary_emb_base")?));
        shares.push(("rotary_pct", fields.number("rotary_pct")?));
    }
    config.rope_base = agreed(&bases)?.unwrap_or(if kind == Kind::Mixtral { 1e6 } else { 10_000.0 });
    let usual_share = if kind == Kind::NeoX { 0.25 } else { 1.0 };
    config.rotary_percentage = agreed(&shares)?.unwrap_or(usual_share);
    if kind != Kind::NeoX && config.rotary_percentage != 1.0 {
        let share = config.rotary_percentage;
        return Err(format!("partial_rotary_factor is {share}, which is not supported, expected 1"));
    }
    let need = |name: &'static str| rope.number(name)?.ok_or_else(|| format!("{name} of the rotations is missing"));
    let (of_rope, older) = (rope.text("rope_type")?, rope.text("type")?);
    if let (Some(of_rope), Some(older)) = (of_rope, older)
        && of_rope != older
    {
        return Err(format!("rope_type is '{of_rope}' and type is '{older}', expected one of them, or the same"));
    }
    config.rope_adjustments = match of_rope.or(older).unwrap_or("default") {
        "default" => None,
        "linear" => Some(RopeAdjustments {
            factor: need("factor")?,
            low_freq_factor: None,
            high_freq_factor: None,
            original_max_seq_len: None,
        }),
        "llama3" => Some(RopeAdjustments {
            factor: need("factor")?,
            low_freq_factor: Some(need("low_freq_factor")?),
            high_freq_factor: Some(need("high_freq_factor")?),
            original_max_seq_len: Some(rope.size("original_max_position_embeddings")?),
        }),
        other => {
            return Err(format!("rope_type is '{other}', which is not supported, expected default, linear or llama3"));
        }
    };
    rope.end("a rotation", &[])
}

/// Whether all that an older `rope_scaling` says is in `rope_parameters`.
fn agree(own: &Value, older: &Value) -> bool {
    let said = |name: &str| own.get(if name == "type" { "rope_type" } else { name });
    older.as_object().is_some_and(|older| older.iter().all(|(name, value)| said(name) == Some(value)))
}

fn windows(kind: Kind, fields: &Fields<'_>, config: &mut DecoderConfig) -> Result<(), String> {
    let has_one = matches!(kind, Kind::Mistral | Kind::Mixtral | Kind::Gemma2);
    let given = if has_one { fields.whole("sliding_window")? } else { None };
    (config.sliding_window_size, config.sliding_window_indices) = match kind {
        Kind::Mistral => (if fields.has("sliding_window") { given } else { Some(4096) }, None),
        Kind::Mixtral => (given, None),
        Kind::Gemma2 => {
            let of_type = |kind: &Value| match kind.as_str()? {
                "sliding_attention" => Some(1),
                "full_attention" => Some(0),
                _ => None,
            };
            let types = fields.read("layer_types", "a list of sliding_attention and full_attention", |value| {
                value.as_array()?.iter().map(of_type).collect::<Option<Vec<u8>>>()
            })?;
            // A number of layers that no model has is told later.
            let layers = config.n_layer.min(1 << 10);
            let indices = types.unwrap_or_else(|| (0..layers).map(|layer| u8::from(layer % 2 == 0)).collect());
            (Some(given.unwrap_or(4096)), Some(indices))
        }
        Kind::Qwen2 | Kind::Qwen3 => {
            fields.must_be("use_sliding_window", &[json!(false)])?;
            fields.must_be("use_mrope", &[json!(false)])?;
            (None, None)
        }
        Kind::Llama | Kind::Gemma | Kind::NeoX => (None, None),
    };
    if config.sliding_window_size.is_none() {
        let layers = config.n_layer;
        let full = |value: &Value| {
            let types = value.as_array()?;
            (types.len() == layers && types.iter().all(|one| one == "full_attention")).then_some(())
        };
        fields.read("layer_types", "full_attention for each layer, as there is no window", full)?;
    }
    Ok(())
}

/// The file of a configuration, if `transformers` has a type that computes the same.
pub(super) fn to_json(config: &DecoderConfig) -> Option<(Kind, Value)> {
    KINDS.into_iter().find_map(|(kind, name, class, _)| {
        let file = written(kind, name, class, config);
        let same = from_json(kind, &file).is_ok_and(|read| spelled_out(&read) == spelled_out(config));
        same.then_some((kind, file))
    })
}

/// The file of a type that says all that the type can of a configuration.
fn written(kind: Kind, name: &str, class: &str, config: &DecoderConfig) -> Value {
    let mut rope = json!({"rope_type": "default", "rope_theta": config.rope_base});
    // One number for all rotations is `linear`, whichever field says it.
    let adjustments = spelled_out(config).rope_adjustments;
    if let Some(RopeAdjustments { factor, low_freq_factor, high_freq_factor, original_max_seq_len }) = adjustments {
        (rope["factor"], rope["rope_type"]) = (json!(factor), json!("linear"));
        if let Some(length) = original_max_seq_len {
            rope["rope_type"] = json!("llama3");
            (rope["low_freq_factor"], rope["high_freq_factor"]) = (json!(low_freq_factor), json!(high_freq_factor));
            rope["original_max_position_embeddings"] = json!(length);
        }
    }
    let mut file = json!({
        "architectures": [class],
        "model_type": name,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "hidden_size": config.n_embd,
        "vocab_size": config.padded_vocab_size,
        "max_position_embeddings": config.block_size,
        "intermediate_size": config.inner_width(),
        "tie_word_embeddings": config.tie_embeddings,
        "dtype": "float32",
    });
    // Readers before version 5 look for the base here.
    file["rope_theta"] = json!(config.rope_base);
    if kind == Kind::NeoX {
        rope["partial_rotary_factor"] = json!(config.rotary_percentage);
        file["rotary_pct"] = json!(config.rotary_percentage);
        file["layer_norm_eps"] = json!(config.norm_eps);
        let gelu = match config.gelu_approximate {
            GeluApproximate::None => Activation::Gelu,
            GeluApproximate::Tanh => Activation::GeluNew,
        };
        file["hidden_act"] = json!(gelu.name());
        file["use_parallel_residual"] = json!(config.parallel_residual);
    } else {
        file["num_key_value_heads"] = json!(config.groups());
        file["head_dim"] = json!(config.head_width());
        file["rms_norm_eps"] = json!(config.norm_eps);
        file["sliding_window"] = json!(config.sliding_window_size);
        let tanh = matches!(kind, Kind::Gemma | Kind::Gemma2);
        file["hidden_act"] = json!(if tanh { "gelu_pytorch_tanh" } else { "silu" });
        file["hidden_activation"] = if tanh { file["hidden_act"].clone() } else { Value::Null };
    }
    if kind == Kind::Mixtral {
        file["num_local_experts"] = json!(config.n_expert);
        file["num_experts_per_tok"] = json!(config.n_expert_per_token);
    }
    if kind == Kind::Gemma2 {
        let of = |layer| if config.window(layer).is_some() { "sliding_attention" } else { "full_attention" };
        file["layer_types"] = (0..config.n_layer).map(of).collect();
        file["query_pre_attn_scalar"] = json!(config.attention_scores_scalar.unwrap_or(config.head_width()));
        file["attn_logit_softcapping"] = json!(config.attention_logit_softcapping);
        file["final_logit_softcapping"] = json!(config.final_logit_softcapping);
    }
    file["rope_parameters"] = rope;
    file
}

/// The configuration with what follows from other fields written out, and without what does not count.
fn spelled_out(config: &DecoderConfig) -> DecoderConfig {
    let windows = (0..config.n_layer).map(|layer| u8::from(config.window(layer).is_some())).collect();
    let linear = |factor: f64| RopeAdjustments {
        factor,
        low_freq_factor: None,
        high_freq_factor: None,
        original_max_seq_len: None,
    };
    // Positions divided by a number are rotations that are slower by it.
    let (rope_condense_ratio, rope_adjustments) = match (config.rope_condense_ratio, config.rope_adjustments) {
        (1.0, adjustments) => (1.0, adjustments),
        (ratio, None) => (1.0, Some(linear(ratio))),
        (ratio, Some(adjustments)) if adjustments == linear(adjustments.factor) => {
            (1.0, Some(linear(ratio * adjustments.factor)))
        }
        both => both,
    };
    let has_gelu = matches!(config.mlp_class_name, MlpClass::GptNeox | MlpClass::Gemma);
    DecoderConfig {
        name: String::new(),
        n_query_groups: Some(config.groups()),
        head_size: Some(config.head_width()),
        intermediate_size: Some(config.inner_width()),
        attention_scores_scalar: Some(config.attention_scores_scalar.unwrap_or(config.head_width())),
        sliding_window_indices: config.sliding_window_size.map(|_| windows),
        rope_condense_ratio,
        rope_adjustments,
        gelu_approximate: if has_gelu { config.gelu_approximate } else { GeluApproximate::None },
        ..config.clone()
    }
}

#[cfg(test)]
#[path = "hugging_face_config_tests.rs"]
mod tests;
