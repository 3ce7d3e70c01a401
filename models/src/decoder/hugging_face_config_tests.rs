use super::super::config::DecoderConfig;
use super::super::hugging_face_written::to_json;
use super::*;

fn read(kind: Kind, more: Value) -> Result<DecoderConfig, String> {
    let mut file = json!({
        "num_hidden_layers": 2, "num_attention_heads": 32, "hidden_size": 64, "vocab_size": 31,
        "max_position_embeddings": 32, "intermediate_size": 48,
    });
    if matches!(kind, Kind::Phi | Kind::StableLm) {
        // A part of each head is rotated, which is an even number of its values.
        file["hidden_size"] = json!(256);
    }
    let inner = match kind {
        Kind::Falcon => "ffn_hidden_size",
        Kind::Opt => "ffn_dim",
        _ => "intermediate_size",
    };
    let width = file.as_object_mut().unwrap().remove("intermediate_size").unwrap();
    file[inner] = width;
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
        (Kind::Gemma3, 4, 1e-6),
        (Kind::Qwen3Moe, 4, 1e-6),
        (Kind::Phi, 32, 1e-5),
        (Kind::Phi3, 32, 1e-5),
        (Kind::Olmo, 32, 1e-5),
        (Kind::Olmo2, 32, 1e-5),
        (Kind::SmolLm3, 4, 1e-6),
        (Kind::Granite, 32, 1e-6),
        (Kind::StarCoder2, 2, 1e-5),
        (Kind::StableLm, 32, 1e-5),
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
                let off = matches!(kind, Kind::Qwen2 | Kind::Qwen3 | Kind::Qwen3Moe | Kind::SmolLm3);
                let unread = field == "sliding_window" && off;
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
        "layer_norm_epsilon",
        "norm_epsilon",
        "clip_qkv",
        "use_bias",
        "bias",
        "enable_bias",
        "use_qkv_bias",
        "qk_layernorm",
        "multi_query",
        "new_decoder_architecture",
        "parallel_attn",
        "num_kv_heads",
        "num_ln_in_parallel_attn",
        "ffn_hidden_size",
        "ffn_dim",
        "word_embed_proj_dim",
        "do_layer_norm_before",
        "layer_norm_elementwise_affine",
        "activation",
        "activation_function",
        "moe_intermediate_size",
        "norm_topk_prob",
        "decoder_sparse_step",
        "mlp_only_layers",
        "no_rope_layers",
        "no_rope_layer_interval",
        "embedding_multiplier",
        "residual_multiplier",
        "logits_scaling",
        "attention_multiplier",
        "rope_local_base_freq",
        "sliding_window_pattern",
        "original_max_position_embeddings",
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
        json!({"rope_type": "dynamic", "factor": 2.0}),
        json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}),
        json!({"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.5, "beta_fast": 8.0, "truncate": false}),
        json!({"rope_type": "longrope", "short_factor": [1.5], "long_factor": [2.5], "factor": 4.0}),
        json!({"full_attention": {"rope_theta": 5000.0}, "sliding_attention": {"rope_type": "default"}}),
        json!([0]),
        json!([1, 0]),
        json!("relu"),
        json!([[[]]]),
    ];
    let mut read_back = 0;
    for case in 0..60_000 {
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
    // A type refuses the fields that others have.
    assert!(read_back > 1200, "{read_back}");
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
    for older in [json!({"rope_type": "yarn", "factor": 2.0}), json!({"type": "linear", "factor": 4.0})] {
        let error = both(older).unwrap_err();
        assert!(error.starts_with("rope_parameters is {"), "{error}");
    }
    assert_eq!(both(json!(3)).unwrap_err(), "rope_scaling is 3, expected an object with rope_type");
    let bases = json!({"rope_theta": 1.0, "rope_parameters": {"rope_theta": 2.0}});
    let error = read(Kind::Llama, bases).unwrap_err();
    assert_eq!(error, "rope_theta of the rotations is 2 and rope_theta is 1, expected the same");
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

/// LitGPT divides positions by `rope_condense_ratio`; `transformers` calls the same `linear`.
#[test]
fn divided_positions_are_linear_rotations() {
    let mut config = DecoderConfig::named("Llama-2-7b", 1).unwrap();
    config.set("rope_condense_ratio=4").unwrap();
    let (kind, file) = to_json(&config).unwrap();
    assert_eq!((kind, &file["rope_parameters"]["rope_type"]), (Kind::Llama, &json!("linear")));
    assert_eq!(file["rope_parameters"]["factor"], 4.0);
    assert_eq!(from_json(kind, &file).unwrap().rope_adjustments.unwrap().factor, 4.0);
    config.set("rope_adjustments={\"factor\": 2}").unwrap();
    assert_eq!(to_json(&config).unwrap().1["rope_parameters"]["factor"], 8.0);
    let of_llama3 = "{\"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_seq_len\": 16}";
    config.set(&format!("rope_adjustments={of_llama3}")).unwrap();
    assert!(to_json(&config).is_none(), "both at once have no type");
}
