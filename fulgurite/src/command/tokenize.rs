//! `tokenize`: text to shards of tokens. How is `fulgurite::models::documents`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use fulgurite::models::Tokenizer;
use fulgurite::models::corpus::{TINY_SHAKESPEARE, read_text};
use fulgurite::models::documents::tokens_of_documents;
use fulgurite::models::llmc::{LlmcTokenizer, Shard};

use super::outcome::{Failed, Outcome};
use super::output::say;

/// Arguments of `tokenize`.
#[derive(Args)]
#[command(after_help = "\
The text is cut into documents at blank lines, each begins with the end-of-text token, and the first tokens are set apart for
validation: as llm.c prepares tinyshakespeare. The folder gets NAME_val.bin and NAME_train.bin.

Examples:
  fulgurite tokenize --out shards/
  fulgurite tokenize --data book.txt --out shards/ --validation-tokens 10000
  fulgurite train gpt2 --tokenizer gpt2 --data 'shards/*_train.bin' --validation shards/tiny_shakespeare_val.bin")]
pub struct Arguments {
    /// A text file; tinyshakespeare otherwise.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// The folder for the shards.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// gpt2 or bytes (which has no end-of-text token).
    #[arg(long, default_value = "gpt2")]
    tokenizer: String,
    /// Tokens set apart for validation.
    #[arg(long, default_value_t = 32_768, value_name = "TOKENS")]
    validation_tokens: usize,
    /// Writes the tokenizer's vocabulary to the folder as well, as llm.c reads it: gpt2_tokenizer.bin.
    #[arg(long)]
    vocabulary: bool,
}

/// Writes the shards.
pub fn run(arguments: &Arguments) -> Outcome {
    // Errors name the file.
    let failed = |error: &dyn std::fmt::Display| Failed(error.to_string());
    let tokenizer = Tokenizer::open(&arguments.tokenizer).map_err(|error| failed(&error))?;
    let (name, text) = match &arguments.data {
        Some(path) => {
            let name = path.file_stem().map_or("text".into(), |stem| stem.to_string_lossy());
            (name.into_owned(), read_text(path).map_err(|error| failed(&error))?)
        }
        None => ("tiny_shakespeare".to_owned(), TINY_SHAKESPEARE.to_owned()),
    };
    let tokens = tokens_of_documents(&text, &tokenizer).map_err(|error| failed(&error))?;
    let held = arguments.validation_tokens;
    if held == 0 || held >= tokens.len() {
        let message = format!("is {held}, expected 1 to {}: the text has {} tokens", tokens.len() - 1, tokens.len());
        return Err(Failed(format!("--validation-tokens {message}")));
    }
    std::fs::create_dir_all(&arguments.out).map_err(|error| Failed::file(&arguments.out, error))?;
    let (validation, train) = tokens.split_at(held);
    for (part, tokens) in [("val", validation), ("train", train)] {
        let path = arguments.out.join(format!("{name}_{part}.bin"));
        Shard::save(&path, tokens).map_err(|error| failed(&error))?;
        say!("{}: {} tokens", path.display(), tokens.len())?;
    }
    if arguments.vocabulary {
        let path = arguments.out.join(format!("{}_tokenizer.bin", tokenizer.name()));
        let vocabulary = LlmcTokenizer::of(&tokenizer).map_err(|error| failed(&error))?;
        vocabulary.save(&path).map_err(|error| failed(&error))?;
        say!("{}: {} token ids", path.display(), vocabulary.vocabulary())?;
    }
    Ok(ExitCode::SUCCESS)
}
