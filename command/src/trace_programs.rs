//! `trace show` of a forward and a backward program.

use std::process::ExitCode;

use fulgurite::compile::{Options, Programs, Stage, prepare};
use fulgurite::trace::Trace;

use super::outcome::{Failed, Outcome};
use super::output::say;
use super::trace_sources::{SOURCES, print_sources};
use crate::cases::of_case;

/// Prints both programs at a stage, with the values that are saved between them: as they are split if no stage is
/// named. A stage before the split is one trace.
pub fn run(programs: &Programs, stage: Option<&str>, options: &Options, show: impl Fn(&Trace) -> String) -> Outcome {
    let Programs { joint, forward, backward } = programs;
    let named = |stages: &[Stage], name: &str| stages.iter().find(|stage| stage.name == name).map(|s| show(&s.trace));
    match stage.unwrap_or("split") {
        "all" => {
            for stage in joint {
                say!("# === {} ===\n{}\n", stage.name, show(&stage.trace))?;
            }
            for stage in forward {
                say!("# === forward: {} ===\n{}\n", stage.name, show(&stage.trace))?;
            }
            say!("{}", saved(programs))?;
            for stage in backward {
                say!("\n# === backward: {} ===\n{}", stage.name, show(&stage.trace))?;
            }
        }
        SOURCES => {
            let (first, second) = prepare(programs, options).map_err(of_case)?;
            let mut sources = first.sources();
            let more = second.sources();
            sources
                .extend(more.into_iter().filter(|source| !first.sources().iter().any(|own| own.text == source.text)));
            return print_sources(&sources, &first.trace().target.to_string());
        }
        name => {
            if let Some(text) = named(joint, name) {
                say!("{text}")?;
            } else if let (Some(first), Some(second)) = (named(forward, name), named(backward, name)) {
                say!("{first}\n\n{}\n{second}", saved(programs))?;
            } else {
                let known: Vec<&str> = joint.iter().chain(forward).map(|stage| stage.name.as_str()).collect();
                return Err(Failed(format!(
                    "no stage is called '{name}', there are: {}, all, sources",
                    known.join(", ")
                )));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The values that the forward program saves, a line each.
fn saved(programs: &Programs) -> String {
    let saved = programs.saved();
    let bytes = |argument: bool| -> usize {
        saved.iter().filter(|value| value.argument == argument).map(|value| value.meta.bytes()).sum()
    };
    let arguments = saved.iter().filter(|value| value.argument).count();
    let mut text = format!(
        "# saved for the backward program: {} values of {} bytes that the forward program makes, and {arguments} \
         arguments of {} bytes\n",
        saved.len() - arguments,
        bytes(false),
        bytes(true)
    );
    for value in saved {
        let what = if value.argument { ", an argument" } else { "" };
        text += &format!("#   {}: {}, {} bytes{what}\n", value.name, value.meta, value.meta.bytes());
    }
    text
}
