//! `ops golden`: PyTorch's results for the samples of a crate's own operators.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;
use fulgurite::DType;
use fulgurite::operator::{OperatorDef, OperatorKind};
use fulgurite::registry::operators;

use super::ops_samples::export;
use super::outcome::{Failed, Outcome};
use super::output::say;
use crate::cases::resolve_operator;

/// What runs PyTorch, the formulas of operators that PyTorch does not have, and where PyTorch differs.
const SCRIPTS: [(&str, &str); 3] = [
    ("operators.py", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/operators.py"))),
    ("liger.py", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/liger.py"))),
    ("different.json", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/different.json"))),
];

/// What the script imports.
const MODULES: [&str; 2] = ["torch", "safetensors"];

/// Arguments of `ops golden`.
#[derive(Args)]
#[command(after_help = "\
Runs PyTorch on the samples of operators with `torch = \"...\"`, and writes its outputs and gradients to operators.json
and operators.safetensors.gz, which the generated tests `golden` compare with. Without --op these are the operators of the
package of the current folder, or all that are linked where there is no such package. The files are written anew, with
these operators alone. The tests of a package read its folder golden/.

A Python with the packages torch and safetensors is needed; a GPU is not.

Examples:
  fulgurite ops golden
  fulgurite ops golden --op softcap --out golden
  fulgurite ops golden --out tests/golden --python ~/torch/bin/python")]
pub struct Arguments {
    /// Only these operators; any number of times.
    #[arg(long, value_name = "NAME")]
    op: Vec<String>,
    /// Only this element type; otherwise every one that an operator takes.
    #[arg(long)]
    dtype: Option<DType>,
    /// The folder to write to.
    #[arg(long, value_name = "DIR", default_value = "golden")]
    out: PathBuf,
    /// The Python to run; `FULGURITE_PYTHON`, or python3, without it.
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
}

/// Writes the vectors.
pub fn run(arguments: &Arguments) -> Outcome {
    let python = arguments.python.clone().or_else(|| std::env::var_os("FULGURITE_PYTHON").map(PathBuf::from));
    let python = python.unwrap_or_else(|| "python3".into());
    let chosen = chosen(arguments)?;
    expect_modules(&python)?;
    let folder = tempfile::tempdir().map_err(|error| Failed(format!("a temporary folder: {error}")))?;
    let cases = folder.path().join("cases");
    export(&chosen, arguments.dtype, &cases)?;
    for (name, text) in SCRIPTS {
        let path = folder.path().join(name);
        crate::cases::write_whole(&path, text.as_bytes())?;
    }
    let out = std::path::absolute(&arguments.out).unwrap_or_else(|_| arguments.out.clone());
    let ran = Command::new(&python).arg(folder.path().join(SCRIPTS[0].0)).arg(&cases).arg("--out").arg(&out).output();
    let ran = ran.map_err(|error| no_python(&python, &error))?;
    if !ran.status.success() {
        let message = String::from_utf8_lossy(&ran.stderr);
        let last = message.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it failed");
        return Err(Failed(format!("{}: {last}", python.display())));
    }
    say!("{}", String::from_utf8_lossy(&ran.stdout).trim_end())?;
    say!("wrote {} and {}", out.join("operators.json").display(), out.join("operators.safetensors.gz").display())?;
    Ok(ExitCode::SUCCESS)
}

/// The operators: those that are named, those of the package, or all.
fn chosen(arguments: &Arguments) -> Result<Vec<&'static OperatorDef>, Failed> {
    if !arguments.op.is_empty() {
        return arguments.op.iter().map(|name| Ok(resolve_operator(name)?)).collect();
    }
    let all = operators().into_iter().filter(|def| !matches!(def.kind, OperatorKind::Symbol(_)));
    let Some(package) = package(Path::new("Cargo.toml")) else { return Ok(all.collect()) };
    let own: Vec<_> = all.filter(|def| def.package == package).collect();
    match own.is_empty() {
        true => Err(Failed(format!(
            "package {package} declares no operator that is linked into this command; run the crate's own command \
             (`cargo run -- ops golden`), or name operators with --op"
        ))),
        false => Ok(own),
    }
}

/// The name in a manifest; none where it has none, as that of a workspace.
fn package(manifest: &Path) -> Option<String> {
    let text = super::files::read_text(manifest).ok()?;
    let section = text.split("[package]").nth(1)?;
    let line = section.lines().find(|line| line.trim_start().starts_with("name"))?;
    line.split('"').nth(1).map(str::to_owned)
}

/// Fails unless this Python has what the script imports.
fn expect_modules(python: &Path) -> Result<(), Failed> {
    for module in MODULES {
        let ran = Command::new(python).args(["-c", &format!("import {module}")]).output();
        let ran = ran.map_err(|error| no_python(python, &error))?;
        if !ran.status.success() {
            let message = String::from_utf8_lossy(&ran.stderr);
            let last = message.lines().last().unwrap_or("it cannot be imported");
            return Err(Failed(format!(
                "{} has no package {module} ({last}); install it (`pip install torch safetensors numpy`, the CPU's \
                 build is enough) or name another Python with --python or FULGURITE_PYTHON",
                python.display()
            )));
        }
    }
    Ok(())
}

fn no_python(python: &Path, error: &std::io::Error) -> Failed {
    let name = python.display();
    Failed(format!("{name}: {error}; name a Python with torch and safetensors by --python or FULGURITE_PYTHON"))
}
