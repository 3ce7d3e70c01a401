//! `convert`: the weights of a model from one format to another. The formats are `fulgurite_models::weight_files`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use fulgurite_models::hugging_face::Names;
use fulgurite_models::tokenizer_copy;
use fulgurite_models::tokenizer_file::TokenizerFile;
use fulgurite_models::weight_files::{Format, Shards, load, load_unchecked, save, save_sharded};
use fulgurite_models::{Family, Model, Tokenizer};

use super::files;
use super::outcome::{Failed, Outcome};
use super::output::{note, say, warn};

/// Arguments of `convert`.
#[derive(Args)]
#[command(after_help = "\
Formats:
  checkpoint   a training run's; written at step 0, to sample from or to start a run with
  llmc         llm.c's checkpoint in f32 (version 3)
  llmc-bf16    llm.c's checkpoint in bf16 (version 5), rounded to the nearest
  llmc-v1      llm.c's checkpoint in f32 without padding (version 1)
  huggingface  safetensors under the names of transformers' models, with config.json and the files of the tokenizer
  litgpt       torch.save's format under LitGPT's names, lit_model.pth, with model_config.yaml beside it; a llama alone

What is read is told by its content, not by its name: a file of any of these formats; a file of torch.save (.pth, .pt,
.bin) under the names of huggingface or litgpt, as a dictionary of tensors or with one as `model` or `state_dict`; an
index of several files, model.safetensors.index.json or pytorch_model.bin.index.json; the folder of such files; the
folder of a run, which stands for its newest checkpoint. `_orig_mod.`, `module.` and what other wrappers put into the
names of a torch file or an index are left out. Only weights are converted; a checkpoint's optimizer state and position
in the data are dropped.

Examples:
  fulgurite convert runs/nano/checkpoint.safetensors nano.bin
  fulgurite convert nano.bin nano_bf16.bin --to llmc-bf16
  fulgurite convert gpt2/model.safetensors gpt2_124M.bin
  fulgurite convert gpt2_124M.bin gpt2.safetensors --to checkpoint
  fulgurite convert checkpoints/tiny-llama-1.1b/ tiny/model.safetensors     # LitGPT to Hugging Face
  fulgurite convert TinyLlama-1.1B/ tiny/lit_model.pth                      # and back")]
pub struct Arguments {
    /// The file to read, or the folder or the index of several.
    from_file: PathBuf,
    /// The file to write.
    to_file: PathBuf,
    /// The format of the file; the default is detected from its content.
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,
    /// The format to write; otherwise llmc for a name that ends in .bin, huggingface for .safetensors, litgpt for .pth.
    #[arg(long, value_name = "FORMAT", value_parser = written)]
    to: Option<Format>,
    /// Attention heads, for a huggingface file without config.json whose metadata does not say them.
    #[arg(long, value_name = "COUNT")]
    heads: Option<usize>,
    /// The tokenizer that a checkpoint gets: gpt2, bytes, or a file (tokenizer.json, SentencePiece's tokenizer.model, a
    /// GGUF, vocab.json with merges.txt beside it) or its folder; the file's own, or the largest that the vocabulary
    /// has room for, otherwise.
    #[arg(long)]
    tokenizer: Option<String>,
    /// Accepts weights that are not finite.
    #[arg(long)]
    allow_nonfinite: bool,
    /// Writes a llama under huggingface's names as several files of at most so many bytes (2GB, 500MB, 1000000), with
    /// an index: NAME-00001-of-00003.safetensors and NAME.safetensors.index.json.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    max_shard_size: Option<u64>,
    /// Writes `transformer.` before the names of huggingface, as GPT2LMHeadModel saves itself.
    #[arg(long)]
    prefix: bool,
}

/// A format that is written.
fn written(name: &str) -> Result<Format, String> {
    match name.parse::<Format>().map_err(|error| error.to_string())? {
        Format::Gguf => {
            let names = Format::ALL.map(Format::name).join(", ");
            Err(format!("gguf is read, and not written, expected one of {names}"))
        }
        format => Ok(format),
    }
}

/// Whether there is a file whose ending is none of files of weights: config.json beside the weights, say, or metrics.
fn is_no_model(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let of_weights = ["safetensors", "bin", "pth", "pt", "ckpt", "gguf"];
    path.is_file() && ending.is_some_and(|ending| !of_weights.contains(&&*ending))
}

/// A number of bytes, with or without a unit of 1000: `500MB`.
fn bytes(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &*text[end..].to_ascii_uppercase() {
        "" | "B" => Some(1),
        "KB" => Some(1_000),
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        _ => None,
    };
    let number: Option<u64> = text[..end].parse().ok().filter(|number| *number > 0);
    let size = number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    size.ok_or_else(|| "expected a size above 0, such as 2GB, 500MB or 1000000".into())
}

/// Converts a file.
pub fn run(arguments: &Arguments) -> Outcome {
    // Errors name the file.
    let failed = |error: &dyn std::fmt::Display| Failed(error.to_string());
    let to = match arguments.to {
        Some(format) => format,
        None => Format::of_name(&arguments.to_file).map_err(|error| Failed(format!("{error} (--to)")))?,
    };
    files::differ_from_all(&arguments.from_file, &arguments.to_file)?;
    if is_no_model(&arguments.to_file) {
        return Err(Failed::file(&arguments.to_file, "is there already, and is no file of weights by its name"));
    }
    let load = if arguments.allow_nonfinite { load_unchecked } else { load };
    let loaded = load(&arguments.from_file, arguments.heads).map_err(|error| failed(&error))?;
    if let Some(expected) = arguments.from.filter(|expected| *expected != loaded.format) {
        let message = format!("is in the format {}, not {expected}", loaded.format);
        return Err(Failed::file(&arguments.from_file, message));
    }
    let tokenizer = match (&arguments.tokenizer, to) {
        (Some(name), _) => Tokenizer::open(name).map_err(|error| failed(&error))?,
        (None, Format::Checkpoint) => loaded.tokenizer().map_err(|error| failed(&error))?,
        // No other format says.
        (None, _) => Tokenizer::bytes(),
    };
    let from = loaded.format;
    let config = loaded.weights.config();
    for (given, option) in [(arguments.heads.is_some(), "--heads"), (arguments.prefix, "--prefix")] {
        if given && config.family() == Family::Llama {
            let message = format!("holds a llama, {option} is of files of gpt2 alone");
            return Err(Failed::file(&arguments.from_file, message));
        }
    }
    if arguments.heads.is_some() && from != Format::HuggingFace {
        let message =
            format!("is in the format {from}, which says its number of heads; --heads is of huggingface alone");
        return Err(Failed::file(&arguments.from_file, message));
    }
    let ([layers, heads, channels], context, vocabulary) = (config.sizes(), config.context(), config.vocabulary());
    if let Some(folder) = arguments.to_file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| Failed::file(folder, error))?;
    }
    // The files of the tokenizer before any weights: another one that is there is an error.
    let beside = arguments.to_file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let of_tokenizer = loaded.tokenizer_folder(&arguments.from_file).filter(|_| to == Format::HuggingFace);
    if let Some(folder) = &of_tokenizer {
        tokenizer_copy::copy(folder, beside).map_err(|error| failed(&error))?;
    }
    let own = loaded.tokenizer_file.as_ref().filter(|file| **file == arguments.from_file && to == Format::HuggingFace);
    if let Some(file) = own {
        // A tokenizer that is not read does not keep the weights from being written.
        match TokenizerFile::load(file) {
            Ok(tokenizer) => tokenizer.copy_to(beside, false).map_err(|error| failed(&error))?,
            Err(error) => warn(&format!("no tokenizer is written: {error}")),
        }
    }
    let ids_copied = || match &of_tokenizer {
        Some(folder) => tokenizer_copy::copy_ids(folder, beside).map_err(|error| failed(&error)),
        None => Ok(()),
    };
    let names = if arguments.prefix { Names::Prefixed } else { Names::Plain };
    if let Some(most) = arguments.max_shard_size {
        if to != Format::HuggingFace {
            return Err(Failed(format!("--max-shard-size is of files in the format huggingface, not {to}")));
        }
        let Shards { index, files, oversized } =
            save_sharded(loaded.weights, most, &arguments.to_file).map_err(|error| failed(&error))?;
        ids_copied()?;
        if let Some((name, bytes)) = oversized {
            note(&format!(
                "'{name}' has {bytes} bytes, more than --max-shard-size, {most}: such a tensor has a file of its own"
            ));
        }
        say!("{}: {from} to {to}, {files} files", index.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    save(loaded.weights, to, &tokenizer, names, &arguments.to_file).map_err(|error| failed(&error))?;
    ids_copied()?;
    say!(
        "{}: {from} to {to}, {layers} layers, {heads} heads, {channels} channels, context {context}, vocabulary \
         {vocabulary}",
        arguments.to_file.display(),
    )?;
    Ok(ExitCode::SUCCESS)
}
