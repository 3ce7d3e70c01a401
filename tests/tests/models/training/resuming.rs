//! Runs that go on from a checkpoint.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fulgurite_models::checkpoint::Checkpoint;
use fulgurite_models::llmc::{LlmcCheckpoint, Shard, Version};
use fulgurite_models::metrics::{Metrics, PLOT, TABLE, read};
use fulgurite_models::train::{TrainOptions, initial_parameters, train};
use fulgurite_models::{GptConfig, Weights};
use fulgurite_runtime::DType;
use fulgurite_runtime::compile::Options;

use super::{checkpoints, complaint, options, run};

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
    LlmcCheckpoint::new(weights, Version::F32).unwrap().save(&path("model.bin")).unwrap();
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

/// Runs to the end, then puts the checkpoint of step 5 back, as if the run had been killed after it.
fn stop_after_first_checkpoint(options: &TrainOptions) -> usize {
    // What was written while later steps were taken.
    train(&TrainOptions { keep: 9, ..options.clone() }, false, &mut |_| {}).unwrap();
    let kept = options.out.join("checkpoint-5.safetensors");
    std::fs::rename(kept, options.out.join("checkpoint.safetensors")).unwrap();
    5
}

#[test]
fn a_trained_checkpoint_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = run(&options(folder.path(), 2)).checkpoint;
    let before = std::fs::read(&path).unwrap();
    // Before any work: that the data is not there is not yet known.
    let anew = TrainOptions { data: vec!["/no/such/file.txt".into()], warmup: 1, ..options(folder.path(), 1) };
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
