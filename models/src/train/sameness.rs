//! What is the same on all ranks of a run, and is compared.

use std::path::PathBuf;

use fulgurite_kernels::ranks;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, Result};

use super::failure::TrainError;
use super::options::TrainOptions;
use super::run::Run;
use super::settings;
use crate::argument_error::wrong;
use crate::parameter_list::Parameters;
use crate::parameters::to_host;

/// Compares what the ranks were asked for, before anything is made by it. The error of all ranks is the same.
///
/// # Errors
/// The first setting that two ranks have otherwise, with both.
pub(super) fn same_settings(options: &TrainOptions) -> Result<(), TrainError> {
    let own = asked_for(options);
    let text = own.iter().map(|(_, value)| value.replace('\n', " ")).collect::<Vec<_>>().join("\n");
    let mesh = ranks::mesh();
    let mut first = None;
    // A rank that has found a difference goes on along the other axes: the ranks there may not know of it.
    for (at, axis) in mesh.axes().iter().enumerate() {
        let given = ranks::exchange(axis, "the settings that were asked for", text.as_bytes())?;
        let given: Vec<_> = given.iter().map(|text| String::from_utf8_lossy(text)).collect();
        let values: Vec<Vec<&str>> = given.iter().map(|text| text.split('\n').collect()).collect();
        for (i, (name, _)) in own.iter().enumerate() {
            let Some(other) = values.iter().position(|of_rank| of_rank.get(i) != values[0].get(i)) else { continue };
            let numbers = mesh.group(ranks::rank(), at);
            let told = |place: usize| format!("{} on rank {}", values[place].get(i).unwrap_or(&""), numbers[place]);
            let message = format!("is {} and {}, expected the same on all ranks", told(0), told(other));
            first.get_or_insert(wrong(name, message));
            break;
        }
    }
    first.map_or(Ok(()), |error| Err(error.into()))
}

/// The settings that all ranks must have alike, in words.
fn asked_for(options: &TrainOptions) -> Vec<(&'static str, String)> {
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "absent".into());
    let files = |files: &[PathBuf]| {
        let names = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
        if names.is_empty() { "absent".to_owned() } else { names }
    };
    let optimizer = &options.optimizer;
    vec![
        ("strategy", options.strategy.to_string()),
        ("state_dict", or_none(options.state_dict.map(|kind| format!("{kind:?}").to_lowercase()))),
        ("out", options.out.display().to_string()),
        ("resume", options.resume.to_string()),
        ("overwrite", options.overwrite.to_string()),
        ("profile", options.profile.to_string()),
        ("model", options.family.to_string()),
        ("size", or_none(options.size.clone())),
        ("set", options.set.join(", ")),
        ("init", or_none(options.init.as_ref().map(|path| path.display().to_string()))),
        ("tokenizer", or_none(options.tokenizer.clone())),
        ("data", files(&options.data)),
        ("validation", files(&options.validation)),
        ("steps", options.steps.to_string()),
        ("batch", options.batch.to_string()),
        ("context", or_none(options.context.map(|context| context.to_string()))),
        ("accumulate", options.accumulate.to_string()),
        ("lr", options.lr.to_string()),
        ("final_lr", options.final_lr.to_string()),
        ("warmup", options.warmup.to_string()),
        ("beta1", optimizer.beta1.to_string()),
        ("beta2", optimizer.beta2.to_string()),
        ("epsilon", optimizer.epsilon.to_string()),
        ("weight_decay", optimizer.weight_decay.to_string()),
        ("clip", or_none(optimizer.clip.map(|clip| clip.to_string()))),
        ("dropout", options.dropout.to_string()),
        ("seed", options.seed.to_string()),
        ("activation_checkpointing", format!("{:?}", options.activation_checkpointing).to_lowercase()),
        ("logits", or_none(options.logits.map(|logits| logits.name().to_owned()))),
        ("precision", options.precision.name().to_owned()),
        ("bucket", options.compile.bucket.to_string()),
        ("evaluate_every", options.evaluate_every.to_string()),
        ("evaluate_batches", options.evaluate_batches.to_string()),
        ("save_every", options.save_every.to_string()),
        ("keep", options.keep.to_string()),
        ("nonfinite", format!("{:?}", options.nonfinite).to_lowercase()),
        ("allow_nonfinite", options.allow_nonfinite.to_string()),
        ("sample_every", options.sample_every.to_string()),
        ("sample_tokens", options.sample_tokens.to_string()),
        ("prompt", options.prompt.clone()),
        ("device", options.device().kind().to_owned()),
    ]
}

/// Compares what the ranks begin with: settings, the place in the data, weights.
///
/// # Errors
/// The first line that another rank has otherwise.
pub(super) fn same_run(options: &TrainOptions, run: &mut Run) -> Result<(), TrainError> {
    if options.all_ranks() == 1 {
        return Ok(());
    }
    let mut lines = String::new();
    let settings = settings::subject(options, run).settings;
    for (name, value) in settings.iter().filter(|(name, _)| name != "device") {
        lines += &format!("{name}: {}\n", value.replace('\n', " "));
    }
    let position = run.batches.position();
    lines += &format!("steps done: {}\nplace in the data: {position:?}\n", run.done);
    if options.has_parts() {
        return Ok(ranks::same("the settings of the run", &lines)?);
    }
    let state = run.state.get()?;
    for (what, tree) in [("weights", &state.params), ("means", &state.exp_avg), ("squares", &state.exp_avg_sq)] {
        lines += &format!("{what} with the checksum {}\n", checksum(tree)?);
    }
    Ok(ranks::same("the settings of the run", &lines)?)
}

/// Checks that ranks that have all weights end with the same ones, to the bit: what went wrong on one of them is not to
/// go unnoticed.
///
/// # Errors
/// Two ranks and their checksums.
pub(super) fn same_weights(options: &TrainOptions, run: &mut Run) -> Result<(), TrainError> {
    if options.averaged_along().is_none() || options.has_parts() {
        return Ok(());
    }
    let found = checksum(&run.state.get()?.params)?;
    let line = format!("weights after step {} with the checksum {found}", run.done);
    Ok(ranks::same("the weights of the run", &line)?)
}

fn checksum(tree: &Parameters<Array>) -> Result<String> {
    let mut hasher = crc32fast::Hasher::new();
    for (_, array) in tree.leaves() {
        hasher.update(to_host(array)?.bytes());
    }
    Ok(format!("{:08x}", hasher.finalize()))
}
