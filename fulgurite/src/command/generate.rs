//! `generate`: continues a prompt with a trained model. The sampling itself is `fulgurite::models::generate`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use fulgurite::models::Tokenizer;
use fulgurite::models::generate::generate;
use fulgurite::models::sampling::Sampling;
use fulgurite::models::weight_files::{load, load_unchecked};

use super::outcome::{Failed, Outcome};
use super::output::{say, write};

/// Arguments of `generate`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  fulgurite generate runs/nano/checkpoint.safetensors --prompt 'ROMEO:' --tokens 200
  fulgurite generate runs/nano/checkpoint.safetensors --temperature 0
  fulgurite generate gpt2_124M.bin --prompt 'The glass'")]
pub struct Arguments {
    /// The checkpoint of a training run, or of llm.c, or safetensors under Hugging Face's names; the folder or the
    /// index of a llama of several files.
    checkpoint: PathBuf,
    /// gpt2 or bytes; the checkpoint's own, or for a GPT-2 the largest that the vocabulary has room for, otherwise.
    #[arg(long)]
    tokenizer: Option<String>,
    /// The text to continue.
    #[arg(long, default_value = "\n")]
    prompt: String,
    /// Number of tokens to generate.
    #[arg(long, default_value_t = 200)]
    tokens: usize,
    /// Logits are divided by it; 0 takes the most probable token.
    #[arg(long, default_value_t = Sampling::default().temperature, allow_negative_numbers = true)]
    temperature: f64,
    /// Draws only from this number of most probable tokens; 0 draws from all.
    #[arg(long, default_value_t = 40)]
    top_k: usize,
    /// Accepts weights that are not finite.
    #[arg(long)]
    allow_nonfinite: bool,
    /// Seed of the draws.
    #[arg(long, default_value_t = Sampling::default().seed)]
    seed: u64,
}

/// Continues a prompt.
pub fn run(arguments: &Arguments) -> Outcome {
    // Errors of weights name the file.
    let failed = |error: &dyn std::fmt::Display| Failed(error.to_string());
    let load = if arguments.allow_nonfinite { load_unchecked } else { load };
    let loaded = load(&arguments.checkpoint, None).map_err(|error| failed(&error))?;
    let tokenizer = match &arguments.tokenizer {
        Some(name) => {
            let given = Tokenizer::from_name(name).map_err(|error| failed(&error))?;
            // Where the file says with which tokenizer its model was trained, with another one it would talk nonsense.
            if let Some(own) = loaded.tokenizer.as_deref().filter(|own| *own != given.name()) {
                let message = format!("the model was trained with the tokenizer '{own}', got '{name}'");
                return Err(Failed::file(&arguments.checkpoint, message));
            }
            given
        }
        None => loaded.tokenizer().map_err(|error| Failed::file(&arguments.checkpoint, error))?,
    };
    let config = loaded.weights.config();
    let params = loaded.weights.params()?;
    let sampling = Sampling {
        temperature: arguments.temperature,
        top_k: (arguments.top_k > 0).then_some(arguments.top_k),
        seed: arguments.seed,
        ..Sampling::default()
    };
    let mut broken = write(format_args!("{}", arguments.prompt)).err();
    generate(config, tokenizer, &params, &arguments.prompt, arguments.tokens, sampling, &mut |piece| {
        if let Err(failed) = write(format_args!("{piece}")) {
            broken.get_or_insert(failed);
        }
    })?;
    say!("")?;
    broken.map_or(Ok(ExitCode::SUCCESS), Err)
}
