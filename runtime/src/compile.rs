//! From an acquired trace to a program: the order of the transforms, and every stage kept.

use crate::error::{Error, Result};
use crate::executor::{ExecutorDef, default_executors, find_executor};
use crate::program::Program;
use crate::trace::Trace;
use crate::transforms::{Fuel, autodiff, claim, cse, dce, fuse, layout, plan, rewrite};

/// What a user may choose about compilation.
#[derive(Clone)]
pub struct Options {
    /// Executors in the order they are asked; `None` is the default list of the target's device.
    pub executors: Option<Vec<&'static ExecutorDef>>,
    /// Rewrites in the order they are tried; `None` is every rewrite declared `default`.
    pub rewrites: Option<Vec<&'static crate::executor::RewriteDef>>,
    /// Transforms of the user's own, run after the rewrites.
    pub transforms: Vec<UserTransform>,
    /// How many optimizations may be made.
    pub fuel: Fuel,
    /// Whether symbols are fused into regions.
    pub fuse: bool,
    /// Whether the verifier runs after every transform; on in debug builds.
    pub verify: bool,
    /// The largest peak that a plan may have, in bytes.
    pub memory_limit: Option<u64>,
}

/// A transform of the user's own: its name and what it does.
#[derive(Clone)]
pub struct UserTransform {
    /// The name in the history of traces.
    pub name: String,
    /// Trace in, trace out.
    pub apply: std::sync::Arc<TransformFn>,
}

/// Trace in, trace out.
pub type TransformFn = dyn Fn(&Trace) -> Result<Trace> + Send + Sync;

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let executors = self.executors.as_ref().map(|list| list.iter().map(|e| e.name).collect::<Vec<_>>());
        let rewrites = self.rewrites.as_ref().map(|list| list.iter().map(|r| r.name).collect::<Vec<_>>());
        f.debug_struct("Options")
            .field("executors", &executors)
            .field("rewrites", &rewrites)
            .field("transforms", &self.transforms.iter().map(|t| &t.name).collect::<Vec<_>>())
            .field("fuel", &self.fuel)
            .field("fuse", &self.fuse)
            .field("verify", &self.verify)
            .field("memory_limit", &self.memory_limit)
            .finish()
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            executors: None,
            rewrites: None,
            transforms: Vec::new(),
            fuel: Fuel::UNLIMITED,
            fuse: true,
            verify: cfg!(debug_assertions),
            memory_limit: None,
        }
    }
}

impl Options {
    /// The executors of these names, in this order.
    pub fn with_executors(mut self, names: &[&str]) -> Result<Options> {
        self.executors = Some(names.iter().map(|name| find_executor(name)).collect::<Result<_>>()?);
        Ok(self)
    }

    /// The list that a program for `device` is compiled with.
    pub fn executor_list(&self, device: &str) -> Vec<&'static ExecutorDef> {
        self.executors.clone().unwrap_or_else(|| default_executors(device))
    }
}

/// One stage of compilation.
#[derive(Debug, Clone)]
pub struct Stage {
    /// `acquire`, `rewrite`, `autodiff`, `dce`, `cse`, `claim`, `fuse`, `layout`, `donate`, `plan_memory`, `delete_last_used`.
    pub name: String,
    /// The trace at its end.
    pub trace: Trace,
}

/// Takes a trace through every transform; the first stage is `trace` itself.
pub fn stages(trace: Trace, options: &Options) -> Result<Vec<Stage>> {
    let executors = options.executor_list(trace.target.kind());
    let mut fuel = options.fuel;
    let name = trace.history.last().cloned().unwrap_or_else(|| "acquire".into());
    let mut stages = Stages { verify: options.verify, made: Vec::with_capacity(12) };
    stages.push(&name, trace)?;
    if !stages.done("claim") {
        let rewrites = options.rewrites.clone().unwrap_or_else(rewrite::default_rewrites);
        stages.push("rewrite", rewrite::rewrite(stages.last(), &rewrites, &mut fuel)?)?;
        for transform in &options.transforms {
            let mut next = (transform.apply)(stages.last())?;
            if next.history.last() != Some(&transform.name) {
                next.history.push(transform.name.clone());
            }
            stages.push(&transform.name, next)?;
        }
        stages.push("autodiff", autodiff::autodiff(stages.last(), &executors)?)?;
        stages.push("dce", dce::dce(stages.last()))?;
        stages.push("cse", cse::cse(stages.last()))?;
    }
    if !stages.done("plan_memory") {
        let claimed = claim::claim(stages.last(), &executors, &mut fuel)?;
        // Decompositions bring symbols that nobody reads and symbols that stand elsewhere already.
        let tidy = dce::dce(&cse::cse(&claimed));
        stages.push("claim", Trace { history: claimed.history, ..tidy })?;
        if options.fuse && !stages.done("fuse") {
            stages.push("fuse", fuse::fuse(stages.last(), &executors, &mut fuel))?;
        }
        stages.push("layout", layout::layout(stages.last(), &executors)?)?;
        stages.push("donate", plan::donate(stages.last()))?;
        stages.push("plan_memory", plan::plan(stages.last()))?;
    }
    if !stages.done("delete_last_used") {
        stages.push("delete_last_used", plan::delete_last_used(stages.last()))?;
    }
    Ok(stages.made)
}

/// The stages made so far; there is always one.
struct Stages {
    verify: bool,
    made: Vec<Stage>,
}

impl Stages {
    fn push(&mut self, name: &str, trace: Trace) -> Result<()> {
        if self.verify {
            trace.verify()?;
        }
        self.made.push(Stage { name: name.to_owned(), trace });
        Ok(())
    }

    fn last(&self) -> &Trace {
        &self.made[self.made.len() - 1].trace
    }

    fn done(&self, transform: &str) -> bool {
        self.last().history.iter().any(|past| past == transform)
    }
}

/// Compiles a trace, from whatever stage it is at.
pub fn compile(trace: Trace, options: &Options) -> Result<(Program, Vec<Stage>)> {
    let stages = stages(trace, options)?;
    let last = stages
        .last()
        .map(|stage| stage.trace.clone())
        .ok_or_else(|| Error::Argument { argument: "trace".into(), message: "no stage was made".into() })?;
    Ok((Program::new(last, options.memory_limit)?, stages))
}
