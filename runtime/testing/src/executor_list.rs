//! The executors that run a program of a test, and how it is compiled for them.

use crate::compile::{Options, compile};
use crate::error::Result;
use crate::executor::{ExecutorDef, default_executors, find_executor};
use crate::fuel::Fuel;
use crate::meta::{Device, Target};
use crate::program::Program;
use crate::trace::Trace;
use crate::transforms::retarget::retarget;

/// The executor that runs references.
pub(crate) const REFERENCE: &str = "reference";

/// The executors that run a program, and how much it is optimized.
#[derive(Clone)]
pub(crate) struct List {
    /// Names the list in messages and keys.
    pub name: String,
    pub executors: Vec<&'static ExecutorDef>,
    pub fuel: Fuel,
    pub fuse: bool,
    /// From how many bytes on values are computed again.
    pub recompute: Option<u64>,
    /// Whether rewrites run.
    pub rewrites: bool,
    /// Whether small products and sums that are alike become one.
    pub batch: bool,
}

impl List {
    /// `executor` first, then those that come after it by default. The list of the reference executor opens every
    /// composite, since composites run by their own references would prove nothing.
    pub fn of(executor: &'static ExecutorDef) -> List {
        let defaults = default_executors(executor.device);
        let after = defaults.iter().position(|other| other.name == executor.name).map_or(0, |i| i + 1);
        let mut executors = vec![executor];
        executors.extend(&defaults[after..]);
        let fuel = if executor.name == REFERENCE { Fuel::limited(0) } else { Fuel::UNLIMITED };
        let (name, recompute) = (executor.name.to_owned(), Options::default().recompute);
        List { name, executors, fuel, fuse: true, recompute, rewrites: true, batch: true }
    }

    /// With the executors that come before it by default behind all others if the list does not run a trace of the
    /// host's: `cuda` has no linear algebra, which an executor before it takes.
    pub fn able_to_run(mut self, trace: &Trace) -> List {
        if self.compile(trace).is_err() {
            let defaults = default_executors(self.device());
            let others = defaults.iter().filter(|other| !self.executors.iter().any(|own| own.name == other.name));
            let others: Vec<&'static ExecutorDef> = others.copied().collect();
            self.executors.extend(others);
        }
        self
    }

    /// As [`List::of`], of the executor of that name.
    pub fn named(executor: &str) -> Result<List> {
        Ok(List::of(find_executor(executor)?))
    }

    /// Every composite opened, every prim run by its reference.
    pub fn plain() -> Result<List> {
        Ok(List::of(find_executor(REFERENCE)?))
    }

    /// The kind of device that the list runs on.
    pub fn device(&self) -> &'static str {
        self.executors.first().map_or("cpu", |executor| executor.device)
    }

    /// A trace of the host's, for the device that the list runs on.
    pub fn placed(&self, trace: &Trace) -> Result<Trace> {
        if self.device() == trace.target.kind() {
            return Ok(trace.clone());
        }
        Ok(retarget(trace, &Target::of(Device::new(self.device(), 0))?))
    }

    /// Compiles a trace of the host's for the device that the list runs on. The first and the last stage are verified;
    /// `round_trip` verifies the stages between them, and so does a compilation whose last stage is wrong, to name the
    /// transform.
    pub fn compile(&self, trace: &Trace) -> Result<Program> {
        let placed = self.placed(trace)?;
        placed.verify()?;
        let verified = compile(placed.clone(), &Options { verify: false, ..self.options() })
            .and_then(|(program, _)| program.trace().verify().map(|()| program));
        match verified {
            Ok(program) => Ok(program),
            Err(_) => Ok(compile(placed, &self.options())?.0),
        }
    }

    pub fn options(&self) -> Options {
        Options {
            executors: Some(self.executors.clone()),
            fuel: self.fuel,
            fuse: self.fuse,
            batch: self.batch,
            recompute: self.recompute,
            rewrites: (!self.rewrites).then(Vec::new),
            verify: true,
            ..Options::default()
        }
    }
}
