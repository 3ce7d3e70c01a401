//! Models of images train by the loop of the models of text: they learn, resume to the bit, and refuse what means
//! nothing for them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fulgurite_models::checkpoint::Checkpoint;
use fulgurite_models::model_config::Family;
use fulgurite_models::optimizer::{Optimizer, OptimizerSettings};
use fulgurite_models::precision::Precision;
use fulgurite_models::train::{TrainOptions, train};
use fulgurite_models::vision::ImageKind;

use super::{options, run};

/// A run of the smallest size of a kind on shapes that it draws.
fn of_images(kind: ImageKind, out: &Path, steps: u64) -> TrainOptions {
    TrainOptions { family: Family::Images(kind), context: None, dropout: 0.0, batch: 16, ..options(out, steps) }
}

#[test]
fn every_kind_learns_from_drawn_shapes() {
    for (kind, steps, chance) in
        [(ImageKind::Resnet, 40, 1.0 / 6.0), (ImageKind::Vit, 40, 0.0), (ImageKind::Unet, 40, 0.5)]
    {
        let folder = tempfile::tempdir().unwrap();
        let report = run(&of_images(kind, folder.path(), steps));
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        let (first, last) = (mean(&report.losses[..5]), mean(&report.losses[35..]));
        assert!(last < first, "{kind}: {:?}", report.losses);
        assert_eq!((report.compiles, report.steps), (1, steps), "{kind}");
        assert!(report.accuracy.unwrap() > chance && report.validation_loss.unwrap() < 2.2, "{kind}: {report:?}");
        assert!(report.traces.join("00_acquire.trace").exists() && report.sample.is_empty());
        let trace = std::fs::read_to_string(report.traces.join("00_acquire.trace")).unwrap();
        assert!(trace.contains("batch.images"), "{kind}");
    }
}

/// Running statistics are a part of the state: without them the resumed run would evaluate otherwise.
#[test]
fn a_resnet_resumes_to_the_bit_with_its_statistics() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let own = |out: &Path| {
        let optimizer = OptimizerSettings { kind: Optimizer::Sgd, momentum: 0.9, ..OptimizerSettings::default() };
        TrainOptions { optimizer, ..of_images(ImageKind::Resnet, out, 4) }
    };
    let expected = run(&own(whole.path()));
    let stop = Some(Arc::new(AtomicBool::new(true)));
    let stopped = run(&TrainOptions { stop, ..own(parts.path()) });
    assert!(stopped.stopped && stopped.steps == 1, "{stopped:?}");
    let resumed = run(&TrainOptions { resume: true, size: None, ..own(parts.path()) });
    assert_eq!(resumed.losses, expected.losses[1..]);
    assert_eq!((resumed.validation_loss, resumed.accuracy), (expected.validation_loss, expected.accuracy));
    assert_eq!(std::fs::read(&resumed.checkpoint).unwrap(), std::fs::read(&expected.checkpoint).unwrap());
    let checkpoint = Checkpoint::load(&resumed.checkpoint).unwrap();
    checkpoint.validate_tensors().unwrap();
    let moved = checkpoint.tensors["bn1.running_mean"].bytes().iter().any(|byte| *byte != 0);
    assert!(moved, "statistics follow the batches");
    // A checkpoint is a file of weights under torchvision's names.
    let another = tempfile::tempdir().unwrap();
    let init = Some(resumed.checkpoint);
    let from = run(&TrainOptions { init, warmup: 0, ..of_images(ImageKind::Resnet, another.path(), 1) });
    assert!(from.losses[0] < expected.losses[0], "{from:?}");
    // And no model of text.
    let error = fulgurite_models::weight_files::load(&expected.checkpoint, None).unwrap_err().to_string();
    assert!(error.contains("holds weights of a resnet model, which reads images"), "{error}");
}

#[test]
fn mixed_precision_learns_too() {
    for kind in [ImageKind::Resnet, ImageKind::Vit] {
        let folder = tempfile::tempdir().unwrap();
        let mixed = TrainOptions { precision: Precision::Bf16Mixed, ..of_images(kind, folder.path(), 12) };
        let report = run(&mixed);
        assert!(report.losses.iter().all(|loss| loss.is_finite()) && report.losses[11] < 2.5, "{:?}", report.losses);
    }
}

#[test]
fn what_means_nothing_for_images_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |kind, change: &dyn Fn(&mut TrainOptions), expected: &str| {
        let mut wrong = of_images(kind, folder.path(), 2);
        change(&mut wrong);
        let error = train(&wrong, false, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let resnet = ImageKind::Resnet;
    refused(resnet, &|o| o.tokenizer = Some("gpt2".into()), "tokenizer");
    refused(resnet, &|o| o.context = Some(8), "context");
    refused(resnet, &|o| o.accumulate = 2, "each batch of a resnet moves its running statistics");
    refused(resnet, &|o| o.dropout = 0.1, "a resnet has no dropout");
    refused(resnet, &|o| o.size = Some("51".into()), "a resnet has nano, 18-small, 18, 50; did you mean 50?");
    refused(resnet, &|o| o.batch = 5000, "has 512 images, expected those of a batch of 5000");
    refused(resnet, &|o| o.data = vec!["/no/such/folder".into()], "/no/such/folder/data_batch_1.bin");
    let written = folder.path().join("cifar");
    std::fs::create_dir(&written).unwrap();
    for name in ["data_batch_1.bin", "test_batch.bin"] {
        std::fs::write(written.join(name), vec![1; 16 * 3073]).unwrap();
    }
    refused(ImageKind::Unet, &|o| o.data = vec![written.clone()], "a unet needs one for each pixel");
    refused(
        resnet,
        &|o| (o.data, o.size) = (vec![written.clone()], Some("50".into())),
        "takes images of [3, 224, 224]",
    );
    let report = run(&TrainOptions { data: vec![written.clone()], ..of_images(resnet, &folder.path().join("run"), 2) });
    assert_eq!(report.accuracy, Some(1.0), "all images are one, of class 1");
    // The run of another model in its folder is another run.
    let other =
        TrainOptions { resume: true, data: vec![written], ..of_images(ImageKind::Vit, &folder.path().join("run"), 4) };
    let error = train(&other, false, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("model is resnet in the checkpoint, got vit"), "{error}");
}
