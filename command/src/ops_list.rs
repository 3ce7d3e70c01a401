//! `ops list`.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use fulgurite::executor::rewrites;
use fulgurite::operator::Autocast;
use fulgurite::registry::operators;

use super::description::{kind_of, takes_part};
use super::ops_missing;
use super::outcome::Outcome;
use super::output::{say, say_json};
use crate::cases::hint;

/// Arguments of `ops list`.
#[derive(Args)]
#[command(after_help = "Examples:\n  fulgurite ops list --kind prim\n  fulgurite ops list --kind rewrite\n  \
                  fulgurite ops list --autocast\n  fulgurite ops list --filter norm --json\n  \
                  fulgurite ops list --missing")]
pub struct Arguments {
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// Only operators of this kind.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Only operators whose name, PyTorch name or documentation contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// The autocast class of each operator; only operators that declare one.
    #[arg(long)]
    autocast: bool,
    /// The functions of PyTorch on tensors that no operator mirrors, by namespace, and why some are no operators.
    #[arg(long, conflicts_with_all = ["kind", "autocast"])]
    missing: bool,
}

/// A kind of operator.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Does not decompose.
    Prim,
    /// Has a decomposition.
    Composite,
    /// Owned by an executor.
    Symbol,
    /// A pattern of operators and its equivalent replacement.
    Rewrite,
}

#[derive(serde::Serialize)]
struct Row {
    name: &'static str,
    kind: &'static str,
    executor: Option<String>,
    torch: Option<&'static str>,
    signature: String,
    summary: String,
    autocast: Option<&'static str>,
    file: &'static str,
    line: u32,
}

/// The first sentence.
pub fn summary(docs: &str) -> String {
    let first = docs.trim().split("\n\n").next().unwrap_or("");
    let words: Vec<&str> = first.split_whitespace().collect();
    let end = words
        .iter()
        .position(|word| word.ends_with(['.', ':']) && !word.ends_with("i.e."))
        .map_or(words.len(), |i| i + 1);
    words[..end].join(" ").trim_end_matches(['.', ':']).to_owned()
}

/// Lists operators.
pub fn run(arguments: &Arguments) -> Outcome {
    if arguments.missing {
        return ops_missing::run(arguments.filter.as_deref(), arguments.json);
    }
    if arguments.kind == Some(Kind::Rewrite) {
        return list_rewrites(arguments);
    }
    let filter = arguments.filter.as_deref().unwrap_or("").to_lowercase();
    let rows: Vec<Row> = operators()
        .iter()
        .filter(|def| {
            [def.name, def.torch.unwrap_or(""), def.docs].iter().any(|text| text.to_lowercase().contains(&filter))
        })
        .map(|def| {
            let (kind, executor) = kind_of(def);
            Row {
                name: def.name,
                kind,
                executor,
                torch: def.torch,
                signature: def.signature(),
                summary: summary(def.docs),
                autocast: def.autocast.map(Autocast::name),
                file: def.file,
                line: def.line,
            }
        })
        .filter(|row| {
            arguments.kind.is_none_or(|kind| {
                let name = kind.to_possible_value().map(|value| value.get_name().to_owned());
                name.as_deref() == Some(row.kind)
            })
        })
        .filter(|row| !arguments.autocast || row.autocast.is_some())
        .collect();
    if arguments.json {
        say_json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.autocast {
        return say_classes(&rows);
    }
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    for row in &rows {
        say!("{:width$}  {:9}  {}", row.name, row.kind, row.summary)?;
    }
    let near = match &arguments.filter {
        Some(filter) if rows.is_empty() => hint(filter),
        _ => String::new(),
    };
    say!("{} of {} operators{near}", rows.len(), operators().len())?;
    Ok(ExitCode::SUCCESS)
}

#[derive(serde::Serialize)]
struct RewriteRow {
    name: &'static str,
    kind: &'static str,
    takes_part: String,
    summary: String,
    file: &'static str,
    line: u32,
}

fn list_rewrites(arguments: &Arguments) -> Outcome {
    let filter = arguments.filter.as_deref().unwrap_or("").to_lowercase();
    let all = rewrites();
    let rows: Vec<RewriteRow> = all
        .iter()
        .filter(|def| [def.name, def.docs].iter().any(|text| text.to_lowercase().contains(&filter)))
        .map(|def| RewriteRow {
            name: def.name,
            kind: "rewrite",
            takes_part: takes_part(def),
            summary: summary(def.docs),
            file: def.file,
            line: def.line,
        })
        .collect();
    if arguments.json {
        say_json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    for row in &rows {
        say!("{:width$}  {}", row.name, row.summary)?;
    }
    say!("{} of {} rewrites", rows.len(), all.len())?;
    Ok(ExitCode::SUCCESS)
}

/// The classes of autocast, each with its operators.
fn say_classes(rows: &[Row]) -> Outcome {
    for class in Autocast::ALL {
        let names: Vec<&str> =
            rows.iter().filter(|row| row.autocast == Some(class.name())).map(|row| row.name).collect();
        if !names.is_empty() {
            say!("{:6}  {}", class.name(), class.describe())?;
            say!("        {}", names.join(", "))?;
        }
    }
    say!(
        "        Operators that declare no class keep their operands; one whose decomposition holds a product is \
         opened."
    )?;
    Ok(ExitCode::SUCCESS)
}
