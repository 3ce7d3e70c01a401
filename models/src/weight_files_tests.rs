use super::*;
use crate::config::GptConfig;
use crate::host_tensor::HostTensor;
use crate::initialize::initial_values;

fn weights() -> Weights<ModelConfig> {
    let config = GptConfig { vocabulary: 300, context: 6, layers: 2, heads: 2, channels: 4, dropout: 0.0 };
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
    let formats = Format::ALL.into_iter().filter(|format| *format != Format::Llmc(Version::Bf16));
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
    for format in Format::ALL {
        assert_eq!(format.name().parse::<Format>().unwrap(), format);
    }
    let message = "gguf".parse::<Format>().unwrap_err().to_string();
    assert!(message.contains("expected one of checkpoint, llmc, llmc-bf16, llmc-v1, huggingface"), "{message}");
    let of = |name: &str| Format::of_name(Path::new(name));
    assert_eq!(of("a/b.bin").unwrap(), Format::Llmc(Version::F32));
    assert_eq!(of("b.safetensors").unwrap(), Format::HuggingFace);
    assert!(of("safetensors").unwrap_err().to_string().contains("'safetensors' ends in neither"));
}

#[test]
fn a_vocabulary_finds_its_tokenizer() {
    let of = |vocabulary: usize| {
        let config = GptConfig { vocabulary, context: 1, layers: 1, heads: 1, channels: 1, dropout: 0.0 };
        let tensors = config.parameters().into_iter().map(|parameter| {
            let zeros = vec![0.0; parameter.elements()];
            (parameter.name, HostTensor::from_f32(&parameter.shape, &zeros).unwrap())
        });
        let weights = Weights::new(config.clone().into(), tensors.collect()).unwrap();
        of_hugging_face(weights, Path::new("none")).tokenizer()
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
    assert!(load(&folder.path().join("absent"), None).unwrap_err().to_string().contains("absent"));
    // A checkpoint of a run must be whole.
    let mut checkpoint = checkpoint_of(weights(), &Tokenizer::bytes());
    checkpoint.tensors.remove("ln_f.bias");
    let message = complain("run.safetensors", &checkpoint.to_bytes().unwrap());
    assert!(message.contains("tensor \"ln_f.bias\" is missing"), "{message}");
}
