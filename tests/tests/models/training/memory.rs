//! What training holds in memory: checkpointed blocks, logits in chunks, and what does not fit.

use std::path::Path;

use fulgurite_models::precision::Precision;
use fulgurite_models::train::{TrainError, TrainOptions, train};
use fulgurite_models::{ActivationCheckpointing, Logits};
use fulgurite_runtime::compile::Options;

use super::{options, run};

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

#[test]
fn a_model_that_does_not_fit_is_refused_before_its_weights_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let limited = |gigabytes: u64| Options { memory_limit: Some(gigabytes << 30), ..Options::default() };
    let out = folder.path().join("run");
    for (size, context, gigabytes, accumulate) in [("1558M", 16, 8, 1), ("1558M", 16, 8, 4), ("124M", 1024, 2, 1)] {
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
        let alone = error.to_string().ends_with("; weights, moments and gradients alone take that");
        assert_eq!(alone, size == "1558M", "{error}");
        println!("{size}: {error} after {:?}", started.elapsed());
        assert!(!out.exists(), "a folder was left");
    }
}
