//! The main job, small: training falls, resumes to the bit, and refuses what it cannot use.

mod diverging;
mod images;
mod memory;
mod ranks;
mod resuming;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fulgurite_models::checkpoint::Checkpoint;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::precision::Precision;
use fulgurite_models::train::{PRECISION, TrainOptions, train};
use fulgurite_runtime::DType;

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
        name: None,
        strategy: Default::default(),
        state_dict: None,
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
