//! `generate`: continues prompts with a trained model. How is `fulgurite_models::generate`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use fulgurite::compile::Options;
use fulgurite::device::DeviceState;
use fulgurite::{DType, Device};
use fulgurite_kernels::ranks::{mesh, place, rank};
use fulgurite_models::corpus::read_text;
use fulgurite_models::generate::{End, Request, generate};
use fulgurite_models::quantized::{Integers, Quantization};
use fulgurite_models::sampling::Sampling;
use fulgurite_models::tensor_parallel::{TENSOR, parts};
use fulgurite_models::weight_files::{Loaded, open};
use fulgurite_models::{Tokenizer, placed};

use super::options;
use super::outcome::{Failed, Outcome};
use super::output::{note, say, warn, write};
use super::train::ranks::{self, Place, Watch};

/// Arguments of `generate`.
#[derive(Args)]
#[command(after_help = "\
A text ends at the end-of-text tokens of the tokenizer, at those of --stop-token, where a text of --stop begins, after
--tokens, and when the cache is full. Special tokens in prompts, such as <|endoftext|>, are one token each.

Examples:
  fulgurite generate runs/nano/checkpoint.safetensors --prompt 'ROMEO:' --tokens 200
  fulgurite generate runs/nano/checkpoint.safetensors --temperature 0
  fulgurite generate gpt2_124M.bin --prompt 'The glass' --top-k 0 --top-p 0.9 --repetition-penalty 1.1
  fulgurite generate TinyLlama-1.1B/ --prompts questions.txt --stop $'\\n\\n'   # a folder of Hugging Face")]
pub struct Arguments {
    /// The checkpoint of a training run or of llm.c, a file under Hugging Face's or LitGPT's names, or the folder or
    /// the index of several.
    checkpoint: PathBuf,
    /// gpt2, bytes, or a file (tokenizer.json, SentencePiece's tokenizer.model, a GGUF, vocab.json with merges.txt
    /// beside it) or its folder; otherwise the one beside the weights or in a GGUF, or that of the checkpoint, or for a
    /// GPT-2 the largest that the vocabulary has room for.
    #[arg(long, value_name = "NAME")]
    tokenizer: Option<String>,
    /// The text to continue.
    #[arg(long, default_value = "\n", conflicts_with = "prompts")]
    prompt: String,
    /// A file with a text to continue on each line; they are continued as one batch.
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Takes special tokens in prompts as plain text, and puts nothing before prompts.
    #[arg(long)]
    plain: bool,
    /// Number of tokens to generate for each prompt, at most.
    #[arg(long, default_value_t = 200, visible_alias = "max-new-tokens")]
    tokens: usize,
    /// Logits are divided by it; 0 takes the most probable token.
    #[arg(long, default_value_t = Sampling::default().temperature, allow_negative_numbers = true)]
    temperature: f64,
    /// Draws only from this number of most probable tokens; 0 draws from all.
    #[arg(long, default_value_t = 40)]
    top_k: usize,
    /// Draws only from the fewest most probable tokens that together have this probability; 1 draws from all.
    #[arg(long, default_value_t = Sampling::default().top_p, allow_negative_numbers = true)]
    top_p: f64,
    /// Draws only from tokens at least this many times as probable as the most probable one; 0 draws from all.
    #[arg(long, default_value_t = Sampling::default().min_p, allow_negative_numbers = true)]
    min_p: f64,
    /// Logits of tokens of the prompt and the text so far are divided by it if positive, multiplied if not; 1 changes
    /// nothing.
    #[arg(long, default_value_t = Sampling::default().repetition_penalty, allow_negative_numbers = true)]
    repetition_penalty: f64,
    /// Seed of the draws.
    #[arg(long, default_value_t = Sampling::default().seed)]
    seed: u64,
    /// A text that ends a text where it begins. May be given several times.
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// The id of a token that ends a text, beside those of the tokenizer. May be given several times.
    #[arg(long, value_name = "ID")]
    stop_token: Vec<u32>,
    /// Positions of the cache of keys and values for each text, which ends when it is full; 0 computes the last tokens
    /// again for each new one, as many as the model's context holds. Otherwise there is a cache if the context has room
    /// for prompt and tokens.
    #[arg(long, value_name = "POSITIONS")]
    cache: Option<usize>,
    /// Accepts weights that are not finite.
    #[arg(long)]
    allow_nonfinite: bool,
    /// Where it runs: cpu, cuda, cuda:1, ..., or auto for the first device that is available.
    #[arg(long, default_value = "cpu", value_name = "DEVICE", value_parser = Device::named)]
    device: Device,
    /// How many ranks divide the layers of the model: processes that this one starts, each with a device of its own
    /// (cuda:0, cuda:1, ...) or a part of the host's processors.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    devices: Option<u16>,
    /// f32, or bf16: weights and activations in bf16.
    #[arg(long, default_value = "f32", value_parser = ["f32", "bf16"])]
    dtype: String,
    /// int8 or int4: weights of the layers of a decoder's blocks are rounded to integers of so many bits while they are
    /// read. Of as many neighbours as int4:128 says, or 64, the largest magnitude is their scale.
    #[arg(long, value_name = "INTEGERS")]
    weights: Option<Integers>,
    /// As --weights, for the layer that makes logits, which is left as it is otherwise.
    #[arg(long, value_name = "INTEGERS", requires = "weights")]
    head_weights: Option<Integers>,
    #[command(flatten)]
    compile: options::Compile,
}

/// Continues prompts.
pub fn run(arguments: &Arguments) -> Outcome {
    // Errors of weights name the file.
    let failed = |error: &dyn std::fmt::Display| Failed(error.to_string());
    let request = request(arguments)?;
    let mut device = arguments.device;
    let divided = |ranks: usize| format!("{TENSOR}={ranks}").parse();
    let joined = match ranks::place(arguments.devices, &mut device, &divided)? {
        Place::Started(code) => return Ok(code),
        Place::Rank(joined) => joined,
    };
    let _watch = Watch::start(joined.as_ref());
    let compile = Options { mesh: mesh(), ..arguments.compile.options_to_run_on(device)? };
    // Beside reading the weights: both take tenths of a second.
    let _opening = DeviceState::open_ahead(device);
    let checkpoint = &arguments.checkpoint;
    let loaded = open(checkpoint, None).map_err(|error| failed(&error))?;
    if !arguments.allow_nonfinite {
        loaded.check_finite(checkpoint).map_err(|error| failed(&error))?;
    }
    let tokenizer = tokenizer(arguments, &loaded)?;
    tokenizer.warnings().iter().for_each(|warning| warn(warning));
    let config = loaded.weights.config();
    let dtype = if arguments.dtype == "bf16" { DType::BF16 } else { DType::F32 };
    let quantization = arguments.weights.map(|blocks| Quantization { blocks, head: arguments.head_weights });
    let params = match compile.mesh.axis(TENSOR) {
        Some(_) if quantization.is_some() => {
            return Err(Failed("--weights is given with --devices, expected one of them".into()));
        }
        Some((_, axis)) => {
            if loaded.weights.are_quantized() {
                return Err(failed(&"--devices divides numbers, and the file has integers"));
            }
            let place = place(axis).map_err(|error| failed(&error))?;
            placed(parts(loaded.weights.placed(dtype, Device::CPU)?, config, place, axis)?, dtype, device)?
        }
        None => match quantization {
            Some(quantization) => loaded.weights.quantized(quantization, dtype, device)?,
            None => loaded.weights.placed(dtype, device)?,
        },
    };
    let mut output = Output::new(&request.prompts);
    // All ranks draw the same tokens.
    let mut show = |row: usize, piece: &str| {
        if rank() == 0 {
            output.piece(row, piece);
        }
    };
    let texts = generate(config, &tokenizer, &params, &request, &compile, &mut show)?;
    if rank() > 0 {
        return Ok(ExitCode::SUCCESS);
    }
    output.finish()?;
    for (row, text) in texts.iter().enumerate() {
        let (ids, count) = (tokenizer.vocabulary(), text.tokens.len());
        let unknown = text.tokens.iter().filter(|token| **token as usize >= ids).count();
        if unknown > 0 {
            let (number, name) = (row + 1, tokenizer.name());
            note(&format!(
                "text {number}: {unknown} of {count} tokens are ids of {ids} or more, which '{name}' has no text for"
            ));
        }
        if let End::CacheFull(positions) = text.end {
            let count = text.tokens.len();
            let number = row + 1;
            note(&format!("text {number} ends after {count} tokens: the cache of {positions} positions is full"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn request(arguments: &Arguments) -> Result<Request, Failed> {
    let prompts = match &arguments.prompts {
        Some(path) => prompts_of(path)?,
        None => vec![arguments.prompt.clone()],
    };
    Ok(Request {
        prompts,
        plain: arguments.plain,
        count: arguments.tokens,
        sampling: Sampling {
            temperature: arguments.temperature,
            top_k: (arguments.top_k > 0).then_some(arguments.top_k),
            top_p: arguments.top_p,
            min_p: arguments.min_p,
            repetition_penalty: arguments.repetition_penalty,
            seed: arguments.seed,
        },
        stop_tokens: arguments.stop_token.clone(),
        stop_texts: arguments.stop.clone(),
        cache: arguments.cache,
    })
}

/// The lines of a file that are not empty.
fn prompts_of(path: &Path) -> Result<Vec<String>, Failed> {
    let text = read_text(path).map_err(|error| Failed(error.to_string()))?;
    let lines: Vec<String> = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if lines.is_empty() { Err(Failed::file(path, "has no line with a prompt")) } else { Ok(lines) }
}

fn tokenizer(arguments: &Arguments, loaded: &Loaded) -> Result<Tokenizer, Failed> {
    let failed = |error: &dyn std::fmt::Display| Failed::file(&arguments.checkpoint, error);
    let Some(name) = &arguments.tokenizer else { return loaded.tokenizer().map_err(|error| failed(&error)) };
    let given = Tokenizer::open(name).map_err(|error| Failed(error.to_string()))?;
    // Where the file says with which tokenizer its model was trained, with another one it would talk nonsense. A
    // tokenizer.json may be at another place since.
    let moved = |own: &str| Tokenizer::names_file(own) && matches!(given, Tokenizer::File(_));
    if let Some(own) = loaded.tokenizer.as_deref().filter(|own| *own != given.name() && !moved(own)) {
        return Err(failed(&format!("the model was trained with the tokenizer '{own}', got '{name}'")));
    }
    loaded.check_vocabulary(&given).map_err(|error| failed(&error))?;
    Ok(given)
}

/// Prompts and their continuations on standard output, in the order of the prompts. The first is written as it comes,
/// the others once all have ended.
struct Output<'a> {
    prompts: &'a [String],
    /// What came of each prompt but the first.
    waiting: Vec<String>,
    /// Whether the first prompt is written. Errors come before it.
    begun: bool,
    broken: Option<Failed>,
}

impl<'a> Output<'a> {
    fn new(prompts: &'a [String]) -> Self {
        Output { prompts, waiting: vec![String::new(); prompts.len()], begun: false, broken: None }
    }

    fn write(&mut self, text: &str) {
        if let Err(failed) = write(format_args!("{text}")) {
            self.broken.get_or_insert(failed);
        }
    }

    fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.heading(0);
        }
    }

    /// What is before the continuation of a prompt.
    fn heading(&mut self, row: usize) {
        let count = self.prompts.len();
        let heading = if count > 1 { format!("--- {} of {count} ---\n", row + 1) } else { String::new() };
        self.write(&format!("{heading}{}", self.prompts[row]));
    }

    fn piece(&mut self, row: usize, piece: &str) {
        match row {
            0 => {
                self.begin();
                self.write(piece);
            }
            _ => self.waiting[row] += piece,
        }
    }

    fn finish(mut self) -> Result<(), Failed> {
        self.begin();
        for row in 1..self.prompts.len() {
            self.write("\n");
            self.heading(row);
            let text = std::mem::take(&mut self.waiting[row]);
            self.write(&text);
        }
        say!("")?;
        self.broken.map_or(Ok(()), Err)
    }
}
