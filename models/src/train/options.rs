//! The options and the result of a training run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fulgurite_runtime::compile::Options;
use fulgurite_runtime::{Device, Result};

use super::strategy::{StateDict, Strategy};
use crate::argument_error::wrong;
use crate::blocks::ActivationCheckpointing;
use crate::head::Logits;
use crate::model_config::Family;
use crate::optimizer::OptimizerSettings;
use crate::precision::Precision;
use crate::schedule::Schedule;

/// What happens where a loss or gradients are infinite or no number. The state stays as it was before that step in
/// either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnNonFinite {
    /// The run stops with an error that names the step and the parameter.
    #[default]
    Stop,
    /// The step's update is left out, and the run goes on with the next batch; too many such steps in a row stop it.
    Skip,
}

/// What to train, on what, and for how long.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// The family of models.
    pub family: Family,
    /// Name of a size of the family: `nano`, `micro`, `124M`, ...; not looked at where `init` is given. If absent, a
    /// resumed run takes the checkpoint's model, unless `set` is given, and any other [`Family::usual_size`].
    pub size: Option<String>,
    /// Fields of the size's configuration to be replaced, `name=value` each. Only a llama has such fields.
    pub set: Vec<String>,
    /// Weights to start from, in any format of [`Format`](crate::weight_files::Format); random ones if absent. The size
    /// is that of the file, also when the run is resumed.
    pub init: Option<PathBuf>,
    /// `gpt2`, `bytes` or the file of a tokenizer; if absent, that of the checkpoint for a resumed run, that of `init`,
    /// or else `bytes`.
    pub tokenizer: Option<String>,
    /// Text files or llm.c's shards of tokens; tinyshakespeare if there are none. Of a model of images: the folder of
    /// CIFAR-10's binary files, or nothing for shapes that the run draws.
    pub data: Vec<PathBuf>,
    /// Files to validate with; the last tenth of the data if there are none.
    pub validation: Vec<PathBuf>,
    /// Optimizer steps in all, those of a resumed run included.
    pub steps: u64,
    /// B, sequences or images in a batch of one rank.
    pub batch: usize,
    /// T, tokens in a sequence; if absent, that of the checkpoint for a resumed run, or else the size's context. A
    /// model of random weights gets this context; with `init`, sequences may be shorter than the model's context.
    pub context: Option<usize>,
    /// Batches whose gradients are added for one step.
    pub accumulate: usize,
    /// Peak learning rate.
    pub lr: f64,
    /// Learning rate at the end, as a part of the peak.
    pub final_lr: f64,
    /// Steps until the peak.
    pub warmup: u64,
    /// The optimizer.
    pub optimizer: OptimizerSettings,
    /// Probability of dropping a value.
    pub dropout: f64,
    /// Seed of the weights, the order of the data and dropout.
    pub seed: u64,
    /// What the backward pass computes again. The numbers of a run are the same whatever it is.
    pub activation_checkpointing: ActivationCheckpointing,
    /// What of the logits exists at a time. If absent, all of them, unless the step does not fit into the limit of
    /// `compile` or the free memory of its device: then those of a chunk of positions.
    pub logits: Option<Logits>,
    /// Steps between validation losses; one is also computed at the end. 0 computes only that one.
    pub evaluate_every: u64,
    /// Validation batches.
    pub evaluate_batches: usize,
    /// Steps between checkpoints; one is also written at the end. 0 writes only that one.
    pub save_every: u64,
    /// Steps between lines of progress; one is also told of the first and of the last step.
    pub log_every: u64,
    /// Floating-point operations that the device does in a second at most, for the part of it that a run uses; that of
    /// a known device if absent.
    pub peak_flops: Option<f64>,
    /// How many checkpoints are kept, the newest included, at least 1.
    pub keep: usize,
    /// What happens where a loss or gradients are not finite.
    pub nonfinite: OnNonFinite,
    /// Whether weights that are not finite are taken from `init` or a checkpoint.
    pub allow_nonfinite: bool,
    /// Steps between samples of text, for the report; one is also made at the end. 0 makes only that one.
    pub sample_every: u64,
    /// Tokens of a sample of text.
    pub sample_tokens: usize,
    /// The prompt of samples of text.
    pub prompt: String,
    /// Folder for the checkpoint, the traces, the metrics and the report.
    pub out: PathBuf,
    /// Whether one more step is timed symbol by symbol at the end, for `profile.json` in `out`. The checkpoint is not
    /// changed.
    pub profile: bool,
    /// Continue from the checkpoint in `out`.
    pub resume: bool,
    /// Start anew even though `out` holds a checkpoint, and replace it. Without this and `resume`, such a folder is
    /// refused.
    pub overwrite: bool,
    /// The name of the run, which its checkpoints note: a launcher that starts a run again knows them by it.
    pub name: Option<String>,
    /// How the ranks that run ([`fulgurite_kernels::ranks`]) divide the work. With one rank it means nothing.
    pub strategy: Strategy,
    /// What ranks with parts of the state write; each its part if absent. With one rank, or `ddp`, one rank writes all.
    pub state_dict: Option<StateDict>,
    /// The element types of parameters and products.
    pub precision: Precision,
    /// How it is compiled; what `precision` says of it, `precision` sets.
    pub compile: Options,
    /// Once it is set the run ends after the step at hand, with a checkpoint and its traces.
    pub stop: Option<Arc<AtomicBool>>,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainReport {
    /// Steps done, those before a resumption included.
    pub steps: u64,
    /// Whether [`TrainOptions::stop`] ended it before its end: steps, validation, sample or profile are missing.
    pub stopped: bool,
    /// Training loss of each step of this run; empty if the checkpoint had them all.
    pub losses: Vec<f64>,
    /// Validation loss at the end; none if there was nothing to do.
    pub validation_loss: Option<f64>,
    /// The share of right answers in the validation batches at the end, of a model that tells it.
    pub accuracy: Option<f64>,
    /// Tokens a second, or images, compilation left out; 0 for fewer than two steps.
    pub tokens_per_second: f64,
    /// Text sampled at the end; empty if there was nothing to do.
    pub sample: String,
    /// The checkpoint.
    pub checkpoint: PathBuf,
    /// The folder of traces.
    pub traces: PathBuf,
    /// Steps of this run whose update was left out ([`OnNonFinite::Skip`]).
    pub skipped: u64,
    /// How often the step was compiled.
    pub compiles: usize,
}

impl TrainOptions {
    /// The learning rate of each step.
    pub(crate) fn schedule(&self) -> Schedule {
        Schedule { peak: self.lr, floor: self.lr * self.final_lr, warmup_steps: self.warmup, total_steps: self.steps }
    }

    /// Where the steps run.
    pub(crate) fn device(&self) -> Device {
        self.compile.device.unwrap_or(Device::CPU)
    }

    /// Tokens of a step of sequences of `context`, of all ranks.
    ///
    /// # Errors
    /// More than are countable.
    pub(crate) fn tokens_of_step(&self, context: usize) -> Result<usize> {
        let product = self.batch.checked_mul(self.ranks()).and_then(|rows| rows.checked_mul(context));
        let product = product.and_then(|tokens| tokens.checked_mul(self.accumulate));
        // Ids of 8 bytes: what no memory holds is not asked for.
        product.filter(|tokens| *tokens <= isize::MAX as usize / 8).ok_or_else(|| {
            let (batch, accumulate) = (self.batch, self.accumulate);
            let message = format!("is {batch}, times {context} tokens a sequence, times accumulate, {accumulate}");
            wrong("batch", format!("{message}: more tokens a step than can be counted"))
        })
    }
}
