//! Small models of images follow PyTorch for five steps. The figures are made by `tests/golden/vision.py`.

use std::collections::BTreeMap;

use fulgurite_models::config::Parameter;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::random::fingerprint;
use fulgurite_models::step::{BatchTensors, StepScalars, TrainState, loss_buffers_and_gradients, update};
use fulgurite_models::train::step_scalars;
use fulgurite_models::vision::{ImageConfig, ImageKind};
use fulgurite_models::{Model, Parameters};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, DType, Tensor, jit};
use serde::Deserialize;

use crate::device;

const ROWS: usize = 6;

#[derive(Deserialize)]
struct Golden {
    config: ImageConfig,
    optimizer: OptimizerSettings,
    learning_rate: f64,
    steps: Vec<Step>,
    buffers: BTreeMap<String, [f64; 2]>,
    evaluation: [f64; 2],
    /// How far PyTorch's own f32 is from these numbers.
    rounding: f64,
}

#[derive(Deserialize)]
struct Step {
    loss: f64,
    /// Of each gradient its norm, and its product with a direction.
    gradients: BTreeMap<String, [f64; 2]>,
}

/// Numbers from -1 to below 1 with 24 bits, as the script has them.
fn values(name: &str, count: usize) -> Vec<f64> {
    let start = fingerprint(name.bytes().map(u64::from));
    let number = |position: u64| {
        let h = position.wrapping_add(start).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let h = (h ^ (h >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let h = (h ^ (h >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((h ^ (h >> 31)) >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    (1..=count as u64).map(number).collect()
}

/// A parameter in f32, rounded at every step as the script rounds it.
fn initial(own: &Parameter) -> Array {
    let (is_weight, rank) = (own.name.ends_with("weight"), own.shape.len());
    let fan: usize = own.shape[1..].iter().product();
    let (scale, shift) = match (is_weight, rank) {
        (true, 2..) => ((6.0 / fan as f64).sqrt() as f32, 0.0),
        (true, _) => (0.25, 1.0),
        _ => (0.125, 0.0),
    };
    let drawn: Vec<f32> = values(&own.name, own.elements()).iter().map(|v| *v as f32 * scale + shift).collect();
    Array::new(&own.shape[..], &drawn).unwrap()
}

fn batch(config: &ImageConfig, step: usize) -> BatchTensors<Array> {
    let metas = config.batch(ROWS, 1);
    let (images, targets) = (metas.inputs.shape().to_vec(), metas.targets.shape().to_vec());
    let drawn = values(&format!("images {step}"), images.iter().product());
    let doubled: Vec<f64> = drawn.iter().map(|v| v * 2.0).collect();
    let classes = config.classes() as f64;
    let chosen = values(&format!("targets {step}"), targets.iter().product());
    let chosen: Vec<i64> = chosen.iter().map(|v| ((v + 1.0) / 2.0 * classes).floor() as i64).collect();
    let images = Array::from_f64(images, DType::F32, &doubled).unwrap();
    BatchTensors::of_images(images, Array::new(targets, &chosen).unwrap())
}

fn two_numbers(name: &str, array: &Array) -> [f64; 2] {
    let own = array.to_f64().unwrap();
    let direction = values(&format!("direction {name}"), own.len());
    let product = own.iter().zip(&direction).map(|(a, b)| a * b).sum();
    [own.iter().map(|v| v * v).sum::<f64>().sqrt(), product]
}

/// Both numbers of each tensor are PyTorch's, within `allowed` of its norm.
fn near(what: &str, found: &Parameters<Array>, expected: &BTreeMap<String, [f64; 2]>, allowed: f64) {
    let leaves = found.leaves();
    assert_eq!(leaves.len(), expected.len(), "{what}: names");
    for (name, array) in leaves {
        let (own, of_torch) = (two_numbers(&name, array), &expected[&name]);
        for (own, of_torch_number) in own.iter().zip(of_torch) {
            let off = (own - of_torch_number).abs() / of_torch[0];
            assert!(off <= allowed, "{what}: '{name}' has {own}, PyTorch {of_torch_number}: {off:e} of the norm");
        }
    }
}

/// The five steps of a model of the file, compiled with these options.
fn follows(name: &str, kind: ImageKind, options: &Options) {
    let text = std::fs::read_to_string(device::golden("vision.json")).unwrap();
    let mut all: BTreeMap<String, Golden> = serde_json::from_str(&text).unwrap();
    let Golden { config, optimizer, learning_rate, steps, buffers, evaluation, rounding } = all.remove(name).unwrap();
    assert_eq!((config.kind(), steps.len()), (kind, 5));
    config.validate().unwrap();
    // Two f32 computations are as far apart as each is from the exact numbers.
    let allowed = 1e-5 + rounding;
    let list = config.parameters();
    let make = |list: &[Parameter], make: &dyn Fn(&Parameter) -> Array| {
        let built: Result<_, std::convert::Infallible> = Parameters::build(list, &mut |own| Ok(make(own)));
        let Ok(built) = built;
        built
    };
    let zeros = |there: bool| match there {
        true => make(&list, &|own| Array::zeros(&own.shape[..], DType::F32).unwrap()),
        false => Parameters::none(),
    };
    let [first, second] = optimizer.kind.states(&optimizer);
    let statistics = |own: &Parameter| {
        let start = if own.name.ends_with("running_var") { 1.0_f32 } else { 0.0 };
        Array::new(&own.shape[..], &vec![start; own.elements()]).unwrap()
    };
    let mut state = TrainState {
        params: make(&list, &initial),
        exp_avg: zeros(first),
        exp_avg_sq: zeros(second),
        copies: Parameters::none(),
        buffers: make(&config.buffers(), &statistics),
    };
    type Arguments = (TrainState<Tensor>, BatchTensors<Tensor>, StepScalars<Tensor>);
    let step = jit(|(state, batch, scalars): Arguments| {
        let ((loss, buffers), gradients) = loss_buffers_and_gradients(&config, &state, &batch, scalars.generator);
        let (state, _) = update(&config, &optimizer, state, gradients.clone(), &scalars);
        (TrainState { buffers, ..state }, loss, gradients)
    })
    .donate("arg0")
    .options(options.clone());
    for (i, expected) in steps.iter().enumerate() {
        let scalars = step_scalars(learning_rate, i as u64 + 1, 0).unwrap();
        let (next, loss, gradients) = step.call((state, batch(&config, i), scalars)).unwrap();
        state = next;
        let off = (loss.item().unwrap() / expected.loss - 1.0).abs();
        assert!(off <= 1e-5, "{name}, step {i}: loss {}, PyTorch {}", loss.item().unwrap(), expected.loss);
        near(&format!("{name}, step {i}, gradients"), &gradients, &expected.gradients, allowed);
    }
    assert_eq!(step.compiles(), 1, "five steps compile once");
    near(&format!("{name}, running statistics"), &state.buffers, &buffers, 1e-5);
    type Seen = (Parameters<Tensor>, Parameters<Tensor>, BatchTensors<Tensor>);
    let told =
        jit(|(params, buffers, batch): Seen| config.evaluation(&params, &buffers, &batch)).options(options.clone());
    let told: Array = told.call((state.params, state.buffers, batch(&config, 0))).unwrap();
    let told = told.to_f64().unwrap();
    assert!((told[0] / evaluation[0] - 1.0).abs() <= 1e-4, "{name}: {told:?}, PyTorch {evaluation:?}");
    assert!((told[1] - evaluation[1]).abs() <= 1e-6, "{name}: {told:?}, PyTorch {evaluation:?}");
}

#[test]
fn a_resnet_of_small_images_follows_pytorch() {
    follows("resnet_small", ImageKind::Resnet, &Options::default());
}

#[test]
fn a_resnet_with_bottlenecks_follows_pytorch() {
    follows("resnet_bottleneck", ImageKind::Resnet, &Options::default());
}

#[test]
fn a_vision_transformer_follows_pytorch() {
    follows("vit", ImageKind::Vit, &Options::default());
}

#[test]
fn a_unet_follows_pytorch() {
    follows("unet", ImageKind::Unet, &Options::default());
}

/// The reference executor computes the same with no kernel of another's.
#[test]
fn the_reference_executor_follows_pytorch() {
    let reference = Options::default().with_executors(&["reference"]).unwrap();
    follows("resnet_small", ImageKind::Resnet, &reference);
    follows("unet", ImageKind::Unet, &reference);
}

/// Names and shapes of torchvision's published weights, by their number, which its documentation gives.
#[test]
fn published_sizes_have_the_published_numbers_of_parameters() {
    for (kind, size, count) in [
        (ImageKind::Resnet, "18", 11_689_512),
        (ImageKind::Resnet, "50", 25_557_032),
        (ImageKind::Vit, "b_16", 86_567_656),
    ] {
        let config = ImageConfig::named(kind, size).unwrap();
        assert_eq!(config.parameter_count(), count, "{kind} {size}");
        assert_eq!(config.size(), Some(size));
    }
    let names: Vec<String> =
        ImageConfig::named(ImageKind::Resnet, "50").unwrap().parameters().into_iter().map(|own| own.name).collect();
    for name in ["conv1.weight", "layer1.0.downsample.0.weight", "layer4.2.bn3.bias", "fc.weight"] {
        assert!(names.iter().any(|own| own == name), "{name}");
    }
}
