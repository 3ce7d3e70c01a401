use super::*;
use crate::batches::{Batches, Order};
use crate::config::GptConfig;
use crate::initialize::initial_values;
use crate::optimizer::{FIRST_MOMENT, SECOND_MOMENT};

fn state() -> TrainingState {
    let model =
        GptConfig { vocabulary: 256, context: 8, layers: 1, heads: 1, channels: 4, dropout: 0.1, ..GptConfig::GPT2 };
    let tokens: std::sync::Arc<[u32]> = (0..200).collect();
    TrainingState {
        step: 12,
        model: model.into(),
        tokenizer: "bytes".to_owned(),
        data: Batches::new(tokens, 2, 8, Order::Shuffled, u64::MAX).unwrap().position().clone(),
        accumulation: 2,
        // Values whose shortest decimal form a careless parser reads one ulp off.
        schedule: Schedule { peak: 5.9e-4 + f64::EPSILON * 1e-4, floor: 1.0 / 3e5, warmup_steps: 10, total_steps: 100 },
        optimizer: OptimizerSettings::default(),
        seed: u64::MAX,
        random_offset: u64::MAX - 1,
        notes: BTreeMap::from([("text".to_owned(), "tinyshakespeare".to_owned())]),
    }
}

fn checkpoint() -> Checkpoint {
    let state = state();
    let mut tensors = BTreeMap::new();
    for parameter in state.model.parameters() {
        for prefix in ["", FIRST_MOMENT, SECOND_MOMENT] {
            let tensor = HostTensor::from_f32(&parameter.shape, &initial_values(&parameter, 1)).unwrap();
            tensors.insert(format!("{prefix}{}", parameter.name), tensor);
        }
    }
    Checkpoint { state, tensors }
}

#[test]
fn saved_checkpoints_load_and_are_plain_safetensors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("step.safetensors");
    let first = checkpoint();
    first.validate_tensors().unwrap();
    first.save(&path).unwrap();
    assert_eq!(Checkpoint::load(&path).unwrap(), first);
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes, first.to_bytes().unwrap());
    let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(theirs.tensor("wte.weight").unwrap().shape(), [256, 4]);
    let second = Checkpoint { state: TrainingState { step: 13, ..first.state.clone() }, ..first };
    second.save(&path).unwrap();
    assert_eq!(Checkpoint::load(&path).unwrap().state.step, 13);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn every_f64_comes_back_bit_for_bit() {
    let mut random = crate::random::Stream::new(3, 0);
    for _ in 0..2_000 {
        let rate = random.uniform() * 10f64.powi(-(random.below(300) as i32));
        let text = serde_json::to_string(&Schedule::constant(rate)).unwrap();
        let back: Schedule = serde_json::from_str(&text).unwrap();
        assert_eq!(back.peak.to_bits(), rate.to_bits(), "{text}");
    }
}

#[test]
fn one_damaged_byte_anywhere_is_noticed_or_harmless() {
    let mut small = checkpoint();
    small.tensors.retain(|name, _| name.contains("ln_f"));
    let bytes = small.to_bytes().unwrap();
    let mut harmless = 0;
    for index in 0..bytes.len() {
        for flip in [0x01, 0x20, 0x80, 0xFF] {
            let mut damaged = bytes.clone();
            damaged[index] ^= flip;
            match Checkpoint::parse(&damaged) {
                // White space for white space, in the padding of the header.
                Ok(read) => assert_eq!((read == small, harmless += 1), (true, ()), "byte {index}"),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    assert!(harmless < 64, "{harmless}");
    for length in 0..bytes.len() {
        assert!(Checkpoint::parse(&bytes[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn errors_name_the_file_and_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.safetensors");
    let good = checkpoint().to_bytes().unwrap();
    let complain = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let message = Checkpoint::load(&path).unwrap_err().to_string();
        assert!(message.starts_with("checkpoint '") && message.contains("run.safetensors"), "{message}");
        assert_eq!(message.matches("run.safetensors").count(), 1, "{message}");
        message
    };
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(complain(&damaged).contains("tensor \"wte.weight\" is damaged: its CRC-32 is"));
    assert!(complain(&good[..good.len() - 1]).contains("tensor \"wte.weight\" is incomplete"));
    assert!(complain(&good[..5]).contains("too short"));
    let digit = good.windows(11).position(|window| window == br#"\"step\":12"#).unwrap() + 10;
    let mut damaged = good.clone();
    damaged[digit] = b'9';
    assert!(complain(&damaged).contains("the metadata is damaged"));
    let mut foreign = Vec::new();
    TensorFile::write(&BTreeMap::new(), &checkpoint().tensors, &mut foreign).unwrap();
    assert!(complain(&foreign).contains("no key \"fulgurite\""));
}

/// A file whose metadata has been edited and signed again.
fn edited(edit: impl Fn(&str) -> String) -> Result<Checkpoint, CheckpointError> {
    let checkpoint = checkpoint();
    let mut metadata = checkpoint.metadata().unwrap();
    let text = edit(&metadata[STATE_KEY]);
    assert_ne!(text, metadata[STATE_KEY], "the edit changed nothing");
    metadata.insert(CHECKSUM_KEY.to_owned(), checksum([text.as_bytes()]));
    metadata.insert(STATE_KEY.to_owned(), text);
    Checkpoint::from_file(TensorFile { metadata, tensors: checkpoint.tensors }, None)
}

#[test]
fn signed_nonsense_is_refused() {
    for (from, to, part) in [
        ("\"format\":1", "\"format\":3", "the format is 3, this program reads 1 and 2"),
        ("\"step\":12", "\"step\":-12", "invalid value: integer `-12`"),
        ("\"step\":12,", "", "missing field `step`"),
        ("\"step\":12", "\"stop\":12", "unknown field `stop`"),
        ("\"layers\":1", "\"layers\":18446744073709551615", "model: layers is 18446744073709551615"),
        ("\"heads\":1", "\"heads\":3", "4 channels do not divide among 3 heads"),
        ("\"vocabulary\":256", "\"vocabulary\":255", "model.vocabulary is 255"),
        ("\"tokenizer\":\"bytes\"", "\"tokenizer\":\"words\"", "unknown tokenizer 'words'"),
        ("\"accumulation\":2", "\"accumulation\":0", "accumulation is 0"),
        ("\"beta1\":0.9", "\"beta1\":1.0", "optimizer.beta1 is 1"),
        ("\"warmup_steps\":10", "\"warmup_steps\":1000", "warms up for 1000 steps"),
        ("\"dropout\":0.1", "\"dropout\":null", "invalid type: null"),
        ("\"wte.weight\":", "\"wtf.weight\":", "tensor \"wte.weight\" has no checksum"),
        ("\"crc32\":{", "\"crc32\":{\"more\":\"00000000\",", "tensor \"more\" is missing"),
    ] {
        let message = edited(|text| text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(message.contains(part), "{message} lacks {part}");
    }
}

#[test]
fn tensors_must_be_the_models() {
    let mut wrong = checkpoint();
    wrong.tensors.insert("h.1.ln_1.bias".to_owned(), HostTensor::from_f32(&[4], &[0.0; 4]).unwrap());
    assert!(matches!(wrong.validate_tensors(), Err(CheckpointError::SurplusTensor(name)) if name == "h.1.ln_1.bias"));
    let mut wrong = checkpoint();
    wrong.tensors.insert("ln_f.bias".to_owned(), HostTensor::from_f32(&[5], &[0.0; 5]).unwrap());
    let message = wrong.validate_tensors().unwrap_err().to_string();
    assert_eq!(message, "tensor \"ln_f.bias\" is f32 [5], but the model has f32 [4]");
    let mut wrong = checkpoint();
    wrong.tensors.remove("adamw.second_moment.ln_f.bias");
    assert!(matches!(wrong.validate_tensors(), Err(CheckpointError::MissingTensor(_))));
}

#[test]
fn a_state_that_would_not_load_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.safetensors");
    checkpoint().save(&path).unwrap();
    let mut bad = checkpoint();
    bad.state.schedule.peak = f64::NAN;
    assert!(matches!(bad.save(&path), Err(CheckpointError::InFile { .. })));
    assert_eq!(Checkpoint::load(&path).unwrap(), checkpoint());
    let message = checkpoint().save(&folder.path().join("no/run")).unwrap_err().to_string();
    assert!(message.contains("the previous one is untouched: creating the partial file"), "{message}");
}
