//! `train`: the options of a training run on the command line. The run itself is `fulgurite::models::train`.

mod config;

use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Subcommand};
use fulgurite::models::Family;
use fulgurite::models::checkpoint::OptimizerSettings;
use fulgurite::models::precision::{compute_dtype, rounded_to_tf32};
use fulgurite::models::train::{OnNonFinite, TrainError, TrainOptions, train};
use fulgurite::{DType, Device};

use super::outcome::{Failed, Outcome};
use super::output::{complain, say};
use super::{files, options};

/// What the help of every family says first.
macro_rules! rules {
    () => {
        "\
The folder gets checkpoint.safetensors, the traces of the compiled step after every stage, and metrics.csv and
metrics.svg: loss, learning rate, gradient norm, tokens/s, MFU, time and memory of each step. A folder that holds a
checkpoint is left alone unless --resume or --overwrite is given. The checkpoint before the newest is kept as
checkpoint-STEP.safetensors (--keep); --resume takes the newest good one. A run whose loss, gradients or weights are not
finite stops with exit code 3 and names step and parameter; what it saved stays as it is. Ctrl-C ends the run after the
step at hand, with a checkpoint and exit code 130; a second one ends it at once.

Examples:
"
    };
}

/// A family of models.
#[derive(Subcommand)]
pub enum Model {
    /// Trains a GPT-2; the defaults are random weights and tinyshakespeare.
    Gpt2(Box<Gpt2>),
    /// Trains a Llama or one of its relatives; the defaults are random weights and tinyshakespeare.
    Llama(Box<Llama>),
}

/// Arguments of `train gpt2`.
#[derive(Args)]
#[command(after_help = concat!(rules!(), "\
  fulgurite train gpt2 --size nano --steps 300 --out runs/nano
  fulgurite train gpt2 --size micro --tokenizer gpt2 --data text.txt --batch 8 --accumulate 4 --out runs/micro
  fulgurite train gpt2 --init gpt2_124M.bin --data 'shards/*_train.bin' --validation shards/tiny_shakespeare_val.bin
  fulgurite train gpt2 --size nano --steps 600 --out runs/nano --resume
  fulgurite train gpt2 --dtype bf16 --device cuda --size 124M --tokenizer gpt2"))]
pub struct Gpt2 {
    /// nano, micro, mini, small, 124M, 355M, 774M or 1558M.
    #[arg(long, default_value = "micro", conflicts_with = "init")]
    size: String,
    /// Probability of dropping a value.
    #[arg(long, default_value_t = 0.0)]
    dropout: f64,
    #[command(flatten)]
    run: Run,
}

/// Arguments of `train llama`.
#[derive(Args)]
#[command(after_help = concat!(rules!(), "\
  fulgurite train llama --size nano --steps 300 --out runs/llama
  fulgurite train llama --size nano --set n_layer=1 --set mlp_class_name=GemmaMLP
  fulgurite train llama --size TinyLlama-1.1B --set n_layer=2 --context 128 --device cuda --dtype bf16
  fulgurite train llama --config tinyllama.yaml --steps 100"))]
pub struct Llama {
    /// nano, micro, mini, or a published model: Llama-2-7b, Llama-3.2-1B, TinyLlama-1.1B, Mistral-7B, Mixtral-8x7B,
    /// Qwen2.5-0.5B, Qwen3-0.6B, Gemma-2b, Gemma-2-2b, pythia-70m, ... (a name that is not known lists all).
    #[arg(long, default_value = "nano", conflicts_with = "init")]
    size: String,
    /// Replaces a field of the configuration, whose names are LitGPT's: `n_layer=1`. May be given several times.
    #[arg(long, value_name = "FIELD=VALUE", conflicts_with = "init")]
    set: Vec<String>,
    /// A YAML file with LitGPT's keys (`train: {max_steps: 100}`, `optimizer`, `precision`, ...). Options of the
    /// command line come before it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    run: Run,
}

/// What all families have in common.
#[derive(Args)]
struct Run {
    /// Weights to start from, and the size with them: a checkpoint, llm.c's .bin, or Hugging Face's safetensors.
    #[arg(long, value_name = "FILE")]
    init: Option<PathBuf>,
    /// gpt2 or bytes; that of --init, or else bytes, otherwise.
    #[arg(long)]
    tokenizer: Option<String>,
    /// Text files, or llm.c's shards of tokens, as names or patterns; tinyshakespeare otherwise.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    data: Vec<PathBuf>,
    /// Files to validate with; the last tenth of the data otherwise.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    validation: Vec<PathBuf>,
    /// Optimizer steps in all, those of a resumed run included.
    #[arg(long, default_value_t = 1500)]
    steps: u64,
    /// Sequences in a batch.
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Tokens in a sequence; the size's own otherwise.
    #[arg(long)]
    context: Option<usize>,
    /// Batches whose gradients are added for one step.
    #[arg(long, default_value_t = 1)]
    accumulate: usize,
    /// Peak learning rate.
    #[arg(long, default_value_t = 1e-3)]
    lr: f64,
    /// Learning rate at the end, as a part of the peak.
    #[arg(long, default_value_t = 0.1)]
    final_lr: f64,
    /// Steps until the peak; a tenth of all steps, 100 at most, otherwise.
    #[arg(long)]
    warmup: Option<u64>,
    /// Decay of the mean of gradients.
    #[arg(long, default_value_t = OptimizerSettings::default().beta1)]
    beta1: f64,
    /// Decay of the mean of squared gradients.
    #[arg(long, default_value_t = OptimizerSettings::default().beta2)]
    beta2: f64,
    /// Added to the root of the mean of squared gradients.
    #[arg(long, default_value_t = OptimizerSettings::default().epsilon)]
    epsilon: f64,
    /// Decoupled weight decay of matrices.
    #[arg(long, default_value_t = OptimizerSettings::default().weight_decay)]
    weight_decay: f64,
    /// The largest norm of the gradients; 0 is no limit.
    #[arg(long, default_value_t = 1.0)]
    clip: f64,
    /// Seed of the weights, the order of the data and dropout.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Steps between validation losses; one is also computed at the end. 0 computes only that one.
    #[arg(long, default_value_t = 0, value_name = "STEPS")]
    evaluate_every: u64,
    /// Validation batches.
    #[arg(long, default_value_t = 10, value_name = "BATCHES")]
    evaluate_batches: usize,
    /// Steps between checkpoints; one is also written at the end. 0 writes only that one.
    #[arg(long, default_value_t = 0, value_name = "STEPS")]
    save_every: u64,
    /// Steps between lines of progress.
    #[arg(long, default_value_t = 10, value_name = "STEPS")]
    log_every: u64,
    /// What the device does at most, in 10^12 floating-point operations a second, for the part of it that the run uses
    /// (MFU); that of NVIDIA's data sheet otherwise, for the devices in a list.
    #[arg(long, value_name = "NUMBER")]
    peak_tflops: Option<f64>,
    /// How many checkpoints are kept, the newest included.
    #[arg(long, default_value_t = 2, value_name = "COUNT")]
    keep: usize,
    /// Where a loss or gradients are not finite: `stop` ends the run with exit code 3, `skip` leaves that step's update
    /// out (20 in a row end the run).
    #[arg(long, default_value = "stop", value_parser = ["stop", "skip"], value_name = "WHAT")]
    nonfinite: String,
    /// Accepts weights that are not finite from --init or a checkpoint.
    #[arg(long)]
    allow_nonfinite: bool,
    /// Tokens of sample text at the end.
    #[arg(long, default_value_t = 100, value_name = "TOKENS")]
    sample_tokens: usize,
    /// The beginning of the sample text.
    #[arg(long, default_value = "\n")]
    prompt: String,
    /// The folder for the checkpoint and the traces; `runs/` and the family otherwise.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Writes where one step's time goes to profile.json in the folder (for Perfetto), and prints it as a table.
    #[arg(long)]
    profile: bool,
    /// Continues from the checkpoint in the folder.
    #[arg(long)]
    resume: bool,
    /// Starts anew although the folder holds a checkpoint, and replaces it.
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    /// Where it runs: cpu, cuda, cuda:1, ..., or auto for the first device that is available.
    #[arg(long, default_value = "cpu", value_name = "DEVICE", value_parser = Device::named)]
    device: Device,
    /// Arithmetic of products: f32 (IEEE), bf16 (autocast: operands in bf16, weights and moments in f32), or tf32 on
    /// CUDA (operands rounded to 10 bits of fraction).
    #[arg(long, default_value = "f32", value_parser = ["f32", "bf16", "tf32"])]
    dtype: String,
    #[command(flatten)]
    activations: options::Activations,
    #[command(flatten)]
    compile: options::Compile,
}

impl Model {
    /// The family, the size and its replaced fields, the dropout, and the rest.
    fn parts(&self) -> (Family, &str, &[String], f64, &Run) {
        match self {
            Model::Gpt2(of) => (Family::Gpt2, &of.size, &[], of.dropout, &of.run),
            Model::Llama(of) => (Family::Llama, &of.size, &of.set, 0.0, &of.run),
        }
    }
}

/// Trains a model; `given` is whether an option is on the command line, by its name here.
pub fn run(mut model: Model, given: &dyn Fn(&str) -> bool) -> Outcome {
    if let Model::Llama(of) = &mut model
        && let Some(path) = of.config.clone()
    {
        config::apply(&path, of, given)?;
    }
    let (family, size, set, dropout, of) = model.parts();
    let mut compile = of.compile.options()?;
    if !of.device.is_cpu() {
        compile.device = Some(of.device);
        // The limit is the host's memory; a device says itself what it lacks.
        compile.memory_limit = None;
    }
    compile.autocast = (of.dtype == "bf16").then_some(DType::BF16);
    if of.dtype == "tf32" {
        let kind = of.device.kind();
        let list = rounded_to_tf32(&compile.executor_list(kind));
        if compute_dtype(None, Some(&list)) != of.dtype {
            return Err(Failed(format!(
                "no executor of the list computes products of f32 in tf32; the device is {}",
                of.device
            )));
        }
        compile.executors = Some(list);
    }
    let options = TrainOptions {
        family,
        size: size.to_owned(),
        set: set.to_vec(),
        tokenizer: of.tokenizer.clone(),
        init: of.init.clone(),
        data: files::matching(&of.data)?,
        validation: files::matching(&of.validation)?,
        steps: of.steps,
        batch: of.batch,
        context: of.context,
        accumulate: of.accumulate,
        lr: of.lr,
        final_lr: of.final_lr,
        warmup: of.warmup.unwrap_or_else(|| (of.steps / 10).min(100)),
        optimizer: OptimizerSettings {
            beta1: of.beta1,
            beta2: of.beta2,
            epsilon: of.epsilon,
            weight_decay: of.weight_decay,
            clip: (of.clip != 0.0).then_some(of.clip),
        },
        dropout,
        seed: of.seed,
        activation_checkpointing: of.activations.checkpointing(),
        evaluate_every: of.evaluate_every,
        evaluate_batches: of.evaluate_batches,
        save_every: of.save_every,
        log_every: of.log_every,
        peak_flops: of.peak_tflops.map(|tera| tera * 1e12),
        keep: of.keep,
        nonfinite: if of.nonfinite == "skip" { OnNonFinite::Skip } else { OnNonFinite::Stop },
        allow_nonfinite: of.allow_nonfinite,
        sample_tokens: of.sample_tokens,
        prompt: of.prompt.clone(),
        out: of.out.clone().unwrap_or_else(|| PathBuf::from(format!("runs/{family}"))),
        profile: of.profile,
        resume: of.resume,
        overwrite: of.overwrite,
        compile,
        stop: Some(stop_when_interrupted()?),
    };
    let mut broken = None;
    let trained = train(&options, stderr().is_terminal(), &mut |line| {
        if let Err(failed) = say!("{line}") {
            broken.get_or_insert(failed);
        }
    });
    let report = match trained {
        Ok(report) => report,
        Err(TrainError::Failed(error)) => return Err(error.into()),
        Err(TrainError::Diverged(divergence)) => {
            complain(&divergence.to_string());
            return Ok(ExitCode::from(DIVERGED));
        }
    };
    broken.map_or(Ok(if report.stopped { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS }), Err)
}

/// The exit code of a run whose numbers were no longer finite.
const DIVERGED: u8 = 3;

/// The exit code of what an interruption ended.
const INTERRUPTED: u8 = 130;

/// Is set by the first Ctrl-C, so that the run ends with a checkpoint; the second ends it at once.
fn stop_when_interrupted() -> Result<Arc<AtomicBool>, Failed> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    ctrlc::set_handler(move || {
        if asked.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
        let _ = writeln!(stderr(), "stopping after this step with a checkpoint; once more stops at once");
    })
    .map_err(|error| Failed(format!("interruptions cannot be listened to: {error}")))?;
    Ok(stop)
}
