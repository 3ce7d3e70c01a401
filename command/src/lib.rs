//! The `fulgurite` command as a function: a crate with operators of its own has `trace show`, `ops run` and the others
//! for them with a binary of three lines.
//!
//! ```no_run
//! // Naming the crate links its operators: `use my_operators as _;`
//! fn main() -> std::process::ExitCode {
//!     fulgurite_command::main()
//! }
//! ```
//!
//! The feature `models`, on by default, adds what trains and runs models: `train`, `launch`, `scale`, `generate`,
//! `convert`, `tokenize`, `debug-state`, `plot` and `bench`, and the models' programs for `trace show` and the others.
//!
//! Data goes to standard output, errors go to standard error; the exit code is 1 where something went wrong, 2 where
//! the command was not understood, and 3 where the numbers of a training run were no longer finite.

#[cfg(feature = "models")]
mod bench;
mod cases;
mod claim_options;
#[cfg(feature = "models")]
mod convert;
#[cfg(feature = "models")]
mod debug_state;
mod description;
mod doctor;
mod files;
mod functions;
mod fuzz;
mod fuzz_watch;
#[cfg(feature = "models")]
mod generate;
mod git;
mod idle_executors;
#[cfg(feature = "models")]
mod interruption;
#[cfg(feature = "models")]
mod launch;
mod log;
#[cfg(feature = "models")]
mod loss_chart;
mod lsp;
mod measured_inputs;
#[cfg(feature = "models")]
mod model_options;
#[cfg(feature = "models")]
mod model_programs;
#[cfg(not(feature = "models"))]
mod no_models;
mod ops_docs;
mod ops_golden;
mod ops_list;
mod ops_missing;
mod ops_new;
mod ops_run;
mod ops_samples;
mod ops_show;
mod options;
mod outcome;
mod outline;
mod output;
mod part;
#[cfg(test)]
mod patient;
#[cfg(feature = "models")]
mod plot;
mod profile;
#[cfg(feature = "models")]
mod profile_page;
mod programs;
mod review;
mod rust_names;
#[cfg(feature = "models")]
mod scale;
mod serve;
mod stored_programs;
mod stored_subject;
mod subject;
mod system;
mod target;
mod test_changed;
#[cfg(feature = "models")]
mod tokenize;
mod trace_diff;
mod trace_files;
mod trace_inputs;
mod trace_programs;
mod trace_run;
mod trace_show;
mod trace_sources;
#[cfg(feature = "models")]
mod train;
mod tune;
mod view;
mod view_profile;
mod written_call;

use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

pub use functions::Function;
use output::complain;

const EXAMPLES: &str = "\
Examples:
  fulgurite ops list --kind composite
  fulgurite ops show gelu
  fulgurite ops new reglu --path ops/src/nn/reglu.rs
  fulgurite ops run cases/ --out results/
  fulgurite ops docs --out reference/
  fulgurite trace show softmax --backward --stage all
  fulgurite trace run softmax.trace --inputs inputs.safetensors
  fulgurite view softmax --backward -o softmax.html
  fulgurite review main --markdown -
  fulgurite test --changed main --list
  fulgurite train gpt2 --size nano --steps 300 --out runs/nano
  fulgurite launch --gpus 4 -- train gpt2 --device cuda --size 124M
  fulgurite scale gpt2 --size 124M --batch 16 --autocast bf16 --step-ms 29.2
  fulgurite generate runs/nano/checkpoint.safetensors --prompt 'ROMEO:'
  fulgurite convert runs/nano/checkpoint.safetensors nano.bin
  fulgurite tokenize --out shards/
  fulgurite fuzz --minutes 10
  fulgurite tune gpt2 --size nano --from 0 -o gpt2.choices
  fulgurite profile gpt2 --size nano --plot step.svg
  fulgurite bench --quick
  fulgurite doctor

FULGURITE_LOG=info (or debug, or fulgurite_run=trace, ...) logs to standard error.";

/// A tensor compiler for the people who write operators and kernels.
#[derive(Parser)]
#[command(name = "fulgurite", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Operators: what there is, what is known of them, new ones, runs on data.
    #[command(subcommand)]
    Ops(Ops),
    /// Traces: show, run, verify, compare.
    #[command(subcommand)]
    Trace(Trace),
    /// Writes programs as a page for a browser: stages, executors, memory, comparisons.
    View(view::Arguments),
    /// Shows what a change did to the stored programs of this repository; accepts or rejects snapshots.
    Review(review::Arguments),
    /// Answers an editor's questions about the text of traces: a language server.
    Lsp(lsp::Arguments),
    /// Runs the tests that a change can affect.
    Test(test_changed::Arguments),
    #[cfg(feature = "models")]
    /// Trains a model.
    #[command(subcommand)]
    Train(train::Model),
    #[cfg(feature = "models")]
    /// Starts a command on several ranks, one process each.
    Launch(launch::Arguments),
    #[cfg(feature = "models")]
    /// Predicts how long a training step takes on several ranks.
    Scale(scale::Arguments),
    #[cfg(feature = "models")]
    /// Continues a prompt with a trained model.
    Generate(generate::Arguments),
    #[cfg(feature = "models")]
    /// Converts weights: checkpoints, llm.c's files, Hugging Face's safetensors.
    Convert(convert::Arguments),
    #[cfg(feature = "models")]
    /// Debug states of llm.c: logits, loss and gradients of a batch, written or compared.
    #[command(subcommand)]
    DebugState(debug_state::State),
    #[cfg(feature = "models")]
    /// Draws the loss, the learning rate and the speed of runs.
    Plot(plot::Arguments),
    #[cfg(feature = "models")]
    /// Writes a text as llm.c's shards of tokens.
    Tokenize(tokenize::Arguments),
    /// Searches for programs whose results depend on how they are run.
    Fuzz(fuzz::Arguments),
    /// Measures the implementations that programs have to choose from, and records the fastest.
    Tune(tune::Arguments),
    #[cfg(feature = "models")]
    /// Measures training steps, operators, attention and products, beside PyTorch if it is asked for.
    Bench(bench::Arguments),
    /// Shows where the time of a program goes, beside what the device does at most.
    Profile(profile::Arguments),
    /// Prints the devices and libraries of this machine, and why one is missing.
    Doctor(doctor::Arguments),
}

#[derive(Subcommand)]
enum Ops {
    /// Lists operators.
    List(ops_list::Arguments),
    /// Shows the declaration of an operator.
    Show(ops_show::Arguments),
    /// Writes the declaration of a new operator; its failing tests say what to fill in.
    New(ops_new::Arguments),
    /// Runs a folder of cases and writes their outputs and gradients.
    Run(ops_run::Arguments),
    /// Exports samples as a folder of cases.
    Samples(ops_samples::Arguments),
    /// Writes PyTorch's results for the samples of a crate's operators.
    Golden(ops_golden::Arguments),
    /// Writes the reference: a page for each operator, and an index with a search.
    Docs(ops_docs::Arguments),
}

#[derive(Subcommand)]
enum Trace {
    /// Prints the trace of an operator's sample or of a model, after any stage of compilation.
    Show(Box<trace_show::Arguments>),
    /// Runs a stored trace.
    Run(trace_run::Arguments),
    /// Checks a stored trace against the rules of the language.
    Verify(trace_files::Verify),
    /// Compares two stored traces; exits with 1 if they differ.
    Diff(trace_diff::Arguments),
}

/// Lets every option take a value such as `-1`: what is wrong with it is for the option to say.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes_value = |arg: &clap::Arg| arg.get_action().takes_values();
    command
        .mut_args(|arg| if takes_value(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_numbers)
}

/// With the help of models of images as it applies to them.
fn of_images(command: clap::Command) -> clap::Command {
    #[cfg(feature = "models")]
    let command = command.mut_subcommand("train", |train| {
        let names = ["resnet", "vit", "unet"];
        names.into_iter().fold(train, |train, name| train.mut_subcommand(name, train::for_images))
    });
    command
}

/// Without the examples of models in what `--help` says, where there are none.
fn with_own_examples(command: clap::Command) -> clap::Command {
    const MODELS: [&str; 9] =
        [" gpt2", " llama", " train ", " launch ", " scale ", " generate ", " convert ", " tokenize ", " bench "];
    if cfg!(feature = "models") {
        return command;
    }
    let own = |line: &&str| !line.starts_with("  fulgurite ") || !MODELS.iter().any(|word| line.contains(word));
    let examples = command.get_after_help().map(|text| {
        let text = text.to_string();
        text.lines().filter(own).collect::<Vec<_>>().join("\n")
    });
    let command = command.mut_subcommands(with_own_examples);
    match examples {
        Some(examples) => command.after_help(examples),
        None => command,
    }
}

/// As [`main`], with functions of the caller's own, which `trace show`, `view` and `profile` take by their names as
/// they take operators and models. A function gives its trace, for example by
/// [`Jit::trace`](fulgurite::jit::Jit::trace).
///
/// ```no_run
/// use fulgurite::prelude::*;
///
/// fn step() -> Result<fulgurite::trace::Trace, Error> {
///     jit(|x: Tensor| relu(x) * 2.0).named("step").trace(&Array::zeros([4], DType::F32)?)
/// }
///
/// fn main() -> std::process::ExitCode {
///     // cargo run -- trace show step --stage fuse
///     fulgurite_command::main_with(&[("step", step)])
/// }
/// ```
pub fn main_with(functions: &[Function]) -> ExitCode {
    functions::set(functions);
    main()
}

/// Runs the command that the process was started with, on every operator and executor that is linked into it.
pub fn main() -> ExitCode {
    let matches = with_own_examples(with_negative_numbers(of_images(Cli::command()))).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // Of the command within the commands: whether an option was written, and has not its default.
    let given = |option: &str| {
        let innermost = std::iter::successors(Some(&matches), |of| of.subcommand().map(|(_, inner)| inner)).last();
        let source = innermost.and_then(|of| of.try_contains_id(option).ok()?.then(|| of.value_source(option))?);
        source == Some(ValueSource::CommandLine)
    };
    // Names would mean either operator.
    let clashes = fulgurite::registry::clashes();
    let sound = if clashes.is_empty() { Ok(()) } else { Err(outcome::Failed(clashes.join("\n"))) };
    let outcome = sound.and_then(|()| log::start()).and_then(|()| match cli.command {
        Command::Ops(Ops::List(arguments)) => ops_list::run(&arguments),
        Command::Ops(Ops::Show(arguments)) => ops_show::run(&arguments),
        Command::Ops(Ops::New(arguments)) => ops_new::run(&arguments),
        Command::Ops(Ops::Run(arguments)) => ops_run::run(&arguments),
        Command::Ops(Ops::Samples(arguments)) => ops_samples::run(&arguments),
        Command::Ops(Ops::Golden(arguments)) => ops_golden::run(&arguments),
        Command::Ops(Ops::Docs(arguments)) => ops_docs::run(&arguments),
        Command::Trace(Trace::Show(arguments)) => trace_show::run(&arguments),
        Command::Trace(Trace::Run(arguments)) => trace_run::run(&arguments),
        Command::Trace(Trace::Verify(arguments)) => trace_files::verify(&arguments),
        Command::Trace(Trace::Diff(arguments)) => trace_diff::run(&arguments),
        Command::Lsp(arguments) => lsp::run(&arguments),
        Command::View(arguments) => view::run(&arguments, &given),
        Command::Review(arguments) => review::run(&arguments),
        Command::Test(arguments) => test_changed::run(&arguments),
        #[cfg(feature = "models")]
        Command::Train(model) => train::run(model, &given),
        #[cfg(feature = "models")]
        Command::Launch(arguments) => launch::run(&arguments),
        #[cfg(feature = "models")]
        Command::Scale(arguments) => scale::run(&arguments),
        #[cfg(feature = "models")]
        Command::Generate(arguments) => generate::run(&arguments),
        #[cfg(feature = "models")]
        Command::Convert(arguments) => convert::run(&arguments),
        #[cfg(feature = "models")]
        Command::DebugState(state) => debug_state::run(&state),
        #[cfg(feature = "models")]
        Command::Plot(arguments) => plot::run(&arguments),
        #[cfg(feature = "models")]
        Command::Tokenize(arguments) => tokenize::run(&arguments),
        Command::Fuzz(arguments) => fuzz::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments, &given),
        #[cfg(feature = "models")]
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments, &given),
        Command::Doctor(arguments) => doctor::run(&arguments),
    });
    outcome.unwrap_or_else(|failed| {
        complain(&failed.0);
        ExitCode::FAILURE
    })
}
