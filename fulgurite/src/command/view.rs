//! `view`: programs as a page for a browser.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use fulgurite::comparison::Comparison;
use fulgurite::compile::{Options, Reached, Stage, compile, stages_reached};
use fulgurite::cost::Totals;
use fulgurite::models::traces::loss_programs;
use fulgurite::trace::Trace;
use fulgurite_view::{Order, Reordered, Shown, Subject, page};

use super::files;
use super::outcome::{Failed, Outcome};
use super::output::say;
use super::programs::{Named, Part, Program, named};
use super::serve::serve;
use super::stored_subject::stored_subject;
use super::trace_sources::expect_sources;
use crate::cases::{of_case, write_whole};

/// Arguments of `view`.
#[derive(Args)]
#[command(after_help = "\
An operator or a model comes before a file of its name, which is then ./NAME. Files have no options.

The page needs no network and no server: open the file in a browser. Two subjects are compared, stage by stage. A file
is a stored trace, what `trace show --stage all` printed, or a snapshot; a text with an error is shown up to it.

Examples:
  fulgurite view softmax --backward -o softmax.html
  fulgurite view gpt2 --size nano --target cuda:sm_90a -o step.html
  fulgurite view before.trace after.trace -o compared.html
  fulgurite view gelu --target cuda:sm_90a --sources -o gelu.html
  fulgurite view step.trace --serve 8000
  fulgurite view llama --target cuda:sm_90a --orders -o orders.html")]
pub struct Arguments {
    /// An operator, a model (`gpt2`, `gpt2-loss`, `gpt2-decode`, `llama`, ...) or a file; two of them are compared.
    #[arg(required = true, num_args = 1..=2)]
    what: Vec<String>,
    /// The page.
    #[arg(long, short, value_name = "FILE", required_unless_present = "serve")]
    out: Option<PathBuf>,
    /// Serves the page to browsers of this machine, and anew when a file that it shows changes; any free port without
    /// one.
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "0", conflicts_with = "out")]
    serve: Option<u16>,
    /// With the sources of the program's kernels.
    #[arg(long)]
    sources: bool,
    /// With what changes if one executor is asked before all others, for each of them: as many compilations.
    #[arg(long)]
    orders: bool,
    #[command(flatten)]
    program: Program,
}

/// What the page shows.
enum What<'a> {
    /// A program of an operator or a model.
    Program(&'a str),
    /// A file.
    File(&'a Path),
}

/// Writes the page. `given` says whether an option was written.
pub fn run(arguments: &Arguments, given: &dyn Fn(&str) -> bool) -> Outcome {
    let what = arguments.what.iter().map(|name| found(name)).collect::<Result<Vec<_>, _>>()?;
    let options = arguments.program.options()?;
    expect_effects(arguments, &what, given, &options)?;
    let read: Vec<PathBuf> = what.iter().filter_map(What::file).map(Path::to_owned).collect();
    let subject = |of: &What| match of {
        What::Program(name) => compiled(name, arguments, &options),
        What::File(path) => stored(path),
    };
    let make = || Ok(page(&what.iter().map(subject).collect::<Result<Vec<_>, Failed>>()?));
    let Some(out) = &arguments.out else { return serve(arguments.serve.unwrap_or(0), &read, &make) };
    for path in &read {
        files::differ(path, out)?;
    }
    let page = make()?;
    write_whole(out, page.as_bytes())?;
    say!("wrote {}, {} bytes", out.display(), page.len())?;
    Ok(ExitCode::SUCCESS)
}

impl What<'_> {
    fn file(&self) -> Option<&Path> {
        match self {
            What::Program(_) => None,
            What::File(path) => Some(path),
        }
    }
}

/// What is called `name`. Operators and models come first: which files there are does not change what they mean.
fn found(name: &str) -> Result<What<'_>, Failed> {
    let path = Path::new(name);
    match named(name) {
        Ok(_) => Ok(What::Program(name)),
        Err(_) if path.exists() => Ok(What::File(path)),
        Err(Failed(message)) => Err(Failed(format!("{message}, and there is no such file"))),
    }
}

/// Fails if an option was written that changes nothing.
fn expect_effects(
    arguments: &Arguments,
    what: &[What],
    given: &dyn Fn(&str) -> bool,
    options: &Options,
) -> Result<(), Failed> {
    let extras = [(arguments.sources, "--sources"), (arguments.orders, "--orders")];
    let extras: Vec<String> = extras.into_iter().filter(|(given, _)| *given).map(|(_, name)| name.to_owned()).collect();
    if what.iter().all(|of| matches!(of, What::File(_))) {
        let written = [extras, Program::written(given)].concat();
        return match written.is_empty() {
            true => Ok(()),
            false => Err(Failed(format!(
                "{}: programs of operators and models have options, files are shown as they are",
                written.join(", ")
            ))),
        };
    }
    for of in what {
        if let What::Program(name) = of
            && arguments.program.backward
            && !extras.is_empty()
            && matches!(named(name), Ok(Named::Model(_, Part::Loss)))
        {
            let backward = format!("{name} --backward is a forward and a backward one");
            return Err(Failed(format!("{}: of one program, and {backward}", extras.join(", "))));
        }
    }
    if arguments.orders && options.executor_list(arguments.program.target().kind()).len() < 2 {
        return Err(Failed("--orders: a single executor has no other order".into()));
    }
    Ok(())
}

/// The program of an operator or a model, after every stage.
fn compiled(name: &str, arguments: &Arguments, options: &Options) -> Result<Subject, Failed> {
    let (trace, part) = arguments.program.trace(name, options)?;
    let mut subject = Subject { name: name.to_owned(), ..Subject::default() };
    if part == Some(Part::Loss) && arguments.program.backward {
        let programs = loss_programs(trace, options).map_err(of_case)?;
        subject.stages = shown("", programs.joint);
        subject.stages.extend(shown("forward: ", programs.forward));
        subject.stages.extend(shown("backward: ", programs.backward));
        return Ok(subject);
    }
    let Reached { stages, ending } = stages_reached(trace.clone(), options);
    if arguments.orders {
        subject.orders = orders(&trace, options, &stages);
    }
    subject.stages = shown("", stages);
    subject.ending = ending.map(|ending| format!("{}: {}", ending.place(), of_case(ending.error).message));
    // Where compilation fails the page shows the way there.
    if arguments.sources && subject.ending.is_none() {
        match compile(trace, options) {
            Ok((program, _)) => {
                subject.sources = program.sources();
                expect_sources(&subject.sources, &arguments.program.target().to_string())?;
            }
            Err(error) => subject.ending = Some(format!("no kernels: {}", of_case(error).message)),
        }
    }
    Ok(subject)
}

/// What changes if each executor, but the first, is asked first.
fn orders(trace: &Trace, options: &Options, usual: &[Stage]) -> Vec<Order> {
    let executors = options.executor_list(trace.target.kind());
    let one = |first: usize| {
        let mut order = executors.clone();
        order[..=first].rotate_right(1);
        let Reached { stages, ending } =
            stages_reached(trace.clone(), &Options { executors: Some(order), ..options.clone() });
        let claimed = |stages: &[Stage]| stages.iter().find(|stage| stage.name == "claim").map(|s| s.trace.clone());
        let outcome = match (ending, claimed(usual), claimed(&stages), usual.last(), stages.last()) {
            (None, Some(before), Some(after), Some(usual), Some(last)) => Ok(Reordered {
                claimed: Comparison::of(&before, &after),
                before: Totals::of(&usual.trace),
                after: Totals::of(&last.trace),
            }),
            (Some(ending), ..) => Err(format!("{}: {}", ending.place(), of_case(ending.error).message)),
            _ => Err("the program is not compiled to its end".into()),
        };
        Order { first: executors[first].name.to_owned(), outcome }
    };
    (1..executors.len()).map(one).collect()
}

fn shown(before: &str, stages: Vec<Stage>) -> Vec<Shown> {
    stages.into_iter().map(|stage| Shown { name: format!("{before}{}", stage.name), trace: stage.trace }).collect()
}

/// The programs of a file, up to the first that cannot be read.
fn stored(path: &Path) -> Result<Subject, Failed> {
    let text = std::fs::read_to_string(path).map_err(|error| Failed::file(path, error))?;
    Ok(stored_subject(path.display().to_string(), &text))
}
