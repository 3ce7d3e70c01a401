//! `ops new`.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use fulgurite::operator::operators;

use super::Outcome;
use super::output::{Failed, say};

/// Arguments of `ops new`.
#[derive(Args)]
#[command(after_help = "\
The declaration compiles as it is, in the folder of a module that lists it. Its placeholders are wrong on purpose: its
generated tests fail, and say what is to be written, until they are replaced. Nothing is overwritten.

Examples:
  fulgurite ops new swiglu --path ops/src/nn/swiglu.rs
  fulgurite ops new softshrink --torch nn.functional.softshrink")]
pub struct Arguments {
    /// The operator's name, a Rust identifier in lower case.
    #[arg(value_parser = identifier)]
    name: String,
    /// The file to write; NAME.rs in the current folder otherwise. Its folder is made if it is not there.
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,
    /// The function of PyTorch that it mirrors, below `torch.`.
    #[arg(long, value_name = "NAME", value_parser = torch_name)]
    torch: Option<String>,
}

/// Words that Rust keeps for itself (those in lower case that could be meant as a name).
const KEYWORDS: [&str; 49] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "unsafe", "use", "virtual", "where", "while", "yield",
];

fn identifier(text: &str) -> Result<String, String> {
    let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    let plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if !starts || !plain || text.len() > 64 {
        return Err("expected a lower-case letter, then lower-case letters, digits or '_', 64 at most".into());
    }
    if KEYWORDS.contains(&text) {
        return Err("is a word that Rust keeps for itself".into());
    }
    Ok(text.to_owned())
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

/// Writes a declaration.
pub fn run(arguments: &Arguments) -> Outcome {
    let name = &arguments.name;
    if let Some(def) = operators().iter().find(|def| def.name == name) {
        return Err(Failed(format!("'{name}' is declared at {}:{}; choose another name", def.file, def.line)));
    }
    let path = arguments.path.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.rs")));
    let stem = module_name(&path)?;
    let surroundings = Surroundings::of(&path);
    let text = declaration(name, arguments.torch.as_deref(), surroundings);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| Failed::file(folder, error))?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failed::file(&path, "is there already; nothing was written"),
        _ => Failed::file(&path, error),
    })?;
    file.write_all(text.as_bytes()).map_err(|error| Failed::file(&path, error))?;
    say!("wrote {}", path.display())?;
    say!("{}", how_to_list(&path, &stem, surroundings.macros()))?;
    if surroundings == Surroundings::Outside {
        say!(
            "name it where your crate's tests are run, tests/generated.rs:\n    {FACADE}::testing::main_of(&[\"{name}\"])"
        )?;
    }
    Ok(ExitCode::SUCCESS)
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

/// The files that a folder's modules are listed in.
const LISTS: [&str; 3] = ["mod.rs", "lib.rs", "main.rs"];

/// What is to be done before the compiler sees the file. A plain `mod` would not do: the module of the file would hide that
/// of the operator, which has the same name, and its function.
fn how_to_list(path: &Path, stem: &str, crate_of_macros: &str) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let lists = LISTS.iter().map(|name| folder.join(name));
    let there: Vec<(PathBuf, String)> =
        lists.filter_map(|list| std::fs::read_to_string(&list).ok().map(|text| (list, text))).collect();
    if let Some((list, _)) = there.iter().find(|(_, text)| text.contains("operator_files!")) {
        return format!("add to the operator_files! of {}:\n    {stem},", list.display());
    }
    let list =
        there.first().map_or_else(|| "the mod.rs or lib.rs beside it".into(), |(list, _)| list.display().to_string());
    format!("add to {list}:\n    {crate_of_macros}::operator_files! {{ {stem} }}")
}

/// The crate that has everything, for crates outside of this repository.
const FACADE: &str = "fulgurite";

/// What the crate of a declaration can name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Surroundings {
    /// The crate of the operators.
    Operators,
    /// Another crate of this repository, which has them from that one.
    BesideOperators,
    /// A crate that has everything from the facade.
    Outside,
}

impl Surroundings {
    /// As the manifest of the file's crate says.
    fn of(path: &Path) -> Surroundings {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let manifest =
            absolute.ancestors().skip(1).find_map(|folder| std::fs::read_to_string(folder.join("Cargo.toml")).ok());
        match manifest {
            Some(manifest) if manifest.contains("package = \"fulgurite-runtime\"") => {
                match manifest.contains("name = \"fulgurite-ops\"") {
                    true => Surroundings::Operators,
                    false => Surroundings::BesideOperators,
                }
            }
            _ => Surroundings::Outside,
        }
    }

    /// The crate that has the macros.
    fn macros(self) -> &'static str {
        if self == Surroundings::Outside { FACADE } else { "fulgurite_ops_macros" }
    }

    /// The macro, and the operators that a decomposition calls.
    fn imports(self) -> &'static str {
        match self {
            Surroundings::Operators => "use fulgurite_ops_macros::operator;\n\nuse crate::prelude::*;",
            Surroundings::BesideOperators => "use fulgurite_ops::prelude::*;\nuse fulgurite_ops_macros::operator;",
            Surroundings::Outside => "use fulgurite::prelude::*;",
        }
    }
}

fn declaration(name: &str, torch: Option<&str>, surroundings: Surroundings) -> String {
    let imports = surroundings.imports();
    let settings = torch.map(|torch| format!("(torch = \"{torch}\")")).unwrap_or_default();
    format!(
        "\
//! `{name}`.

{imports}

/// PLACEHOLDER: say what `{name}` computes, elementwise or along which dimensions, as a formula.
#[operator{settings}]
pub mod {name} {{
    fn {name}(input: Tensor<Floating>) -> Tensor;

    // PLACEHOLDER: what it is in terms of other operators. Its meta and its gradient follow from this.
    fn decomposition(input: Tensor) -> Tensor {{
        input + input
    }}

    // PLACEHOLDER: the same in f64, straight from the formula and written independently. The consistency tests fail until
    // it is written and the two agree.
    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {{
        elementwise(input, |_| todo!(\"{{}}: write `decomposition`, `reference` and `samples` at PLACEHOLDER\", file!()))
    }}

    // PLACEHOLDER: inputs on which the two must agree, with every argument: typical ones, zero-dimensional and empty
    // ones, odd sizes, extreme values. `s.case(with(s.normal([4, 8])))` adds one.
    fn samples(s: &mut Samples) {{
        s.elementwise_unary(Domain::range(0.5, 2.0));
    }}
}}
"
    )
}
