//! `tune`.

mod asked;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use fulgurite::choices::{
    Call, Choices, Confirmed, Entry, Kept, Machine, Purpose, Records, VERSION, confirm, print, with_winner_of,
};
use fulgurite::compile::{Options, StageName, loss_programs, stages};
use fulgurite::trace::Trace;
use fulgurite::{Device, Target};

use self::asked::{Listing, Measuring};
use super::outcome::{Failed, Outcome};
use super::output::{mark_debug_build, note, say, warn};
use super::programs::{Part, Program, named};
use super::{files, target, trace_files};
use crate::cases::{of_case, write_whole};

/// Arguments of `tune`.
#[derive(Args)]
#[command(after_help = "\
Where several executors take a call, or its decomposition may run in their place, they are measured on the device with
the shapes of the program, cold caches, one run after the other. The winners are kept below the cache and, with -o, in a
file for --choices. A winner that does not make the whole program faster is left to the list of executors, unless
--no-confirm is given. A record is kept where no candidate is faster by more than the noise of measuring: 2 % of a
call's time, 13 of 15 runs of a program.

Examples:
  fulgurite tune gpt2 --size 124M --tokenizer gpt2 --autocast bf16 --batch 16 --context 1024 -o gpt2.choices
  fulgurite tune gpt2 --size 124M --batch 16 --target cuda:sm_90a --list
  fulgurite tune softmax rms_norm --backward --from 0
  fulgurite tune step.trace --device cuda -o step.choices
  fulgurite trace show gpt2 --target cuda:sm_90a --choices gpt2.choices --explain")]
pub struct Arguments {
    /// Operators or models, as `trace show` has them, or files of traces.
    #[arg(required = true, value_name = "NAME|FILE")]
    programs: Vec<String>,
    /// Writes the records to this file.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Where it measures: cpu, cuda, cuda:1, ..., or auto for the first device that is available. Programs are compiled
    /// for this device.
    #[arg(long, default_value = "auto", value_name = "DEVICE", value_parser = Device::named)]
    device: Device,
    /// Measures calls that take at least so long by their bytes and arithmetic at the device's rates, in microseconds.
    #[arg(long, default_value_t = 20, value_name = "MICROSECONDS")]
    from: u64,
    /// Prints calls and their candidates for --target, and measures nothing: no device is needed.
    #[arg(long, conflicts_with_all = ["out", "again", "no_confirm", "device"])]
    list: bool,
    /// Measures again what is recorded, with candidates that ended a process.
    #[arg(long)]
    again: bool,
    /// Keeps the winners of single calls without running whole programs with and without them.
    #[arg(long)]
    no_confirm: bool,
    #[command(flatten)]
    program: Program,
}

/// Measures what programs have to choose from.
pub fn run(arguments: &Arguments, given: &dyn Fn(&str) -> bool) -> Outcome {
    if arguments.list {
        return list(arguments);
    }
    if given("target") {
        return Err(Failed("--target: programs are compiled for the device that measures, expected --device".into()));
    }
    let device = arguments.device;
    let program = arguments.program.on(Target::of(device)?);
    let mut options = program.options()?;
    if options.choices.is_some() {
        return Err(Failed("--choices: is what this command measures, expected -o FILE to write them".into()));
    }
    options.device = Some(device).filter(|device| !device.is_cpu());
    let mut records = Records::new(device)?.from(Duration::from_micros(arguments.from));
    match Records::cache() {
        Some(folder) => records = records.keep_in(folder),
        None => warn("no folder for caches is known on this system; the records are kept in --out only"),
    }
    if arguments.again {
        records = records.again();
    }
    if let Some(out) = &arguments.out {
        files::can_be_written(&[out])?;
        arguments.programs.iter().try_for_each(|name| files::differ(Path::new(name), out))?;
    }
    let records = Arc::new(records);
    let earlier = earlier(&records, device)?;
    let tuned = Tuned { target: records.target().clone(), options, program, earlier };
    tuned.look_at(&arguments.programs)?;
    let mut stands: Vec<(Call, String)> = Vec::new();
    let mut entries: Vec<Arc<Entry>> = Vec::new();
    for name in &arguments.programs {
        let asked = tuned.measured(name, &records)?;
        if asked.is_empty() {
            tuned.tell_why_nothing(name, arguments.from)?;
        }
        let asked = asked.into_iter().map(|entry| match tuned.standing(&entry) {
            Some(standing) => {
                stands.retain(|(call, _)| *call != entry.call);
                stands.push((entry.call.clone(), table::standing(&entry, &standing)));
                Arc::new(standing)
            }
            None => entry,
        });
        let asked: Vec<Arc<Entry>> = asked.collect();
        say!("{name} on {device}: {}", table::count(asked.len()))?;
        let confirmed = match arguments.no_confirm {
            true => asked,
            false => tuned.confirmed(name, device, &records, &asked)?,
        };
        for entry in confirmed {
            match entries.iter_mut().find(|known| known.call == entry.call) {
                // What one program left to the list stays there.
                Some(known) if known.note.is_none() => *known = entry,
                Some(_) => {}
                None => entries.push(entry),
            }
        }
    }
    entries.sort_by(|a, b| a.key().cmp(&b.key()));
    for entry in &entries {
        let stands = stands.iter().find(|(call, _)| *call == entry.call).map(|(_, why)| why.as_str());
        say!("\n{}", table::rows(entry, stands).trim_end())?;
    }
    let (passing, kept): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| records.is_passing(&entry.call));
    for entry in passing {
        warn(&format!("{}: a candidate lacked memory or was skipped once, the record is not kept", entry.call));
    }
    let all: Vec<Entry> = kept.into_iter().map(|entry| (**entry).clone()).collect();
    if let Some(folder) = Records::cache() {
        let kept = Records::new(device)?.keep_in(folder);
        all.iter().for_each(|entry| kept.replace(entry));
    }
    if let Some(out) = &arguments.out {
        write_whole(out, print(&all).as_bytes())?;
        say!("\nwrote {}: {}", out.display(), table::count(all.len()))?;
    }
    mark_debug_build();
    Ok(ExitCode::SUCCESS)
}

/// The records that are kept of this device by now.
fn earlier(records: &Records, device: Device) -> Result<Vec<Entry>, Failed> {
    let (machine, target) = (Machine::of(device)?, records.target().to_string());
    let kept = Records::cache().map_or_else(Vec::new, |folder| Records::kept(&folder));
    let own = |entry: &Entry| {
        (&entry.device, &entry.libraries, &entry.target, &*entry.version)
            == (&machine.device, &machine.libraries, &target, VERSION)
    };
    Ok(kept.into_iter().filter_map(|Kept { entry, .. }| entry.ok().filter(own)).collect())
}

/// Prints what could be measured.
fn list(arguments: &Arguments) -> Outcome {
    let program = &arguments.program;
    let (target, options) = (program.target().clone(), program.options()?);
    let tuned = Tuned { target, options, program: program.clone(), earlier: Vec::new() };
    tuned.look_at(&arguments.programs)?;
    for name in &arguments.programs {
        let listing = Arc::new(Listing::new(Duration::from_micros(arguments.from)));
        tuned.staged(name, listing.clone())?;
        let calls = listing.calls();
        say!("{name} for {}: {}", tuned.target, table::count(calls.len()))?;
        calls.iter().try_for_each(|(call, names)| say!("{call}\n    {}", names.join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How programs are tuned.
struct Tuned {
    target: Target,
    options: Options,
    program: Program,
    /// What was recorded before this command.
    earlier: Vec<Entry>,
}

impl Tuned {
    /// Finds out that a program cannot be begun before others are worked on.
    fn look_at(&self, names: &[String]) -> Result<(), Failed> {
        match names {
            [_] => Ok(()),
            _ => names.iter().try_for_each(|name| self.begun(name, &self.options).map(drop)),
        }
    }

    /// The trace that compilation of a program starts from, and which part of a model it is.
    fn begun(&self, name: &str, options: &Options) -> Result<(Trace, Option<Part>), Failed> {
        let path = Path::new(name);
        if path.is_file() {
            return Ok((self.read(path)?, None));
        }
        let looks_like_one = path.components().count() > 1 || path.extension().is_some_and(|end| end == "trace");
        if (looks_like_one || path.exists()) && named(name).is_err() {
            let reason = if path.exists() { "is no regular file" } else { "there is no such file" };
            return Err(Failed::file(
                path,
                format!("{reason}, expected a trace, or the name of an operator or a model"),
            ));
        }
        self.program.trace(name, options)
    }

    /// Says why nothing of a program is measured.
    fn tell_why_nothing(&self, name: &str, from: u64) -> Result<(), Failed> {
        let count = |from: Duration| {
            let listing = Arc::new(Listing::new(from));
            self.staged(name, listing.clone()).map(|_| listing.calls().len())
        };
        let (all, costly) = (count(Duration::ZERO)?, count(Duration::from_micros(from))?);
        note(&match (all, costly) {
            (0, _) => format!("{name}: no call has candidates (what regions hold is not measured call by call)"),
            (all, 0) => format!("{name}: {} below {from} us; --from 0 measures all", table::count(all)),
            (_, costly) => format!("{name}: {}, none of which could be measured now", table::count(costly)),
        });
        Ok(())
    }

    /// Takes a program through the stages that ask for the executors of its calls. Its trace, if it is one program.
    fn staged(&self, name: &str, choices: Arc<dyn Choices>) -> Result<Option<Trace>, Failed> {
        let options = Options { choices: Some(choices), ..self.options.clone() };
        let (trace, part) = self.begun(name, &options)?;
        if part == Some(Part::Loss) && self.program.backward {
            loss_programs(trace, &options).map_err(of_case)?;
            return Ok(None);
        }
        stages(trace.clone(), &options).map_err(of_case)?;
        Ok(Some(trace))
    }

    fn read(&self, path: &Path) -> Result<Trace, Failed> {
        let trace = trace_files::read_verified(path, &self.options.executor_options)?;
        target::check(&trace.target).map_err(|message| Failed::file(path, message))?;
        if let Some(past) =
            [StageName::Split, StageName::Claim].into_iter().find(|stage| trace.has_been_through(*stage))
        {
            return Err(Failed::file(path, format!("is past the stage '{past}', expected a trace before it")));
        }
        if trace.target != self.target {
            let message = format!("is for {}, expected {}", trace.target, self.target);
            return Err(Failed::file(path, message));
        }
        Ok(trace)
    }

    /// The records of a program's calls, measured where they are missing.
    fn measured(&self, name: &str, records: &Arc<Records>) -> Result<Vec<Arc<Entry>>, Failed> {
        let measuring = Arc::new(Measuring::new(records.clone()));
        self.staged(name, measuring.clone())?;
        Ok(measuring.finished())
    }

    /// What was recorded of a call before this command.
    fn earlier(&self, call: &Call) -> Option<&Entry> {
        self.earlier.iter().find(|entry| entry.call == *call)
    }

    /// A record that was measured now with the winner of an earlier one, if no candidate is faster by more than the
    /// noise.
    fn standing(&self, entry: &Entry) -> Option<Entry> {
        with_winner_of(entry, self.earlier(&entry.call)?)
    }

    /// The records with those left to the list that make a whole program no faster.
    fn confirmed(
        &self,
        name: &str,
        device: Device,
        records: &Arc<Records>,
        entries: &[Arc<Entry>],
    ) -> Result<Vec<Arc<Entry>>, Failed> {
        let Some(trace) = self.staged(name, records.clone())? else {
            note(&format!("{name}: forward and backward are two programs, whose choices are not confirmed"));
            return Ok(entries.to_vec());
        };
        // The sources of the gradients of a joint trace were decided when it was made.
        let joint = trace.has_been_through(StageName::Vjp);
        let fixed = |entry: &&Arc<Entry>| joint && entry.call.purpose == Purpose::Differentiated;
        let (fixed, open): (Vec<_>, Vec<_>) = entries.iter().partition(fixed);
        let open: Vec<Arc<Entry>> = open.into_iter().cloned().collect();
        let mut broken = None;
        let mut each = |confirmed: &Confirmed| {
            if let Err(failed) = say!("{}", table::confirmed(name, confirmed)) {
                broken.get_or_insert(failed);
            }
        };
        let recorded = |call: &Call| self.earlier(call).map(|entry| entry.winner.clone());
        let confirmed = confirm(&trace, &self.options, device, &open, &recorded, &mut each).map_err(of_case)?;
        broken.map_or(Ok(()), Err)?;
        Ok(confirmed.into_iter().map(Arc::new).chain(fixed.into_iter().cloned()).collect())
    }
}
