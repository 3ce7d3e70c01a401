//! `ops list --missing`: the functions of PyTorch on tensors that no linked operator mirrors.

mod names;
mod reasons;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use fulgurite::operator::OperatorKind;
use fulgurite::registry::operators;
use serde::Serialize;

use super::outcome::Outcome;
use super::output::{say, say_json};
use names::{functions, version};
use reasons::{Reason, reason_of};

/// Columns of a line of names.
const COLUMNS: usize = 100;

/// A function of PyTorch that no operator mirrors.
#[derive(Serialize)]
pub struct Missing {
    pub name: &'static str,
    pub namespace: &'static str,
    /// Other names of the same function.
    pub aliases: Vec<&'static str>,
    /// Why there is no such operator, if it is not only to be written.
    pub reason: Option<&'static str>,
    pub instead: Option<&'static str>,
}

/// What of PyTorch is here, and what is not.
#[derive(Serialize)]
pub struct Report {
    pub torch: &'static str,
    /// Functions of PyTorch that take or make tensors, each counted once.
    pub functions: usize,
    /// Those that an operator mirrors.
    pub mirrored: usize,
    pub missing: Vec<Missing>,
}

/// The namespace of a function's name.
fn namespace(name: &str) -> &str {
    name.rsplit_once('.').map_or("torch", |(space, _)| space)
}

/// Every function, and which of them no operator mirrors.
pub fn report(filter: &str) -> Report {
    let functions = functions();
    // An operator mirrors a function by any of its names.
    let own: BTreeMap<&str, &str> =
        functions.iter().flat_map(|(name, all)| all.iter().map(move |alias| (*alias, *name))).collect();
    let operators = operators();
    let named = operators.iter().filter(|def| !matches!(def.kind, OperatorKind::Symbol(_)));
    let here: BTreeSet<&str> = named.filter_map(|def| own.get(def.torch?).copied()).collect();
    let missing = functions
        .iter()
        .filter(|(name, all)| !here.contains(*name) && all.iter().any(|alias| alias.to_lowercase().contains(filter)));
    let row = |(name, all): (&&'static str, &Vec<&'static str>)| {
        let found = reason_of(name);
        Missing {
            name,
            namespace: namespace(name),
            aliases: all.iter().copied().filter(|alias| alias != name).collect(),
            reason: found.map(|found: &Reason| found.reason),
            instead: found.map(|found| found.instead),
        }
    };
    Report { torch: version(), functions: functions.len(), mirrored: here.len(), missing: missing.map(row).collect() }
}

/// Names in lines of at most [`COLUMNS`], indented.
fn lines(names: &[&str]) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for (i, name) in names.iter().enumerate() {
        let word = if i + 1 == names.len() { (*name).to_owned() } else { format!("{name}, ") };
        if column == 0 || column + word.trim_end().len() > COLUMNS {
            text.truncate(text.trim_end().len());
            text += if text.is_empty() { "    " } else { "\n    " };
            column = 4;
        }
        column += word.len();
        text += &word;
    }
    text
}

/// Lists what is missing of the functions whose names contain `filter`.
pub fn run(filter: Option<&str>, json: bool) -> Outcome {
    let report = report(&filter.unwrap_or("").to_lowercase());
    if json {
        say_json(&report)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut spaces: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut reasons: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for row in &report.missing {
        match (row.reason, row.instead) {
            (Some(reason), Some(instead)) => {
                match reasons.iter_mut().find(|known| known.0 == reason && known.1 == instead) {
                    Some(known) => known.2.push(row.name),
                    None => reasons.push((reason, instead, vec![row.name])),
                }
            }
            _ => spaces.entry(row.namespace).or_default().push(row.name),
        }
    }
    for (space, names) in &spaces {
        say!("{space}: {}\n{}", names.len(), lines(names))?;
    }
    for (reason, instead, names) in &reasons {
        say!("no operator here: {reason}; instead: {instead}\n{}", lines(names))?;
    }
    let to_write: usize = spaces.values().map(Vec::len).sum();
    say!(
        "PyTorch {}: {} functions take or make tensors; {} are mirrored, {to_write} are missing, {} have a reason",
        report.torch,
        report.functions,
        report.mirrored,
        report.missing.len() - to_write
    )?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_wrapped() {
        assert_eq!(lines(&["a"]), "    a");
        let names = ["x".repeat(60), "y".repeat(60)];
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(lines(&names), format!("    {},\n    {}", names[0], names[1]));
    }

    #[test]
    fn a_function_is_mirrored_by_any_of_its_names() {
        let report = report("");
        let called = |row: &&Missing, name: &str| row.name == name || row.aliases.contains(&name);
        let missing = |name: &str| report.missing.iter().find(|row| called(row, name));
        // `special.erfc`, `nn.functional.relu` and `Tensor.to` are what the operators say.
        for name in ["erfc", "relu", "Tensor.to", "add", "div"] {
            assert!(missing(name).is_none(), "{name}");
        }
        let nonzero = missing("nonzero").unwrap();
        assert!(nonzero.aliases.contains(&"Tensor.nonzero") && nonzero.reason.is_some());
        assert!(report.missing.len() + report.mirrored == report.functions);
    }
}
