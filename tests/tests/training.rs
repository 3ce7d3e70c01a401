//! The main job, small: training falls, resumes to the bit, and refuses what it cannot use.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fulgurite_models::checkpoint::Checkpoint;
use fulgurite_models::checkpoint::OptimizerSettings;
use fulgurite_models::llmc::{LlmcCheckpoint, Shard, Version};
use fulgurite_models::metrics::{Metrics, PLOT, TABLE, read};
use fulgurite_models::precision::Precision;
use fulgurite_models::train::{Cause, OnNonFinite, PRECISION, TrainError, TrainOptions, initial_parameters, train};
use fulgurite_models::{ActivationCheckpointing, GptConfig, Logits, Weights};
use fulgurite_runtime::DType;
use fulgurite_runtime::compile::Options;

fn options(out: &Path, steps: u64) -> TrainOptions {
    TrainOptions {
        family: Default::default(),
        size: Some("nano".into()),
        set: Vec::new(),
        init: None,
        tokenizer: None,
        data: Vec::new(),
        validation: Vec::new(),
        steps,
        batch: 4,
        context: Some(16),
        accumulate: 1,
        lr: 3e-3,
        final_lr: 0.1,
        warmup: 2,
        optimizer: OptimizerSettings::default(),
        dropout: 0.1,
        seed: 5,
        evaluate_every: 0,
        activation_checkpointing: Default::default(),
        logits: None,
        evaluate_batches: 2,
        save_every: 0,
        log_every: 10,
        peak_flops: None,
        keep: 2,
        nonfinite: Default::default(),
        allow_nonfinite: false,
        sample_every: 0,
        sample_tokens: 8,
        prompt: "The ".into(),
        out: out.to_owned(),
        profile: false,
        resume: false,
        overwrite: false,
        precision: Default::default(),
        compile: Default::default(),
        stop: None,
    }
}

fn run(options: &TrainOptions) -> fulgurite_models::train::TrainReport {
    train(options, false, &mut |_| {}).unwrap()
}

#[test]
fn a_run_falls_and_compiles_once() {
    let folder = tempfile::tempdir().unwrap();
    let report = run(&options(folder.path(), 30));
    assert_eq!(report.compiles, 1);
    assert!(report.losses[29] < report.losses[0] - 1.0, "{:?}", report.losses);
    assert!(report.traces.join("00_acquire.trace").exists());
}

#[test]
fn a_stopped_run_leaves_a_checkpoint_and_goes_on_to_the_bit() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = run(&options(whole.path(), 4));
    let stop = Some(Arc::new(AtomicBool::new(true)));
    let stopped = run(&TrainOptions { stop, ..options(parts.path(), 4) });
    assert!(stopped.stopped && stopped.steps == 1 && stopped.validation_loss.is_none(), "{stopped:?}");
    let resumed = run(&TrainOptions { resume: true, ..options(parts.path(), 4) });
    assert_eq!(resumed.losses, expected.losses[1..]);
    assert_eq!(std::fs::read(resumed.checkpoint).unwrap(), std::fs::read(expected.checkpoint).unwrap());
    // After the last step as well: what comes then is left out.
    let stop = Some(Arc::new(AtomicBool::new(true)));
    let last = run(&TrainOptions { stop, resume: true, ..options(parts.path(), 5) });
    assert!(last.stopped && last.steps == 5 && last.sample.is_empty() && last.traces.join("00_acquire.trace").exists());
}

/// A line for each step, whole or resumed, with the numbers that do not depend on the machine.
#[test]
fn the_table_of_a_resumed_run_is_that_of_a_whole_one() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let table = |folder: &Path| read(&folder.join(TABLE)).unwrap();
    let with = |folder: &Path, steps| TrainOptions { peak_flops: Some(1e12), ..options(folder, steps) };
    let report = run(&with(whole.path(), 5));
    let expected = table(whole.path());
    assert_eq!(expected.iter().map(|line| f64::from(line.loss)).collect::<Vec<_>>(), report.losses);
    assert_eq!(expected.iter().map(|line| line.step).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    for line in &expected {
        let first = line.step == 1;
        assert!(line.milliseconds > 0.0 && line.peak_bytes > 0 && line.gradient_norm.is_some(), "{line}");
        assert!(line.tokens_per_second.is_none() == first && line.mfu.is_none() == first, "{line}");
    }
    assert!(std::fs::read_to_string(whole.path().join(PLOT)).unwrap().contains("<polyline"));
    // Two steps were trained after the checkpoint that the next process finds.
    let stop = Some(Arc::new(AtomicBool::new(true)));
    run(&TrainOptions { stop, ..with(parts.path(), 5) });
    let saved = std::fs::read(parts.path().join("checkpoint.safetensors")).unwrap();
    run(&TrainOptions { steps: 3, resume: true, ..with(parts.path(), 5) });
    std::fs::write(parts.path().join("checkpoint.safetensors"), saved).unwrap();
    run(&TrainOptions { resume: true, ..with(parts.path(), 5) });
    let same = |line: &Metrics| (line.step, line.loss, line.learning_rate, line.gradient_norm);
    assert_eq!(table(parts.path()).iter().map(same).collect::<Vec<_>>(), expected.iter().map(same).collect::<Vec<_>>());
}

/// What is computed again has the random numbers of the first time: with dropout, and over several batches.
#[test]
fn a_run_with_checkpointed_blocks_has_the_bits_of_one_without() {
    let train_with = |activation_checkpointing, steps, accumulate| {
        let folder = tempfile::tempdir().unwrap();
        let report = run(&TrainOptions { activation_checkpointing, accumulate, ..options(folder.path(), steps) });
        (report.losses, std::fs::read(report.checkpoint).unwrap())
    };
    for (steps, accumulate) in [(3, 1), (2, 2)] {
        let [kept, again] = [ActivationCheckpointing::None, ActivationCheckpointing::Blocks]
            .map(|checkpointing| train_with(checkpointing, steps, accumulate));
        assert_eq!(kept, again);
    }
}

/// With dropout and clipping, over one batch and over several: both ways round differently, at 2^-24 of each number (in
/// bf16 2^-9), which a few steps enlarge. A run may change between the two.
#[test]
fn a_run_in_chunks_has_the_losses_of_one_with_whole_logits() {
    let with = |out: &Path, logits, steps| TrainOptions { logits, steps, ..options(out, 4) };
    for (accumulate, precision, tolerance) in
        [(1, Precision::F32True, 1e-4), (2, Precision::F32True, 1e-4), (1, Precision::Bf16Mixed, 2e-2)]
    {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [whole, chunked, both] = [0, 1, 2].map(|i| folders[i].path());
        let with = |out, logits, steps| TrainOptions { accumulate, precision, ..with(out, logits, steps) };
        // Without a limit nothing asks for chunks.
        let expected = run(&with(whole, None, 4));
        let report = run(&with(chunked, Some(Logits::Chunked), 4));
        let in_chunks = |report: &fulgurite_models::train::TrainReport| {
            let trace = std::fs::read_to_string(report.traces.join("00_acquire.trace")).unwrap();
            trace.contains("fused_linear_cross_entropy")
        };
        assert_eq!([&expected, &report].map(in_chunks), [false, true]);
        let first = run(&with(both, Some(Logits::Whole), 2));
        let resumed = run(&TrainOptions { resume: true, ..with(both, Some(Logits::Chunked), 4) });
        assert_eq!((first.losses.len(), resumed.losses.len()), (2, 2));
        let changed = [&first.losses[..], &resumed.losses].concat();
        let validated = |report: &fulgurite_models::train::TrainReport| report.validation_loss.unwrap();
        let pairs = expected.losses.iter().zip(report.losses.iter().zip(&changed));
        let validations = (validated(&expected), validated(&report), validated(&resumed));
        for (whole, chunked, changed) in pairs.map(|(a, (b, c))| (*a, *b, *c)).chain([validations]) {
            for loss in [chunked, changed] {
                assert!((loss - whole).abs() <= tolerance, "{accumulate}, {precision}: {loss}, {whole}");
            }
        }
    }
}

/// The step at hand is not waited for where it is of many batches: those that it took come again.
#[test]
fn a_step_of_many_batches_is_left_and_taken_again() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let long = |out: &Path| TrainOptions { accumulate: 80, ..options(out, 3) };
    let expected = run(&long(whole.path()));
    let stop = Arc::new(AtomicBool::new(false));
    let interrupted = TrainOptions { stop: Some(stop.clone()), ..long(parts.path()) };
    let report = train(&interrupted, false, &mut |line| {
        if line.starts_with("step 1: ") {
            let stop = stop.clone();
            // Within the second step, which takes much longer than this.
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(10));
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
        }
    });
    assert_eq!(report.unwrap().steps, 1);
    let resumed = run(&TrainOptions { resume: true, ..long(parts.path()) });
    assert_eq!(resumed.losses, expected.losses[1..]);
    assert_eq!(std::fs::read(resumed.checkpoint).unwrap(), std::fs::read(expected.checkpoint).unwrap());
}

#[test]
fn a_model_that_does_not_fit_is_refused_before_its_weights_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let limited = |gigabytes: u64| Options { memory_limit: Some(gigabytes << 30), ..Options::default() };
    let out = folder.path().join("run");
    for (size, context, gigabytes, accumulate) in [("1558M", 16, 8, 1), ("1558M", 16, 8, 4), ("124M", 1024, 1, 1)] {
        let started = std::time::Instant::now();
        let large = TrainOptions {
            size: Some(size.into()),
            context: Some(context),
            accumulate,
            compile: limited(gigabytes),
            ..options(&out, 3)
        };
        let error = train(&large, false, &mut |_| {}).unwrap_err();
        let limit = gigabytes << 30;
        assert!(
            matches!(error, TrainError::Failed(fulgurite_runtime::Error::PlanTooLarge { limit: l, .. }) if l == limit),
            "{error}"
        );
        println!("{size}: {error} after {:?}", started.elapsed());
        assert!(!out.exists(), "a folder was left");
    }
}

#[test]
fn a_resumed_run_says_what_is_not_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let first = TrainOptions { final_lr: 0.5, ..options(folder.path(), 3) };
    run(&first);
    let mut lines = Vec::new();
    let same = TrainOptions { resume: true, profile: true, ..first.clone() };
    train(&same, false, &mut |line| lines.push(line.to_owned())).unwrap();
    assert!(lines.iter().any(|line| line.starts_with("resumed at step 3")), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("not as in the checkpoint")), "{lines:#?}");
    let second = TrainOptions { resume: true, steps: 4, lr: 1e-3, accumulate: 2, ..first };
    train(&second, false, &mut |line| lines.push(line.to_owned())).unwrap();
    let expected = "not as in the checkpoint, so that the run goes on otherwise: learning rate 0.001, was 0.003; final \
                    learning rate 0.0005, was 0.0015; steps of the schedule 4, was 3; accumulated batches 2, was 1";
    assert!(lines.iter().any(|line| line.starts_with(expected)), "{lines:#?}");
}

/// The names and steps of the checkpoints in a folder, each of which is good.
fn checkpoints(folder: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("checkpoint") {
            let checkpoint = Checkpoint::load(&entry.path()).unwrap();
            checkpoint.validate_tensors().unwrap();
            checkpoint.validate_finite().unwrap();
            found.push((name, checkpoint.state.step));
        }
    }
    found.sort();
    found
}

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
    let zeros = |name: &str| (name.to_owned(), saved.tensors[name].zeros_like());
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

    let config = GptConfig { vocabulary: 256, context: 4, layers: 1, heads: 1, channels: 4, dropout: 0.0 };
    let cpu = fulgurite_runtime::Device::CPU;
    let state = || TrainState {
        params: initial_parameters(&config, 1).unwrap(),
        exp_avg: initial_parameters(&config, 2).unwrap(),
        exp_avg_sq: zeros(&config, DType::F32, cpu).unwrap(),
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

#[test]
fn the_last_checkpoints_are_kept_and_the_newest_good_one_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let all = TrainOptions { save_every: 2, keep: 3, ..options(folder.path(), 9) };
    run(&all);
    let names = |list: &[(&str, u64)]| list.iter().map(|(name, step)| ((*name).to_owned(), *step)).collect::<Vec<_>>();
    let [newest, six, eight] =
        [("checkpoint.safetensors", 9), ("checkpoint-6.safetensors", 6), ("checkpoint-8.safetensors", 8)];
    assert_eq!(checkpoints(folder.path()), names(&[six, eight, newest]));
    let expected = std::fs::read(&path).unwrap();
    // Damaged, not finite, and gone.
    let mut wild = Checkpoint::load(&path).unwrap();
    let bias = fulgurite_models::HostTensor::from_f32(&[64], &[f32::NAN; 64]).unwrap();
    assert_eq!(wild.tensors["ln_f.bias"].shape(), bias.shape());
    wild.tensors.insert("ln_f.bias".into(), bias);
    assert!(wild.save(&path).unwrap_err().to_string().contains("tensor 'ln_f.bias' is NaN at element 0"));
    let spoil: [&dyn Fn(); 3] = [
        &|| std::fs::write(&path, &expected[..expected.len() - 1]).unwrap(),
        &|| wild.save_unchecked(&path).unwrap(),
        &|| std::fs::remove_file(&path).unwrap(),
    ];
    for spoil in spoil {
        spoil();
        let mut lines = Vec::new();
        let resumed = TrainOptions { resume: true, ..all.clone() };
        train(&resumed, false, &mut |line| lines.push(line.to_owned())).unwrap();
        assert!(lines.iter().any(|line| line.starts_with("an earlier checkpoint is taken, the newest")), "{lines:#?}");
        assert!(lines.iter().any(|line| line == "resumed at step 8 of 9"), "{lines:#?}");
        assert!(std::fs::read(&path).unwrap() == expected, "the checkpoints are equal to the bit");
        assert_eq!(checkpoints(folder.path()), names(&[six, eight, newest]));
    }
    // A run that starts anew replaces all of them.
    let mut refused = TrainOptions { save_every: 0, ..all.clone() };
    std::fs::remove_file(&path).unwrap();
    assert!(train(&refused, false, &mut |_| {}).unwrap_err().to_string().contains("a checkpoint is there already"));
    refused.overwrite = true;
    run(&refused);
    assert_eq!(checkpoints(folder.path()), names(&[newest]));
    let none = TrainOptions { keep: 0, ..all };
    assert!(train(&none, false, &mut |_| {}).unwrap_err().to_string().contains("argument 'keep'"));
}

#[test]
fn a_resumed_run_continues_bit_for_bit() {
    let in_bf16 = Options { autocast: Some(DType::BF16), ..Options::default() };
    for (accumulate, compile) in [(1, Options::default()), (2, Options::default()), (1, in_bf16.clone()), (2, in_bf16)]
    {
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let all = TrainOptions { accumulate, compile, ..options(whole.path(), 8) };
        let report = run(&all);
        // The schedule must be that of the whole run: stop early by the checkpoint of an interrupted one.
        let interrupted = TrainOptions { out: parts.path().to_owned(), save_every: 5, ..all.clone() };
        let saved = stop_after_first_checkpoint(&interrupted);
        let resumed = run(&TrainOptions { resume: true, ..interrupted });
        assert_eq!(resumed.losses, report.losses[saved..], "accumulate {accumulate}");
        let bytes = |report: &fulgurite_models::train::TrainReport| std::fs::read(&report.checkpoint).unwrap();
        assert!(bytes(&report) == bytes(&resumed), "the checkpoints are equal to the bit");
    }
}

#[test]
fn a_run_on_shards_from_given_weights_resumes_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let config = GptConfig { context: 24, ..GptConfig::named("nano", 256).unwrap() };
    let weights = Weights::of(&config, &initial_parameters(&config, 77).unwrap()).unwrap();
    LlmcCheckpoint::new(weights, Version::F32).save(&path("model.bin")).unwrap();
    // Sequences of 16 go from shard to shard, and eight steps go through the data more than once.
    let tokens: Vec<u16> = (0..500_u16).map(|index| index * 7 % 90).collect();
    let mut shards = Vec::new();
    for (number, part) in tokens.chunks(130).enumerate() {
        shards.push(path(&format!("part_{number}.bin")));
        Shard::save(&shards[number], part).unwrap();
    }
    let all = TrainOptions {
        init: Some(path("model.bin")),
        data: shards.clone(),
        validation: shards[..2].to_vec(),
        ..options(&path("whole"), 8)
    };
    let report = run(&all);
    let interrupted = TrainOptions { out: path("parts"), save_every: 5, ..all.clone() };
    let saved = stop_after_first_checkpoint(&interrupted);
    // What the stream is cut into does not matter, nor does the weights' content: the checkpoint has its own.
    Shard::save(&path("joined.bin"), &tokens).unwrap();
    let resume = TrainOptions { resume: true, data: vec![path("joined.bin")], ..interrupted };
    let resumed = run(&resume);
    assert_eq!(resumed.losses, report.losses[saved..]);
    // But for the names of the files, which each run notes.
    let saved = |report: &fulgurite_models::train::TrainReport| {
        let mut saved = Checkpoint::load(&report.checkpoint).unwrap();
        assert!(saved.state.notes.remove("data").is_some());
        saved
    };
    assert!(saved(&report) == saved(&resumed), "the checkpoints are equal to the bit");
    let other = TrainOptions { data: shards[..3].to_vec(), ..resume };
    let error = train(&other, false, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("the position belongs to other data: 500 tokens"), "{error}");
}

#[test]
fn a_run_in_bf16_falls_keeps_f32_and_goes_on_in_no_other_type() {
    let folder = tempfile::tempdir().unwrap();
    let in_bf16 = TrainOptions { precision: Precision::Bf16Mixed, ..options(folder.path(), 30) };
    let report = run(&in_bf16);
    assert_eq!(report.compiles, 1);
    assert!(report.losses[29] < report.losses[0] - 1.0, "{:?}", report.losses);
    assert!(report.traces.join("02_autocast.trace").exists());
    let in_f32 = run(&options(tempfile::tempdir().unwrap().path(), 30));
    assert_ne!(report.losses, in_f32.losses, "something was computed in bf16");
    let checkpoint = Checkpoint::load(&report.checkpoint).unwrap();
    assert_eq!(checkpoint.state.notes[PRECISION], "bf16-mixed");
    assert!(checkpoint.tensors.values().all(|tensor| tensor.dtype() == DType::F32), "weights and moments are f32");
    let other = TrainOptions { resume: true, ..options(folder.path(), 40) };
    let error = train(&other, false, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("the checkpoint was made in bf16-mixed, got 32-true"), "{error}");
    // A checkpoint of an earlier version says it by a type.
    let mut earlier = checkpoint;
    earlier.state.notes.remove(PRECISION);
    earlier.state.notes.insert("compute_dtype".into(), "bf16".into());
    earlier.save(&report.checkpoint).unwrap();
    let error = train(&other, false, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("the checkpoint was made in bf16-mixed, got 32-true"), "{error}");
    run(&TrainOptions { precision: Precision::Bf16Mixed, steps: 31, ..other });
}

/// Runs to the end, then puts the checkpoint of step 5 back, as if the run had been killed after it.
fn stop_after_first_checkpoint(options: &TrainOptions) -> usize {
    let path = options.out.join("checkpoint.safetensors");
    let mut kept = None;
    train(options, false, &mut |line| {
        if line.starts_with("step 8") {
            kept = std::fs::read(&path).ok();
        }
    })
    .unwrap();
    std::fs::write(&path, kept.expect("saved at step 5, before step 8 is reported")).unwrap();
    5
}

#[test]
fn what_cannot_be_used_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |change: fn(&mut TrainOptions), expected: &str| {
        let mut wrong = options(folder.path(), 2);
        change(&mut wrong);
        let error = train(&wrong, false, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(|o| o.size = Some("hugest".into()), "hugest");
    refused(|o| o.tokenizer = Some("words".into()), "words");
    refused(|o| o.context = Some(0), "context");
    refused(|o| o.data = vec!["/no/such/file.txt".into()], "/no/such/file.txt");
    refused(|o| o.resume = true, "checkpoint.safetensors");
    refused(|o| o.lr = f64::NAN, "lr");
    refused(|o| o.steps = 0, "argument 'steps': is 0, expected at least 1");
    refused(|o| o.optimizer.clip = Some(f64::NAN), "argument 'optimizer.clip': is NaN, expected a number above 0");
    refused(|o| o.optimizer.beta1 = 1.0, "argument 'optimizer.beta1': is 1, expected 0 to below 1");
}

/// Training for the message of the error.
fn complaint(options: &TrainOptions) -> String {
    train(options, false, &mut |_| {}).unwrap_err().to_string()
}

#[test]
fn a_trained_checkpoint_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = run(&options(folder.path(), 2)).checkpoint;
    let before = std::fs::read(&path).unwrap();
    // Before any work: that the data is not there is not yet known.
    let anew = TrainOptions { data: vec!["/no/such/file.txt".into()], ..options(folder.path(), 1) };
    let message = complaint(&anew);
    assert!(message.starts_with(&path.display().to_string()), "{message}");
    assert!(message.contains("--resume") && message.contains("--overwrite"), "{message}");
    let both = TrainOptions { resume: true, overwrite: true, ..options(folder.path(), 1) };
    assert!(complaint(&both).contains("argument 'overwrite'"), "{}", complaint(&both));
    assert!(std::fs::read(&path).unwrap() == before);
    let report = run(&TrainOptions { overwrite: true, warmup: 1, ..options(folder.path(), 1) });
    assert_eq!((report.steps, Checkpoint::load(&path).unwrap().state.step), (1, 1));
}

#[test]
fn a_resumed_run_says_where_it_is_and_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Vec::new();
    train(&options(folder.path(), 2), false, &mut |line| first.push(line.to_owned())).unwrap();
    let step = |number: usize| first.iter().find(|line| line.starts_with(&format!("step {number}: "))).unwrap();
    assert!(!step(1).contains("tokens/s") && step(2).contains(" tokens/s"), "{first:?}");

    let path = folder.path().join("checkpoint.safetensors");
    let before = std::fs::read(&path).unwrap();
    let resume = |steps: u64| TrainOptions { resume: true, warmup: 1, ..options(folder.path(), steps) };
    for steps in [1, 2] {
        let mut lines = Vec::new();
        let report = train(&resume(steps), false, &mut |line| lines.push(line.to_owned())).unwrap();
        assert!(lines[0].starts_with("nothing to do: the checkpoint is at step 2"), "{lines:?}");
        assert_eq!((lines.len(), report.steps, report.validation_loss), (1, 2, None));
        assert!(std::fs::read(&path).unwrap() == before);
    }
    let refused = |change: fn(&mut TrainOptions), expected: &[&str]| {
        let mut other = resume(3);
        change(&mut other);
        let message = complaint(&other);
        assert!(expected.iter().all(|part| message.contains(part)), "{message}");
        assert!(!message.contains("GptConfig"), "{message}");
        assert_eq!(message.matches(" in the checkpoint, got ").count(), expected.len(), "{message}");
    };
    let size =
        "size is nano (2 layers, 2 heads, 64 channels) in the checkpoint, got micro (4 layers, 4 heads, 128 channels)";
    refused(|o| o.size = Some("micro".into()), &[size]);
    refused(|o| o.tokenizer = Some("gpt2".into()), &["tokenizer is bytes in the checkpoint, got gpt2"]);
    refused(|o| o.context = Some(24), &["context is 16 in the checkpoint, got 24"]);
    refused(
        |o| (o.batch, o.dropout) = (2, 0.0),
        &["batch is 4 in the checkpoint, got 2", "dropout is 0.1 in the checkpoint, got 0"],
    );
    let mut lines = Vec::new();
    train(&resume(3), false, &mut |line| lines.push(line.to_owned())).unwrap();
    assert!(lines.iter().any(|line| line == "resumed at step 2 of 3"), "{lines:?}");

    let names_once = || {
        let message = complaint(&resume(4));
        assert!(message.starts_with(&path.display().to_string()), "{message}");
        assert_eq!(message.matches("checkpoint.safetensors").count(), 1, "{message}");
        message
    };
    // With an earlier checkpoint, that one would be gone on with.
    std::fs::remove_file(path.with_file_name("checkpoint-2.safetensors")).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(names_once().contains("is incomplete"), "{}", names_once());
    std::fs::remove_file(&path).unwrap();
    assert!(names_once().contains("cannot read the file"), "{}", names_once());
}
