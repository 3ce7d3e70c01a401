//! `config.json` of Hugging Face's models as a configuration. Fields that a file leaves out have the defaults of
//! `transformers`; each that is there is used, known to change nothing, or an error.

use serde_json::{Value, json};

use super::config::{DecoderConfig, GeluApproximate, NormQkType};
use super::families::{KINDS, Kind, harmless, layer_types};
use super::hugging_face_rotations::{agreed, rotations};
use crate::activation::Activation;
use crate::config_fields::Fields;

/// The configuration of a `config.json` of this type. The error says which field is wrong.
pub(super) fn from_json(kind: Kind, file: &Value) -> Result<DecoderConfig, String> {
    let fields = Fields::of(file);
    let Some((_, name, _, template)) = KINDS.into_iter().find(|(own, ..)| *own == kind) else {
        return Err("model_type is not known".to_owned());
    };
    let mut config = DecoderConfig::named(template, 1).map_err(|error| error.to_string())?;
    config.name = name.to_owned();
    sizes(kind, &fields, &mut config)?;
    biases(kind, &fields, &mut config)?;
    functions(kind, &fields, &mut config)?;
    blocks(kind, &fields, &mut config)?;
    factors(kind, &fields, &mut config)?;
    rotations(kind, &fields, &mut config)?;
    windows(kind, (&fields, file), &mut config)?;
    fields.end(&format!("a {name}"), &harmless(kind, file))?;
    config.validate().map_err(|error| error.to_string())?;
    Ok(config)
}

fn sizes(kind: Kind, fields: &Fields<'_>, config: &mut DecoderConfig) -> Result<(), String> {
    config.n_layer = fields.size("num_hidden_layers")?;
    config.n_head = fields.size("num_attention_heads")?;
    config.n_embd = fields.size("hidden_size")?;
    config.padded_vocab_size = fields.size("vocab_size")?;
    config.block_size = match (kind, fields.whole("max_position_embeddings")?) {
        // The published files leave it out.
        (Kind::Falcon, None) => 2048,
        (_, context) => context.ok_or("max_position_embeddings is missing")?,
    };
    config.intermediate_size = Some(match kind {
        Kind::Falcon => fields.whole("ffn_hidden_size")?.unwrap_or(config.n_embd.saturating_mul(4)),
        Kind::Opt => fields.size("ffn_dim")?,
        _ => fields.size("intermediate_size")?,
    });
    let usual_groups = match kind {
        Kind::Mistral | Kind::Mixtral => Some(8),
        Kind::Qwen2 | Kind::Qwen3 | Kind::StableLm => Some(32),
        Kind::Gemma => Some(16),
        Kind::Gemma2 | Kind::Gemma3 | Kind::Qwen3Moe | Kind::SmolLm3 => Some(4),
        Kind::StarCoder2 => Some(2),
        _ => None,
    };
    config.n_query_groups = match kind {
        Kind::Falcon | Kind::Opt => None,
        _ => {
            let usual = usual_groups.filter(|_| !fields.has("num_key_value_heads"));
            fields.whole("num_key_value_heads")?.or(usual)
        }
    };
    config.head_size = match kind {
        // Their code divides the width by the heads, whatever a file says.
        Kind::Phi | Kind::StableLm | Kind::Falcon | Kind::Opt => None,
        _ => fields.whole("head_dim")?.or(match kind {
            Kind::Qwen3 => Some(128),
            Kind::Gemma | Kind::Gemma2 | Kind::Gemma3 => Some(256),
            _ => None,
        }),
    };
    let (eps, usual) = match kind {
        Kind::NeoX | Kind::Phi | Kind::StableLm => (Some("layer_norm_eps"), 1e-5),
        Kind::Falcon => (Some("layer_norm_epsilon"), 1e-5),
        Kind::StarCoder2 => (Some("norm_epsilon"), 1e-5),
        Kind::Olmo | Kind::Opt => (None, 1e-5),
        Kind::Mixtral | Kind::Phi3 | Kind::Olmo2 => (Some("rms_norm_eps"), 1e-5),
        _ => (Some("rms_norm_eps"), 1e-6),
    };
    config.norm_eps = eps.map(|key| fields.number(key)).transpose()?.flatten().unwrap_or(usual);
    let ties = matches!(
        kind,
        Kind::Gemma | Kind::Gemma2 | Kind::Gemma3 | Kind::SmolLm3 | Kind::StarCoder2 | Kind::Falcon | Kind::Opt
    );
    config.tie_embeddings = fields.flag("tie_word_embeddings", ties)?;
    if kind == Kind::Opt {
        let width = fields.whole("word_embed_proj_dim")?;
        config.embedding_width = width.filter(|width| *width != config.n_embd);
    }
    Ok(())
}

fn biases(kind: Kind, fields: &Fields<'_>, config: &mut DecoderConfig) -> Result<(), String> {
    let none = |name| fields.must_be(name, &[json!(false)]);
    let of_attention = |usual| fields.flag("attention_bias", usual);
    let [qkv, proj, mlp] = match kind {
        Kind::Llama | Kind::SmolLm3 | Kind::Granite => {
            let has = of_attention(false)?;
            [has, has, fields.flag("mlp_bias", false)?]
        }
        Kind::NeoX => {
            let has = of_attention(true)?;
            [has, has, true]
        }
        Kind::Phi => [true; 3],
        Kind::StarCoder2 => [fields.flag("use_bias", true)?; 3],
        Kind::Falcon => [fields.flag("bias", false)?; 3],
        Kind::Opt => [fields.flag("enable_bias", true)?; 3],
        Kind::StableLm => [fields.flag("use_qkv_bias", false)?, false, false],
        Kind::Mistral | Kind::Mixtral | Kind::Phi3 | Kind::Qwen2 => {
            none("attention_bias")?;
            none("mlp_bias")?;
            [kind == Kind::Qwen2, false, false]
        }
        Kind::Qwen3 | Kind::Qwen3Moe | Kind::Gemma | Kind::Gemma2 | Kind::Gemma3 | Kind::Olmo | Kind::Olmo2 => {
            none("mlp_bias")?;
            let has = of_attention(false)?;
            [has, has, false]
        }
    };
    config.bias = qkv && proj && mlp;
    (config.attn_bias, config.attn_proj_bias, config.mlp_bias) = match config.bias {
        true => (false, false, false),
        false => (qkv, proj, mlp),
    };
    Ok(())
}

/// The function of the feed-forward part.
fn functions(kind: Kind, fields: &Fields<'_>, config: &mut DecoderConfig) -> Result<(), String> {
    fields.must_be("rope_interleaved", &[json!(false)])?;
    let (key, usual) = match kind {
        Kind::NeoX => ("hidden_act", Activation::Gelu),
        Kind::Phi | Kind::StarCoder2 => ("hidden_act", Activation::GeluNew),
        Kind::Falcon => ("activation", Activation::Gelu),
        Kind::Opt => ("activation_function", Activation::Relu),
        Kind::Gemma | Kind::Gemma2 | Kind::Gemma3 => {
            // The first files of Gemma say gelu here, and mean this one all the same.
            fields.must_be("hidden_act", &[json!("gelu_pytorch_tanh"), json!("gelu")])?;
            fields.must_be("hidden_activation", &[json!("gelu_pytorch_tanh")])?;
            return fields.must_be("use_bidirectional_attention", &[json!(false)]);
        }
        _ => return fields.must_be("hidden_act", &[json!("silu"), json!("swish")]),
    };
    let name = fields.text(key)?.unwrap_or(usual.name());
    let function = Activation::named(name).ok_or_else(|| {
        format!("{key} is \"{name}\", which is not supported, expected one of {}", Activation::names())
    })?;
    (config.gelu_approximate, config.mlp_activation) = match function {
        Activation::Gelu => (GeluApproximate::None, None),
        Activation::GeluNew => (GeluApproximate::Tanh, None),
        other => (GeluApproximate::None, Some(other)),
    };
    Ok(())
}

/// The order of parts, norms and experts.
fn blocks(kind: Kind, fields: &Fields<'_>, config: &mut DecoderConfig) -> Result<(), String> {
    match kind {
        Kind::NeoX => config.parallel_residual = fields.flag("use_parallel_residual", true)?,
        Kind::Phi => config.norm_qk = fields.flag("qk_layernorm", false)?,
        Kind::StableLm => {
            config.norm_qk = fields.flag("qk_layernorm", false)?;
            config.norm_qk_type = if config.norm_qk { NormQkType::PerHead } else { NormQkType::Default };
            config.parallel_residual = fields.flag("use_parallel_residual", false)?;
            config.shared_attention_norm = config.parallel_residual;
        }
        Kind::Falcon => return falcon(fields, config),
        Kind::Opt => {
            config.norm_affine = fields.flag("layer_norm_elementwise_affine", true)?;
            config.norm_after_sum = !fields.flag("do_layer_norm_before", true)?;
            if config.norm_after_sum {
                fields.must_be("_remove_final_layer_norm", &[json!(false)])?;
            }
            config.final_norm = !config.norm_after_sum && !fields.flag("_remove_final_layer_norm", false)?;
        }
        Kind::Mixtral => {
            config.n_expert = fields.whole("num_local_experts")?.unwrap_or(8);
            config.n_expert_per_token = fields.whole("num_experts_per_tok")?.unwrap_or(2);
        }
        Kind::Qwen3Moe => return experts(fields, config),
        _ => {}
    }
    Ok(())
}

fn falcon(fields: &Fields<'_>, config: &mut DecoderConfig) -> Result<(), String> {
    fields.must_be("alibi", &[json!(false)])?;
    fields.must_be("apply_residual_connection_post_layernorm", &[json!(false)])?;
    let (heads, given) = (config.n_head, fields.whole("num_kv_heads")?);
    if fields.flag("new_decoder_architecture", false)? {
        fields.must_be("parallel_attn", &[json!(true)])?;
        fields.must_be("num_ln_in_parallel_attn", &[json!(1), json!(2)])?;
        config.n_query_groups = Some(given.unwrap_or(heads));
        config.parallel_residual = true;
        config.shared_attention_norm = fields.whole("num_ln_in_parallel_attn")? == Some(1);
        return Ok(());
    }
    fields.must_be("num_ln_in_parallel_attn", &[json!(1)])?;
    if let Some(given) = given.filter(|given| *given != heads) {
        let expected = format!("num_attention_heads, {heads}, without new_decoder_architecture");
        return Err(format!("num_kv_heads is {given}, expected {expected}"));
    }
    config.n_query_groups = Some(if fields.flag("multi_query", true)? { 1 } else { heads });
    config.parallel_residual = fields.flag("parallel_attn", true)?;
    config.shared_attention_norm = config.parallel_residual;
    Ok(())
}

fn experts(fields: &Fields<'_>, config: &mut DecoderConfig) -> Result<(), String> {
    let count = |name| Ok::<_, String>((name, fields.whole(name)?.map(|count| count as f64)));
    let count = agreed(&[count("num_local_experts")?, count("num_experts")?])?;
    config.n_expert = count.map_or(128, |count| count as usize);
    config.n_expert_per_token = fields.whole("num_experts_per_tok")?.unwrap_or(8);
    config.moe_intermediate_size = Some(fields.whole("moe_intermediate_size")?.unwrap_or(768));
    config.expert_shares_of_all = !fields.flag("norm_topk_prob", false)?;
    let step = fields.whole("decoder_sparse_step")?.unwrap_or(1);
    if step == 0 {
        return Err("decoder_sparse_step is 0, expected 1 or more".to_owned());
    }
    // A number of layers that no model has is told later.
    let layers = config.n_layer.min(1 << 10);
    let plain = fields.read("mlp_only_layers", "a list of numbers of layers", |value| {
        let number = |one: &Value| one.as_u64().and_then(|one| usize::try_from(one).ok()).filter(|one| *one < layers);
        value.as_array()?.iter().map(number).collect::<Option<Vec<usize>>>()
    })?;
    let plain = plain.unwrap_or_default();
    let has = |layer: usize| u8::from((layer + 1).is_multiple_of(step) && !plain.contains(&layer));
    let indices: Vec<u8> = (0..layers).map(has).collect();
    config.expert_indices = indices.contains(&0).then_some(indices);
    Ok(())
}

/// What numbers are multiplied by, and what keeps them small.
fn factors(kind: Kind, fields: &Fields<'_>, config: &mut DecoderConfig) -> Result<(), String> {
    match kind {
        Kind::Olmo => config.attention_clip = fields.number("clip_qkv")?,
        Kind::Granite => {
            let factor = |name| Ok::<_, String>(Some(fields.number(name)?.unwrap_or(1.0)));
            config.embedding_multiplier = factor("embedding_multiplier")?;
            config.residual_multiplier = factor("residual_multiplier")?;
            config.logits_divisor = factor("logits_scaling")?;
            config.attention_multiplier = factor("attention_multiplier")?;
        }
        Kind::Gemma2 | Kind::Gemma3 => {
            config.attention_scores_scalar = Some(fields.whole("query_pre_attn_scalar")?.unwrap_or(256));
            // Without a cap where the file says null.
            let cap = |name: &'static str, usual: Option<f64>| match fields.has(name) {
                true => fields.number(name),
                false => Ok(usual),
            };
            let is_second = kind == Kind::Gemma2;
            config.final_logit_softcapping = cap("final_logit_softcapping", is_second.then_some(30.0))?;
            match is_second {
                true => config.attention_logit_softcapping = cap("attn_logit_softcapping", Some(50.0))?,
                // `transformers` has the field, and leaves scores as they are.
                false => fields.must_be("attn_logit_softcapping", &[Value::Null])?,
            }
        }
        _ => {}
    }
    Ok(())
}

/// Which layers have a window, as `layer_types` lists it.
fn listed(fields: &Fields<'_>) -> Result<Option<Vec<u8>>, String> {
    let of_type = |kind: &Value| match kind.as_str()? {
        "sliding_attention" => Some(1),
        "full_attention" => Some(0),
        _ => None,
    };
    fields.read("layer_types", "a list of sliding_attention and full_attention", |value| {
        value.as_array()?.iter().map(of_type).collect::<Option<Vec<u8>>>()
    })
}

fn windows(kind: Kind, (fields, file): (&Fields<'_>, &Value), config: &mut DecoderConfig) -> Result<(), String> {
    // A number of layers that no model has is told later.
    let layers = config.n_layer.min(1 << 10);
    let by_layer = |has: &dyn Fn(usize) -> bool| (0..layers).map(|layer| u8::from(has(layer))).collect::<Vec<u8>>();
    let given = || fields.whole("sliding_window");
    (config.sliding_window_size, config.sliding_window_indices) = match kind {
        Kind::Mistral => (if fields.has("sliding_window") { given()? } else { Some(4096) }, None),
        Kind::Mixtral | Kind::Phi3 | Kind::StarCoder2 => (given()?, None),
        Kind::Gemma2 | Kind::Gemma3 => {
            let pattern = match kind {
                Kind::Gemma3 if !fields.has("layer_types") => fields.whole("sliding_window_pattern")?.unwrap_or(6),
                Kind::Gemma3 => 6,
                _ => 2,
            };
            if pattern == 0 {
                return Err("sliding_window_pattern is 0, expected 1 or more".to_owned());
            }
            let indices = listed(fields)?.unwrap_or_else(|| by_layer(&|layer| !(layer + 1).is_multiple_of(pattern)));
            if kind == Kind::Gemma3 {
                config.rope_indices = Some(indices.clone());
            }
            (Some(given()?.unwrap_or(4096)), Some(indices))
        }
        Kind::Qwen3Moe => match fields.flag("use_sliding_window", false)? {
            true if fields.has("sliding_window") => {
                (Some(given()?.ok_or("use_sliding_window is true, and sliding_window is null")?), None)
            }
            true => (Some(4096), None),
            false => (None, None),
        },
        Kind::Qwen2 | Kind::Qwen3 | Kind::SmolLm3 => {
            if kind == Kind::SmolLm3 {
                positions(fields, config)?;
            } else {
                fields.must_be("use_mrope", &[json!(false)])?;
            }
            match layer_types(file) {
                Some(true) => {
                    fields.must_be("use_sliding_window", &[json!(true)])?;
                    if !fields.flag("use_sliding_window", false)? {
                        let expected = "expected true, as layer_types has sliding_attention";
                        return Err(format!("use_sliding_window is missing, {expected}"));
                    }
                    let size = given()?.ok_or("sliding_window is missing, and layer_types has sliding_attention")?;
                    (Some(size), listed(fields)?)
                }
                None if fields.flag("use_sliding_window", false)? => {
                    let usual = (kind != Kind::SmolLm3).then_some(4096);
                    let size = if fields.has("sliding_window") { given()? } else { usual };
                    let first = match kind {
                        Kind::SmolLm3 => 0,
                        _ => fields.whole("max_window_layers")?.unwrap_or(28),
                    };
                    let has = |layer| match kind {
                        Kind::SmolLm3 => !config.rotates(layer),
                        _ => layer >= first,
                    };
                    let indices = by_layer(&has);
                    match size.filter(|_| indices.contains(&1)) {
                        Some(size) => (Some(size), Some(indices)),
                        None => (None, None),
                    }
                }
                _ => (None, None),
            }
        }
        _ => (None, None),
    };
    if config.sliding_window_size.is_none() {
        let full = |value: &Value| {
            let types = value.as_array()?;
            (types.len() == config.n_layer && types.iter().all(|one| one == "full_attention")).then_some(())
        };
        fields.read("layer_types", "full_attention for each layer, as there is no window", full)?;
    }
    Ok(())
}

/// The layers of a SmolLM 3 that rotate queries and keys.
fn positions(fields: &Fields<'_>, config: &mut DecoderConfig) -> Result<(), String> {
    let listed = fields.read("no_rope_layers", "a list of 1 and 0", |value| {
        let one = |one: &Value| one.as_u64().and_then(|one| u8::try_from(one).ok()).filter(|one| *one <= 1);
        value.as_array()?.iter().map(one).collect::<Option<Vec<u8>>>()
    })?;
    config.rotated_indices = match listed {
        Some(listed) => Some(listed),
        None => {
            let interval = fields.whole("no_rope_layer_interval")?.unwrap_or(4);
            if interval == 0 {
                return Err("no_rope_layer_interval is 0, expected 1 or more".to_owned());
            }
            let layers = 0..config.n_layer.min(1 << 10);
            Some(layers.map(|layer| u8::from(!(layer + 1).is_multiple_of(interval))).collect())
        }
    };
    Ok(())
}

#[cfg(test)]
#[path = "hugging_face_config_tests.rs"]
mod tests;
