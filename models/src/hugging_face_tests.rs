use super::*;
use crate::initialize::initial_values;

/// A model without a named size.
fn weights() -> Weights {
    let config = GptConfig { vocabulary: 11, context: 6, layers: 2, heads: 2, channels: 4, dropout: 0.0 };
    let tensors = config.parameters().into_iter().map(|parameter| {
        let values = initial_values(&parameter, 9);
        (parameter.name, HostTensor::from_f32(&parameter.shape, &values).unwrap())
    });
    Weights::new(config.clone(), tensors.collect()).unwrap()
}

fn read_changed(names: Names, change: impl FnOnce(&mut TensorFile)) -> Result<Weights, HuggingFaceError> {
    let mut file = tensor_file(&weights(), names);
    change(&mut file);
    read(file, None, None)
}

#[test]
fn conv1d_weights_are_stored_in_out() {
    let file = tensor_file(&weights(), Names::Prefixed);
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
fn heads_come_from_the_caller_the_metadata_the_config_or_the_size() {
    let folder = tempfile::tempdir().unwrap();
    let without = || {
        let mut file = tensor_file(&weights(), Names::Plain);
        file.metadata.clear();
        file
    };
    let heads = |file: TensorFile, given| read(file, given, Some(folder.path())).map(|weights| weights.config().heads);
    let complain = || heads(without(), None).unwrap_err().to_string();
    assert!(complain().contains("no size has 2 layers of 4 channels"));
    let config = folder.path().join("config.json");
    std::fs::write(&config, r#"{"n_head": 1, "n_embd": 4, "model_type": "gpt2"}"#).unwrap();
    assert_eq!(heads(without(), None).unwrap(), 1);
    assert_eq!(heads(tensor_file(&weights(), Names::Plain), None).unwrap(), 2);
    assert_eq!(heads(tensor_file(&weights(), Names::Plain), Some(4)).unwrap(), 4);
    assert!(heads(without(), Some(3)).unwrap_err().to_string().contains("4 channels do not divide among 3 heads"));
    std::fs::write(&config, r#"{"n_head": 1, "n_embd": 768}"#).unwrap();
    assert!(complain().contains("config.json' beside the file: n_embd is 768"));
    std::fs::write(&config, "{").unwrap();
    assert!(complain().contains("config.json' beside the file: EOF"));
    assert_eq!(heads_of(&BTreeMap::new(), None, 12, 768).unwrap(), 12);
    assert_eq!(heads_of(&BTreeMap::new(), None, 48, 1600).unwrap(), 25);
}
