//! `trace show`.

use std::process::ExitCode;

use clap::Args;
use fulgurite::compile::{
    Ending, Options, Reached, STAGES, StageName, compile, explain, loss_programs, stages_reached,
};
use fulgurite::trace::Trace;
use fulgurite::trace::print::{PrintOptions, print};

use super::outcome::{Failed, Outcome};
use super::output::say;
use super::programs::{Part, Program};
use super::trace_programs;
use super::trace_sources::{SOURCES, print_sources};
use crate::cases::of_case;

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
    /// An operator, by its name or PyTorch's
    #[cfg_attr(
        feature = "models",
        doc = "; `gpt2`, `llama`, `resnet`, `vit` or `unet`, a training step, and with `-loss` its loss alone; \
               `gpt2-decode` or `llama-decode`, a token more of each sequence"
    )]
    /// ; or a function that the command's crate names (`fulgurite_command::main_with`).
    name: String,
    /// The stage of compilation, or `all`, or `sources` for the CUDA sources of the program's kernels; the trace as
    /// acquired, or with --backward the joint trace (`vjp`), otherwise.
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
    /// Without nested bodies, memory plan and refusals.
    #[arg(long)]
    plain: bool,
    /// With what follows from the rest: devices, arguments at their defaults, parameters of bodies, operands of
    /// regions.
    #[arg(long, conflicts_with = "plain")]
    full: bool,
    /// Which executor supplied which gradient rule and takes which line, why others do not, and what was measured, with
    /// --choices.
    #[arg(long, conflicts_with_all = ["stage", "plain", "full"])]
    explain: bool,
    #[command(flatten)]
    program: Program,
}

/// Prints a trace.
pub fn run(arguments: &Arguments) -> Outcome {
    let options = arguments.program.options()?;
    let (begun, part) = arguments.program.begun(&arguments.name, &options)?;
    let trace = begun.trace.clone();
    let form = match (arguments.plain, arguments.full) {
        (true, _) => PrintOptions::OUTLINE,
        (false, true) => PrintOptions::FULL,
        (false, false) => PrintOptions::COMPACT,
    };
    let show = |trace: &Trace| print(trace, form).trim_end().to_owned();
    if part == Some(Part::Loss) && arguments.program.backward {
        let programs = loss_programs(trace, &options).map_err(of_case)?;
        if arguments.explain {
            let all = programs.joint.iter().chain(&programs.forward).chain(&programs.backward);
            return say!("{}", explain(all).trim_end()).map(|()| ExitCode::SUCCESS);
        }
        return trace_programs::run(&programs, arguments.stage.as_deref(), &options, show);
    }
    // The trace that compilation starts from is there even where nobody can take its symbols.
    let wanted = arguments.stage.as_deref().unwrap_or(&begun.name);
    if wanted == begun.name && !arguments.explain {
        say!("{}", show(&trace))?;
        return Ok(ExitCode::SUCCESS);
    }
    if wanted == SOURCES {
        return show_sources(trace, &options);
    }
    let Reached { stages, ending } = stages_reached(trace, &options);
    if arguments.explain {
        // The rules of an operator's gradient were found before the first of them.
        say!("{}", explain(std::iter::once(&begun).chain(&stages)).trim_end())?;
        return ending.map_or(Ok(ExitCode::SUCCESS), |ending| Err(ended(ending)));
    }
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
            let hint = match StageName::of(wanted) {
                Some(StageName::Autocast) => "; --autocast bf16 makes it",
                Some(StageName::Recompute) => {
                    "; it is made where something large and cheap is computed again, and not with --no-recompute"
                }
                Some(StageName::Batch) => {
                    "; it is made where four or more small products or sums of a program for a device are alike, and \
                     not with checkpoints or --no-batching"
                }
                Some(StageName::Pad) => "; it is made where a kernel asks for larger operands, and not with --no-pad",
                Some(StageName::Channels) => {
                    "; it is made where a kernel gains by channels innermost, and not with --no-channels"
                }
                Some(StageName::Schedule) => "; it is made where a line runs on another stream than most",
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
