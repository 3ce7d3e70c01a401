//! Losses, gradients and weights that are not finite.

use fulgurite_models::GptConfig;
use fulgurite_models::checkpoint::Checkpoint;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::train::{Cause, OnNonFinite, TrainError, TrainOptions, initial_parameters, train};
use fulgurite_runtime::DType;

use super::{checkpoints, options, run};

fn divergence(options: &TrainOptions) -> fulgurite_models::train::Divergence {
    match train(options, false, &mut |_| {}) {
        Err(TrainError::Diverged(divergence)) => divergence,
        other => panic!("did not diverge: {other:?}"),
    }
}

/// The loss of a step is that of before its update: the last step's weights are looked at before they are saved.
#[test]
fn a_run_that_diverges_saves_nothing_that_cannot_be_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    for (lr, steps) in [(1e30, 30), (1e30, 1), (3e38, 1), (1e12, 2)] {
        let wild = TrainOptions { lr, warmup: 0, ..options(folder.path(), steps) };
        let found = divergence(&wild);
        assert!(found.step <= 3 && found.saved.is_none(), "{lr:e}, {steps} steps: {found}");
        let message = found.to_string();
        assert!(message.contains("lower the learning rate") && !message.contains("checkpoint"), "{message}");
        assert_eq!(checkpoints(folder.path()), [], "{lr:e}, {steps} steps: {found}");
    }
    let beyond = train(&TrainOptions { lr: 1e39, ..options(folder.path(), 1) }, false, &mut |_| {}).unwrap_err();
    assert!(beyond.to_string().contains("peak learning rate is 1e39"), "{beyond}");
    // After five good steps, with one batch a step and with several.
    for accumulate in [1, 2] {
        let good = TrainOptions { overwrite: true, accumulate, ..options(folder.path(), 5) };
        run(&good);
        let before = std::fs::read(folder.path().join("checkpoint.safetensors")).unwrap();
        let wild = TrainOptions { overwrite: false, resume: true, lr: 1e30, steps: 9, save_every: 1, ..good };
        let found = divergence(&wild);
        assert_eq!(found.saved, Some(5), "{found}");
        assert_eq!(checkpoints(folder.path()), [("checkpoint.safetensors".to_owned(), 5)]);
        assert_eq!(std::fs::read(folder.path().join("checkpoint.safetensors")).unwrap(), before);
        let tame = TrainOptions { lr: 1e-3, ..wild };
        assert!(run(&tame).losses.iter().all(|loss| loss.is_finite()));
    }
}

/// Weights under which a gradient is not finite while the loss is: the product's overflow happens on the way back.
#[test]
fn the_parameter_is_named_and_the_update_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (good, path) = (options(folder.path(), 2), folder.path().join("checkpoint.safetensors"));
    run(&TrainOptions { dropout: 0.0, ..good.clone() });
    let saved = Checkpoint::load(&path).unwrap();
    // The gradient of ln_f.weight is a sum over what its input is; of weights that are all finite.
    let mut wild = saved.clone();
    let scaled = |name: &str, factor: f32| {
        let tensor = &saved.tensors[name];
        let values: Vec<f32> = tensor.to_f32().unwrap().iter().map(|value| value * factor).collect();
        (name.to_owned(), fulgurite_models::HostTensor::from_f32(tensor.shape(), &values).unwrap())
    };
    let zeros = |name: &str| (name.to_owned(), saved.tensors[name].zeros_like().unwrap());
    // Hidden states of 0 give logits of 0; the way back through the normalization is multiplied by 1e38 and overflows.
    wild.tensors.extend([zeros("ln_f.bias"), scaled("wte.weight", 1e19), scaled("ln_f.weight", 1e19)]);
    wild.save(&path).unwrap();
    for (accumulate, clip) in [(1, Some(1.0)), (2, Some(1.0)), (1, None)] {
        let optimizer = OptimizerSettings { clip, ..OptimizerSettings::default() };
        let on = TrainOptions { resume: true, dropout: 0.0, accumulate, optimizer, steps: 3, ..good.clone() };
        let found = divergence(&on);
        assert!(found.step == 3 && found.saved == Some(2), "{found}");
        match &found.cause {
            Cause::Gradient(place) => assert!(saved.tensors.contains_key(&place.name), "{found}"),
            Cause::Loss(loss) => assert!(!loss.is_finite(), "{found}"),
            // Without clipping the update was made, and what is not finite is found when it is to be saved.
            Cause::State(_) => assert!(clip.is_none(), "{found}"),
            other => panic!("{other:?}"),
        }
        assert!(found.to_string().contains("step 3: ") && found.to_string().contains("is that of step 2"), "{found}");
        assert_eq!(Checkpoint::load(&path).unwrap(), wild);
        // Skipped for ever: the run stops nevertheless.
        let skip = TrainOptions { nonfinite: OnNonFinite::Skip, steps: 40, ..on };
        let mut lines = Vec::new();
        let error = train(&skip, false, &mut |line| lines.push(line.to_owned())).unwrap_err();
        assert!(matches!(&error, TrainError::Diverged(found) if found.step == 22), "{error}");
        assert!(lines.iter().any(|line| line.starts_with("step 3: its update is left out: ")), "{lines:#?}");
        assert_eq!(Checkpoint::load(&path).unwrap(), wild);
    }
}

/// One gradient that is not finite, clipped with the others, would make all weights NaN.
#[test]
fn a_guarded_update_is_the_update_or_nothing() {
    use fulgurite_models::Parameters;
    use fulgurite_models::step::{Guard, StepScalars, TrainState, guarded_update, update};
    use fulgurite_models::train::{step_scalars, zeros};
    use fulgurite_ops::prelude::Tensor;
    use fulgurite_runtime::Array;
    type Arguments<T> = (TrainState<T>, Parameters<T>, T, StepScalars<T>);

    let config = GptConfig { vocabulary: 256, context: 4, layers: 1, heads: 1, channels: 4, ..GptConfig::GPT2 };
    let cpu = fulgurite_runtime::Device::CPU;
    let state = || TrainState {
        params: initial_parameters(&config, 1).unwrap(),
        exp_avg: initial_parameters(&config, 2).unwrap(),
        exp_avg_sq: zeros(&config, DType::F32, cpu).unwrap(),
        copies: Parameters::none(),
        buffers: Parameters::none(),
    };
    let bits = |state: &TrainState<Array>| -> Vec<Vec<u8>> {
        fulgurite_runtime::tree::Tree::leaves(state).into_iter().map(|(_, leaf)| leaf.to_bytes().unwrap()).collect()
    };
    for (clip, measure) in [(Some(1.0), false), (Some(1.0), true), (None, true), (None, false)] {
        let optimizer = OptimizerSettings { clip, ..OptimizerSettings::default() };
        let guarded = fulgurite_runtime::jit(|(state, gradients, loss, scalars): Arguments<Tensor>| {
            guarded_update(&config, &optimizer, state, gradients, loss, &scalars, Guard { measure, previous: None })
        })
        .arguments(["state", "gradients", "loss", "scalars"])
        .donate("state");
        let plain = fulgurite_runtime::jit(|(state, gradients, _, scalars): Arguments<Tensor>| {
            update(&config, &optimizer, state, gradients, &scalars)
        });
        for (gradient, loss, finite) in [
            (0.5, 2.0, true),
            (f32::MAX, 2.0, false),
            (f32::NAN, 2.0, false),
            (f32::INFINITY, 2.0, false),
            (0.5, f32::NAN, false),
            (0.5, f32::NEG_INFINITY, false),
        ] {
            let mut gradients = initial_parameters(&config, 3).unwrap();
            *gradients.get_mut("h.0.mlp.c_fc.bias").unwrap() = Array::new([16], &[gradient; 16]).unwrap();
            let arguments = || (state(), gradients.clone(), Array::scalar(loss), step_scalars(1e-2, 3, 0).unwrap());
            let (next, report): (TrainState<Array>, Array) = guarded.call(arguments()).unwrap();
            let report = report.to_vec::<f32>().unwrap();
            assert_eq!(
                (report.len(), report[0].to_bits()),
                (if clip.is_some() || measure { 2 } else { 1 }, loss.to_bits())
            );
            if clip.is_none() && !measure {
                // The loss alone decides.
                assert_eq!(bits(&next) == bits(&state()), !loss.is_finite());
                continue;
            }
            assert_eq!(report.iter().all(|value| value.is_finite()), finite, "{gradient} {loss}: {report:?}");
            let expected = match finite {
                true => plain.call(arguments()).unwrap().0,
                false => state(),
            };
            assert!(bits(&next) == bits(&expected), "{gradient} {loss} {clip:?}");
        }
        // What the step before reported decides as well.
        let behind = fulgurite_runtime::jit(|(arguments, previous): (Arguments<Tensor>, Tensor)| {
            let (state, gradients, loss, scalars) = arguments;
            let guard = Guard { measure, previous: Some(previous) };
            guarded_update(&config, &optimizer, state, gradients, loss, &scalars, guard)
        });
        for (previous, finite) in [([0.5, 1.0], true), ([f32::NAN, 0.0], false), ([1.0, f32::INFINITY], false)] {
            let gradients = initial_parameters(&config, 3).unwrap();
            let arguments = || (state(), gradients.clone(), Array::scalar(2.0_f32), step_scalars(1e-2, 3, 0).unwrap());
            let report = Array::new([2], &previous).unwrap();
            let (next, _): (TrainState<Array>, Array) = behind.call((arguments(), report)).unwrap();
            let expected = if finite { plain.call(arguments()).unwrap().0 } else { state() };
            assert!(bits(&next) == bits(&expected), "{previous:?} {clip:?}");
        }
    }
}
