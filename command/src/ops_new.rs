//! `ops new`.

mod crate_files;
mod device_kind;
mod implementation;
mod kind;
mod known;
mod list;
mod plan;
mod surroundings;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use fulgurite::executor::{executors, rewrites};
use fulgurite::registry::operators;

use kind::Kind;
use surroundings::{Surroundings, folders_above};

use super::files::write_new;
use super::outcome::{Failed, Outcome};
use super::output::say;
use super::rust_names::identifier;

/// Arguments of `ops new`.
#[derive(Args)]
#[command(after_help = "\
Without a kind a composite is written. The declaration compiles as it is, and its file is added to the `operator_files!` of the folder's
mod.rs or lib.rs. Its placeholders are wrong on purpose: its generated tests fail, and say what is to be written, until they
are replaced. Nothing is overwritten. Operators of another crate are known to that crate's own
command, executors also to any command that writes beside their declaration. --crate writes the files of a crate whose
command knows the crate's own declarations.

Examples:
  fulgurite ops new --crate my_operators
  fulgurite ops new --device-kind npu
  fulgurite ops new reglu --path ops/src/nn/reglu.rs
  fulgurite ops new softshrink --torch nn.functional.softshrink
  fulgurite ops new fast --executor
  fulgurite ops new faster --executor --device cuda
  fulgurite ops new scaled_sum --symbol fast
  fulgurite ops new relu_by_fast --implementation fast --of relu
  fulgurite ops new sum_of_negatives --rewrite")]
pub struct Arguments {
    /// The name: a Rust identifier in lower case.
    #[arg(value_parser = identifier, required_unless_present_any = ["crate_folder", "device_kind"])]
    name: Option<String>,
    /// The folder of a new crate of the same name: Cargo.toml, src/lib.rs, src/main.rs, tests/generated.rs, and
    /// Cargo.lock and .cargo/config.toml, with which it shares what the library has built.
    #[arg(long = "crate", value_name = "FOLDER", id = "crate_folder",
        conflicts_with_all = ["name", "path", "torch", "kind", "device"])]
    crate_folder: Option<PathBuf>,
    /// The folder of a new crate that brings a kind of device of the same name: a device in memory of the host,
    /// to be replaced by a driver's calls, with an executor, a kernel, and the tests of every operator on it.
    #[arg(long, value_name = "FOLDER",
        conflicts_with_all = ["name", "path", "torch", "kind", "device", "crate_folder"])]
    device_kind: Option<PathBuf>,
    /// The new crate builds in a target folder of its own, with the newest versions of other packages. Otherwise it
    /// shares the library's target folder and versions, so that what is built there is not built again.
    #[arg(long, conflicts_with = "name")]
    own_target: bool,
    /// The file to write; the default is NAME.rs in the current folder. Missing folders are created.
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,
    /// The function of PyTorch that it mirrors, below `torch.`.
    #[arg(long, value_name = "NAME", value_parser = torch_name, conflicts_with_all = ["symbol", "implementation", "rewrite", "executor"])]
    torch: Option<String>,
    /// A prim, which does not decompose.
    #[arg(long, group = "kind")]
    prim: bool,
    /// A kernel symbol of this executor.
    #[arg(long, value_name = "EXECUTOR", group = "kind", value_parser = identifier)]
    symbol: Option<String>,
    /// An implementation by this executor of the operator that `--of` names.
    #[arg(long, value_name = "EXECUTOR", group = "kind", value_parser = identifier, requires = "of")]
    implementation: Option<String>,
    /// The operator that an implementation is of.
    #[arg(long, value_name = "OPERATOR", requires = "implementation")]
    of: Option<String>,
    /// A pattern of operators and its equivalent replacement.
    #[arg(long, group = "kind")]
    rewrite: bool,
    /// An executor.
    #[arg(long, group = "kind")]
    executor: bool,
    /// The kind of device that the executor runs on: `cpu`, or one that is linked, such as `cuda`; the default is
    /// `cpu`. (Of --symbol and --implementation it is known: it is that of their executor. A kernel for `cuda` is in
    /// NAME.cu.)
    #[arg(long, value_name = "KIND", conflicts_with_all = ["torch", "prim", "rewrite"])]
    device: Option<String>,
}

fn torch_name(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix("torch.").unwrap_or(text);
    let word = |word: &str| {
        !word.is_empty()
            && !word.starts_with(|first: char| first.is_ascii_digit())
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if bare.split('.').all(word) { Ok(bare.to_owned()) } else { Err("expected words with points between".into()) }
}

impl Arguments {
    fn kind(&self, path: &Path) -> Result<Kind<'_>, Failed> {
        let torch = self.torch.as_deref();
        let device_of = |executor: &str| {
            let device = known::device_of(executor, path)?;
            match &self.device {
                Some(given) if *given != device => {
                    Err(Failed(format!("--device {given}: executor '{executor}' runs on {device}")))
                }
                _ => Ok(device),
            }
        };
        if let Some(executor) = &self.symbol {
            return Ok(Kind::Symbol { executor, device: device_of(executor)? });
        }
        if let (Some(executor), Some(of)) = (&self.implementation, &self.of) {
            return Ok(Kind::Implementation { executor, device: device_of(executor)?, of: known::operator(of)? });
        }
        Ok(match (self.prim, self.rewrite, self.executor) {
            (_, _, true) => Kind::Executor { device: known::kind(self.device.as_deref().unwrap_or(known::HOST))? },
            _ if self.device.is_some() => {
                return Err(Failed("--device: goes with --executor, --symbol or --implementation".into()));
            }
            (true, _, _) => Kind::Prim { torch },
            (_, true, _) => Kind::Rewrite,
            _ => Kind::Composite { torch },
        })
    }
}

/// Where something of that name is declared already.
fn declared(name: &str, kind: &Kind<'_>) -> Option<String> {
    match kind {
        Kind::Implementation { .. } => None,
        Kind::Rewrite => rewrites()
            .iter()
            .find(|rewrite| rewrite.name == name)
            .map(|rewrite| format!("{}:{}", rewrite.file, rewrite.line)),
        Kind::Executor { .. } => {
            executors().iter().find(|own| own.name == name).map(|_| "an executor that is linked".to_owned())
        }
        Kind::Composite { .. } => find(name),
        Kind::Prim { .. } => find(&format!("prims::{name}")),
        Kind::Symbol { executor, .. } => find(&format!("{executor}::{name}")),
    }
}

fn find(name: &str) -> Option<String> {
    operators().into_iter().find(|def| def.name == name).map(|def| format!("{}:{}", def.file, def.line))
}

/// Writes a declaration.
pub fn run(arguments: &Arguments) -> Outcome {
    if let Some(folder) = &arguments.crate_folder {
        return crate_files::write_all(folder, arguments.own_target);
    }
    if let Some(folder) = &arguments.device_kind {
        return device_kind::write_all(folder, arguments.own_target);
    }
    let Some(name) = &arguments.name else { return Err(Failed("say what it is called".into())) };
    let path = arguments.path.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.rs")));
    let kind = arguments.kind(&path)?;
    if let Some(place) = declared(name, &kind) {
        return Err(Failed(format!("'{name}' is declared at {place}; choose another name")));
    }
    let stem = module_name(&path)?;
    let surroundings = Surroundings::of(&path);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| Failed::file(folder, error))?;
    }
    let kernel = path.with_file_name(format!("{name}.cu"));
    let cuda = kind.kernel_device() == Some(known::CUDA);
    if cuda && kernel.exists() {
        return Err(Failed::file(&kernel, "is there already; nothing was written"));
    }
    write_new(&path, &text::declaration(name, &kind, surroundings, &path))?;
    if cuda {
        write_new(&kernel, &text::kernel(name, &kind))?;
    }
    match list::add(&path, &stem, surroundings.macros()) {
        Ok(list::Added::To(list)) => say!("listed it in {}", list.display())?,
        Ok(list::Added::Already(list)) => say!("{} lists it", list.display())?,
        Ok(list::Added::Nowhere) => {
            say!(
                "add to the mod.rs or lib.rs beside it:\n    {}::operator_files! {{ {stem} }}",
                surroundings.macros()
            )?;
        }
        Err((list, error)) => {
            return Err(Failed::file(&list, format!("{error}; add `{stem},` to its operator_files!")));
        }
    }
    if surroundings == Surroundings::Outside && !runs_its_tests(&path) {
        say!("to run its tests, have in Cargo.toml\n{}and in tests/generated.rs", indented(crate_files::TEST_TARGET))?;
        say!("{}(`ops new --crate FOLDER` writes a crate with these)", indented(&crate_files::test_file("CRATE")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The text with each line moved to the right.
fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}").trim_end().to_owned() + "\n").collect()
}

/// What `operator_files!` calls a file: its name without `.rs`, which must be an identifier.
fn module_name(path: &Path) -> Result<String, Failed> {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    if path.extension().is_none_or(|extension| extension != "rs") {
        return Err(Failed::file(path, "expected a file whose name ends in .rs"));
    }
    identifier(&stem)
        .map_err(|message| Failed::file(path, format!("its name without .rs becomes a module's: {message}")))
}

/// Whether the file's crate has a test target that runs whatever the crate declares.
fn runs_its_tests(path: &Path) -> bool {
    let root = folders_above(path).into_iter().find(|folder| folder.join("Cargo.toml").is_file());
    let tests = root.and_then(|root| std::fs::read_dir(root.join("tests")).ok());
    let runs = |path: PathBuf| std::fs::read_to_string(path).is_ok_and(|text| text.contains("main_of_crate!"));
    tests.is_some_and(|tests| tests.flatten().any(|entry| runs(entry.path())))
}
