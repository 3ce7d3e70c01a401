//! One small decoder of each type and each switch of `transformers`, with weights that follow from their names: logits,
//! loss and gradients, the same logits token by token with a cache, and what is written of them again. The vectors are
//! made by `tests/golden/decoder_files.py`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fulgurite_models::generate::{Request, generate};
use fulgurite_models::hugging_face::Names;
use fulgurite_models::sampling::Sampling;
use fulgurite_models::step::{BatchTensors, loss_and_gradients};
use fulgurite_models::tensor_file::TensorFile;
use fulgurite_models::train::step_scalars;
use fulgurite_models::weight_files::{Format, load, save};
use fulgurite_models::{Decoding, Dropout, HostTensor, Model, ModelConfig, Parameters, Tokenizer, Weights};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::{Array, DType, Device, Tensor, jit};
use serde::Deserialize;
use serde_json::Value;

use crate::device;

const ROWS: usize = 2;
const LENGTH: usize = 12;

/// What is known of a tensor.
#[derive(Deserialize)]
struct Known {
    shape: Vec<usize>,
    /// The norm of its gradient.
    gradient: f64,
    /// The sum of products of its gradient with the numbers of the tensor `along.` and its name.
    along: f64,
}

/// A model of `transformers`.
#[derive(Deserialize)]
struct Case {
    config: Value,
    loss: f64,
    tensors: BTreeMap<String, Known>,
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/decoder_files")
}

/// The numbers of a tensor, as the script makes them of its name.
fn numbers(name: &str, shape: &[usize]) -> Vec<f32> {
    let place = name.bytes().fold(0_u32, |place, byte| place.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let gain = shape.len() == 1 && name.ends_with(".weight");
    let number = |i: usize| {
        let mut mixed = (i as u32).wrapping_add(place).wrapping_mul(0x9E37_79B1);
        for (shift, factor) in [(15, 0x85EB_CA77), (13, 0xC2B2_AE3D)] {
            mixed = (mixed ^ (mixed >> shift)).wrapping_mul(factor);
        }
        mixed ^= mixed >> 16;
        let value = ((mixed >> 8) as f32 / (1 << 24) as f32 - 0.5) * 0.7;
        if gain { value + 1.0 } else { value }
    };
    (0..shape.iter().product()).map(number).collect()
}

/// The folder that `transformers` would write of a case.
fn folder(case: &Case) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), case.config.to_string()).unwrap();
    let tensor = |(name, known): (&String, &Known)| {
        (name.clone(), HostTensor::from_f32(&known.shape, &numbers(name, &known.shape)).unwrap())
    };
    let tensors = case.tensors.iter().map(tensor).collect();
    let mut file = std::fs::File::create(folder.path().join("model.safetensors")).unwrap();
    TensorFile::write(&BTreeMap::new(), &tensors, &mut file).unwrap();
    folder
}

/// Calls `f` with each case, its name, and the vectors of all.
fn each_case(f: &mut dyn FnMut(&str, &Case, &BTreeMap<String, HostTensor>)) {
    let expected = TensorFile::load(&golden().join("expected.safetensors")).unwrap().tensors;
    let mut count = 0;
    for entry in std::fs::read_dir(golden()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.extension().is_some_and(|extension| extension == "json") {
            f(name, &serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap(), &expected);
            count += 1;
        }
    }
    assert_eq!(count, 30);
}

fn weights(case: &Case) -> Weights<ModelConfig> {
    load(folder(case).path(), None).unwrap().weights
}

/// The largest difference, as a part of the largest expected value.
fn distance(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0, |most: f64, value| most.max(f64::from(value.abs())));
    let most = |most: f64, (a, b): (&f32, &f32)| most.max((f64::from(*a) - f64::from(*b)).abs());
    found.iter().zip(expected).fold(0.0, most) / largest
}

/// Logits, and loss and gradients as weights of the same model.
fn computed(
    weights: &Weights<ModelConfig>,
    expected: &BTreeMap<String, HostTensor>,
    options: &Options,
) -> (Vec<f32>, f64, Weights<ModelConfig>) {
    let config = weights.config().clone();
    let compute = jit(|(params, batch, generator): (Parameters<Tensor>, BatchTensors<Tensor>, Tensor)| {
        let logits = config.head(&params, config.hidden(&params, batch.inputs, &Dropout::none()));
        (logits, loss_and_gradients(&config, params, &Parameters::none(), &batch, generator))
    });
    let batch =
        BatchTensors::of_tokens(expected["tokens"].to_array().unwrap(), expected["targets"].to_array().unwrap());
    let generator = step_scalars(1e-3, 1, 0).unwrap().generator;
    let (logits, (loss, gradients)): (Array, (Array, Parameters<Array>)) =
        compute.options(options.clone()).call((weights.params().unwrap(), batch, generator)).unwrap();
    (logits.to_vec().unwrap(), loss.item().unwrap(), Weights::of(&config, &gradients).unwrap())
}

/// The tensors that are written of weights.
fn written(weights: Weights<ModelConfig>, folder: &Path) -> BTreeMap<String, HostTensor> {
    let path = folder.join("model.safetensors");
    save(weights, Format::HuggingFace, &Tokenizer::bytes(), Names::Plain, &path).unwrap();
    TensorFile::load(&path).unwrap().tensors
}

/// Every case by these executors: logits to `tolerance` of the largest one, the loss and the norms of the gradients to
/// as much of themselves. A norm does not tell rows that are exchanged, nor a sign: gradients are compared along other
/// numbers, too.
fn follow(executors: &[&str], device: Option<Device>, tolerance: f64) {
    let options = Options { device, ..Options::default() }.with_executors(executors).unwrap();
    each_case(&mut |name, case, expected| {
        let (logits, loss, gradients) = computed(&weights(case), expected, &options);
        let off = distance(&logits, &expected[name].to_f32().unwrap());
        assert!(off <= tolerance, "{name}: logits are off by {off:.1e} of the largest");
        assert!((loss / case.loss - 1.0).abs() <= tolerance, "{name}: loss {loss}, transformers has {}", case.loss);
        let to = tempfile::tempdir().unwrap();
        let largest = case.tensors.values().fold(0.0, |most: f64, known| most.max(known.gradient));
        let product =
            |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
        for (tensor, gradient) in written(gradients, to.path()) {
            let known = &case.tensors[&tensor];
            let (values, other) = (gradient.to_f32().unwrap(), numbers(&format!("along.{tensor}"), &known.shape));
            let norm = product(&values, &values).sqrt();
            // That of the keys' biases is zero but for rounding, and is compared with what the others are.
            let scale = known.gradient.max(1e-2 * largest);
            let off = (norm - known.gradient).abs() / scale;
            assert!(
                off <= 2.0 * tolerance,
                "{name}: gradient of {tensor} has norm {norm}, expected {}",
                known.gradient
            );
            let along = product(&values, &other);
            let off = (along - known.along).abs() / (scale * product(&other, &other).sqrt());
            assert!(off <= 2.0 * tolerance, "{name}: gradient of {tensor} is {along}, expected {}", known.along);
        }
    });
}

#[test]
fn decoders_of_transformers_have_their_logits_and_gradients() {
    follow(&["cpu", "reference"], None, 1e-5);
}

#[test]
fn decoders_of_transformers_have_their_logits_on_the_executors_of_cuda() {
    let Some(cuda) = device::cuda() else { return };
    // Products and sums on the device are added in another order than PyTorch's on the host.
    follow(&["optim", "cublaslt", "fusion", "cuda"], Some(cuda), 1e-4);
}

/// Whether each field that both have is the same, in objects too.
fn same_where_both(ours: &Value, theirs: &Value, at: &str) {
    let Some(fields) = ours.as_object() else { return assert_eq!(ours, theirs, "{at}") };
    for (field, value) in fields {
        if let Some(other) = theirs.get(field).filter(|other| !other.is_null()) {
            same_where_both(value, other, &format!("{at}.{field}"));
        }
    }
}

#[test]
fn decoders_of_transformers_are_written_again() {
    each_case(&mut |name, case, _| {
        let (from, to) = (folder(case), tempfile::tempdir().unwrap());
        let tensors = written(load(from.path(), None).unwrap().weights, to.path());
        let own = TensorFile::load(&from.path().join("model.safetensors")).unwrap().tensors;
        assert!(tensors == own, "{name}: the same names and values");
        let file: Value = serde_json::from_slice(&std::fs::read(to.path().join("config.json")).unwrap()).unwrap();
        same_where_both(&file, &case.config, name);
        let [ours, theirs] = [to.path(), from.path()].map(|folder| load(folder, None).unwrap().weights);
        assert!(ours.tensors() == theirs.tensors());
    });
}

/// Every case with a cache as long as the sequences: prompts of different lengths, padded, then token by token.
fn decode_with(executors: &[&str], device: Option<Device>, tolerance: f64) {
    let options = Options { device, ..Options::default() }.with_executors(executors).unwrap();
    each_case(&mut |name, case, expected| {
        let weights = weights(case);
        let (config, params) = (weights.config(), weights.params().unwrap());
        let (logits, vocabulary) = (expected[name].to_f32().unwrap(), config.vocabulary());
        let largest = logits.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
        let tokens = expected["tokens"].to_array().unwrap().to_vec::<i64>().unwrap();
        let rows: Vec<&[i64]> = tokens.chunks(LENGTH).collect();
        let mut decoding = Decoding::<Vec<Array>, _>::new(config, params, options.clone(), |logits, _| logits);
        decoding.set_kv_cache(ROWS, LENGTH).unwrap();
        // The second sequence comes later, and catches up at the end.
        let steps = [[5, 2], [1, 1], [1, 0], [1, 1], [1, 1], [3, 1], [0, 6]];
        for step in steps {
            let starts = [0, 1].map(|row| decoding.sequences()[row].len());
            let new: Vec<&[i64]> = (0..ROWS).map(|row| &rows[row][starts[row]..starts[row] + step[row]]).collect();
            let found = decoding.extend(&new, vec![]).unwrap().to_vec::<f32>().unwrap();
            for (row, sequence) in decoding.sequences().iter().enumerate() {
                let at = (row * LENGTH + sequence.len() - 1) * vocabulary;
                let pairs = found[row * vocabulary..][..vocabulary].iter().zip(&logits[at..][..vocabulary]);
                let off = pairs.fold(0.0, |most: f32, (a, b)| most.max((a - b).abs())) / largest;
                let length = sequence.len();
                assert!(f64::from(off) <= tolerance, "{name}: sequence {row} of {length} tokens is off by {off:.1e}");
            }
        }
        assert_eq!([0, 1].map(|row| decoding.room(row)), [0, 0]);
    });
}

#[test]
fn decoders_of_transformers_decode_token_by_token() {
    decode_with(&["cpu", "reference"], None, 1e-5);
}

#[test]
fn decoders_of_transformers_decode_on_the_executors_of_cuda() {
    let Some(cuda) = device::cuda() else { return };
    decode_with(&["optim", "flash", "cublaslt", "fusion", "cuda"], Some(cuda), 1e-4);
}

/// Text comes of each of them, the same with a cache and without one, where the rotations do not depend on its length.
#[test]
fn decoders_of_transformers_generate() {
    let tokenizer = Tokenizer::open(golden().with_file_name("llama_files").join("tokenizer.json").to_str().unwrap());
    let tokenizer = tokenizer.unwrap();
    each_case(&mut |name, case, _| {
        let weights = weights(case);
        let params = weights.placed(DType::F32, Device::CPU).unwrap();
        let mut texts = [None, Some(0)].map(|cache| {
            let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
            let mut request = Request::new("t3 t17 t5", 6, sampling);
            request.cache = cache;
            generate(weights.config(), &tokenizer, &params, &request, &Options::default(), &mut |_, _| {}).unwrap()
        });
        let [with, without] = [texts[0].remove(0).tokens, texts[1].remove(0).tokens];
        assert_eq!(with.len(), 6, "{name}");
        // A cache of 16 positions has the rotations of a sequence as long.
        assert!(with == without || ["llama_dynamic", "phi3_longrope"].contains(&name), "{name}: {with:?} {without:?}");
    });
}
