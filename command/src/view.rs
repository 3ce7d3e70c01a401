//! `view`: programs as a page for a browser.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use fulgurite::executor::ExecutorOptions;
use fulgurite_view::{Subject, page};

use super::files;
use super::git::Repository;
use super::outcome::{Failed, Outcome};
use super::output::{note, printable, say, warn};
use super::programs::{Program, named};
use super::serve::serve;
use super::stored_subject::stored_subject;
use super::view_profile::Profile;
use crate::cases::write_whole;

mod compiled;
mod effects;

use compiled::{Extras, compiled};
use effects::expect_effects;

/// Arguments of `view`.
#[derive(Args)]
#[command(after_help = "\
An operator or a model comes before a file of its name, which is then ./NAME. Files have no options but --option, whose
values the file does not carry: its claims are verified under them.

The page needs no network and no server: open the file in a browser. Two subjects are compared, stage by stage. A file
is a stored trace, what `trace show --stage all` printed, or a snapshot; a text with an error is shown up to it.

Examples:
  fulgurite view softmax --backward -o softmax.html
  fulgurite view gpt2 --size nano --target cuda:sm_90a -o step.html
  fulgurite view before.trace after.trace -o compared.html
  fulgurite view gelu --target cuda:sm_90a --sources -o gelu.html
  fulgurite view step.trace --serve 8000
  fulgurite view llama --target cuda:sm_90a --orders -o orders.html
  fulgurite view gelu --target cuda:sm_90a --against '--no-fuse' -o split.html
  fulgurite view gpt2 --target cuda:sm_90a --against '--executors liger,default' -o executors.html
  fulgurite view step.trace --profile runs/nano/profile.json -o time.html")]
pub struct Arguments {
    #[cfg_attr(
        feature = "models",
        doc = "An operator, a model (`gpt2`, `gpt2-loss`, `gpt2-decode`, `llama`, ...), a file, or a file of a commit \
               (`main:tests/snapshots/gelu.snap`); two of them are compared."
    )]
    #[cfg_attr(
        not(feature = "models"),
        doc = "An operator, a file, or a file of a commit (`main:tests/snapshots/gelu.snap`); two of them are compared."
    )]
    #[arg(required = true, num_args = 1..=2)]
    what: Vec<String>,
    /// The file of the page.
    #[arg(long, short, value_name = "FILE", required_unless_present = "serve")]
    out: Option<PathBuf>,
    /// Serves the page to browsers of this machine, and anew when a file that it shows changes; any free port without
    /// one.
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "0", conflicts_with = "out")]
    serve: Option<u16>,
    /// Compares the program with itself under other options, in one word: '--executors cuda --no-fuse'. They replace
    /// those of the command line, or add to them.
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    against: Option<String>,
    /// With the sources of the program's kernels.
    #[arg(long)]
    sources: bool,
    /// With what changes if one executor is asked before all others, for each of them: as many compilations.
    #[arg(long)]
    orders: bool,
    #[command(flatten)]
    profile: Profile,
    #[command(flatten)]
    program: Program,
}

/// What the page shows.
enum What<'a> {
    /// A program of an operator or a model.
    Program(&'a str),
    /// A file.
    File(&'a Path),
    /// A file of a commit, `main:tests/snapshots/gelu.snap`: its name and its text.
    Committed(&'a str, String),
}

/// Writes the page. `given` says whether an option was written.
pub fn run(arguments: &Arguments, given: &dyn Fn(&str) -> bool) -> Outcome {
    let what = arguments.what.iter().map(|name| found(name)).collect::<Result<Vec<_>, _>>()?;
    let with = Extras { sources: arguments.sources, orders: arguments.orders };
    let names: Vec<&str> = what.iter().filter_map(What::program).collect();
    expect_effects(&names, &arguments.program, &Program::written(given), with)?;
    let profile = arguments.profile.profile.as_deref();
    let read: Vec<PathBuf> = what.iter().filter_map(What::file).chain(profile).map(Path::to_owned).collect();
    let of_executors = arguments.program.executor_options()?;
    let subject = |of: &What| match of {
        What::Program(name) => compiled(name, &arguments.program, with),
        What::File(path) => stored(path, &of_executors),
        What::Committed(name, text) => Ok(stored_subject((*name).to_owned(), text, &of_executors)),
    };
    let make = || {
        let timing = arguments.profile.read(what.len() + usize::from(arguments.against.is_some()))?;
        let mut subjects = what.iter().map(subject).collect::<Result<Vec<_>, Failed>>()?;
        if let Some(words) = &arguments.against {
            subjects.push(against(&what, words, arguments, with)?);
        }
        if let Some(timing) = timing {
            let told = subjects[0].add_timing(timing).map(printable);
            told.iter().for_each(|told| note(&format!("--profile: {told}")));
        }
        subjects.iter().for_each(warn_of);
        Ok(page(&subjects))
    };
    let Some(out) = &arguments.out else { return serve(arguments.serve.unwrap_or(0), &read, &make) };
    for path in &read {
        files::differ(path, out)?;
    }
    files::expect_no_program(out)?;
    let page = make()?;
    write_whole(out, page.as_bytes())?;
    say!("wrote {}, {} bytes", out.display(), page.len())?;
    Ok(ExitCode::SUCCESS)
}

impl<'a> What<'a> {
    fn program(&self) -> Option<&'a str> {
        match self {
            What::Program(name) => Some(name),
            What::File(_) | What::Committed(..) => None,
        }
    }

    fn file(&self) -> Option<&Path> {
        match self {
            What::Program(_) | What::Committed(..) => None,
            What::File(path) => Some(path),
        }
    }
}

/// The same subject with other options.
fn against(what: &[What], words: &str, arguments: &Arguments, with: Extras) -> Result<Subject, Failed> {
    let [What::Program(name)] = what else {
        return Err(Failed("--against: compares one operator or model with itself under other options".into()));
    };
    let wrong = |failed: Failed| Failed(format!("--against '{words}': {}", failed.0));
    let split: Vec<&str> = words.split_whitespace().collect();
    if split.is_empty() {
        return Err(wrong(Failed("expected options of a program, such as '--executors cuda'".into())));
    }
    let (program, written) = arguments.program.with(&split).map_err(wrong)?;
    expect_effects(&[name], &program, &written, with).map_err(wrong)?;
    let mut subject = compiled(name, &program, with).map_err(wrong)?;
    subject.name = format!("{name} {words}");
    Ok(subject)
}

/// Tells what the page tells: what could not be read, or compiled to its end.
fn warn_of(subject: &Subject) {
    let unread = subject.unread.as_ref();
    let unread = unread.map(|of| format!("line {}, column {}: {}", of.place, of.column, of.message));
    for message in subject.ending.clone().into_iter().chain(unread) {
        warn(&printable(&format!("{}: {message}", subject.name)));
    }
}

/// What is called `name`. Operators and models come first: which files there are does not change what they mean.
fn found(name: &str) -> Result<What<'_>, Failed> {
    let path = Path::new(name);
    match named(name) {
        Ok(_) => Ok(What::Program(name)),
        Err(_) if path.exists() => Ok(What::File(path)),
        Err(Failed(message)) => match committed(name)? {
            Some(text) => Ok(What::Committed(name, text)),
            None => Err(Failed(format!("{message}, and there is no such file"))),
        },
    }
}

/// The text of `COMMIT:PATH`, a path from the top of the repository; none if the part before the colon is no commit.
fn committed(name: &str) -> Result<Option<String>, Failed> {
    let Some((revision, path)) = name.split_once(':').filter(|(revision, _)| !revision.is_empty()) else {
        return Ok(None);
    };
    // Outside of a repository there are no commits to look at.
    let Ok(repository) = Repository::open("view reads files of commits") else { return Ok(None) };
    let Ok(commit) = repository.commit(revision) else { return Ok(None) };
    let bytes = repository.file_of(&commit, path)?;
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| Failed(format!("{name}: is not UTF-8, expected the text of a trace")))
}

/// The programs of a file, up to the first that cannot be read.
fn stored(path: &Path, options: &ExecutorOptions) -> Result<Subject, Failed> {
    let text = files::read_text(path)?;
    Ok(stored_subject(path.display().to_string(), &text, options))
}
