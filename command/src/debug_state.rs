//! `debug-state`: logits, loss and gradients of one batch, as llm.c's tests compare with.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use fulgurite::Device;
use fulgurite_models::llmc::{DebugState, padded_vocabulary};
use fulgurite_models::weight_files::load;
use fulgurite_models::weights::FamilyWeights;
use fulgurite_models::{Tokenizer, Weights, debug, training_data};

use super::outcome::{Failed, Outcome};
use super::output::say;
use super::{files, options};

/// What is done with a debug state.
#[derive(Subcommand)]
pub enum State {
    /// Computes one with a GPT-2 and writes it.
    Write(Write),
    /// Compares what a GPT-2 computes with one, tensor by tensor; exits with 1 where they differ.
    Check(Check),
}

/// The model, and where it runs.
#[derive(Args)]
struct Model {
    /// Weights of a GPT-2: a checkpoint of a run, llm.c's .bin, or Hugging Face's safetensors.
    model: PathBuf,
    /// Where it runs: cpu, cuda, cuda:1, ..., or auto for the first device that is available.
    #[arg(long, default_value = "cpu", value_name = "DEVICE", value_parser = Device::named)]
    device: Device,
    #[command(flatten)]
    compile: options::Compile,
}

/// Arguments of `debug-state write`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  fulgurite debug-state write gpt2_124M.bin gpt2_124M_debug_state.bin --data shards/tiny_shakespeare_val.bin")]
pub struct Write {
    #[command(flatten)]
    model: Model,
    /// The file to write.
    out: PathBuf,
    /// Text files, or llm.c's shards, whose first tokens are the batch; tinyshakespeare otherwise.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    data: Vec<PathBuf>,
    /// gpt2, bytes, or a file (tokenizer.json, SentencePiece's tokenizer.model, a GGUF, vocab.json with merges.txt
    /// beside it) or its folder; that of the weights otherwise.
    #[arg(long)]
    tokenizer: Option<String>,
    /// Sequences in the batch.
    #[arg(long, default_value_t = 4)]
    batch: usize,
    /// Tokens in a sequence; 64 otherwise, or the model's context if that is less.
    #[arg(long)]
    context: Option<usize>,
    /// Writes version 1, without rows beyond the vocabulary, as the first llm.c did; version 2 otherwise.
    #[arg(long)]
    version_1: bool,
}

/// Arguments of `debug-state check`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  fulgurite debug-state check gpt2_124M.bin gpt2_124M_debug_state.bin
  fulgurite debug-state check gpt2_124M.bin gpt2_124M_debug_state.bin --device cuda --tolerance 1e-3")]
pub struct Check {
    #[command(flatten)]
    model: Model,
    /// The debug state, of version 1 or 2.
    state: PathBuf,
    /// The largest difference of two elements, as a part of the largest element of their tensor.
    #[arg(long, default_value_t = 1e-4, value_name = "PART", value_parser = options::tolerance)]
    tolerance: f64,
}

impl Model {
    fn weights(&self) -> Result<(Weights, Tokenizer), Failed> {
        let loaded = load(&self.model, None).map_err(|error| Failed(error.to_string()))?;
        // Another family's tokenizer is not asked for.
        let tokenizer = loaded.tokenizer();
        match loaded.weights.by_family() {
            FamilyWeights::Gpt2(weights) => Ok((weights, tokenizer.map_err(|error| Failed::file(&self.model, error))?)),
            FamilyWeights::Decoder(_) | FamilyWeights::Images(_) => {
                Err(Failed::file(&self.model, "holds a llama, and debug states are of gpt2 alone"))
            }
        }
    }

    fn compute(&self, weights: &Weights, shape: [usize; 2], batch: [Vec<i32>; 2]) -> Result<DebugState, Failed> {
        let options = self.compile.options_to_run_on(self.device)?;
        Ok(debug::state_of(weights, shape, batch, self.device, &options)?)
    }
}

/// Writes or compares a debug state.
pub fn run(state: &State) -> Outcome {
    match state {
        State::Write(arguments) => write(arguments),
        State::Check(arguments) => check(arguments),
    }
}

fn write(arguments: &Write) -> Outcome {
    files::differ(&arguments.model.model, &arguments.out)?;
    let (weights, own) = arguments.model.weights()?;
    let tokenizer = match &arguments.tokenizer {
        Some(name) => Tokenizer::open(name).map_err(|error| Failed(error.to_string()))?,
        None => own,
    };
    let data = files::matching(&arguments.data)?;
    let (tokens, _) = training_data::open(&data, &[], &tokenizer).map_err(|error| Failed(error.to_string()))?;
    let most = weights.config().context;
    let context = arguments.context.unwrap_or(most.min(64));
    if context > most {
        return Err(Failed(format!("--context is {context}, the model's is {most}")));
    }
    let shape = [arguments.batch, context];
    let batch = debug::first_batch(&tokens, arguments.batch, context)?;
    let state = arguments.model.compute(&weights, shape, batch)?;
    let saved = match arguments.version_1 {
        true => state.save_version_1(&arguments.out),
        false => state.save(&arguments.out, padded_vocabulary(weights.config().vocabulary)),
    };
    saved.map_err(|error| Failed(error.to_string()))?;
    say!("{}: {} sequences of {} tokens, loss {}", arguments.out.display(), shape[0], shape[1], state.loss)?;
    Ok(ExitCode::SUCCESS)
}

fn check(arguments: &Check) -> Outcome {
    let (weights, _) = arguments.model.weights()?;
    let config = weights.config();
    let expected = DebugState::load(&arguments.state, config, padded_vocabulary(config.vocabulary));
    let expected = expected.map_err(|error| Failed(error.to_string()))?;
    let batch = [expected.inputs.clone(), expected.targets.clone()];
    let found = arguments.model.compute(&weights, [expected.rows, expected.context], batch)?;
    let mut wrong = 0;
    for one in debug::compare(&found, &expected) {
        let (name, shape, part) = (&one.name, &one.shape, one.difference / one.largest.max(f64::MIN_POSITIVE));
        if one.within(arguments.tolerance) {
            say!("OK        {name} {shape:?}: off by at most {part:.1e} of the largest")?;
            continue;
        }
        wrong += 1;
        let ([found, expected], indices) = (one.values, one.indices());
        say!(
            "DIFFERENT {name} {shape:?}: off by {part:.1e} of the largest: {found} at {indices:?}, expected {expected}"
        )?;
    }
    let tolerance = arguments.tolerance;
    match wrong {
        0 => say!("OK: all tensors agree within {tolerance:.0e}")?,
        _ => say!("{wrong} tensors differ by more than {tolerance:.0e}")?,
    }
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
