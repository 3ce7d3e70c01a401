use super::*;
use crate::config::GptConfig;
use crate::host_tensor::HostTensor;
use crate::initialize::initial_values;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{DType, Device};

fn weights() -> Weights<ModelConfig> {
    let config = GptConfig { vocabulary: 300, context: 6, layers: 2, heads: 2, channels: 4, ..GptConfig::GPT2 };
    let tensors = config.parameters().into_iter().map(|parameter| {
        let values = initial_values(&parameter, 9);
        (parameter.name, HostTensor::from_f32(&parameter.shape, &values).unwrap())
    });
    Weights::new(config.clone().into(), tensors.collect()).unwrap()
}

#[test]
fn every_format_comes_back_through_every_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut current = weights();
    let other = [Format::Llmc(Version::Bf16), Format::LitGpt];
    let formats = Format::ALL.into_iter().filter(|format| !other.contains(format));
    for (number, format) in formats.clone().chain(formats.rev()).enumerate() {
        // The name tells nothing: the content does.
        let path = folder.path().join(format!("weights.{number}"));
        save(current.clone(), format, &Tokenizer::bytes(), Names::Prefixed, &path).unwrap();
        let loaded = load(&path, None).unwrap();
        assert_eq!((loaded.format, &loaded.weights), (format, &weights()));
        assert_eq!(loaded.tokenizer().unwrap().name(), "bytes");
        current = loaded.weights;
    }
}

#[test]
fn formats_have_names() {
    for format in Format::ALL.into_iter().chain([Format::Gguf]) {
        assert_eq!(format.name().parse::<Format>().unwrap(), format);
    }
    let message = "pickle".parse::<Format>().unwrap_err().to_string();
    assert!(message.contains("expected one of checkpoint, llmc, llmc-bf16, llmc-v1, huggingface, litgpt"), "{message}");
    let of = |name: &str| Format::of_name(Path::new(name));
    assert_eq!(of("a/b.bin").unwrap(), Format::Llmc(Version::F32));
    assert_eq!(of("b.safetensors").unwrap(), Format::HuggingFace);
    assert!(of("safetensors").unwrap_err().to_string().contains("'safetensors' ends in neither"));
}

#[test]
fn a_vocabulary_finds_its_tokenizer() {
    let of = |vocabulary: usize| {
        let config = GptConfig { vocabulary, context: 1, layers: 1, heads: 1, channels: 1, ..GptConfig::GPT2 };
        let tensors = config.parameters().into_iter().map(|parameter| {
            let zeros = vec![0.0; parameter.elements()];
            (parameter.name, HostTensor::from_f32(&parameter.shape, &zeros).unwrap())
        });
        let weights = Weights::new(config.clone().into(), tensors.collect()).unwrap();
        let format = Format::HuggingFace;
        Loaded { weights, format, tokenizer: None, tokenizer_file: None }.tokenizer()
    };
    assert_eq!(of(50_257).unwrap().name(), "gpt2");
    assert_eq!(of(50_256).unwrap().name(), "bytes");
    assert!(of(255).unwrap_err().to_string().contains("a vocabulary of 255"));
}

#[test]
fn files_of_other_kinds_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let complain = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let message = load(&path, None).unwrap_err().to_string();
        assert_eq!(message.matches(name).count(), 1, "{message}");
        message
    };
    let shard = crate::llmc::Shard::to_bytes(&[1, 2]).unwrap();
    assert!(complain("data.bin", &shard).contains("is a token shard of llm.c, expected weights of a model"));
    assert!(complain("zeros.bin", &[0; 2000]).contains("field 'magic' at offset 0 is 0"));
    assert!(complain("zeros.safetensors", &[0; 2000]).contains("the header at offset 8"));
    assert!(complain("stub", b"ab").contains("2 bytes are too short"));
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 548105171\n";
    for name in ["pointer.safetensors", "pointer.bin", "pointer.pth"] {
        assert!(
            complain(name, pointer).contains("is a pointer of git-lfs and not the file itself: run 'git lfs pull'")
        );
    }
    assert!(complain("model.gguf", b"GGUF\x03\0\0\0").contains("ends within the number of tensors"));
    assert!(complain("pieces.model", b"\n\x0e\n\x05<unk>\x15\0").contains("is a model of SentencePiece"));
    assert!(load(&folder.path().join("absent"), None).unwrap_err().to_string().contains("absent"));
    // A checkpoint of a run must be whole.
    let mut checkpoint = checkpoint_of(weights(), &Tokenizer::bytes()).unwrap();
    checkpoint.tensors.remove("ln_f.bias");
    let message = complain("run.safetensors", &checkpoint.to_bytes().unwrap());
    assert!(message.contains("tensor \"ln_f.bias\" is missing"), "{message}");
}

#[test]
fn files_of_a_folder_are_told_by_what_they_are() {
    let complain = |files: &[(&str, &[u8])]| {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, bytes)| std::fs::write(folder.path().join(name), bytes).unwrap());
        load(folder.path(), None).unwrap_err().to_string()
    };
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 3\n";
    for name in ["model.safetensors", "pytorch_model.bin", "lit_model.pth", "model.safetensors.index.json"] {
        let message = complain(&[(name, pointer)]);
        assert!(message.contains(name) && message.contains("'git lfs pull'"), "{message}");
    }
    assert!(complain(&[("llama-q4.gguf", b"GGUF")]).contains("it has 'llama-q4.gguf', a GGUF file"));
    // A type that is not known is told before its tensors are.
    let tensors = BTreeMap::from([(
        "bert.embeddings.word_embeddings.weight".to_owned(),
        HostTensor::from_f32(&[2, 2], &[0.0; 4]).unwrap(),
    )]);
    let mut bytes = Vec::new();
    TensorFile::write(&BTreeMap::new(), &tensors, &mut bytes).unwrap();
    let with = |config: &str| complain(&[("model.safetensors", &bytes), ("config.json", config.as_bytes())]);
    let message = with("{\"model_type\": \"bert\"}");
    assert!(
        message.contains("config.json': model_type is 'bert', a model that is not computed here, expected one of gpt2")
    );
    let message = with("{\"model_type\": \"llama\"}");
    assert!(message.contains("model_type is 'llama', but the tensors beside it are not those of such a model"));
    assert!(complain(&[("model.safetensors", &bytes), ("config.json", pointer)]).contains("\"wte.weight\" is missing"));
}

/// A small llama with random weights.
fn nano_llama() -> Weights<ModelConfig> {
    let config = crate::decoder::DecoderConfig::named("nano", 64).unwrap();
    let made = |parameter: &crate::config::Parameter| {
        let values = initial_values(parameter, 3);
        (parameter.name.clone(), HostTensor::from_f32(&parameter.shape, &values).unwrap())
    };
    let tensors = crate::Model::parameters(&config).iter().map(made).collect();
    Weights::new(ModelConfig::from(config), tensors).unwrap()
}

#[test]
fn a_llama_is_written_as_several_files_and_their_faults_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let weights = nano_llama();
    let path = folder.path().join("model.safetensors");
    let Shards { index, files, .. } = save_sharded(weights.clone(), 60_000, &path).unwrap();
    assert!(index.ends_with("model.safetensors.index.json") && files > 3, "{files} files");
    let shard = |number: usize| folder.path().join(format!("model-{number:05}-of-{files:05}.safetensors"));
    for number in 1..=files {
        // 60,000 bytes, and the file's own header.
        assert!(std::fs::metadata(shard(number)).unwrap().len() < 64_000, "{number}");
    }
    for from in [&index, folder.path()] {
        let read = load(from, None).unwrap();
        assert!(read.weights.tensors().eq(weights.tensors()), "{}", from.display());
    }
    let fault = || load(&index, None).unwrap_err().to_string();
    let whole = std::fs::read(shard(2)).unwrap();
    std::fs::write(shard(2), &whole[..whole.len() - 1]).unwrap();
    assert!(fault().contains(&format!("model-00002-of-{files:05}.safetensors")), "{}", fault());
    std::fs::remove_file(shard(2)).unwrap();
    assert!(fault().contains(&format!("model-00002-of-{files:05}.safetensors")), "{}", fault());
    std::fs::write(shard(2), &whole).unwrap();
    let text = std::fs::read_to_string(&index).unwrap();
    for (from, to, part) in [
        ("model-00002-of", "../model-00002-of", "no name of a file"),
        ("model.norm.weight", "model.gnorm.weight", "model.norm.weight"),
        ("weight_map", "map", "has no object weight_map"),
    ] {
        std::fs::write(&index, text.replace(from, to)).unwrap();
        assert!(fault().contains(part) && fault().contains("index.json"), "{}", fault());
    }
    std::fs::write(&index, &text[..text.len() / 2]).unwrap();
    assert!(fault().contains("index.json"), "{}", fault());
}

/// A llama of names that a wrapper has changed, in several files: those of `torch.save`, and safetensors.
#[test]
fn several_files_of_a_wrapped_llama_are_read() {
    let (plain, wrapped) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let weights = nano_llama();
    let path = plain.path().join("model.safetensors");
    let Shards { files, .. } = save_sharded(weights.clone(), 60_000, &path).unwrap();
    std::fs::copy(plain.path().join("config.json"), wrapped.path().join("config.json")).unwrap();
    for prefix in ["_orig_mod.", "module._orig_mod."] {
        for kind in ["bin", "safetensors"] {
            let stem = if kind == "bin" { "pytorch_model" } else { "model" };
            let mut map = serde_json::Map::new();
            for number in 1..=files {
                let shard = plain.path().join(format!("model-{number:05}-of-{files:05}.safetensors"));
                let tensors = TensorFile::load(&shard).unwrap().tensors;
                let tensors: BTreeMap<String, HostTensor> =
                    tensors.into_iter().map(|(name, tensor)| (format!("{prefix}{name}"), tensor)).collect();
                let name = format!("{stem}-{number:05}-of-{files:05}.{kind}");
                map.extend(tensors.keys().map(|own| (own.clone(), name.clone().into())));
                let mut file = std::fs::File::create(wrapped.path().join(&name)).unwrap();
                match kind {
                    "bin" => crate::torch::write(&tensors, "archive", &mut file).unwrap(),
                    _ => TensorFile::write(&BTreeMap::new(), &tensors, &mut file).unwrap(),
                }
            }
            let index = wrapped.path().join(format!("{stem}.{kind}.index.json"));
            std::fs::write(&index, serde_json::json!({ "weight_map": map }).to_string()).unwrap();
            let read = load(&index, None).unwrap();
            assert!(read.weights.tensors().eq(weights.tensors()), "{prefix} in {}", index.display());
            // A name with the wrapper and without it: two of one name, or, where not all wrappers are taken away, names
            // that the files do not have.
            map.insert("model.norm.weight".into(), map[&format!("{prefix}model.norm.weight")].clone());
            std::fs::write(&index, serde_json::json!({ "weight_map": map }).to_string()).unwrap();
            let message = load(&index, None).unwrap_err().to_string();
            let refusals = ["weight_map has two tensors named", "which weight_map does not say"];
            assert!(refusals.iter().any(|refusal| message.contains(refusal)), "{message}");
        }
    }
}

#[test]
fn weights_in_bf16_stay_in_the_file_until_they_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let weights = nano_llama();
    save(weights.clone(), Format::HuggingFace, &Tokenizer::bytes(), Names::Plain, &path).unwrap();
    let mut file = TensorFile::load(&path).unwrap();
    for (name, tensor) in &mut file.tensors {
        // Queries, keys and values of one block, of which one has another type, become f32.
        let dtype = if name == "model.layers.1.self_attn.k_proj.weight" { DType::F32 } else { DType::BF16 };
        *tensor = tensor.converted(DType::BF16).unwrap().unwrap().converted(dtype).unwrap().unwrap();
    }
    let mut bytes = Vec::new();
    TensorFile::write(&file.metadata, &file.tensors, &mut bytes).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let opened = open(folder.path(), None).unwrap();
    let rounded = |name: &String| weights.tensors()[name].converted(DType::BF16).unwrap().unwrap();
    for (name, tensor) in opened.weights.tensors() {
        let dtype = if name == "h.1.attn.qkv.weight" { DType::F32 } else { DType::BF16 };
        assert_eq!(*tensor, rounded(name).converted(dtype).unwrap().unwrap(), "{name}");
    }
    let halves = opened.weights.placed(DType::BF16, Device::CPU).unwrap();
    for (name, array) in halves.leaves() {
        assert_eq!((array.dtype(), array.to_bytes().unwrap()), (DType::BF16, rounded(&name).into_bytes()));
        assert_eq!(array.is_external(), !name.contains(".qkv."), "{name}");
    }
    let wide = load(folder.path(), None).unwrap().weights;
    assert!(wide.tensors().values().all(|tensor| tensor.dtype() == DType::F32));
    assert_eq!(wide, opened.weights.widened().unwrap());
}
