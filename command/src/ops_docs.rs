//! `ops docs`: the reference of operators, a page for each.

mod differences;
mod formula;
mod frame;
mod index;
mod page;
mod picture;
mod precision;
mod prose;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use fulgurite::operator::OperatorDef;
use fulgurite::registry::operators;
use indicatif::{ProgressBar, ProgressStyle};

use super::outcome::{Failed, Outcome};
use super::output::say;
use crate::cases::resolve_operator;
use differences::Differences;

const STYLE: &str = include_str!("ops_docs/reference.css");
/// The file by which a folder is known as a reference, which may be replaced.
const MARK: &str = "reference.css";

/// Arguments of `ops docs`.
#[derive(Args)]
#[command(after_help = "\
The folder has an index with a search, and a page for each operator: its signature, formula, parameters, executors,
precision, samples, refused calls, traces, picture, and what differs from PyTorch. It needs no network and no server:
open index.html in a browser. A reference that is there is replaced as a whole; any other folder that holds files is
refused.

Examples:
  fulgurite ops docs --out reference/
  fulgurite ops docs --op softmax --op gelu --out reference/")]
pub struct Arguments {
    /// The folder of the reference.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Only this operator; any number of times.
    #[arg(long, value_name = "NAME")]
    op: Vec<String>,
}

/// Writes the reference.
pub fn run(arguments: &Arguments) -> Outcome {
    let mut chosen: Vec<&'static OperatorDef> = match arguments.op.is_empty() {
        true => operators(),
        false => arguments.op.iter().map(|name| Ok(resolve_operator(name)?)).collect::<Result<_, Failed>>()?,
    };
    chosen.sort_by_key(|def| def.name);
    chosen.dedup_by_key(|def| def.name);
    let out = &arguments.out;
    expect_replaceable(out)?;
    let differences = Differences::read().map_err(|error| Failed(format!("the lists of differences: {error}")))?;
    let folder = beside(out)?;
    fs::create_dir(folder.path().join("op")).map_err(|error| Failed::file(folder.path(), error))?;
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).map_err(|error| Failed::file(&path, error))
    };
    let bar = ProgressBar::new(chosen.len() as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} operators, {elapsed} {msg}");
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    // A reference or a program that panics is that of one page, which goes without it.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let pages = chosen.iter().try_for_each(|def| {
        bar.set_message(def.name);
        bar.inc(1);
        write(&format!("op/{}", frame::file_name(def.name)), &page::page(def, &differences))
    });
    std::panic::set_hook(hook);
    bar.finish_and_clear();
    pages?;
    write("index.html", &index::index(&chosen))?;
    write("missing.html", &index::missing())?;
    write(MARK, STYLE)?;
    replace(folder, out)?;
    say!("wrote {}, {} operators", out.join("index.html").display(), chosen.len())?;
    Ok(ExitCode::SUCCESS)
}

/// Fails if the folder holds what is no reference.
fn expect_replaceable(out: &Path) -> Result<(), Failed> {
    match fs::read_dir(out) {
        Ok(entries) => match entries.count() == 0 || out.join(MARK).is_file() {
            true => Ok(()),
            false => Err(Failed::file(out, "holds files and is no reference of operators; nothing was written")),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failed::file(out, error)),
    }
}

/// A folder on the file system of `out`, which is removed unless it takes its place.
fn beside(out: &Path) -> Result<tempfile::TempDir, Failed> {
    let whole = std::path::absolute(out).map_err(|error| Failed::file(out, error))?;
    let parent = whole.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(|error| Failed::file(parent, error))?;
    let made = tempfile::Builder::new().prefix(".reference-").tempdir_in(parent);
    made.map_err(|error| Failed::file(parent, error))
}

/// Puts the finished folder in the place of `out`: a reader sees the old reference or the new one.
fn replace(made: tempfile::TempDir, out: &Path) -> Result<(), Failed> {
    let failed = |error| Failed::file(out, error);
    let made = made.keep();
    // Folders of `tempfile` are for their owner alone.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    }
    let old = beside(out)?;
    let kept = old.path().join("old");
    if out.exists() {
        fs::rename(out, &kept).map_err(failed)?;
    }
    fs::rename(&made, out).map_err(|error| {
        let _ = fs::rename(&kept, out);
        let _ = fs::remove_dir_all(&made);
        failed(error)
    })
}
