//! Options that would change nothing.

use super::super::outcome::Failed;
use super::super::programs::{Named, Part, Program, named};
use super::compiled::Extras;

/// Options of models alone. `--set` says itself whose it is.
const OF_MODELS: [&str; 7] =
    ["--size", "--layers", "--tokenizer", "--batch", "--context", "--activation-checkpointing", "--logits"];

/// Options of operators alone.
const OF_OPERATORS: [&str; 1] = ["--sample"];

/// Fails if an option changes nothing of the programs that are called `names`; what is shown beside them is files.
/// `written` are the options of the program that were written.
pub fn expect_effects(names: &[&str], program: &Program, written: &[String], with: Extras) -> Result<(), Failed> {
    let extras = [(with.sources, "--sources"), (with.orders, "--orders")];
    let extras: Vec<&str> = extras.into_iter().filter(|(given, _)| *given).map(|(_, name)| name).collect();
    let named: Vec<(&str, Named)> =
        names.iter().map(|name| Ok((*name, named(name)?))).collect::<Result<_, Failed>>()?;
    if named.is_empty() {
        // What executors take of a file's lines depends on their options.
        let written = written.iter().map(String::as_str).filter(|written| *written != "--option");
        let written = extras.into_iter().chain(written).collect::<Vec<_>>();
        return match written.is_empty() {
            true => Ok(()),
            false => Err(Failed(format!(
                "{}: programs of operators and models have options, files are shown as they are",
                written.join(", ")
            ))),
        };
    }
    let is_model = |(_, of): &(&str, Named)| matches!(of, Named::Model(..));
    let is_operator = |(_, of): &(&str, Named)| matches!(of, Named::Operator(_));
    for (others, are, what) in [
        (&OF_MODELS[..], named.iter().any(is_model), "models"),
        (&OF_OPERATORS, named.iter().any(is_operator), "operators"),
    ] {
        let idle: Vec<&str> = written.iter().map(String::as_str).filter(|name| others.contains(name)).collect();
        if !are && !idle.is_empty() {
            let names = names.join(" and ");
            return Err(Failed(format!("{}: of {what}, and changes nothing of {names}", idle.join(", "))));
        }
    }
    for (name, of) in &named {
        if program.backward && !extras.is_empty() && matches!(of, Named::Model(_, Part::Loss)) {
            let backward = format!("{name} --backward is a forward and a backward one");
            return Err(Failed(format!("{}: of one program, and {backward}", extras.join(", "))));
        }
    }
    if with.orders && program.options()?.executor_list(program.target().kind()).len() < 2 {
        return Err(Failed("--orders: a single executor has no other order".into()));
    }
    Ok(())
}
