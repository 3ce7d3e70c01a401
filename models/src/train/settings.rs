//! The settings of a run in words, for its report.

use super::options::{OnNonFinite, TrainOptions};
use super::resume;
use super::run::Run;
use crate::model::Model;
use crate::report::Subject;

/// Where the model comes from, in words: a file, or its size.
pub(super) fn origin(options: &TrainOptions, run: &Run) -> String {
    match (&options.init, &options.size) {
        (Some(path), _) => format!("from {}", path.display()),
        (None, Some(size)) => size.clone(),
        (None, None) if run.resumed.is_some() => resume::size_in_words(&run.config),
        (None, None) => options.family.usual_size().to_owned(),
    }
}

/// What the report says of the run as a whole.
pub(super) fn subject(options: &TrainOptions, run: &Run) -> Subject {
    let model = &run.config;
    let origin = origin(options, run);
    let folder = options.out.file_name().map_or_else(String::new, |name| format!(" in {}", name.display()));
    let files = |files: &[std::path::PathBuf]| {
        let shown = files.iter().take(8).map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        if files.len() > 8 { format!("{shown}, and {} more", files.len() - 8) } else { shown }
    };
    let or = |text: String, otherwise: &str| if text.is_empty() { otherwise.to_owned() } else { text };
    let every = |steps: u64| if steps == 0 { "at the end".to_owned() } else { format!("every {steps} steps") };
    let optimizer = &options.optimizer;
    let images = options.family.images().is_some();
    let [classes, data, validation, in_batch, in_step] = match images {
        true => ["classes", "drawn shapes", "those that come with the data", "images in a batch", "images in a step"],
        false => {
            let validation = "the last tenth of the data";
            ["vocabulary", "tinyshakespeare", validation, "sequences in a batch", "tokens in a step"]
        }
    };
    let of_text = |name: &str| ["tokenizer", "tokens in a sequence", "samples"].contains(&name);
    let settings = [
        ("model", format!("{} {origin}", model.family())),
        ("fields of its configuration", or(run.fields.join(", "), "as published")),
        ("parameters", model.parameter_count().to_string()),
        (classes, model.vocabulary().to_string()),
        ("tokenizer", run.tokenizer.as_ref().map_or_else(|| "none".into(), |own| own.name().into_owned())),
        ("data", or(files(&options.data), data)),
        ("validation data", or(files(&options.validation), validation)),
        ("device", options.device().to_string()),
        ("precision", options.precision.name().to_owned()),
        ("ranks", options.all_ranks().to_string()),
        (in_batch, options.whole_batch().to_string()),
        ("tokens in a sequence", run.batches.position().context.to_string()),
        ("batches in a step", options.accumulate.to_string()),
        (in_step, run.tokens.to_string()),
        ("batches in an epoch", run.batches.batches_per_epoch().to_string()),
        ("steps", options.steps.to_string()),
        ("peak learning rate", options.lr.to_string()),
        ("final learning rate", (options.lr * options.final_lr).to_string()),
        ("steps of warm-up", options.warmup.to_string()),
        ("optimizer", optimizer.to_string()),
        ("the optimizer's betas", format!("{}, {}", optimizer.beta1, optimizer.beta2)),
        ("the optimizer's epsilon", optimizer.epsilon.to_string()),
        ("weight decay", optimizer.weight_decay.to_string()),
        ("largest gradient norm", optimizer.clip.map_or("no limit".into(), |norm| norm.to_string())),
        ("dropout", options.dropout.to_string()),
        ("seed", options.seed.to_string()),
        (
            "where numbers are not finite",
            match options.nonfinite {
                OnNonFinite::Stop => "the run stops".into(),
                OnNonFinite::Skip => "the update is left out".into(),
            },
        ),
        ("validation", format!("{}, {} batches", every(options.evaluate_every), run.validated)),
        ("samples", every(options.sample_every)),
        ("checkpoints", every(options.save_every)),
    ];
    Subject {
        title: format!("{} {origin}{folder}", model.family()),
        steps: options.steps,
        settings: settings
            .into_iter()
            .filter(|(name, _)| !(images && of_text(name)))
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    }
}
