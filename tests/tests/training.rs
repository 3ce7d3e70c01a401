//! The main job, small: training falls, resumes to the bit, and refuses what it cannot use.

use std::path::Path;

use fulgurite::DType;
use fulgurite::compile::Options;
use fulgurite_models::checkpoint::Checkpoint;
use fulgurite_models::checkpoint::OptimizerSettings;
use fulgurite_models::llmc::{LlmcCheckpoint, Shard, Version};
use fulgurite_models::train::{COMPUTE_DTYPE, TrainOptions, initial_parameters, train};
use fulgurite_models::{GptConfig, Weights};

fn options(out: &Path, steps: u64) -> TrainOptions {
    TrainOptions {
        size: "nano".into(),
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
        evaluate_batches: 2,
        save_every: 0,
        sample_tokens: 8,
        prompt: "The ".into(),
        out: out.to_owned(),
        profile: false,
        resume: false,
        compile: Default::default(),
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
    let bytes = |report: &fulgurite_models::train::TrainReport| std::fs::read(&report.checkpoint).unwrap();
    assert!(bytes(&report) == bytes(&resumed), "the checkpoints are equal to the bit");
    let other = TrainOptions { data: shards[..3].to_vec(), ..resume };
    let error = train(&other, false, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("the position belongs to other data: 500 tokens"), "{error}");
}

#[test]
fn a_run_in_bf16_falls_keeps_f32_and_goes_on_in_no_other_type() {
    let folder = tempfile::tempdir().unwrap();
    let compile = Options { autocast: Some(DType::BF16), ..Options::default() };
    let in_bf16 = TrainOptions { compile, ..options(folder.path(), 30) };
    let report = run(&in_bf16);
    assert_eq!(report.compiles, 1);
    assert!(report.losses[29] < report.losses[0] - 1.0, "{:?}", report.losses);
    assert!(report.traces.join("02_autocast.trace").exists());
    let in_f32 = run(&options(tempfile::tempdir().unwrap().path(), 30));
    assert_ne!(report.losses, in_f32.losses, "something was computed in bf16");
    let checkpoint = Checkpoint::load(&report.checkpoint).unwrap();
    assert_eq!(checkpoint.state.notes[COMPUTE_DTYPE], "bf16");
    assert!(checkpoint.tensors.values().all(|tensor| tensor.dtype() == DType::F32), "weights and moments are f32");
    let other = TrainOptions { resume: true, ..options(folder.path(), 40) };
    let error = train(&other, false, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("the checkpoint was made in bf16, got f32"), "{error}");
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
    refused(|o| o.size = "hugest".into(), "hugest");
    refused(|o| o.tokenizer = Some("words".into()), "words");
    refused(|o| o.context = Some(0), "context");
    refused(|o| o.data = vec!["/no/such/file.txt".into()], "/no/such/file.txt");
    refused(|o| o.resume = true, "checkpoint.safetensors");
    refused(|o| o.lr = f64::NAN, "lr");
    run(&options(folder.path(), 2));
    refused(
        |o| {
            o.resume = true;
            o.size = "micro".into();
        },
        "another model",
    );
    let checkpoint = folder.path().join("checkpoint.safetensors");
    let bytes = std::fs::read(&checkpoint).unwrap();
    std::fs::write(&checkpoint, &bytes[..bytes.len() / 2]).unwrap();
    refused(|o| o.resume = true, "checkpoint.safetensors");
}
