//! How programs are compiled, as options of the command line.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use fulgurite::choices::{ChoicesFile, Machine};
use fulgurite::compile::{Choose, Options};
use fulgurite::executor::{ExecutorOptions, executors_named};
use fulgurite::fuel::Fuel;
use fulgurite::{Device, Error, Target};

use super::idle_executors;
use super::outcome::Failed;

/// Values of the options that executors declare.
#[derive(Args, Clone, Debug)]
pub struct OfExecutors {
    /// A value of an option that an executor declares; `fulgurite doctor` lists them. May be given several times.
    #[arg(long = "option", value_name = "EXECUTOR.NAME=VALUE")]
    executor_options: Vec<String>,
}

impl OfExecutors {
    /// The values, by the options' types.
    pub fn values(&self) -> Result<ExecutorOptions, Failed> {
        let (mut options, mut given) = (Options::default(), Vec::new());
        for option in &self.executor_options {
            let wrong = |message: String| Error::Argument { argument: "--option".into(), message };
            let (path, value) = option
                .split_once('=')
                .ok_or_else(|| wrong(format!("'{option}' has no value, expected EXECUTOR.NAME=VALUE")))?;
            if given.contains(&path) {
                return Err(wrong(format!("'{path}' is given twice, expected one value")).into());
            }
            given.push(path);
            options = options.with_option_named(path, value)?;
        }
        Ok(options.executor_options)
    }
}

/// Options of compilation.
#[derive(Args, Clone, Debug)]
pub struct Compile {
    /// Executors in the order of their priority; `default` stands for those of the target's default list that are not
    /// named, and is the default: `liger,default` asks liger first.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    executors: Option<Vec<String>>,
    #[command(flatten)]
    of_executors: OfExecutors,
    /// A file with the fastest implementations of single calls, as `fulgurite tune -o FILE` writes it: they are taken
    /// before the list of executors, and nothing is measured.
    #[arg(long, value_name = "FILE")]
    choices: Option<PathBuf>,
    /// Whether the fastest implementations of costly calls are measured where no record of this machine has them:
    /// `auto` on CUDA devices, unless executors are named; `always`; `never`. Only programs that are run measure.
    #[arg(long, default_value = "auto", value_parser = ["auto", "always", "never"], value_name = "WHEN",
        conflicts_with = "choices")]
    choose: String,
    /// After how many seconds a compilation begins to measure nothing more. What is left then follows the list of
    /// executors, and is measured by the next run or by `fulgurite tune`.
    #[arg(long, default_value_t = 10.0, value_parser = seconds, value_name = "SECONDS")]
    choose_for: f64,
    /// Maximum number of optimizations, to find the one that breaks a program.
    #[arg(long, value_name = "STEPS")]
    fuel: Option<u64>,
    /// Runs small products and sums one by one: makes no batches of those that are alike.
    #[arg(long)]
    no_batching: bool,
    /// Leaves the operands of products as they are: copies none into a larger one whose extents fit the hardware.
    #[arg(long)]
    no_pad: bool,
    /// Leaves the channels of images where they are: no kernel has them innermost.
    #[arg(long)]
    no_channels: bool,
    /// Does not fuse symbols into regions.
    #[arg(long)]
    no_fuse: bool,
    /// Saves all values that the backward pass needs: recomputes nothing large.
    #[arg(long)]
    no_recompute: bool,
    /// Minimum size, in bytes, of values that are recomputed for the backward pass.
    #[arg(long, value_name = "BYTES", conflicts_with = "no_recompute")]
    recompute_from: Option<u64>,
    /// On a device, launches every kernel by itself instead of replaying a graph, and waits for each symbol: an error
    /// names it.
    #[arg(long)]
    no_graph: bool,
}

/// A tolerance: a number of 0 or more.
pub fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number),
        _ => Err("expected a number of 0 or more".into()),
    }
}

/// A time in seconds: a number of 0 or more.
fn seconds(text: &str) -> Result<f64, String> {
    tolerance(text)
}

impl Compile {
    /// Takes what `given` says was written of others.
    pub fn take(&mut self, of: Compile, given: &dyn Fn(&str) -> bool) {
        if given("executors") {
            self.executors = of.executors;
        }
        if given("executor_options") {
            self.of_executors = of.of_executors;
        }
        if given("choices") {
            self.choices = of.choices;
        }
        if given("choose") {
            self.choose = of.choose;
        }
        if given("choose_for") {
            self.choose_for = of.choose_for;
        }
        if given("fuel") {
            self.fuel = of.fuel;
        }
        if given("no_recompute") || given("recompute_from") {
            (self.no_recompute, self.recompute_from) = (of.no_recompute, of.recompute_from);
        }
        self.no_batching |= of.no_batching;
        self.no_pad |= of.no_pad;
        self.no_channels |= of.no_channels;
        self.no_fuse |= of.no_fuse;
        self.no_graph |= of.no_graph;
    }

    /// As the compiler takes them, for programs that are run on a device of this target's kind. Where that is the CPU,
    /// a program that needs more memory than is available is refused: it would take the whole process with it.
    /// Devices say themselves what they lack.
    pub fn options_to_run(&self, target: &Target) -> Result<Options, Failed> {
        let kind = target.kind();
        let memory_limit = fulgurite_kernels::machine::available_memory().filter(|_| kind == Device::CPU.kind());
        let mut options = Options { memory_limit, ..self.options(target)? };
        options.choose = match &*self.choose {
            "always" => Choose::Always,
            "never" => Choose::Never,
            _ => Choose::Auto,
        };
        options.choose_for = Duration::try_from_secs_f64(self.choose_for).unwrap_or(Duration::MAX);
        if let Some(path) = &self.choices {
            let machine = Machine::of(Device::new(kind, 0))?;
            options.choices = Some(Arc::new(ChoicesFile::read(path, Some(machine))?));
        }
        Ok(options)
    }

    /// The same for a device. If it is not there, running a program on it is the error.
    #[cfg(feature = "models")]
    pub fn options_to_run_on(&self, device: Device) -> Result<Options, Failed> {
        let of_kind = || device.kind().parse().unwrap_or_else(|_| Target::cpu());
        // What an architecture has matters to a list alone, and to ask for it opens the driver.
        let target = self.executors.as_ref().and_then(|_| Target::of(device).ok());
        self.options_to_run(&target.unwrap_or_else(of_kind))
    }

    /// The values of executors' options alone.
    pub fn executor_options(&self) -> Result<ExecutorOptions, Failed> {
        self.of_executors.values()
    }

    /// As the compiler takes them, for programs for a target; they are not run.
    pub fn options(&self, target: &Target) -> Result<Options, Failed> {
        let mut options = Options::default();
        if let Some(names) = &self.executors {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let executors = executors_named(&names, target.kind())?;
            idle_executors::warn_of(&executors, std::slice::from_ref(target));
            options.executors = Some(executors);
        }
        options.executor_options = self.executor_options()?;
        if let Some(path) = &self.choices {
            options.choices = Some(Arc::new(ChoicesFile::read(path, None)?));
        }
        options.choose = Choose::Never;
        options.fuel = self.fuel.map_or(Fuel::UNLIMITED, Fuel::limited);
        options.batch = !self.no_batching;
        options.pad = !self.no_pad;
        options.channels = !self.no_channels;
        options.fuse = !self.no_fuse;
        options.graph = !self.no_graph;
        options.recompute = self.recompute_from.or(options.recompute).filter(|_| !self.no_recompute);
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_executors_that_are_wrong_are_refused_by_name() {
        let values = |words: &[&str]| {
            let given = OfExecutors { executor_options: words.iter().map(|word| (*word).to_owned()).collect() };
            given.values().map(|values| values.to_string()).map_err(|failed| failed.0)
        };
        let ours = "command_patient";
        assert_eq!(values(&[&format!("{ours}.fewest=2")]).unwrap(), "command_patient.fewest=2");
        for (words, expected) in [
            (&["command_patient.fewest=2", "command_patient.fewest=3"][..], "'command_patient.fewest' is given twice"),
            (&["command_patient.fewst=2"], "has no option 'fewst', did you mean 'fewest'?"),
            (&["command_patient.fewest"], "has no value, expected EXECUTOR.NAME=VALUE"),
            (&["command_patient.fewest=few"], "expected a value of type size"),
        ] {
            let said = values(words).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
    }
}
