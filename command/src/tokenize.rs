//! `tokenize`: text to shards of tokens. How is `fulgurite_models::documents`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use fulgurite_models::Tokenizer;
use fulgurite_models::corpus::{TINY_SHAKESPEARE, read_text};
use fulgurite_models::documents::tokens_of_documents;
use fulgurite_models::llmc::{LlmcTokenizer, Shard};

use super::files;
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
  fulgurite tokenize --headerless old/tiny_shakespeare_val.bin --out shards/
  fulgurite train gpt2 --tokenizer gpt2 --data 'shards/*_train.bin' --validation shards/tiny_shakespeare_val.bin")]
pub struct Arguments {
    /// A text file; tinyshakespeare otherwise.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Files of llm.c's first version, 32 bits a token without a header, each of which becomes a shard of its name in
    /// the folder; nothing is tokenized.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["data", "vocabulary"])]
    headerless: Vec<PathBuf>,
    /// The folder for the shards.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// gpt2, bytes (which has no end-of-text token), or a file (tokenizer.json, SentencePiece's tokenizer.model, a
    /// GGUF, vocab.json with merges.txt beside it) or its folder.
    #[arg(long, default_value = "gpt2", value_name = "NAME")]
    tokenizer: String,
    /// Tokens set apart for validation.
    #[arg(long, default_value_t = 32_768, value_name = "TOKENS")]
    validation_tokens: usize,
    /// Writes the vocabulary of gpt2 to the folder as well, as llm.c reads it: gpt2_tokenizer.bin.
    #[arg(long)]
    vocabulary: bool,
}

/// Writes the shards.
pub fn run(arguments: &Arguments) -> Outcome {
    // Errors name the file.
    let failed = |error: &dyn std::fmt::Display| Failed(error.to_string());
    if !arguments.headerless.is_empty() {
        return with_headers(arguments);
    }
    let tokenizer = Tokenizer::open(&arguments.tokenizer).map_err(|error| failed(&error))?;
    // What cannot be is told before anything is written.
    let vocabulary = arguments.vocabulary.then(|| LlmcTokenizer::of(&tokenizer)).transpose();
    let vocabulary = vocabulary.map_err(|error| Failed(format!("--vocabulary: {error}")))?;
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
        let message = format!(
            "is {held}, expected 1 to {}: the text has {} tokens",
            tokens.len().saturating_sub(1),
            tokens.len()
        );
        return Err(Failed(format!("--validation-tokens {message}")));
    }
    std::fs::create_dir_all(&arguments.out).map_err(|error| Failed::file(&arguments.out, error))?;
    let (validation, train) = tokens.split_at(held);
    for (part, tokens) in [("val", validation), ("train", train)] {
        let path = arguments.out.join(format!("{name}_{part}.bin"));
        Shard::save(&path, tokens).map_err(|error| failed(&error))?;
        say!("{}: {} tokens", path.display(), tokens.len())?;
    }
    if let Some(vocabulary) = vocabulary {
        let path = arguments.out.join(format!("{}_tokenizer.bin", tokenizer.name()));
        vocabulary.save(&path).map_err(|error| failed(&error))?;
        say!("{}: {} token ids", path.display(), vocabulary.vocabulary())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the tokens of files without a header as shards.
fn with_headers(arguments: &Arguments) -> Outcome {
    std::fs::create_dir_all(&arguments.out).map_err(|error| Failed::file(&arguments.out, error))?;
    for from in files::matching(&arguments.headerless)? {
        let tokens = Shard::read_headerless(&from).map_err(|error| Failed(error.to_string()))?;
        let name = from.file_name().ok_or_else(|| Failed::file(&from, "is no file"))?;
        let to = arguments.out.join(name);
        if to.canonicalize().ok().is_some_and(|to| from.canonicalize().is_ok_and(|from| from == to)) {
            return Err(Failed::file(&from, "would be replaced by its shard, choose another folder (--out)"));
        }
        Shard::save(&to, &tokens).map_err(|error| Failed(error.to_string()))?;
        say!("{}: {} tokens", to.display(), tokens.len())?;
    }
    Ok(ExitCode::SUCCESS)
}
