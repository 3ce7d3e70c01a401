//! `config.json` of a GPT-2 as Hugging Face's `transformers` has it, and back. Functions that a file
//! leaves out are the defaults of `transformers`, which are OpenAI's.

use serde_json::{Value, json};

use crate::activation::Activation;
use crate::config::{GptConfig, Variant};
use crate::config_fields::{Fields, HARMLESS};

/// The type's name in `config.json`.
pub(crate) const MODEL_TYPE: &str = "gpt2";

/// Keys of a GPT-2 that change no result, each with the reason.
pub(crate) const HARMLESS_OF_GPT2: [(&str, &str); 5] = [
    ("n_ctx", "the context under its older name, which nothing reads"),
    ("embd_pdrop", "training alone; dropout is an option of a run"),
    ("attn_pdrop", "training alone; dropout is an option of a run"),
    ("resid_pdrop", "training alone; dropout is an option of a run"),
    ("reorder_and_upcast_attn", "scores are computed in f32 in any case"),
];

/// Reads a file. `sizes` is the model that the tensors have, whose number of heads is the file's in the result.
///
/// # Errors
/// A field that is not known, one of another type, a size that is not that of the tensors, and a function that no model
/// here has; each names the field.
pub(crate) fn from_json(file: &Value, sizes: &GptConfig) -> Result<GptConfig, String> {
    let fields = Fields::of(file);
    match fields.text("model_type")? {
        Some(MODEL_TYPE) => {}
        Some(other) => return Err(format!("model_type is '{other}', but the tensors are those of a GPT-2")),
        None => return Err(format!("model_type is missing, expected \"{MODEL_TYPE}\"")),
    }
    for (name, tensor, found) in [
        ("n_embd", "\"wte.weight\" has {} channels", sizes.channels),
        ("vocab_size", "\"wte.weight\" has {} rows", sizes.vocabulary),
        ("n_positions", "\"wpe.weight\" has {} rows", sizes.context),
        ("n_layer", "there are tensors of {} layers", sizes.layers),
    ] {
        if let Some(said) = fields.whole(name)?.filter(|said| *said != found) {
            return Err(format!("{name} is {said}, but {}", tensor.replace("{}", &found.to_string())));
        }
    }
    let name = fields.text("activation_function")?.unwrap_or(Variant::OPENAI.activation_function.name());
    let activation_function = Activation::named(name).ok_or_else(|| {
        format!("activation_function is '{name}', which is not supported, expected one of {}", Activation::names())
    })?;
    fields.must_be("tie_word_embeddings", &[json!(true)])?;
    let usual = Variant::OPENAI;
    let variant = Variant {
        activation_function,
        layer_norm_epsilon: fields.number("layer_norm_epsilon")?.unwrap_or(usual.layer_norm_epsilon),
        scale_attn_weights: fields.flag("scale_attn_weights", usual.scale_attn_weights)?,
        scale_attn_by_inverse_layer_idx: fields
            .flag("scale_attn_by_inverse_layer_idx", usual.scale_attn_by_inverse_layer_idx)?,
        // Named or not, 4 C is the same model.
        n_inner: fields.whole("n_inner")?.filter(|inner| *inner != sizes.channels.saturating_mul(4)),
    };
    let heads = fields.size("n_head")?;
    fields.end("a gpt2", &[&HARMLESS[..], &HARMLESS_OF_GPT2].concat())?;
    let config = GptConfig { heads, variant, ..sizes.clone() };
    config.validate().map_err(|error| error.to_string())?;
    Ok(config)
}

/// The file of a configuration.
pub(crate) fn to_json(config: &GptConfig) -> Value {
    let Variant { activation_function, layer_norm_epsilon, scale_attn_weights, n_inner, .. } = config.variant;
    json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": MODEL_TYPE,
        "vocab_size": config.vocabulary,
        "n_positions": config.context,
        "n_embd": config.channels,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": n_inner,
        "activation_function": activation_function.name(),
        "layer_norm_epsilon": layer_norm_epsilon,
        "scale_attn_weights": scale_attn_weights,
        "scale_attn_by_inverse_layer_idx": config.variant.scale_attn_by_inverse_layer_idx,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "tie_word_embeddings": true,
        "dtype": "float32",
    })
}
