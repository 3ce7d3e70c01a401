//! `config.json` of Hugging Face's models as a configuration, and back. Fields that a file leaves out have the defaults
//! of `transformers`.

use serde_json::{Value, json};

use super::config::{DecoderConfig, GeluApproximate, MlpClass, RopeAdjustments};

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
const KINDS: [(Kind, &str, &str, &str); 8] = [
    (Kind::Llama, "llama", "LlamaForCausalLM", "Llama-2-7b"),
    (Kind::Mistral, "mistral", "MistralForCausalLM", "Mistral-7B-v0.3"),
    (Kind::Mixtral, "mixtral", "MixtralForCausalLM", "Mixtral-8x7B-v0.1"),
    (Kind::Qwen2, "qwen2", "Qwen2ForCausalLM", "Qwen2.5-7B"),
    (Kind::Qwen3, "qwen3", "Qwen3ForCausalLM", "Qwen3-8B"),
    (Kind::Gemma, "gemma", "GemmaForCausalLM", "Gemma-2b"),
    (Kind::Gemma2, "gemma2", "Gemma2ForCausalLM", "Gemma-2-2b"),
    (Kind::NeoX, "gpt_neox", "GPTNeoXForCausalLM", "pythia-70m"),
];

/// The fields of a file.
struct Fields<'a>(&'a Value);

impl Fields<'_> {
    /// A field that is there and not null.
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Whether a field is there, perhaps null.
    fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some()
    }

    fn read<T>(&self, name: &str, what: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>, String> {
        let wrong = |value: &Value| format!("{name} is {value}, expected {what}");
        self.get(name).map(|value| read(value).ok_or_else(|| wrong(value))).transpose()
    }

    fn whole(&self, name: &str) -> Result<Option<usize>, String> {
        self.read(name, "a whole number", |value| value.as_u64().and_then(|value| usize::try_from(value).ok()))
    }

    fn size(&self, name: &str) -> Result<usize, String> {
        self.whole(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    fn number(&self, name: &str) -> Result<Option<f64>, String> {
        self.read(name, "a number", Value::as_f64)
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool, String> {
        Ok(self.read(name, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    fn text(&self, name: &str) -> Result<Option<&str>, String> {
        match self.get(name) {
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(format!("{name} is {value}, expected a text")),
            None => Ok(None),
        }
    }

    /// Refuses a field of another value than the one that is computed here.
    fn must_be(&self, name: &str, values: &[Value]) -> Result<(), String> {
        match self.get(name) {
            Some(value) if !values.contains(value) => {
                let expected: Vec<String> = values.iter().map(Value::to_string).collect();
                Err(format!("{name} is {value}, which is not supported, expected {}", expected.join(" or ")))
            }
            _ => Ok(()),
        }
    }
}

/// The type of a `config.json`, if it is one of those that a decoder computes.
pub(super) fn kind_of(file: &Value) -> Result<Kind, String> {
    let fields = Fields(file);
    let name = fields.text("model_type")?.ok_or("model_type is missing")?;
    let found = KINDS.iter().find(|(_, own, ..)| *own == name).map(|(kind, ..)| *kind);
    let known = || KINDS.map(|(_, own, ..)| own).join(", ");
    found.ok_or_else(|| format!("model_type is '{name}', which is not supported, expected one of {}", known()))
}

/// The configuration of a `config.json` of this type. The error says which field is wrong.
pub(super) fn from_json(kind: Kind, file: &Value) -> Result<DecoderConfig, String> {
    let fields = Fields(file);
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
    if fields.get("quantization_config").is_some() {
        return Err("quantization_config is there, and quantized weights are not supported".into());
    }
    fields.must_be("mlp_bias", &[json!(false)])?;
    match kind {
        Kind::Gemma | Kind::Gemma2 => {
            // The first files of Gemma say gelu here, and mean this one all the same.
            fields.must_be("hidden_act", &[json!("gelu_pytorch_tanh"), json!("gelu")])?;
            fields.must_be("hidden_activation", &[json!("gelu_pytorch_tanh")])?;
            fields.must_be("use_bidirectional_attention", &[json!(false)])?;
        }
        Kind::NeoX => fields.must_be("hidden_act", &[json!("gelu")])?,
        _ => fields.must_be("hidden_act", &[json!("silu")])?,
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
        let cap = |name: &str, usual: f64| match fields.has(name) {
            true => fields.number(name),
            false => Ok(Some(usual)),
        };
        config.attention_logit_softcapping = cap("attn_logit_softcapping", 50.0)?;
        config.final_logit_softcapping = cap("final_logit_softcapping", 30.0)?;
    }
    config.validate().map_err(|error| error.to_string())?;
    Ok(config)
}

/// Since version 5 of `transformers` all of it stands in `rope_parameters`.
fn rotations(kind: Kind, fields: &Fields<'_>, config: &mut DecoderConfig) -> Result<(), String> {
    let nothing = json!({});
    let (own, older) = (fields.get("rope_parameters"), fields.get("rope_scaling"));
    // Readers do not agree on which one counts.
    if let (Some(own), Some(older)) = (own, older)
        && !agree(own, older)
    {
        return Err(format!("rope_parameters is {own} and rope_scaling is {older}, expected one of them, or the same"));
    }
    let rope = Fields(own.or(older).unwrap_or(&nothing));
    let bases = [rope.number("rope_theta")?, fields.number("rope_theta")?, fields.number("rotary_emb_base")?];
    let usual = if kind == Kind::Mixtral { 1e6 } else { 10_000.0 };
    config.rope_base = bases.into_iter().flatten().next().unwrap_or(usual);
    if kind == Kind::NeoX {
        let shares = [rope.number("partial_rotary_factor")?, fields.number("rotary_pct")?];
        config.rotary_percentage = shares.into_iter().flatten().next().unwrap_or(0.25);
    }
    let need = |name: &str| rope.number(name)?.ok_or_else(|| format!("{name} of the rotations is missing"));
    config.rope_adjustments = match rope.text("rope_type")?.or(rope.text("type")?).unwrap_or("default") {
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
    Ok(())
}

/// Whether all that an older `rope_scaling` says is in `rope_parameters`.
fn agree(own: &Value, older: &Value) -> bool {
    let said = |name: &str| own.get(if name == "type" { "rope_type" } else { name });
    older.as_object().is_some_and(|older| older.iter().all(|(name, value)| said(name) == Some(value)))
}

fn windows(kind: Kind, fields: &Fields<'_>, config: &mut DecoderConfig) -> Result<(), String> {
    let given = fields.whole("sliding_window")?;
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
            (None, None)
        }
        Kind::Llama | Kind::Gemma | Kind::NeoX => (None, None),
    };
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
    if let Some(RopeAdjustments { factor, low_freq_factor, high_freq_factor, original_max_seq_len }) =
        config.rope_adjustments
    {
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
        file["hidden_act"] = json!("gelu");
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
    let has_gelu = matches!(config.mlp_class_name, MlpClass::GptNeox | MlpClass::Gemma);
    DecoderConfig {
        name: String::new(),
        n_query_groups: Some(config.groups()),
        head_size: Some(config.head_width()),
        intermediate_size: Some(config.inner_width()),
        attention_scores_scalar: Some(config.attention_scores_scalar.unwrap_or(config.head_width())),
        sliding_window_indices: config.sliding_window_size.map(|_| windows),
        gelu_approximate: if has_gelu { config.gelu_approximate } else { GeluApproximate::None },
        ..config.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Kind, more: Value) -> Result<DecoderConfig, String> {
        let mut file = json!({
            "num_hidden_layers": 2, "num_attention_heads": 32, "hidden_size": 64, "vocab_size": 31,
            "max_position_embeddings": 32, "intermediate_size": 48,
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            file[field] = value.clone();
        }
        from_json(kind, &file)
    }

    #[test]
    fn fields_that_are_absent_have_the_defaults_of_their_type() {
        let absent = |kind| read(kind, json!({})).unwrap();
        for (kind, groups, eps) in [
            (Kind::Llama, 32, 1e-6),
            (Kind::Mistral, 8, 1e-6),
            (Kind::Mixtral, 8, 1e-5),
            (Kind::Qwen2, 32, 1e-6),
            (Kind::Qwen3, 32, 1e-6),
            (Kind::Gemma, 16, 1e-6),
            (Kind::Gemma2, 4, 1e-6),
            (Kind::NeoX, 32, 1e-5),
        ] {
            let config = absent(kind);
            assert_eq!((config.groups(), config.norm_eps), (groups, eps), "{kind:?}");
            let config = read(kind, json!({"num_key_value_heads": null})).unwrap();
            assert_eq!(config.groups(), 32, "{kind:?}");
        }
        let gemma = absent(Kind::Gemma2);
        assert_eq!((gemma.attention_logit_softcapping, gemma.final_logit_softcapping), (Some(50.0), Some(30.0)));
        let without = json!({"attn_logit_softcapping": null, "final_logit_softcapping": 20});
        let gemma = read(Kind::Gemma2, without).unwrap();
        assert_eq!((gemma.attention_logit_softcapping, gemma.final_logit_softcapping), (None, Some(20.0)));
    }

    #[test]
    fn absurd_numbers_are_errors() {
        let sizes = ["num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size", "intermediate_size"];
        let others = ["max_position_embeddings", "num_key_value_heads", "head_dim", "sliding_window"];
        for (kind, ..) in KINDS {
            for field in sizes.into_iter().chain(others) {
                for number in [json!(usize::MAX), json!(1_u64 << 62), json!(0), json!(-1), json!(1e300), json!("2")] {
                    let read = read(kind, json!({field: number}));
                    let unread =
                        field == "sliding_window" && !matches!(kind, Kind::Mistral | Kind::Mixtral | Kind::Gemma2);
                    assert!(read.is_err() || unread, "{kind:?} {field} {number}");
                }
            }
        }
    }

    /// Whatever the fields are, the answer is an error, or a configuration that can be written and read back.
    #[test]
    fn damaged_configurations_are_errors_or_read_back() {
        let fields = [
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "hidden_size",
            "head_dim",
            "vocab_size",
            "intermediate_size",
            "max_position_embeddings",
            "rms_norm_eps",
            "layer_norm_eps",
            "rope_theta",
            "rope_scaling",
            "rope_parameters",
            "rotary_pct",
            "rotary_emb_base",
            "partial_rotary_factor",
            "sliding_window",
            "use_sliding_window",
            "max_window_layers",
            "layer_types",
            "attention_bias",
            "mlp_bias",
            "tie_word_embeddings",
            "hidden_act",
            "hidden_activation",
            "query_pre_attn_scalar",
            "attn_logit_softcapping",
            "final_logit_softcapping",
            "num_local_experts",
            "num_experts_per_tok",
            "use_parallel_residual",
        ];
        let scaling = |factor: Value| {
            json!({
                "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            })
        };
        let values = [
            json!(null),
            json!(true),
            json!(false),
            json!(0),
            json!(1),
            json!(2),
            json!(3),
            json!(32),
            json!(64),
            json!(-1),
            json!(usize::MAX),
            json!(u64::from(u32::MAX)),
            json!(0.25),
            json!(1e-5),
            json!(-0.0),
            json!(1e308),
            json!("gelu"),
            json!("silu"),
            json!(""),
            json!([]),
            json!(["full_attention"]),
            json!(["sliding_attention", "full_attention"]),
            json!({}),
            scaling(json!(8.0)),
            scaling(json!("8")),
            json!({"rope_type": "linear", "factor": 2.0}),
            json!({"rope_type": 3}),
            json!([[[]]]),
        ];
        let mut read_back = 0;
        for case in 0..20_000 {
            let mut random = crate::random::Stream::new(case, 0xC0F1);
            let mut one = |bound: usize| random.below(bound as u64) as usize;
            let (kind, ..) = KINDS[one(KINDS.len())];
            let mut more = json!({});
            (0..1 + one(3)).for_each(|_| more[fields[one(fields.len())]] = values[one(values.len())].clone());
            let Ok(config) = read(kind, more.clone()) else { continue };
            assert!(config.validate().is_ok(), "case {case}: {kind:?} {more}");
            let Some((written, file)) = to_json(&config) else { continue };
            let again = from_json(written, &file).unwrap_or_else(|error| panic!("case {case}: {more}: {error}"));
            // What follows from other fields may be absent in the one and written in the other, and a type may compute
            // what another one does.
            let [own, again] = [config, again].map(|config| DecoderConfig {
                name: String::new(),
                head_size: Some(config.head_width()),
                n_query_groups: Some(config.groups()),
                ..config
            });
            let differences = own.differences(&again);
            assert!(differences.is_empty(), "case {case}: {kind:?} {more} {differences:?}");
            read_back += 1;
        }
        assert!(read_back > 2000, "{read_back}");
    }

    #[test]
    fn what_two_fields_say_of_rotations_must_agree() {
        let both = |older: Value| {
            let own = json!({"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0});
            read(Kind::Llama, json!({"rope_parameters": own, "rope_scaling": older}))
        };
        for older in [json!(null), json!({"type": "linear", "factor": 2.0}), json!({"rope_type": "linear"})] {
            assert_eq!(both(older).unwrap().rope_adjustments.unwrap().factor, 2.0);
        }
        for older in [json!({"rope_type": "yarn", "factor": 2.0}), json!({"type": "linear", "factor": 4.0}), json!(3)] {
            let error = both(older).unwrap_err();
            assert!(error.starts_with("rope_parameters is {"), "{error}");
        }
        let default = json!({"rope_type": "default", "rope_theta": 5000.0});
        let older = json!({"rope_type": "linear", "factor": 2.0});
        assert!(read(Kind::Llama, json!({"rope_parameters": default, "rope_scaling": older})).is_err());
        let error = read(Kind::Llama, json!({"quantization_config": {"bits": 4}})).unwrap_err();
        assert!(error.starts_with("quantization_config is there"), "{error}");
    }

    #[test]
    fn what_gemma_does_not_compute_is_refused() {
        assert!(read(Kind::Gemma, json!({"hidden_act": "gelu"})).is_ok());
        for kind in [Kind::Gemma, Kind::Gemma2] {
            let error = read(kind, json!({"hidden_activation": "gelu"})).unwrap_err();
            assert!(error.contains("hidden_activation is \"gelu\", which is not supported"), "{error}");
            let error = read(kind, json!({"use_bidirectional_attention": true})).unwrap_err();
            assert!(error.contains("use_bidirectional_attention is true, which is not supported"), "{error}");
        }
        let types = |types: Value| read(Kind::Gemma2, json!({"layer_types": types}));
        let windows = types(json!(["full_attention", "sliding_attention"])).unwrap().sliding_window_indices;
        assert_eq!(windows, Some(vec![0, 1]));
        let error = types(json!(["chunked_attention", "full_attention"])).unwrap_err();
        assert!(error.contains("expected a list of sliding_attention and full_attention"), "{error}");
    }
}
