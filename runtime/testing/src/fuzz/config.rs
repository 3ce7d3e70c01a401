//! Ways to run one program: executors, flags, layouts, and what must not matter at all.

use std::fmt;
use std::sync::OnceLock;

use super::case::Case;
use crate::array::Array;
use crate::compile::{Options, compile};
use crate::error::Result;
use crate::executor::ExecutorDef;
use crate::executor_list::List;
use crate::fuel::Fuel;
use crate::generate::guarded;
use crate::meta::Device;
use crate::problem::{Check, Problem};
use crate::program::Program;
use crate::samples::Random;
use crate::subject::{joint_trace, random_like};
use crate::trace::{Trace, parse};
use crate::transforms::recompute;

/// What must not change a single bit of what a program gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Neutral {
    /// Nothing but another run.
    Repeated,
    /// Inputs are given away.
    Donated,
    /// The verifier does not run.
    Unverified,
    /// Number of threads.
    Threads(usize),
    /// Every value in fenced memory of its own, filled with NaN beforehand.
    Checked,
    /// The planned trace printed, parsed and run.
    Parsed,
    /// Every kernel launched by itself.
    WithoutGraph,
}

impl Neutral {
    const ALL: [Neutral; 8] = [
        Neutral::Repeated,
        Neutral::Donated,
        Neutral::Donated,
        Neutral::Unverified,
        Neutral::Threads(1),
        Neutral::Threads(3),
        Neutral::Checked,
        Neutral::Parsed,
    ];
}

/// One way to run a program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    /// The executor that is asked first; those that come after it by default follow.
    pub executor: &'static str,
    pub fuse: bool,
    /// From how many bytes on values are computed again.
    pub recompute: Option<u64>,
    pub fuel: Option<u64>,
    /// Whether inputs have the layouts of the case.
    pub arranged: bool,
    pub neutral: Option<Neutral>,
}

impl Config {
    /// Nothing fused, nothing computed again, row-major inputs.
    pub(super) fn plain(executor: &'static str) -> Config {
        Config { executor, fuse: false, recompute: None, fuel: None, arranged: false, neutral: None }
    }

    /// As the compiler runs a program by default.
    pub(super) fn usual(executor: &'static str) -> Config {
        Config { fuse: true, recompute: Some(recompute::FROM_BYTES), ..Config::plain(executor) }
    }

    /// A random configuration.
    pub(super) fn drawn(random: &mut Random, executors: &[&'static ExecutorDef]) -> Config {
        let mut one_in = |n: u64| random.next().is_multiple_of(n);
        let fuse = !one_in(4);
        let recompute = if one_in(2) { Some(1) } else { None };
        let arranged = one_in(2);
        let fuel = one_in(5).then(|| random.next() % 8);
        let at = (random.next() % executors.len().max(1) as u64) as usize;
        Config { executor: executors[at].name, fuse, recompute, fuel, arranged, neutral: None }
    }

    /// The same, but for something that must not matter.
    pub(super) fn varied(&self, random: &mut Random) -> Config {
        let at = (random.next() % Neutral::ALL.len() as u64) as usize;
        let on_host = List::named(self.executor).map_or(true, |list| Device::is_host(list.device()));
        let neutral = match Neutral::ALL[at] {
            Neutral::Threads(_) if !on_host => Neutral::WithoutGraph,
            neutral => neutral,
        };
        Config { neutral: Some(neutral), ..self.clone() }
    }

    /// Ways that ask for less, each a step nearer to the plain one.
    pub(super) fn simpler(&self) -> Vec<Config> {
        let plain = Config::plain(self.executor);
        let mut found = vec![
            Config { neutral: None, ..self.clone() },
            Config { arranged: false, ..self.clone() },
            Config { fuel: None, ..self.clone() },
            Config { recompute: None, ..self.clone() },
            Config { fuse: plain.fuse, ..self.clone() },
        ];
        found.retain(|other| other != self);
        found
    }

    /// Options of the command `trace run` that run a program this way.
    pub(super) fn flags(&self) -> String {
        let list = List::named(self.executor).map(|list| list.executors).unwrap_or_default();
        let names: Vec<&str> = list.iter().map(|executor| executor.name).collect();
        let mut flags = format!("--executors {}", names.join(","));
        if let Some(fuel) = self.list().ok().and_then(|list| list.fuel.left()) {
            flags += &format!(" --fuel {fuel}");
        }
        if !self.fuse {
            flags += " --no-fuse";
        }
        match self.recompute {
            None => flags += " --no-recompute",
            Some(recompute::FROM_BYTES) => {}
            Some(bytes) => flags += &format!(" --recompute-from {bytes}"),
        }
        if self.neutral == Some(Neutral::WithoutGraph) {
            flags += " --no-graph";
        }
        flags
    }

    fn list(&self) -> Result<List> {
        let mut list = List::named(self.executor)?;
        list.fuse = self.fuse;
        if let Some(fuel) = self.fuel {
            list.fuel = Fuel::limited(fuel);
        }
        Ok(list)
    }

    /// The trace that is compiled, and the arrays it is run on.
    pub(super) fn prepared(&self, case: &Case) -> Check<(Trace, Vec<Array>)> {
        let list = self.list()?;
        let mut trace = list.placed(&case.trace()?)?;
        let mut arrays = case.arrays(self.arranged)?;
        let own = arrays.len();
        if case.gradient
            && let Some(joint) = joint_trace(&trace, &list.executors)?
        {
            trace = joint;
        }
        for (i, id) in trace.block.parameters.iter().enumerate().skip(own) {
            arrays.push(random_like(trace.block.meta(*id), i as u64)?.to_host()?);
        }
        for ((input, array), given) in trace.inputs.iter_mut().zip(&arrays).zip(&case.inputs) {
            let strides = array.strides();
            input.strides = (!array.is_contiguous()).then(|| strides.to_vec());
            input.donated = self.neutral == Some(Neutral::Donated) && given.donated;
        }
        Ok((trace, arrays))
    }

    /// Runs a program, and takes what comes out to the host. A panic is a problem like others.
    pub(super) fn run(&self, case: &Case) -> Check<Vec<Array>> {
        guarded(|| self.run_unguarded(case))
    }

    fn run_unguarded(&self, case: &Case) -> Check<Vec<Array>> {
        let (trace, arrays) = self.prepared(case)?;
        let options = Options {
            recompute: self.recompute,
            verify: self.neutral != Some(Neutral::Unverified),
            graph: self.neutral != Some(Neutral::WithoutGraph),
            ..self.list()?.options()
        };
        let (mut program, stages) = compile(trace, &options)?;
        if let (Some(Neutral::Parsed), Some(last)) = (self.neutral, stages.last()) {
            let text = last.trace.to_string();
            program = compile(parse(&text)?, &options)?.0;
        }
        let outputs = match self.neutral {
            Some(Neutral::Repeated) => {
                program.run(arrays.clone())?;
                program.run(arrays)?
            }
            Some(Neutral::Checked) => program.run_checked(arrays)?,
            Some(Neutral::Threads(threads)) => on_threads(threads, &program, arrays)?,
            _ => program.run(arrays)?,
        };
        Ok(outputs.iter().map(Array::to_host).collect::<Result<_>>()?)
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Config::plain(self.executor);
        f.write_str(self.executor)?;
        f.write_str(if self.fuse { ", fused" } else { ", not fused" })?;
        match self.recompute {
            None => {}
            Some(recompute::FROM_BYTES) => f.write_str(", recomputing as by default")?,
            Some(bytes) => write!(f, ", recomputing from {bytes} bytes on")?,
        }
        if let Some(fuel) = self.fuel.filter(|_| self.fuel != plain.fuel) {
            write!(f, ", fuel {fuel}")?;
        }
        if self.arranged {
            f.write_str(", inputs as arranged")?;
        }
        match self.neutral {
            None => Ok(()),
            Some(Neutral::Repeated) => f.write_str(", run again"),
            Some(Neutral::Donated) => f.write_str(", inputs donated"),
            Some(Neutral::Unverified) => f.write_str(", not verified"),
            Some(Neutral::Threads(threads)) => write!(f, ", on {threads} threads"),
            Some(Neutral::Checked) => f.write_str(", in fenced memory"),
            Some(Neutral::Parsed) => f.write_str(", printed and parsed"),
            Some(Neutral::WithoutGraph) => f.write_str(", without a graph"),
        }
    }
}

fn on_threads(threads: usize, program: &Program, arrays: Vec<Array>) -> Check<Vec<Array>> {
    type Pools = Vec<(usize, rayon::ThreadPool)>;
    static POOLS: OnceLock<Check<Pools>> = OnceLock::new();
    let make = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.map(|pool| (threads, pool)).map_err(|error| Problem(format!("no pool of {threads} threads: {error}")))
    };
    let pools = POOLS.get_or_init(|| [1, 3].map(make).into_iter().collect()).as_ref().map_err(Problem::clone)?;
    match pools.iter().find(|(own, _)| *own == threads) {
        Some((_, pool)) => Ok(pool.install(|| program.run(arrays))?),
        None => Ok(program.run(arrays)?),
    }
}
