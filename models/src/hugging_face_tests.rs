use super::*;
use crate::initialize::initial_values;

/// A model without a named size.
fn weights() -> Weights {
    let config = GptConfig { vocabulary: 11, context: 6, layers: 2, heads: 2, channels: 4, ..GptConfig::GPT2 };
    let tensors = config.parameters().into_iter().map(|parameter| {
        let values = initial_values(&parameter, 9);
        (parameter.name, HostTensor::from_f32(&parameter.shape, &values).unwrap())
    });
    Weights::new(config.clone(), tensors.collect()).unwrap()
}

fn read_changed(names: Names, change: impl FnOnce(&mut TensorFile)) -> Result<Weights, HuggingFaceError> {
    let mut file = tensor_file(&weights(), names).unwrap();
    change(&mut file);
    read(file, None, None)
}

#[test]
fn conv1d_weights_are_stored_in_out() {
    let file = tensor_file(&weights(), Names::Prefixed).unwrap();
    let shape = |name: &str| file.tensors[&format!("transformer.{name}")].shape().to_vec();
    assert_eq!(shape("h.0.attn.c_attn.weight"), [4, 12]);
    assert_eq!(shape("h.0.mlp.c_fc.weight"), [4, 16]);
    assert_eq!(shape("h.1.mlp.c_proj.weight"), [16, 4]);
    assert_eq!(shape("wte.weight"), [11, 4]);
    let ours = weights().tensor("h.1.attn.c_attn.weight").unwrap().to_f32().unwrap();
    let theirs = file.tensors["transformer.h.1.attn.c_attn.weight"].to_f32().unwrap();
    // Output 5, input 3.
    assert_eq!(theirs[3 * 12 + 5], ours[5 * 4 + 3]);
}

#[test]
fn optional_tensors_may_be_there() {
    for names in [Names::Plain, Names::Prefixed] {
        assert_eq!(read_changed(names, |_| ()).unwrap(), weights());
        let with_more = read_changed(names, |file| {
            let wte = weights().tensor("wte.weight").unwrap().clone();
            file.tensors.insert(LM_HEAD.into(), wte);
            for (name, size) in [("h.0.attn.bias", 36), ("transformer.h.1.attn.masked_bias", 1)] {
                let mask = HostTensor::new(DType::U8, &[size], vec![1; size]).unwrap();
                file.tensors.insert(name.into(), mask);
            }
        });
        assert_eq!(with_more.unwrap(), weights());
    }
}

#[test]
fn faults_are_told_apart_and_named() {
    let f32s = |shape: &[usize]| HostTensor::from_f32(shape, &vec![0.5; shape.iter().product()]).unwrap();
    type Change<'a> = &'a dyn Fn(&mut TensorFile);
    let insert = |name: &'static str, tensor: HostTensor| {
        move |file: &mut TensorFile| drop(file.tensors.insert(name.to_owned(), tensor.clone()))
    };
    let cases: [(Change, &str); 13] = [
        (&|file| drop(file.tensors.remove("wte.weight")), "tensor \"wte.weight\" is missing (also as"),
        (&|file| drop(file.tensors.remove("h.1.mlp.c_fc.bias")), "tensor \"h.1.mlp.c_fc.bias\" is missing"),
        (&insert("score.weight", f32s(&[2])), "tensor \"score.weight\" belongs to no parameter of a GPT-2 of 2 layers"),
        (&insert("h.0.attn.c_attn.extra", f32s(&[2])), "tensor \"h.0.attn.c_attn.extra\" belongs to no parameter"),
        (&insert("h.5.ln_1.bias", f32s(&[4])), "tensor \"h.2.ln_1.weight\" is missing"),
        (&insert("h.99999999999.ln_1.bias", f32s(&[4])), "layers is 100000000000"),
        (&insert("transformer.ln_f.bias", f32s(&[4])), "tensor \"ln_f.bias\" is there with the prefix"),
        (
            &insert("h.0.attn.c_attn.weight", f32s(&[12, 4])),
            "tensor \"h.0.attn.c_attn.weight\" has shape [12, 4], expected [4, 12] ([in, out], as Conv1D stores it)",
        ),
        (&insert("ln_f.bias", f32s(&[5])), "tensor \"ln_f.bias\" has shape [5], expected [4]"),
        (&insert("wpe.weight", f32s(&[6])), "tensor \"wpe.weight\" has shape [6], expected [rows, channels]"),
        (
            &insert("ln_f.bias", HostTensor::from_f64(&[4], &[0.0; 4]).unwrap()),
            "tensor \"ln_f.bias\" holds f64, expected f32, bf16 or f16",
        ),
        (
            &insert(LM_HEAD, f32s(&[11, 4])),
            "tensor \"lm_head.weight\" differs from \"wte.weight\" at row 0, column 0: 0.5",
        ),
        (&|file| drop(file.metadata.insert(HEADS.into(), "two".into())), "metadata \"n_head\" is \"two\""),
    ];
    for (change, part) in cases {
        let message = read_changed(Names::Plain, |file| change(file)).unwrap_err().to_string();
        assert!(message.contains(part), "{message} lacks {part}");
    }
}

#[test]
fn heads_come_from_the_caller_the_config_or_the_metadata_and_are_never_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let with = |heads: Option<&str>| {
        let mut file = tensor_file(&weights(), Names::Plain).unwrap();
        file.metadata.clear();
        file.metadata.extend(heads.map(|heads| (HEADS.to_owned(), heads.to_owned())));
        file
    };
    let heads = |file: TensorFile, given| read(file, given, Some(folder.path())).map(|weights| weights.config().heads);
    let complain = |file: TensorFile| heads(file, None).unwrap_err().to_string();
    assert!(complain(with(None)).contains("put the model's config.json beside it, or say the number"));
    assert_eq!(heads(with(Some("2")), None).unwrap(), 2);
    assert_eq!(heads(with(None), Some(4)).unwrap(), 4);
    let path = folder.path().join("config.json");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    write(r#"{"n_head": 1, "n_embd": 4, "model_type": "gpt2"}"#);
    assert_eq!(heads(with(None), None).unwrap(), 1);
    assert_eq!(heads(with(Some("1")), None).unwrap(), 1);
    assert_eq!(heads(with(Some("2")), Some(4)).unwrap(), 4);
    assert!(heads(with(None), Some(3)).unwrap_err().to_string().contains("4 channels do not divide among 3 heads"));
    assert!(complain(with(Some("2"))).contains("\"n_head\" is 2, but n_head of the config.json beside the file is 1"));
    // The file is read with the metadata, too.
    for (text, expected) in [
        ("{", "config.json' beside the file: EOF"),
        (r#"{"n_head": 2}"#, "model_type is missing, expected \"gpt2\""),
        (r#"{"n_head": 2, "model_type": "bert"}"#, "model_type is 'bert', but the tensors are those of a GPT-2"),
        (r#"{"model_type": "gpt2"}"#, "n_head is missing"),
        (r#"{"n_head": 2, "n_embd": 768, "model_type": "gpt2"}"#, "n_embd is 768, but \"wte.weight\" has 4 channels"),
        (r#"{"n_head": 2, "n_layer": 3, "model_type": "gpt2"}"#, "n_layer is 3, but there are tensors of 2 layers"),
        (
            r#"{"n_head": 2, "model_type": "gpt2", "activation_function": "xielu"}"#,
            "activation_function is 'xielu', which is not supported, expected one of gelu, ",
        ),
        (r#"{"n_head": 2, "model_type": "gpt2", "rotary_dim": 2}"#, "rotary_dim is 2, and a gpt2 has no such field"),
    ] {
        write(text);
        assert!(complain(with(Some("2"))).contains(expected), "{text}: {}", complain(with(Some("2"))));
    }
}

#[test]
fn what_a_variant_computes_is_written_beside_it_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let variant = crate::config::Variant {
        activation_function: crate::activation::Activation::Relu,
        layer_norm_epsilon: 0.5,
        scale_attn_weights: false,
        scale_attn_by_inverse_layer_idx: true,
        n_inner: Some(3),
    };
    let of = |variant| {
        let config = GptConfig { variant, ..weights().config().clone() };
        let tensors = config.parameters().into_iter().map(|parameter| {
            let values = initial_values(&parameter, 9);
            (parameter.name, HostTensor::from_f32(&parameter.shape, &values).unwrap())
        });
        Weights::new(config.clone(), tensors.collect()).unwrap()
    };
    save(&of(variant), Names::Plain, &path).unwrap();
    let read = read(TensorFile::load(&path).unwrap(), None, Some(folder.path())).unwrap();
    assert_eq!(read, of(variant));
    let stored = serde_json::to_string(read.config()).unwrap();
    assert!(stored.contains("\"activation_function\":\"relu\""), "{stored}");
    assert_eq!(serde_json::from_str::<GptConfig>(&stored).unwrap(), *read.config());
    assert!(!serde_json::to_string(weights().config()).unwrap().contains("variant"), "as before where it is OpenAI's");
    // The file of another model is left alone, and one that says the same stays as it is.
    let message = save(&weights(), Names::Plain, &path).unwrap_err().to_string();
    assert!(message.contains("config.json' beside the file: is there already"), "{message}");
    let beside = folder.path().join("config.json");
    let text = std::fs::read_to_string(&beside).unwrap().replace('{', "{\"eos_token_id\": 7,");
    std::fs::write(&beside, &text).unwrap();
    save(&of(variant), Names::Plain, &path).unwrap();
    assert_eq!(std::fs::read_to_string(&beside).unwrap(), text);
}
