//! Damaged folders of other programs' models: whatever one of the files has in it, the answer is an error that names a
//! file, or a whole model; no reader panics. 2 000 cases of each run with the suite; `FULGURITE_FUZZ=1000000 cargo test
//! -p fulgurite-models --test files folder_fuzz::` runs more, and `FULGURITE_FUZZ_CASE=n` one again.

use std::path::{Path, PathBuf};

use super::fuzzing::{self, mutate};
use fulgurite_models::random::Stream;
use fulgurite_models::tokenizer_file::TokenizerFile;
use fulgurite_models::{Model, run_file, torch, weight_files};

const YAML: &str = "
model_name: TinyLlama-1.1B
model_config: {n_layer: 2, rope_adjustments: {factor: 8.0}}
precision: bf16-mixed
data:
  class_path: litgpt.data.TextFiles
  init_args: {train_data_path: 'texts/*.txt', val_data_path: [a.txt, b.txt]}
train: {global_batch_size: 512, micro_batch_size: 4, max_tokens: 3e12, max_seq_length: 2048, min_lr: 4.0e-05}
optimizer:
  class_path: torch.optim.AdamW
  init_args:
    betas:
      - 0.9
      - 0.95
seed: 42
";

/// The folders, and of each the files that are damaged.
const FOLDERS: [(&str, &[&str]); 6] = [
    ("llama_files/llama", &["model.safetensors.index.json", "config.json", "model-00001-of-00002.safetensors"]),
    ("llama_files/mixtral", &["config.json", "model.safetensors"]),
    ("torch_files/litgpt", &["model_config.yaml", "lit_model.pth"]),
    ("torch_files/litgpt_old", &["model_config.yaml", "lit_model.pth"]),
    ("torch_files/bin", &["pytorch_model.bin.index.json", "pytorch_model-00002-of-00002.bin", "config.json"]),
    ("torch_files/gpt2", &["pytorch_model.bin", "config.json"]),
];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name)
}

/// A copy of each folder, and the files of it that are damaged, with what they hold.
struct Folders(tempfile::TempDir, Vec<(PathBuf, Vec<(PathBuf, Vec<u8>)>)>);

impl Folders {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let copied = FOLDERS.map(|(name, files)| {
            let folder = root.path().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            for entry in std::fs::read_dir(golden(name)).unwrap() {
                let path = entry.unwrap().path();
                std::fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
            }
            assert!(whole(&folder), "{name}");
            let read = |file: &&str| (folder.join(file), std::fs::read(folder.join(file)).unwrap());
            (folder.clone(), files.iter().map(read).collect())
        });
        Folders(root, copied.into())
    }
}

/// Whether a folder holds a model; if so, it is a whole one.
fn whole(folder: &Path) -> bool {
    match weight_files::open(folder, None) {
        Ok(loaded) => {
            let weights = loaded.weights.widened().unwrap();
            weights.config().validate().unwrap();
            for parameter in weights.config().parameters() {
                assert_eq!(weights.tensors()[&parameter.name].to_f32().unwrap().len(), parameter.elements());
            }
            true
        }
        Err(error) => {
            assert!(error.to_string().contains(folder.to_str().unwrap()), "{error}");
            false
        }
    }
}

fn damaged(bytes: &[u8], random: &mut Stream) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    (0..1 + random.below(3)).for_each(|_| mutate(&mut bytes, random));
    bytes
}

#[test]
fn damaged_folders_are_errors_or_models() {
    let Folders(_root, folders) = &Folders::new();
    let (cases, taken) = fuzzing::run(2_000, |number| {
        let mut random = Stream::new(number, 0xF01D);
        let (folder, files) = &folders[number as usize % folders.len()];
        let (path, bytes) = &files[random.below(files.len() as u64) as usize];
        // The readers map files, so a new one takes the place of the old one.
        let replace = |bytes: &[u8]| {
            std::fs::remove_file(path).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        replace(&damaged(bytes, &mut random));
        let taken = whole(folder);
        replace(bytes);
        taken
    });
    // Values of safetensors have no checksum, and fields that are not looked at may say anything.
    assert!(cases == 1 || taken < cases / 2, "{taken} of {cases} cases were taken");
}

/// Damage within the pickle, behind checksums that fit.
#[test]
fn damaged_pickles_are_errors_or_tensors() {
    let whole = std::fs::read(golden("torch_files/tensors.pth")).unwrap();
    let tensors = torch::parse(&whole).unwrap();
    let place = |part: &[u8]| whole.windows(part.len()).position(|window| window == part).unwrap();
    let start = place(b"\x80\x02}q");
    let end = start + whole[start..].windows(4).position(|part| part == b"u.PK").unwrap() + 2;
    let central = whole.windows(4).position(|part| part == b"PK\x01\x02").unwrap();
    let (cases, taken) = fuzzing::run(5_000, |number| {
        let mut random = Stream::new(number, 0x91C1);
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(3) {
            let at = start + random.below((end - start) as u64) as usize;
            bytes[at] = match random.below(3) {
                0 => bytes[at] ^ 1 << random.below(8),
                1 => random.next_u64() as u8,
                // Another instruction of the same file.
                _ => bytes[start + random.below((end - start) as u64) as usize],
            };
        }
        let crc = crc32fast::hash(&bytes[start..end]);
        bytes[central + 16..central + 20].copy_from_slice(&crc.to_le_bytes());
        match torch::parse(&bytes) {
            Ok(read) => {
                let mut written = Vec::new();
                torch::write(&read, "again", &mut written).unwrap();
                assert!(torch::parse(&written).unwrap() == read);
                true
            }
            Err(error) => {
                assert!(!error.to_string().contains("checksum"), "{error}");
                false
            }
        }
    });
    assert!(tensors.len() == 15 && (cases == 1 || (taken > 0 && taken < cases)), "{taken} of {cases} were taken");
}

#[test]
fn damaged_texts_are_errors_or_settings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.yaml");
    let tokenizer = std::fs::read(golden("llama_files/tokenizer.json")).unwrap();
    fuzzing::run(2_000, |number| {
        let mut random = Stream::new(number, 0x7E87);
        std::fs::write(&path, damaged(YAML.as_bytes(), &mut random)).unwrap();
        let taken = run_file::read(&path);
        if let Err(error) = &taken {
            assert!(error.to_string().contains("run.yaml"), "{error}");
        }
        let _ = TokenizerFile::parse(&damaged(&tokenizer, &mut random));
        taken.is_ok()
    });
    // Of every beginning of the file.
    for length in 0..YAML.len() {
        std::fs::write(&path, &YAML[..length]).unwrap();
        let _ = run_file::read(&path);
    }
}
