//! `trace show`.

use fulgurite::operator::RuleSet;
use fulgurite::transforms::autodiff::rules::GradientRules;
use std::process::ExitCode;

use clap::Args;
use fulgurite::compile::{Ending, Options, Reached, STAGES, compile, stages_reached};
use fulgurite::models::checkpoint::OptimizerSettings;
use fulgurite::models::traces::{decode_trace, loss_programs, loss_trace, train_step_trace};
use fulgurite::models::{Family, ModelConfig, Tokenizer};
use fulgurite::operator::OperatorDef;
use fulgurite::trace::Trace;
use fulgurite::trace::print::{PrintOptions, print};
use fulgurite::transforms::retarget::retarget;
use fulgurite::transforms::{self, autocast, recompute};
use fulgurite::{DType, Target};

use super::outcome::{Failed, Outcome};
use super::output::say;
use super::trace_sources::{SOURCES, print_sources};
use super::{options, subject, target, trace_programs};
use crate::cases::{of_case, resolve_operator};

/// What there is of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A training step.
    Step,
    /// The loss of a batch.
    Loss,
    /// One token more of each sequence, with a cache as long as the context.
    Decode,
}

/// The names of models' parts.
const PARTS: [(&str, Family, Part); 6] = [
    ("gpt2", Family::Gpt2, Part::Step),
    ("gpt2-loss", Family::Gpt2, Part::Loss),
    ("gpt2-decode", Family::Gpt2, Part::Decode),
    ("llama", Family::Llama, Part::Step),
    ("llama-loss", Family::Llama, Part::Loss),
    ("llama-decode", Family::Llama, Part::Decode),
];

/// Arguments of `trace show`.
#[derive(Args)]
#[command(after_help = "\
What is printed parses back, unless --plain or --stage all is given, or two programs are printed: `fulgurite trace run FILE` runs it.
Where compilation fails, --stage all prints the stages that it came to, and then the error.

Examples:
  fulgurite trace show softmax
  fulgurite trace show rms_norm --sample 2 --backward --stage claim
  fulgurite trace show nn.functional.gelu --dtype bf16 --executors reference --stage all
  fulgurite trace show gpt2 --size nano --layers 2 --stage fuse --plain
  fulgurite trace show gpt2-loss --layers 2 --backward --plain
  fulgurite trace show gpt2 --autocast bf16 --stage autocast
  fulgurite trace show llama --size TinyLlama-1.1B --layers 1 --set sliding_window_size=256 --plain
  fulgurite trace show llama-decode --size TinyLlama-1.1B --layers 1 --dtype bf16 --target cuda:sm_90a --stage plan_memory
  fulgurite trace show softmax --target cuda:sm_90a --stage sources")]
pub struct Arguments {
    /// An operator, by its name or PyTorch's; `gpt2` or `llama`, a training step; `gpt2-loss` or `llama-loss`;
    /// `gpt2-decode` or `llama-decode`, a token more of each sequence.
    name: String,
    /// The stage of compilation, or `all`, or `sources` for the CUDA sources of the program's kernels; the trace as
    /// acquired, or with --backward the joint trace (`vjp`), otherwise.
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
    /// What it is compiled for; no such device is needed.
    #[arg(long, default_value = "cpu", value_parser = target::parse)]
    target: Target,
    /// The element type of the sample; the first that the operator takes of f32, i64, bool, ... otherwise. That of the
    /// parameters and of the cache of a decoded token; f32 otherwise.
    #[arg(long)]
    dtype: Option<DType>,
    /// Which of the operator's samples.
    #[arg(long, default_value_t = 0)]
    sample: usize,
    /// The joint trace of an operator and its gradient; of a model's loss the forward and the backward program and what
    /// is saved between them.
    #[arg(long)]
    backward: bool,
    /// Mixed precision: products in this type, bf16 or f16. Adds the stage `autocast`.
    #[arg(long, value_name = "DTYPE")]
    autocast: Option<DType>,
    /// Without nested bodies, memory plan and refusals.
    #[arg(long)]
    plain: bool,
    /// With what follows from the rest: devices, arguments at their defaults, parameters of bodies, operands of
    /// regions.
    #[arg(long, conflicts_with = "plain")]
    full: bool,
    /// The size of a model: nano, micro, mini, ...; 124M of gpt2; Llama-3.1-8B of llama.
    #[arg(long, default_value = "nano")]
    size: String,
    /// Layers of a model; the size's own otherwise.
    #[arg(long)]
    layers: Option<usize>,
    /// A field of a llama's configuration instead of the size's own; any number of times.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// gpt2 or bytes: the vocabulary of a size that is trained from nothing.
    #[arg(long, default_value = "bytes")]
    tokenizer: String,
    /// Sequences in a model's batch.
    #[arg(long, default_value_t = 4)]
    batch: usize,
    /// Tokens in a model's sequence; the size's own otherwise.
    #[arg(long)]
    context: Option<usize>,
    #[command(flatten)]
    activations: options::Activations,
    #[command(flatten)]
    compile: options::Compile,
}

/// Prints a trace.
pub fn run(arguments: &Arguments) -> Outcome {
    let mut options = arguments.compile.options()?;
    // Nothing is run.
    options.memory_limit = None;
    options.autocast = arguments.autocast;
    let part = PARTS.iter().find(|(name, ..)| *name == arguments.name);
    let trace = match part {
        Some((_, family, part)) => model_trace(*family, *part, arguments)?,
        None if !arguments.set.is_empty() => return Err(Failed("--set replaces fields of a llama".into())),
        None => {
            let models = PARTS.map(|(name, ..)| name).join(", ");
            let def = resolve_operator(&arguments.name)
                .map_err(|error| Failed(format!("{} (models: {models})", error.message)))?;
            operator_trace(def, arguments, &options)?
        }
    };
    let form = match (arguments.plain, arguments.full) {
        (true, _) => PrintOptions::OUTLINE,
        (false, true) => PrintOptions::FULL,
        (false, false) => PrintOptions::COMPACT,
    };
    let show = |trace: &Trace| print(trace, form).trim_end().to_owned();
    match part {
        Some((.., Part::Loss)) if arguments.backward => {
            let programs = loss_programs(trace, &options).map_err(of_case)?;
            return trace_programs::run(&programs, arguments.stage.as_deref(), &options, show);
        }
        Some((name, _, Part::Step)) if arguments.backward => {
            let message = "a training step holds its backward pass;";
            return Err(Failed(format!("{message} `{name}-loss --backward` shows that of the loss")));
        }
        Some((name, _, Part::Decode)) if arguments.backward => {
            return Err(Failed(format!("{name} has no backward pass")));
        }
        _ => {}
    }
    // The trace that compilation starts from is there even where nobody can take its symbols.
    let first = trace.history.last().cloned().unwrap_or_else(|| "acquire".into());
    let wanted = arguments.stage.as_deref().unwrap_or(&first);
    if wanted == first {
        say!("{}", show(&trace))?;
        return Ok(ExitCode::SUCCESS);
    }
    if wanted == SOURCES {
        return show_sources(trace, &options);
    }
    let Reached { stages, ending } = stages_reached(trace, &options);
    if wanted == "all" {
        for (i, stage) in stages.iter().enumerate() {
            let gap = if i == 0 { "" } else { "\n" };
            say!("{gap}# === {} ===\n{}", stage.name, show(&stage.trace))?;
        }
        return ending.map_or(Ok(ExitCode::SUCCESS), |ending| Err(ended(ending)));
    }
    match (stages.iter().find(|stage| stage.name == wanted), ending) {
        (Some(stage), ending) => {
            say!("{}", show(&stage.trace))?;
            // Later stages were not asked for.
            ending.filter(|ending| ending.stage == wanted).map_or(Ok(ExitCode::SUCCESS), |ending| Err(ended(ending)))
        }
        (None, Some(ending)) if STAGES.contains(&wanted) => Err(ended(ending)),
        (None, ending) => {
            let made = stages.iter().map(|stage| stage.name.as_str());
            let known: Vec<&str> = match ending {
                None => made.collect(),
                Some(_) => made.take(1).chain(STAGES).collect(),
            };
            // Stages that are not always made.
            let hint = match wanted {
                autocast::NAME => "; --autocast bf16 makes it",
                recompute::NAME => {
                    "; it is made where something large and cheap is computed again, and not with --no-recompute"
                }
                _ => "",
            };
            Err(Failed(format!("no stage is called '{wanted}', there are: {}, all, sources{hint}", known.join(", "))))
        }
    }
}

/// Prints the sources of a program's kernels, each once, in the order of their first use.
fn show_sources(trace: Trace, options: &Options) -> Outcome {
    let target = trace.target.to_string();
    let (program, _) = compile(trace, options).map_err(of_case)?;
    print_sources(&program.sources(), &target)
}

/// Where compilation ended, and why.
fn ended(ending: Ending) -> Failed {
    Failed(format!("{}: {}", ending.place(), of_case(ending.error).message))
}

fn operator_trace(def: &'static OperatorDef, arguments: &Arguments, options: &Options) -> Result<Trace, Failed> {
    let mut trace = sample_trace(def, arguments)?;
    if !arguments.backward {
        return Ok(trace);
    }
    let wrt = subject::differentiable(def, &trace);
    if wrt.is_empty() {
        let reason = GradientRules::of(def).no_grad.unwrap_or("no floating-point tensor goes in or none comes out");
        return Err(Failed(format!("{} has no gradient here: {reason}", def.name)));
    }
    // Gradients are of what is computed, so conversions come first.
    if let Some(low) = arguments.autocast {
        trace = autocast::autocast(&trace, low).map_err(of_case)?;
    }
    Ok(transforms::vjp(&trace, &wrt, &options.executor_list(arguments.target.kind())).map_err(of_case)?)
}

fn model_trace(family: Family, part: Part, arguments: &Arguments) -> Result<Trace, Failed> {
    let mut set = arguments.set.clone();
    if let (Family::Llama, Some(layers)) = (family, arguments.layers) {
        set.push(format!("n_layer={layers}"));
    }
    let tokenizer = Tokenizer::from_name(&arguments.tokenizer).map_err(|error| Failed(error.to_string()))?;
    let mut config = ModelConfig::named(family, &arguments.size, &set, arguments.context, &tokenizer)?;
    if let (ModelConfig::Gpt2(config), Some(layers)) = (&mut config, arguments.layers) {
        config.layers = layers;
    }
    let model = config.model();
    model.validate().map_err(|error| Failed(error.to_string()))?;
    let trace = arguments.activations.checkpointing().within(|| match part {
        Part::Loss => loss_trace(model, arguments.batch, model.context()),
        Part::Decode => {
            decode_trace(model, (arguments.batch, 1), model.context(), arguments.dtype.unwrap_or(DType::F32))
        }
        Part::Step => train_step_trace(model, &OptimizerSettings::default(), arguments.batch, model.context()),
    })?;
    Ok(if arguments.target == Target::cpu() { trace } else { retarget(&trace, &arguments.target) })
}

fn sample_trace(def: &'static OperatorDef, arguments: &Arguments) -> Result<Trace, Failed> {
    let usual = [DType::F32].into_iter().chain(DType::ALL.into_iter().rev());
    let dtypes: Vec<DType> = arguments.dtype.map_or_else(|| usual.collect(), |dtype| vec![dtype]);
    let of = |dtype| subject::accepted(def, dtype, &Target::cpu());
    let Some((dtype, samples)) = dtypes.iter().map(|dtype| (*dtype, of(*dtype))).find(|(_, s)| !s.is_empty()) else {
        return Err(Failed(match arguments.dtype {
            Some(dtype) => format!("{} has no sample in {dtype}", def.name),
            None => format!("{} has no sample", def.name),
        }));
    };
    let Some((_, sample, _)) = samples.iter().find(|(number, ..)| *number == arguments.sample) else {
        let last = samples.last().map_or(0, |(number, ..)| *number);
        return Err(Failed(format!("{} has no sample {} in {dtype}, the last is {last}", def.name, arguments.sample)));
    };
    Ok(subject::trace_sample(def, &sample.arguments, &arguments.target).map_err(of_case)?)
}
