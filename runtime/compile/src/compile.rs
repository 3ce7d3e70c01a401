//! From an acquired trace to a program: the order of the transforms, and every stage kept.

mod current;
mod ending;
mod explain;
mod gather;
mod gradients;
mod options;
mod passes;
mod programs;

pub use crate::trace::StageName;
pub use ending::Ending;
pub use explain::explain;
use gather::Gathered;
pub use gradients::{gradients_stage, with_gradients};
pub(crate) use options::stage_name;
pub use options::{Choose, Options, Place, TransformFn, UserTransform};
pub use passes::STAGES;
use passes::{Given, Made, Part, TABLE, rows};
pub use programs::{Programs, Saved, loss_programs, split_stages};

use std::ops::Range;
use std::time::Instant;

use indexmap::IndexMap;

use crate::choices::{Call, Told, Wanted};
use crate::error::{CallStack, Error, Result};
use crate::executor::{ExecutorDef, RewriteDef};
use crate::fuel::Fuel;
use crate::meta::Target;
use crate::registered;
use crate::trace::verify::{on_the_mesh, ordered};
use crate::trace::{BoundSymbol, Callee, Trace};
use crate::transforms::autodiff::GradientRule;
use crate::transforms::{autocast, plan, rewrite};

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

impl Stage {
    /// Whether it is this stage, and no transform of the user's own.
    pub fn is(&self, stage: StageName) -> bool {
        self.name == stage.name()
    }
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
    let _given = options.executor_options.enter();
    let setting = Setting::new(options, &trace, false);
    let mut stages = Stages { foreign, ..Stages::new(options.verify, options.fuel) };
    let ending = stages.take_through(trace, &setting).err().map(|ending| *ending);
    Reached { stages: stages.made, ending }
}

/// What stays the same in a compilation.
struct Setting<'a> {
    options: &'a Options,
    executors: Vec<&'static ExecutorDef>,
    rewrites: Vec<&'static RewriteDef>,
    /// Whether forward and backward become two programs.
    split: bool,
}

impl<'a> Setting<'a> {
    fn new(options: &'a Options, trace: &Trace, split: bool) -> Setting<'a> {
        let rewrites = options.rewrites.clone().unwrap_or_else(rewrite::default_rewrites);
        Setting { options, executors: options.executor_list(trace.target.kind()), rewrites, split }
    }

    /// What a pass over `trace` is given.
    fn given<'s>(&'s self, target: &'s Target, trace: &Trace) -> Given<'s> {
        let Setting { options, executors, rewrites, split } = self;
        let ranking = options.ranking(executors, target, trace);
        Given { options, executors, rewrites, ranking, split: *split }
    }
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
    /// Where the first of them was asked about.
    asked: Option<Asked>,
    /// When the last stage was kept.
    since: Instant,
}

/// A row of the table, and what there was before it.
struct Asked {
    row: usize,
    stages: usize,
    fuel: Fuel,
}

/// Endings are large and rare.
type Step = Result<(), Box<Ending>>;

/// The collectives of a trace, for the comparison with the stage before `stage`.
fn compared<'a>(trace: &'a Trace, stage: &str) -> Vec<&'a str> {
    let mut names = ordered(trace);
    if matches!(StageName::of(stage), Some(StageName::Bucket | StageName::Schedule)) {
        names.sort_unstable();
    }
    names
}

impl Stages {
    fn new(verify: bool, fuel: Fuel) -> Stages {
        let (made, since) = (Vec::with_capacity(14), Instant::now());
        Stages { verify, foreign: false, fuel, made, wanted: IndexMap::new(), asked: None, since }
    }

    fn take_through(&mut self, trace: Trace, setting: &Setting<'_>) -> Step {
        let written = self.begin(trace, setting.options)?;
        let mut from = if written { 0 } else { rows(Part::Placed).start };
        for _ in 1..gather::PASSES {
            self.run(from..TABLE.len(), setting)?;
            let Gathered { wanted, peak } = self.gathered();
            let Some(choices) = setting.options.choices.as_deref().filter(|_| !wanted.is_empty()) else {
                return Ok(());
            };
            choices.measure(&wanted.into_values().collect::<Vec<Wanted>>(), peak);
            // What comes before the first call that was measured stays as it is.
            let Some(first) = self.asked.take() else { return Ok(()) };
            self.made.truncate(first.stages);
            (self.fuel, from) = (first.fuel, first.row);
        }
        self.run(from..TABLE.len(), setting)
    }

    /// Keeps the trace that compilation starts from. Whether it is still to be differentiated: one that is split or
    /// claimed is past that.
    fn begin(&mut self, trace: Trace, options: &Options) -> Result<bool, Box<Ending>> {
        let name = trace.history.last().cloned().unwrap_or_else(|| StageName::Acquire.name().into());
        // Said of the author's call, and before the verifier speaks of a line.
        let elsewhere = on_the_mesh(&trace).err().map(|elsewhere| elsewhere.error());
        let stale = current::check(options.executors.as_deref(), options.rewrites.as_deref());
        let stale = stale.and_then(|()| current::expect_listed(options, &trace)).err();
        if let Some(error) = stale.or(elsewhere) {
            return Err(Box::new(Ending { stage: name, line: None, error }));
        }
        self.push(&name, trace)?;
        let low = options.autocast.filter(|_| !self.last().has_been_through(StageName::Autocast));
        if let Some(low) = low {
            let stage = StageName::Autocast.name().to_owned();
            autocast::check(self.last(), low).map_err(|error| Box::new(Ending { stage, line: None, error }))?;
        }
        let trace = self.last();
        Ok(!trace.has_been_through(StageName::Claim) && !trace.has_been_through(StageName::Split))
    }

    /// Runs those of these rows of the table that apply.
    fn run(&mut self, range: Range<usize>, setting: &Setting<'_>) -> Step {
        for (at, row) in TABLE.iter().enumerate().take(range.end).skip(range.start) {
            let before = Asked { row: at, stages: self.made.len(), fuel: self.fuel };
            let target = self.last().target.clone();
            let given = setting.given(&target, self.last());
            if !(row.applies)(&given, self.last()) {
                continue;
            }
            match row.step {
                passes::Step::Pass(stage, pass) => self.make(stage, &given, pass)?,
                passes::Step::Own(place) => self.transformed(setting.options, place)?,
            }
            if !self.wanted.is_empty() {
                self.asked.get_or_insert(before);
            }
        }
        Ok(())
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

    /// Makes a stage by a pass, if that changes something. Remembers the calls that could be measured.
    fn make(
        &mut self,
        stage: StageName,
        given: &Given<'_>,
        pass: impl Fn(&Given<'_>, &Trace, &mut Fuel) -> Result<Option<Made>>,
    ) -> Step {
        let mut fuel = self.fuel;
        let made = pass(given, self.last(), &mut fuel);
        for wanted in given.ranking.wanted() {
            // Those that are known were counted before.
            self.wanted.entry(wanted.call.clone()).or_insert(wanted);
        }
        match made {
            Ok(Some(Made { trace, gradients, choices })) => {
                self.fuel = fuel;
                self.push(stage.name(), trace)?;
                if let Some(stage) = self.made.last_mut() {
                    (stage.gradients, stage.choices) = (gradients, choices);
                }
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => {
                let fails = |line: &Trace| {
                    let mut fuel = self.fuel;
                    pass(given, line, &mut fuel).is_err_and(|other| other.code() == error.code())
                };
                let line = ending::failing_line(self.last(), fails);
                Err(Box::new(Ending { stage: stage.name().to_owned(), line, error }))
            }
        }
    }

    /// What was asked for on the way to the last stage, which is planned.
    fn gathered(&mut self) -> Gathered {
        Gathered { wanted: std::mem::take(&mut self.wanted), peak: Some(plan::memory_use(self.last()).peak()) }
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
        // From when on collectives are no longer opened, they stay in the order that all processes agree on. Two
        // stages move them, as they do in all processes.
        let claimed = |stage: &&Stage| StageName::of(&stage.name).is_some_and(StageName::is_claimed);
        let before = self.made.last().filter(claimed).filter(|_| self.verify);
        let moved = |before: &&Stage| compared(&before.trace, name) != compared(&trace, name);
        let error = before.filter(moved).map(|before| Error::Verify {
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
}
