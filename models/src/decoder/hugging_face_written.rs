//! A configuration as the `config.json` of a type of `transformers` that computes the same.

use serde_json::{Value, json};

use super::config::{DecoderConfig, GeluApproximate, MlpClass, NormQkType};
use super::families::{KINDS, Kind, named};
use super::hugging_face_config::from_json;
use super::hugging_face_rotations;
use super::rope_scaling::RopeAdjustments;
use crate::activation::Activation;

/// The file of a configuration, if `transformers` has a type that computes the same: the one that it is named after,
/// where that one does.
pub(super) fn to_json(config: &DecoderConfig) -> Option<(Kind, Value)> {
    let own = named(config);
    let first = KINDS.into_iter().filter(|(kind, ..)| own == Some(*kind));
    first.chain(KINDS.into_iter().filter(|(kind, ..)| own != Some(*kind))).find_map(|(kind, name, class, _)| {
        let file = written(kind, name, class, config);
        let same = from_json(kind, &file).is_ok_and(|read| spelled_out(&read) == spelled_out(config));
        same.then_some((kind, file))
    })
}

/// The file of a type that says all that the type can of a configuration.
fn written(kind: Kind, name: &str, class: &str, config: &DecoderConfig) -> Value {
    let mut file = json!({
        "architectures": [class],
        "model_type": name,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "hidden_size": config.n_embd,
        "vocab_size": config.padded_vocab_size,
        "max_position_embeddings": config.block_size,
        "tie_word_embeddings": config.tie_embeddings,
        "dtype": "float32",
    });
    let inner = match kind {
        Kind::Falcon => "ffn_hidden_size",
        Kind::Opt => "ffn_dim",
        _ => "intermediate_size",
    };
    file[inner] = json!(config.inner_width());
    // One number for all rotations is `linear`, whichever field says it.
    let adjustments = spelled_out(config).rope_adjustments;
    if let Some((rope, context)) = hugging_face_rotations::written(kind, config, adjustments) {
        file["max_position_embeddings"] = json!(context);
        if let (Kind::Phi3, Some(scaling)) = (kind, &config.rope_scaling) {
            file["original_max_position_embeddings"] = json!(scaling.original_max_seq_len());
        }
        // Readers before version 5 look for the base here.
        file["rope_theta"] = json!(config.rope_base);
        file["rope_parameters"] = rope;
    }
    if kind == Kind::NeoX {
        file["rotary_pct"] = json!(config.rotary_percentage);
    }
    heads(kind, config, &mut file);
    biases(kind, config, &mut file);
    functions(kind, config, &mut file);
    blocks(kind, config, &mut file);
    windows(kind, config, &mut file);
    file
}

fn heads(kind: Kind, config: &DecoderConfig, file: &mut Value) {
    match kind {
        Kind::NeoX | Kind::Phi | Kind::StableLm => file["layer_norm_eps"] = json!(config.norm_eps),
        Kind::Falcon => file["layer_norm_epsilon"] = json!(config.norm_eps),
        Kind::StarCoder2 => file["norm_epsilon"] = json!(config.norm_eps),
        Kind::Olmo | Kind::Opt => {}
        _ => file["rms_norm_eps"] = json!(config.norm_eps),
    }
    if !matches!(kind, Kind::NeoX | Kind::Falcon | Kind::Opt) {
        file["num_key_value_heads"] = json!(config.groups());
    }
    if !matches!(kind, Kind::NeoX | Kind::Phi | Kind::StableLm | Kind::Falcon | Kind::Opt) {
        file["head_dim"] = json!(config.head_width());
    }
    match kind {
        Kind::Gemma2 | Kind::Gemma3 => {
            file["query_pre_attn_scalar"] = json!(config.attention_scores_scalar.unwrap_or(config.head_width()));
            file["attn_logit_softcapping"] = json!(config.attention_logit_softcapping);
            file["final_logit_softcapping"] = json!(config.final_logit_softcapping);
        }
        Kind::Granite => {
            file["attention_multiplier"] = json!(config.score_scale());
            file["embedding_multiplier"] = json!(config.embedding_multiplier.unwrap_or(1.0));
            file["residual_multiplier"] = json!(config.residual_multiplier.unwrap_or(1.0));
            file["logits_scaling"] = json!(config.logits_divisor.unwrap_or(1.0));
        }
        Kind::Olmo => file["clip_qkv"] = json!(config.attention_clip),
        _ => {}
    }
}

fn biases(kind: Kind, config: &DecoderConfig, file: &mut Value) {
    let (qkv, mlp) = (config.bias || config.attn_bias, config.bias || config.mlp_bias);
    match kind {
        Kind::Llama | Kind::SmolLm3 | Kind::Granite => {
            (file["attention_bias"], file["mlp_bias"]) = (json!(qkv), json!(mlp));
        }
        Kind::StarCoder2 => file["use_bias"] = json!(qkv),
        Kind::Falcon => file["bias"] = json!(qkv),
        Kind::Opt => file["enable_bias"] = json!(qkv),
        Kind::StableLm => file["use_qkv_bias"] = json!(qkv),
        Kind::Phi | Kind::Mistral | Kind::Mixtral | Kind::Phi3 | Kind::Qwen2 => {}
        _ => file["attention_bias"] = json!(qkv),
    }
}

fn functions(kind: Kind, config: &DecoderConfig, file: &mut Value) {
    let function = config.mlp_activation.unwrap_or(match config.gelu_approximate {
        GeluApproximate::None => Activation::Gelu,
        GeluApproximate::Tanh => Activation::GeluNew,
    });
    let (key, name) = match kind {
        Kind::Gemma | Kind::Gemma2 | Kind::Gemma3 => {
            file["hidden_activation"] = json!("gelu_pytorch_tanh");
            ("hidden_act", "gelu_pytorch_tanh")
        }
        Kind::StarCoder2 if function == Activation::GeluNew => ("hidden_act", "gelu_pytorch_tanh"),
        Kind::NeoX | Kind::Phi | Kind::StarCoder2 => ("hidden_act", function.name()),
        Kind::Falcon => ("activation", function.name()),
        Kind::Opt => ("activation_function", function.name()),
        _ => ("hidden_act", "silu"),
    };
    file[key] = json!(name);
}

fn blocks(kind: Kind, config: &DecoderConfig, file: &mut Value) {
    match kind {
        Kind::NeoX | Kind::StableLm => file["use_parallel_residual"] = json!(config.parallel_residual),
        _ => {}
    }
    match kind {
        Kind::Phi | Kind::StableLm => file["qk_layernorm"] = json!(config.norm_qk),
        Kind::Falcon => {
            let older = !config.parallel_residual || (config.shared_attention_norm && config.groups() == 1);
            file["new_decoder_architecture"] = json!(!older);
            file["parallel_attn"] = json!(config.parallel_residual);
            // The newer architecture has as many heads as it says, whatever this is.
            file["multi_query"] = json!(!older || config.groups() == 1);
            file["num_kv_heads"] = json!(if older { config.n_head } else { config.groups() });
            let norms = if config.shared_attention_norm { 1 } else { 2 };
            file["num_ln_in_parallel_attn"] = if older { Value::Null } else { json!(norms) };
        }
        Kind::Opt => {
            file["layer_norm_elementwise_affine"] = json!(config.norm_affine);
            file["do_layer_norm_before"] = json!(!config.norm_after_sum);
            file["_remove_final_layer_norm"] = json!(!config.norm_after_sum && !config.final_norm);
            file["word_embed_proj_dim"] = json!(config.embedding_width());
        }
        Kind::Mixtral => {
            file["num_local_experts"] = json!(config.n_expert);
            file["num_experts_per_tok"] = json!(config.n_expert_per_token);
        }
        Kind::Qwen3Moe => {
            // Older readers know the one name, and newer ones write the other.
            (file["num_local_experts"], file["num_experts"]) = (json!(config.n_expert), json!(config.n_expert));
            file["num_experts_per_tok"] = json!(config.n_expert_per_token);
            file["moe_intermediate_size"] = json!(config.expert_width());
            file["norm_topk_prob"] = json!(!config.expert_shares_of_all);
            file["decoder_sparse_step"] = json!(1);
            let plain = (0..config.n_layer).filter(|layer| !config.has_experts(*layer));
            file["mlp_only_layers"] = plain.collect();
        }
        Kind::SmolLm3 => {
            let rotated = (0..config.n_layer).map(|layer| u8::from(config.rotates(layer)));
            file["no_rope_layers"] = rotated.collect();
        }
        _ => {}
    }
}

fn windows(kind: Kind, config: &DecoderConfig, file: &mut Value) {
    let of = |layer| if config.window(layer).is_some() { "sliding_attention" } else { "full_attention" };
    let types = || (0..config.n_layer).map(of).collect::<Value>();
    match kind {
        Kind::Mistral | Kind::Mixtral | Kind::Phi3 | Kind::StarCoder2 => {
            file["sliding_window"] = json!(config.sliding_window_size);
        }
        Kind::Gemma2 | Kind::Gemma3 => {
            (file["sliding_window"], file["layer_types"]) = (json!(config.sliding_window_size), types());
        }
        Kind::Qwen3Moe => {
            file["use_sliding_window"] = json!(config.sliding_window_size.is_some());
            file["sliding_window"] = json!(config.sliding_window_size);
        }
        Kind::Qwen2 | Kind::Qwen3 | Kind::SmolLm3 => {
            let has = (0..config.n_layer).any(|layer| config.window(layer).is_some());
            file["use_sliding_window"] = json!(has);
            file["sliding_window"] = if has { json!(config.sliding_window_size) } else { Value::Null };
            file["layer_types"] = types();
        }
        _ => {}
    }
}

/// A list of 0 and 1 of the blocks, if it says of any block something else than of all.
fn indices(config: &DecoderConfig, usual: bool, has: &dyn Fn(usize) -> bool) -> Option<Vec<u8>> {
    let all: Vec<u8> = (0..config.n_layer).map(|layer| u8::from(has(layer))).collect();
    all.contains(&u8::from(!usual)).then_some(all)
}

/// Adjustments and scaling of which those that are the same are equal: positions divided by a number are rotations that
/// are slower by it.
fn spelled_rotations(config: &DecoderConfig) -> (f64, Option<RopeAdjustments>) {
    let linear = |factor: f64| RopeAdjustments {
        factor,
        low_freq_factor: None,
        high_freq_factor: None,
        original_max_seq_len: None,
    };
    match (config.rope_condense_ratio, config.rope_adjustments) {
        (1.0, adjustments) => (1.0, adjustments),
        (ratio, None) if config.rope_scaling.is_none() => (1.0, Some(linear(ratio))),
        (ratio, Some(adjustments)) if adjustments == linear(adjustments.factor) => {
            (1.0, Some(linear(ratio * adjustments.factor)))
        }
        both => both,
    }
}

/// The configuration with what follows from other fields written out, and without what does not count.
pub(super) fn spelled_out(config: &DecoderConfig) -> DecoderConfig {
    let layers = 0..config.n_layer;
    let (rope_condense_ratio, rope_adjustments) = spelled_rotations(config);
    let windows = layers.clone().map(|layer| u8::from(config.window(layer).is_some())).collect::<Vec<u8>>();
    let window = config.sliding_window_size.filter(|_| windows.contains(&1));
    let is_mixture = config.mlp_class_name == MlpClass::Mixture;
    let is_plain = config.mlp_class_name == MlpClass::GptNeox;
    let has_gelu = (is_plain || config.mlp_class_name == MlpClass::Gemma) && config.mlp_activation.is_none();
    let approximate = match config.mlp_activation {
        Some(Activation::GeluNew) => GeluApproximate::Tanh,
        _ if has_gelu => config.gelu_approximate,
        _ => GeluApproximate::None,
    };
    let [qkv, proj, mlp] = [config.attn_bias, config.attn_proj_bias, config.mlp_bias].map(|has| has || config.bias);
    let bias = qkv && proj && mlp;
    let is_local = layers.clone().any(|layer| config.is_local(layer));
    let other_than_one = |factor: Option<f64>| factor.filter(|factor| *factor != 1.0);
    DecoderConfig {
        name: String::new(),
        n_query_groups: Some(config.groups()),
        head_size: Some(config.head_width()),
        intermediate_size: Some(config.inner_width()),
        norm_qk_type: if config.norm_qk { config.norm_qk_type } else { NormQkType::Default },
        bias,
        attn_bias: qkv && !bias,
        attn_proj_bias: proj && !bias,
        mlp_bias: mlp && !bias,
        attention_scores_scalar: None,
        attention_multiplier: Some(config.score_scale()),
        embedding_multiplier: other_than_one(config.embedding_multiplier),
        residual_multiplier: other_than_one(config.residual_multiplier),
        logits_divisor: other_than_one(config.logits_divisor),
        sliding_window_size: window,
        sliding_window_indices: window.map(|_| windows),
        rope_condense_ratio,
        rope_adjustments,
        rope_local_base_freq: config.rope_local_base_freq.filter(|_| is_local),
        rope_indices: is_local.then(|| indices(config, true, &|layer| config.is_local(layer))).flatten(),
        rotated_indices: indices(config, config.rotated_width() > 0, &|layer| config.rotates(layer)),
        expert_indices: is_mixture.then(|| indices(config, true, &|layer| config.has_experts(layer))).flatten(),
        moe_intermediate_size: is_mixture.then(|| config.expert_width()),
        gelu_approximate: approximate,
        mlp_activation: config
            .mlp_activation
            .filter(|function| ![Activation::Gelu, Activation::GeluNew].contains(function)),
        ..config.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::rope_scaling::RopeScaling;
    use super::*;

    /// Each type is written as itself, with all that sets its models apart.
    #[test]
    fn models_of_the_registry_are_written_as_their_types() {
        for (kind, _, _, template) in KINDS {
            let config = DecoderConfig::named(template, 1).unwrap();
            let (written, file) = to_json(&config).unwrap_or_else(|| panic!("{template} has no type"));
            assert_eq!(written, kind, "{template}");
            let read = from_json(kind, &file).unwrap();
            assert_eq!(spelled_out(&read), spelled_out(&config), "{template}");
        }
        let mut config = DecoderConfig::named("falcon-7b", 1).unwrap();
        config.rope_scaling = Some(RopeScaling::Dynamic { factor: 2.0, original_max_seq_len: 1024 });
        assert_eq!(to_json(&config).unwrap().1["max_position_embeddings"], 1024);
        config.block_size = 3000;
        assert!(to_json(&config).is_none(), "a context that the scaling is not for has no type");
    }
}
