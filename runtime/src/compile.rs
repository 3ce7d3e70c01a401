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
    let mut stages: Vec<Stage> = Vec::new();
    let mut push = |name: &str, trace: Trace| -> Result<()> {
        if options.verify {
            trace.verify()?;
        }
        stages.push(Stage { name: name.to_owned(), trace });
        Ok(())
    };
    let mut current = trace;
    let name = current.history.last().cloned().unwrap_or_else(|| "acquire".into());
    push(&name, current.clone())?;
    let mut step = |name: &str, next: Trace, current: &mut Trace| -> Result<()> {
        push(name, next.clone())?;
        *current = next;
        Ok(())
    };
    let done = |trace: &Trace, name: &str| trace.history.iter().any(|past| past == name);
    if !done(&current, "claim") {
        let rewrites = options.rewrites.clone().unwrap_or_else(rewrite::default_rewrites);
        let next = rewrite::rewrite(&current, &rewrites, &mut fuel)?;
        step("rewrite", next, &mut current)?;
        for transform in &options.transforms {
            let mut next = (transform.apply)(&current)?;
            if next.history.last() != Some(&transform.name) {
                next.history.push(transform.name.clone());
            }
            step(&transform.name, next, &mut current)?;
        }
        let next = autodiff::autodiff(&current, &executors)?;
        step("autodiff", next, &mut current)?;
        let next = dce::dce(&current);
        step("dce", next, &mut current)?;
        let next = cse::cse(&current);
        step("cse", next, &mut current)?;
    }
    if !done(&current, "plan_memory") {
        let next = claim::claim(&current, &executors, &mut fuel)?;
        // Decompositions bring symbols that nobody reads and symbols that stand elsewhere already.
        let next = Trace { history: next.history.clone(), ..dce::dce(&cse::cse(&next)) };
        step("claim", next, &mut current)?;
        if options.fuse && !done(&current, "fuse") {
            let next = fuse::fuse(&current, &executors, &mut fuel);
            step("fuse", next, &mut current)?;
        }
        let next = layout::layout(&current, &executors)?;
        step("layout", next, &mut current)?;
        let next = plan::donate(&current);
        step("donate", next, &mut current)?;
        let next = plan::plan(&current);
        step("plan_memory", next, &mut current)?;
    }
    if !done(&current, "delete_last_used") {
        let next = plan::delete_last_used(&current);
        step("delete_last_used", next, &mut current)?;
    }
    Ok(stages)
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
