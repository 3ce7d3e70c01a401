//! Training on a device: the next step is enqueued before a loss is read, and nothing but the time changes.

use std::path::{Path, PathBuf};

use fulgurite::Device;
use fulgurite::compile::Options;
use fulgurite::models::train::{TrainError, TrainOptions, TrainReport, train};
use fulgurite_example_sim as _;

/// With `evaluate_every` 1 each loss is read before the next step; with 0 behind it.
fn options(out: &Path, lr: f64, evaluate_every: u64) -> TrainOptions {
    TrainOptions {
        size: "nano".into(),
        init: None,
        tokenizer: None,
        data: Vec::new(),
        validation: Vec::new(),
        steps: 5,
        batch: 1,
        context: Some(4),
        accumulate: 1,
        lr,
        final_lr: 0.1,
        warmup: 0,
        optimizer: Default::default(),
        dropout: 0.0,
        seed: 5,
        evaluate_every,
        evaluate_batches: 1,
        save_every: 0,
        keep: 1,
        nonfinite: Default::default(),
        allow_nonfinite: false,
        sample_tokens: 1,
        prompt: "T".into(),
        out: out.to_owned(),
        profile: false,
        resume: false,
        overwrite: true,
        compile: Options { device: Some(Device::new("sim", 0)), verify: false, ..Options::default() },
        stop: None,
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// What a run came to, with the lines about its steps. The speed is left out of them.
fn run(name: &str, lr: f64, evaluate_every: u64) -> (Result<TrainReport, TrainError>, Vec<String>) {
    let mut lines = Vec::new();
    let report = train(&options(&folder(name), lr, evaluate_every), false, &mut |line| {
        if line.starts_with("step ") && !line.contains("validation") {
            lines.push(line.split(", ").take(2).collect::<Vec<_>>().join(", "));
        }
    });
    (report, lines)
}

#[test]
fn losses_read_late_are_the_same() {
    let (ahead, lines) = run("ahead", 1e-3, 0);
    let (waiting, expected) = run("waiting", 1e-3, 1);
    let (ahead, waiting) = (ahead.unwrap(), waiting.unwrap());
    assert_eq!(ahead.losses.len(), 5);
    assert_eq!(ahead.losses, waiting.losses);
    assert_eq!(lines, expected);
    assert_eq!(std::fs::read(&ahead.checkpoint).unwrap(), std::fs::read(&waiting.checkpoint).unwrap());
}

/// The step behind the one that diverges is enqueued by then, and leaves the state as it is.
#[test]
fn a_run_that_diverges_is_told_as_if_nothing_was_ahead() {
    let (ahead, lines) = run("ahead_diverges", 1e30, 0);
    let (waiting, expected) = run("waiting_diverges", 1e30, 1);
    let (ahead, waiting) = (ahead.unwrap_err(), waiting.unwrap_err());
    assert!(matches!(ahead, TrainError::Diverged(_)), "{ahead}");
    assert_eq!(ahead.to_string(), waiting.to_string());
    assert_eq!(lines, expected);
}
