//! From an acquired trace to a program: the order of the transforms, and every stage kept.

mod current;
mod ending;
mod explain;
mod gather;
mod gradients;
mod programs;

pub use ending::Ending;
pub use explain::explain;
use gather::{Gathered, settled};
pub use gradients::{gradients_stage, with_gradients};
pub use programs::{Programs, Saved, split_stages};

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_kernels::DType;
use indexmap::IndexMap;

use crate::choices::{Call, Choices, Ranking, Told, Wanted};
use crate::error::{CallStack, Error, Result};
use crate::executor::{ExecutorDef, default_executors, executors_named};
use crate::fuel::Fuel;
use crate::meta::{Device, Target};
use crate::registered;
use crate::trace::verify::{honoured, on_the_mesh, ordered};
use crate::trace::{BoundSymbol, Callee, Trace};
use crate::transforms::autodiff::GradientRule;
use crate::transforms::{
    self, autocast, autodiff, batch, claim, cse, dce, donate, fuse, layout, nest, pad, plan, recompute, rewrite,
    schedule,
};

/// How long a compilation measures at most by default.
const CHOOSE_FOR: Duration = Duration::from_secs(10);

/// Options of compilation.
#[derive(Clone)]
pub struct Options {
    /// The device on which compiled functions run: arguments on the host are copied to it. `None` is the device of the
    /// arguments.
    pub device: Option<Device>,
    /// Executors in the order of their priority; `None` is the default list of the target's device kind. A compilation
    /// fails if one of them, or of the rewrites, was withdrawn ([`crate::registration`]), also if it was replaced.
    pub executors: Option<Vec<&'static ExecutorDef>>,
    /// Recorded winners of single calls, which are asked before the list ([`mod@crate::choices`]). `None` follows
    /// [`Options::choose`].
    pub choices: Option<Arc<dyn Choices>>,
    /// Whether candidates of costly calls are measured where nothing is recorded.
    pub choose: Choose,
    /// After how long a compilation begins to measure nothing more, where [`Options::choose`] has it measure. Waiting
    /// for others that measure counts, and what has begun is finished. What is left follows the list, and is measured
    /// by the next process that compiles the program.
    pub choose_for: Duration,
    /// Rewrites in the order they are tried, early and late ones; `None` is every rewrite declared `default`, and those
    /// of the executors in the list.
    pub rewrites: Option<Vec<&'static crate::executor::RewriteDef>>,
    /// Transforms of the user's own, each at its place, in this order; those that the program registered come first.
    pub transforms: Vec<UserTransform>,
    /// Mixed precision: products in this type, bf16 or f16, and the rest by the operators' classes
    /// ([`crate::transforms::autocast`]). `None` computes in the types that the program is written in.
    pub autocast: Option<DType>,
    /// Minimum size, in bytes, of values that are recomputed for the backward pass instead of being saved, if that is
    /// cheap ([`crate::transforms::recompute`]); `None` saves all values.
    pub recompute: Option<u64>,
    /// Maximum number of optimizations.
    pub fuel: Fuel,
    /// Whether small products and sums that are alike become one ([`mod@crate::transforms::batch`]).
    pub batch: bool,
    /// Whether kernels get the larger operands that they ask for ([`mod@crate::transforms::pad`]).
    pub pad: bool,
    /// Whether symbols are fused into regions.
    pub fuse: bool,
    /// Whether the verifier runs after every transform; on in debug builds.
    pub verify: bool,
    /// The largest peak that a plan may have, in bytes.
    pub memory_limit: Option<u64>,
    /// Whether runs on a device replay a graph from the second one on.
    pub graph: bool,
}

/// Whether programs that are compiled to be run have candidates measured, and follow the records of this machine.
/// Stages that are only shown do not, unless [`Options::choices`] are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Choose {
    /// As the device's kind has it by default, unless executors are named: an explicit list is kept as it is.
    #[default]
    Auto,
    /// Not at all: the list decides.
    Never,
    /// On every device that is here.
    Always,
}

/// Where in a compilation a transform of the user's own runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Place {
    /// On the program as it was written: after the early rewrites, before `autocast` and `autodiff`.
    #[default]
    Start,
    /// On the differentiated program, of `jit` and `vjp` alike: after `autodiff` or `vjp`, before it is simplified.
    AfterAutodiff,
    /// On what executors are asked to run, of `vjp` on forward and backward program each: just before `claim`.
    BeforeClaim,
}

/// A transform of the user's own: its name, what it does, and where. Its result is verified whatever the options say.
#[derive(Clone)]
pub struct UserTransform {
    /// The name in the history of traces; none of [`STAGES`].
    pub name: String,
    /// Trace in, trace out.
    pub apply: Arc<TransformFn>,
    /// The stage at which it runs.
    pub place: Place,
}

impl UserTransform {
    /// A transform that runs at [`Place::Start`].
    pub fn new(
        name: impl Into<String>,
        apply: impl Fn(&Trace) -> Result<Trace> + Send + Sync + 'static,
    ) -> UserTransform {
        UserTransform { name: name.into(), apply: Arc::new(apply), place: Place::Start }
    }

    /// The same transform at another place.
    pub fn at(self, place: Place) -> UserTransform {
        UserTransform { place, ..self }
    }
}

/// Trace in, trace out.
pub type TransformFn = dyn Fn(&Trace) -> Result<Trace> + Send + Sync;

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let executors = self.executors.as_ref().map(|list| list.iter().map(|e| e.name).collect::<Vec<_>>());
        let rewrites = self.rewrites.as_ref().map(|list| list.iter().map(|r| r.name).collect::<Vec<_>>());
        f.debug_struct("Options")
            .field("device", &self.device)
            .field("executors", &executors)
            .field("choices", &self.choices)
            .field("choose", &self.choose)
            .field("choose_for", &self.choose_for)
            .field("rewrites", &rewrites)
            .field("transforms", &self.transforms.iter().map(|t| &t.name).collect::<Vec<_>>())
            .field("autocast", &self.autocast)
            .field("recompute", &self.recompute)
            .field("fuel", &self.fuel)
            .field("batch", &self.batch)
            .field("pad", &self.pad)
            .field("fuse", &self.fuse)
            .field("verify", &self.verify)
            .field("memory_limit", &self.memory_limit)
            .field("graph", &self.graph)
            .finish()
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            device: None,
            executors: None,
            choices: None,
            choose: Choose::default(),
            choose_for: CHOOSE_FOR,
            rewrites: None,
            transforms: Vec::new(),
            autocast: None,
            recompute: Some(recompute::FROM_BYTES),
            fuel: Fuel::UNLIMITED,
            batch: true,
            pad: true,
            fuse: true,
            verify: cfg!(debug_assertions),
            memory_limit: None,
            graph: true,
        }
    }
}

impl Options {
    /// The executors of these names, in this order; `default` stands for the default ones of the options' device that
    /// are not named.
    pub fn with_executors(mut self, names: &[&str]) -> Result<Options> {
        self.executors = Some(executors_named(names, self.device.unwrap_or(Device::CPU).kind())?);
        Ok(self)
    }

    /// The executors that are asked for the calls of a program for `target`.
    pub fn ranking<'a>(&'a self, executors: &'a [&'static ExecutorDef], target: &'a Target, of: &Trace) -> Ranking<'a> {
        Ranking::new(executors, target, self.choices.as_deref()).of_program(of)
    }

    /// The list that a program for `device` is compiled with.
    pub fn executor_list(&self, device: &str) -> Vec<&'static ExecutorDef> {
        self.executors.clone().unwrap_or_else(|| default_executors(device))
    }
}

/// The stages of a compilation, in order. `autocast` exists only if it is enabled, `batch` only if calls are batched,
/// `recompute` only if a value is recomputed, `pad` only if a kernel gets larger operands, `fuse` only if fusion is
/// enabled, and `schedule` only if a line is not on the compute stream.
pub const STAGES: [&str; 16] = [
    "rewrite",
    "autocast",
    "autodiff",
    "dce",
    "cse",
    batch::NAME,
    "late_rewrite",
    recompute::NAME,
    "claim",
    pad::NAME,
    "fuse",
    "layout",
    schedule::NAME,
    "donate",
    "plan_memory",
    "delete_last_used",
];

/// Names of stages that are none of [`STAGES`].
const OTHER_STAGES: [&str; 3] = ["acquire", "split", transforms::VJP];

/// Fails for a transform that has the name of a stage: what is done to a trace is known by these names.
pub(crate) fn stage_name(name: &str) -> Result<()> {
    if !STAGES.iter().chain(&OTHER_STAGES).any(|stage| *stage == name) {
        return Ok(());
    }
    let message = "is a stage of every compilation, expected another name".to_owned();
    Err(Error::Path { what: "transform", path: name.to_owned(), message, stack: Box::default() })
}

/// Stages after which every line has an executor.
const CLAIMED: [&str; 7] = ["claim", pad::NAME, "fuse", "layout", schedule::NAME, "donate", "plan_memory"];

/// One stage of compilation.
#[derive(Debug, Clone)]
pub struct Stage {
    /// The transform that made it: of the first stage the last in its history (`acquire`, `vjp`), then one of
    /// [`STAGES`] or a transform of the user's own.
    pub name: String,
    /// The trace at its end.
    pub trace: Trace,
    /// Of a stage that differentiates (`autodiff`, `vjp`): the source of the rule of each call, in the order of the
    /// program.
    pub gradients: Vec<GradientRule>,
    /// Of a stage that asks executors (`autodiff`, `vjp`, `claim`): what was recorded of the calls, each once.
    pub choices: Vec<Told>,
}

/// The stages that a compilation came to.
#[derive(Debug, Clone)]
pub struct Reached {
    /// The stages in order; the first is the trace itself. An invalid stage is the last one.
    pub stages: Vec<Stage>,
    /// Why there are no more of them, if some are missing.
    pub ending: Option<Ending>,
}

/// Takes a trace through every transform; the first stage is `trace` itself.
pub fn stages(trace: Trace, options: &Options) -> Result<Vec<Stage>> {
    all(stages_reached(trace, options))
}

/// The stages of a compilation that came to its end.
pub fn all(reached: Reached) -> Result<Vec<Stage>> {
    match reached.ending {
        None => Ok(reached.stages),
        Some(ending) => Err(ending.error),
    }
}

/// As [`stages`], with those before a failure kept: what led to it can be read.
pub fn stages_reached(trace: Trace, options: &Options) -> Reached {
    reached(trace, options, false)
}

/// `foreign` has the first trace verified whatever the options say.
pub fn reached(trace: Trace, options: &Options, foreign: bool) -> Reached {
    let _pinned = registered::pin();
    let once = |trace| {
        let mut stages = Stages { foreign, ..Stages::new(options, options.fuel) };
        let ending = stages.take_through(trace, options).err().map(|ending| *ending);
        let wanted = if ending.is_none() { stages.gathered() } else { Gathered::default() };
        (Reached { stages: stages.made, ending }, wanted)
    };
    settled(trace, options.choices.as_deref(), once)
}

/// The stages made so far.
struct Stages {
    verify: bool,
    /// Whether the first trace is verified whatever the options say.
    foreign: bool,
    fuel: Fuel,
    made: Vec<Stage>,
    /// The calls that could be measured.
    wanted: IndexMap<Call, Wanted>,
    /// When the last stage was kept.
    since: Instant,
}

/// Endings are large and rare.
type Step = Result<(), Box<Ending>>;

impl Stages {
    fn new(options: &Options, fuel: Fuel) -> Stages {
        let (made, since) = (Vec::with_capacity(14), Instant::now());
        Stages { verify: options.verify, foreign: false, fuel, made, wanted: IndexMap::new(), since }
    }

    fn take_through(&mut self, trace: Trace, options: &Options) -> Step {
        let executors = options.executor_list(trace.target.kind());
        if self.begin(trace, options)? {
            let target = self.last().target.clone();
            let ranking = options.ranking(&executors, &target, self.last());
            self.make_with_rules("autodiff", |trace, rules| autodiff::autodiff_with(trace, &ranking, rules))?;
            self.tell(&ranking);
            self.simplify(options, &executors, options.batch)?;
        }
        self.place(options, &executors)
    }

    /// Keeps the trace that compilation starts from, and takes it up to where it is differentiated. Whether it came
    /// there: one that is split or claimed is past that.
    fn begin(&mut self, trace: Trace, options: &Options) -> Result<bool, Box<Ending>> {
        let name = trace.history.last().cloned().unwrap_or_else(|| "acquire".into());
        // Said of the author's call, and before the verifier speaks of a line.
        let elsewhere = on_the_mesh(&trace).err().map(|elsewhere| elsewhere.error());
        let stale = current::check(options.executors.as_deref(), options.rewrites.as_deref()).err();
        if let Some(error) = stale.or(elsewhere).or_else(|| honoured(&trace).err()) {
            return Err(Box::new(Ending { stage: name, line: None, error }));
        }
        self.push(&name, trace)?;
        let low = options.autocast.filter(|_| !self.done(autocast::NAME));
        if let Some(low) = low {
            let ending = |error| Box::new(Ending { stage: autocast::NAME.into(), line: None, error });
            autocast::check(self.last(), low).map_err(ending)?;
        }
        if self.done("claim") || self.done("split") {
            return Ok(false);
        }
        let rewrites = options.rewrites.clone().unwrap_or_else(rewrite::default_rewrites);
        let executors = options.executor_list(self.last().target.kind());
        self.make("rewrite", |trace, fuel| rewrite::rewrite(trace, &rewrites, &executors, fuel))?;
        self.transformed(options, Place::Start)?;
        if let Some(low) = low {
            self.make(autocast::NAME, |trace, _| autocast::autocast(trace, low))?;
        }
        Ok(true)
    }

    /// Runs the user's transforms of a place.
    fn transformed(&mut self, options: &Options, place: Place) -> Step {
        let registered: Vec<&UserTransform> = registered::records();
        let own = registered.into_iter().chain(&options.transforms);
        for transform in own.filter(|transform| transform.place == place) {
            // A user's transform may have effects of its own, and is not run again for its failing line.
            let ending = |error| Box::new(Ending { stage: transform.name.clone(), line: None, error });
            stage_name(&transform.name).map_err(ending)?;
            let mut next = (transform.apply)(self.last()).map_err(ending)?;
            if next.history.last() != Some(&transform.name) {
                next.history.push(transform.name.clone());
            }
            self.push_foreign(&transform.name, next)?;
        }
        Ok(())
    }

    /// What is done to a program that is differentiated, forward and backward together.
    fn simplify(&mut self, options: &Options, executors: &[&'static ExecutorDef], batched: bool) -> Step {
        self.transformed(options, Place::AfterAutodiff)?;
        let rewrites = options.rewrites.clone().unwrap_or_else(rewrite::default_rewrites);
        self.make("dce", |trace, _| Ok(dce::dce(trace)))?;
        self.make("cse", |trace, _| Ok(cse::cse(trace)))?;
        if batched {
            self.optional(batch::NAME, batch::batch)?;
        }
        self.make("late_rewrite", |trace, fuel| rewrite::late(trace, &rewrites, executors, fuel))?;
        let mut fuel = self.fuel;
        let again = options.recompute.and_then(|from| recompute::recompute(self.last(), from, &mut fuel));
        if let Some(next) = again {
            self.fuel = fuel;
            self.push(recompute::NAME, next)?;
        }
        Ok(())
    }

    /// The executor of each line, and where every value is kept.
    fn place(&mut self, options: &Options, executors: &[&'static ExecutorDef]) -> Step {
        if !self.done("plan_memory") {
            if !self.done("claim") {
                self.transformed(options, Place::BeforeClaim)?;
            }
            let target = self.last().target.clone();
            let ranking = options.ranking(executors, &target, self.last());
            self.make("claim", |trace, fuel| {
                let claimed = claim::claim(trace, &ranking, fuel)?;
                // Decompositions bring symbols that nothing reads and symbols that the program has already.
                let merged = dce::live(cse::merge(&claimed.block)).canonical();
                let block = claim::without_bodies(merged);
                Ok(Trace { block, ..claimed })
            })?;
            self.tell(&ranking);
            if options.pad && !self.done(pad::NAME) && !self.done("fuse") {
                self.pad(&ranking)?;
                self.gather(&ranking);
            }
            if options.fuse && !self.done("fuse") {
                self.make("fuse", |trace, fuel| Ok(fuse::fuse(trace, executors, fuel)))?;
            }
            self.make("layout", |trace, _| {
                let laid = layout::layout(trace, executors)?;
                let block = nest::nest(dce::live(laid.block.clone())).canonical();
                Ok(Trace { block, ..laid })
            })?;
            if let Some(next) = schedule::schedule(self.last()) {
                self.push(schedule::NAME, next)?;
            }
            self.make("donate", |trace, _| Ok(donate::donate(trace)))?;
            self.make("plan_memory", |trace, _| Ok(plan::plan(trace)))?;
        }
        if !self.done("delete_last_used") {
            self.make("delete_last_used", |trace, _| Ok(plan::delete_last_used(trace)))?;
        }
        Ok(())
    }

    /// Gives kernels the larger operands that they ask for, if one does.
    fn pad(&mut self, ranking: &Ranking<'_>) -> Step {
        self.optional(pad::NAME, |trace, fuel| pad::pad(trace, ranking, fuel))
    }

    /// A stage that exists only if it changes something.
    fn optional(&mut self, name: &str, transform: impl Fn(&Trace, &mut Fuel) -> Result<Option<Trace>>) -> Step {
        let mut fuel = self.fuel;
        match transform(self.last(), &mut fuel) {
            Ok(Some(next)) => {
                self.fuel = fuel;
                self.push(name, next)
            }
            Ok(None) => Ok(()),
            Err(error) => Err(Box::new(Ending { stage: name.into(), line: None, error })),
        }
    }

    /// Keeps with the last stage what its ranking was told, and what it could have measured.
    fn tell(&mut self, ranking: &Ranking<'_>) {
        self.gather(ranking);
        if let Some(stage) = self.made.last_mut() {
            stage.choices = ranking.told();
        }
    }

    /// Remembers the calls that could be measured. Those that are known were counted before.
    fn gather(&mut self, ranking: &Ranking<'_>) {
        for wanted in ranking.wanted() {
            self.wanted.entry(wanted.call.clone()).or_insert(wanted);
        }
    }

    /// What was asked for on the way to the last stage, which is planned.
    fn gathered(&mut self) -> Gathered {
        Gathered { wanted: std::mem::take(&mut self.wanted), peak: Some(plan::memory_use(self.last()).peak()) }
    }

    /// As [`Stages::make`], of a transform that differentiates: the sources of the rules are kept with the stage.
    fn make_with_rules(
        &mut self,
        name: &str,
        transform: impl Fn(&Trace, &mut Vec<GradientRule>) -> Result<Trace>,
    ) -> Step {
        let rules = RefCell::new(Vec::new());
        self.make(name, |trace, _| {
            rules.borrow_mut().clear();
            transform(trace, &mut rules.borrow_mut())
        })?;
        if let Some(stage) = self.made.last_mut() {
            stage.gradients = rules.into_inner();
        }
        Ok(())
    }

    fn make(&mut self, name: &str, transform: impl Fn(&Trace, &mut Fuel) -> Result<Trace>) -> Step {
        let mut fuel = self.fuel;
        match transform(self.last(), &mut fuel) {
            Ok(trace) => {
                self.fuel = fuel;
                self.push(name, trace)
            }
            Err(error) => {
                let fails = |line: &Trace| {
                    let mut fuel = self.fuel;
                    transform(line, &mut fuel).is_err_and(|other| other.code() == error.code())
                };
                let line = ending::failing_line(self.last(), fails);
                Err(Box::new(Ending { stage: name.to_owned(), line, error }))
            }
        }
    }

    /// Keeps a stage. One that is not valid is kept as well: it shows what the transform made.
    fn push(&mut self, name: &str, trace: Trace) -> Step {
        // Programs trust plans, claims and regions. Those that come from outside are checked whatever the options say.
        let planned = trace.block.values.iter().any(|value| value.storage.is_some());
        let taken = |symbol: &BoundSymbol| symbol.executor.is_some() || matches!(symbol.callee, Callee::Region { .. });
        let trusting = planned || trace.block.symbols.iter().any(taken);
        let foreign = self.made.is_empty() && (self.foreign || trusting);
        self.keep(name, trace, foreign)
    }

    /// As [`Stages::push`], for what code of the user's own made: it is checked whatever the options say.
    fn push_foreign(&mut self, name: &str, trace: Trace) -> Step {
        self.keep(name, trace, true)
    }

    fn keep(&mut self, name: &str, trace: Trace, foreign: bool) -> Step {
        // From when on collectives are no longer opened, they stay in the order that all processes agree on.
        let before = self.made.last().filter(|before| self.verify && CLAIMED.contains(&before.name.as_str()));
        let error = before.filter(|before| ordered(&before.trace) != ordered(&trace)).map(|before| Error::Verify {
            transform: name.to_owned(),
            line: ordered(&trace).join(", "),
            message: format!(
                "collectives are no longer in the order of '{}': {}",
                before.name,
                ordered(&before.trace).join(", ")
            ),
            stack: CallStack::default(),
        });
        self.made.push(Stage { name: name.to_owned(), trace, gradients: Vec::new(), choices: Vec::new() });
        let made = self.since.elapsed();
        if let Some(error) = error {
            return Err(Box::new(Ending { stage: name.to_owned(), line: None, error }));
        }
        if self.verify || foreign {
            let ending = |error| Box::new(Ending { stage: name.to_owned(), line: None, error });
            self.last().verify().map_err(ending)?;
        }
        tracing::debug!(stage = name, lines = self.last().block.symbols.len(), ?made, "stage");
        self.since = Instant::now();
        Ok(())
    }

    fn last(&self) -> &Trace {
        &self.made[self.made.len() - 1].trace
    }

    fn done(&self, transform: &str) -> bool {
        self.last().history.iter().any(|past| past == transform)
    }
}
