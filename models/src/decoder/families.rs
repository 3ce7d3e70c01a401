//! The types of models of `transformers` that a decoder computes.

use serde_json::Value;

use super::config::DecoderConfig;
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
    Gemma3,
    Qwen3Moe,
    Phi,
    Phi3,
    Olmo,
    Olmo2,
    SmolLm3,
    Granite,
    StarCoder2,
    StableLm,
    Falcon,
    Opt,
}

/// A type, its name, the class of `transformers`, and a model of the registry that has what all of the type share.
pub(crate) const KINDS: [(Kind, &str, &str, &str); 20] = [
    (Kind::Llama, "llama", "LlamaForCausalLM", "Llama-2-7b"),
    (Kind::Mistral, "mistral", "MistralForCausalLM", "Mistral-7B-v0.3"),
    (Kind::Mixtral, "mixtral", "MixtralForCausalLM", "Mixtral-8x7B-v0.1"),
    (Kind::Qwen2, "qwen2", "Qwen2ForCausalLM", "Qwen2.5-7B"),
    (Kind::Qwen3, "qwen3", "Qwen3ForCausalLM", "Qwen3-8B"),
    (Kind::Gemma, "gemma", "GemmaForCausalLM", "Gemma-2b"),
    (Kind::Gemma2, "gemma2", "Gemma2ForCausalLM", "Gemma-2-2b"),
    (Kind::NeoX, "gpt_neox", "GPTNeoXForCausalLM", "pythia-70m"),
    (Kind::Gemma3, "gemma3_text", "Gemma3ForCausalLM", "Gemma-3-1b-it"),
    (Kind::Qwen3Moe, "qwen3_moe", "Qwen3MoeForCausalLM", "Qwen3-30B-A3B"),
    (Kind::Phi, "phi", "PhiForCausalLM", "phi-2"),
    (Kind::Phi3, "phi3", "Phi3ForCausalLM", "Phi-3-mini-4k-instruct"),
    (Kind::Olmo, "olmo", "OlmoForCausalLM", "OLMo-1B-hf"),
    (Kind::Olmo2, "olmo2", "Olmo2ForCausalLM", "OLMo-2-1124-7B"),
    (Kind::SmolLm3, "smollm3", "SmolLM3ForCausalLM", "SmolLM3-3B"),
    (Kind::Granite, "granite", "GraniteForCausalLM", "granite-3.1-2b-base"),
    (Kind::StarCoder2, "starcoder2", "Starcoder2ForCausalLM", "starcoder2-3b"),
    (Kind::StableLm, "stablelm", "StableLmForCausalLM", "stablelm-3b-4e1t"),
    (Kind::Falcon, "falcon", "FalconForCausalLM", "falcon-7b"),
    (Kind::Opt, "opt", "OPTForCausalLM", "opt-125m"),
];

/// The types, for messages.
fn names() -> String {
    KINDS.map(|(_, own, ..)| own).join(", ")
}

/// The kind that a configuration says it is of, by its name: that of a type, or of the type's model in the registry.
pub(super) fn named(config: &DecoderConfig) -> Option<Kind> {
    let own = KINDS.iter().find(|(_, name, _, template)| [*name, *template].contains(&config.name.as_str()));
    own.map(|(kind, ..)| *kind)
}

/// The type of a `config.json`, if it is one of those that a decoder computes.
pub(super) fn kind_of(file: &Value) -> Result<Kind, String> {
    let name = Fields::of(file).text("model_type")?.ok_or("model_type is missing")?;
    let found = KINDS.iter().find(|(_, own, ..)| *own == name).map(|(kind, ..)| *kind);
    found.ok_or_else(|| match name {
        "gemma3" => {
            "model_type is 'gemma3', a model of images and texts, which is not supported: its text model alone \
                     is a gemma3_text"
                .to_owned()
        }
        _ => format!(
            "model_type is '{name}', which is not supported, expected one of {}; a gpt2 has other tensors",
            names()
        ),
    })
}

/// The message for a `config.json` whose tensors are not a decoder's, by its `model_type` alone.
pub(crate) fn fault_of_type(file: &Value) -> Option<String> {
    let name = file.get("model_type")?.as_str().filter(|name| *name != MODEL_TYPE)?;
    Some(match KINDS.iter().any(|(_, own, ..)| *own == name) {
        true => format!("model_type is '{name}', but the tensors beside it are not those of such a model"),
        false => format!(
            "model_type is '{name}', a model that is not computed here, expected one of {MODEL_TYPE}, {}",
            names()
        ),
    })
}

/// Whether the windows of a file's layers are said by `layer_types`, and whether any has one.
pub(super) fn layer_types(file: &Value) -> Option<bool> {
    let types = file.get("layer_types")?.as_array()?;
    Some(types.iter().any(|one| one == "sliding_attention"))
}

/// Keys of a type that change no result in a file, each with the reason.
pub(crate) fn harmless(kind: Kind, file: &Value) -> Vec<(&'static str, &'static str)> {
    const WINDOWS: [(&str, &str); 3] = [
        ("sliding_window", "a window, which no layer has"),
        ("max_window_layers", "layers with a window, which other keys say"),
        ("use_sliding_window", "windows, which no layer has by layer_types"),
    ];
    const DROPOUT: &str = "training alone; dropout is an option of a run";
    let is = |key: &str, value: bool| file.get(key).and_then(Value::as_bool) == Some(value);
    let has = |key: &str| file.get(key).is_some_and(|value| !value.is_null());
    let own: Vec<(&str, &str)> = match kind {
        Kind::Qwen2 | Kind::Qwen3 | Kind::SmolLm3 => {
            let windows = match layer_types(file) {
                Some(true) => &WINDOWS[1..2],
                Some(false) => &WINDOWS[..],
                None if is("use_sliding_window", true) && kind != Kind::SmolLm3 => &[],
                None if is("use_sliding_window", true) => &WINDOWS[1..2],
                None => &WINDOWS[..2],
            };
            let interval = ("no_rope_layer_interval", "layers without positions, which no_rope_layers lists");
            let interval = (kind == Kind::SmolLm3 && has("no_rope_layers")).then_some(interval);
            windows.iter().copied().chain(interval).collect()
        }
        Kind::Qwen3Moe if is("use_sliding_window", true) => WINDOWS[1..2].to_vec(),
        Kind::Qwen3Moe => WINDOWS[..2].to_vec(),
        Kind::Gemma3 if has("layer_types") => vec![
            ("sliding_window_pattern", "layers with a window, which layer_types lists"),
            ("_sliding_window_pattern", "layers with a window, which layer_types lists"),
        ],
        Kind::Phi => vec![("resid_pdrop", DROPOUT), ("embd_pdrop", DROPOUT)],
        Kind::Phi3 => {
            let rope = file.get("rope_parameters").or(file.get("rope_scaling"));
            let named = rope.and_then(|rope| rope.get("rope_type").or(rope.get("type"))).and_then(Value::as_str);
            let context = ("original_max_position_embeddings", "a context, which longrope alone is for");
            let context = matches!(named, None | Some("default")).then_some(context);
            [("resid_pdrop", DROPOUT), ("embd_pdrop", DROPOUT)].into_iter().chain(context).collect()
        }
        Kind::StarCoder2 => vec![("residual_dropout", DROPOUT), ("embedding_dropout", DROPOUT)],
        Kind::Falcon if is("new_decoder_architecture", true) => {
            vec![("multi_query", "the heads of the older architecture")]
        }
        Kind::Opt => vec![
            ("dropout", DROPOUT),
            ("activation_dropout", DROPOUT),
            ("layerdrop", "training alone, which leaves no layer out here"),
            ("init_std", "initial weights, which were replaced"),
        ],
        _ => Vec::new(),
    };
    HARMLESS.iter().copied().chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::super::config::{GeluApproximate, MlpClass, NormClass, NormQkType};
    use super::*;

    fn norms(config: &DecoderConfig) -> String {
        let class = match config.norm_class_name {
            NormClass::LayerNorm => "layer",
            NormClass::RMSNorm => "RMS",
        };
        let weights = match (config.norm_affine, config.norm_add_unit_offset) {
            (false, _) => ", no weights",
            (_, true) => ", weights + 1",
            _ => "",
        };
        let place = match (config.norm_1, config.post_attention_norm) {
            (true, false) => "",
            (true, true) => ", before and after",
            (false, _) => ", after",
        };
        format!("{class}{weights}{place}")
    }

    fn positions(config: &DecoderConfig) -> String {
        let every = config.rotated_indices.as_ref().and_then(|indices| indices.iter().position(|has| *has == 0));
        let share = (config.rotary_percentage * 100.0).round();
        match (config.learned_positions, every, config.rope_local_base_freq) {
            (Some(_), ..) => "learned".to_owned(),
            (_, Some(first), _) => format!("rotated, not every {}th block", first + 1),
            (_, _, Some(_)) => "rotated, two bases".to_owned(),
            _ if share < 100.0 => format!("{share} % rotated"),
            _ => "rotated".to_owned(),
        }
    }

    fn attention(config: &DecoderConfig) -> String {
        let mut said = Vec::new();
        if config.bias || config.attn_bias {
            said.push("biases".to_owned());
        }
        match (config.norm_qk, config.norm_qk_type) {
            (true, NormQkType::Olmo2) => said.push("norms of all queries and keys".to_owned()),
            (true, _) => said.push("norms of heads".to_owned()),
            _ => {}
        }
        if let Some(window) = config.sliding_window_size {
            let of = if config.sliding_window_indices.is_some() { " in some blocks" } else { "" };
            said.push(format!("window of {window}{of}"));
        }
        said.extend(config.attention_logit_softcapping.map(|cap| format!("cap of {cap}")));
        said.join(", ")
    }

    fn feed_forward(config: &DecoderConfig) -> String {
        let function = match (config.mlp_class_name, config.mlp_activation, config.gelu_approximate) {
            (MlpClass::Llama, ..) => "SwiGLU".to_owned(),
            (MlpClass::Gemma, ..) => "GeGLU".to_owned(),
            (MlpClass::Mixture, ..) => format!("{} of {} SwiGLUs", config.n_expert_per_token, config.n_expert),
            (_, Some(function), _) => function.name().to_owned(),
            (_, _, GeluApproximate::Tanh) => "GELU by tanh".to_owned(),
            _ => "GELU".to_owned(),
        };
        let order = match (config.parallel_residual, config.shared_attention_norm) {
            (true, true) => ", parallel, one norm",
            (true, false) => ", parallel",
            _ => "",
        };
        format!("{function}{order}")
    }

    /// The table of the page is what the models of the registry say.
    #[test]
    fn the_table_of_the_page_is_that_of_the_types() {
        let mut table = String::from("| `model_type` | model | norms | positions | attention | feed-forward part |\n");
        table += "|---|---|---|---|---|---|\n";
        for (_, name, _, template) in KINDS {
            let config = DecoderConfig::named(template, 1).unwrap();
            let (norms, positions) = (norms(&config), positions(&config));
            let (attention, fed) = (attention(&config), feed_forward(&config));
            table += &format!("| `{name}` | {template} | {norms} | {positions} | {attention} | {fed} |\n");
        }
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/decoders.md")).unwrap();
        assert!(page.contains(&table), "docs/src/decoders.md lacks this table:\n{table}");
    }

    #[test]
    fn models_of_images_are_told_what_to_read() {
        let message = kind_of(&serde_json::json!({"model_type": "gemma3"})).unwrap_err();
        assert!(message.ends_with("its text model alone is a gemma3_text"), "{message}");
    }
}
