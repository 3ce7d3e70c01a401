//! Which executors are asked for a call, in which order. Every stage of a compilation asks the same value, so that all
//! stages agree.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;

use super::call::{Call, Purpose};
use super::entry::{DECOMPOSED, Entry};
use crate::argument::Arg;
use crate::executor::{ExecutorDef, ExecutorOptions, executors, find_executor, find_implementation, interned_name};
use crate::meta::{Target, TensorMeta};
use crate::operator::{OperatorDef, OperatorKind, RuleSet};
use crate::precision::Precisions;
use crate::refusal::Refusal;
use crate::trace::Trace;
use crate::tracer::rules::TracingRules;
use crate::transforms::autodiff::rules::GradientRules;

/// A call for which a record may name an executor.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The operator.
    pub def: &'static OperatorDef,
    /// Its arguments.
    pub metas: &'a [Arg<TensorMeta>],
    /// What the call is for.
    pub purpose: Purpose,
    /// The executors that are asked where nothing is recorded, in their order.
    pub list: &'a [&'static ExecutorDef],
    /// What the program is compiled for.
    pub target: &'a Target,
    /// Whether the program is this call and nothing else.
    pub is_program: bool,
    /// The values of executors' options.
    pub options: &'a ExecutorOptions,
}

impl Question<'_> {
    /// What records name it by.
    pub fn call(&self) -> Call {
        let call = Call::new(self.def, self.metas, self.purpose, precisions_of(self.list));
        Call { is_program: self.is_program, executors: self.executors(), ..call }
    }

    /// What a choice depends on beside the library: the versions of executors that are not the library's, where they
    /// may run the call, the values that its kernels' `#[tune]` have, and the values of options.
    fn executors(&self) -> String {
        let may_run = |executor: &&'static ExecutorDef| {
            (executor.tuned || executor.version != LIBRARY)
                && executor.runs_on(self.target.kind())
                && (executor.claims.is_some() || find_implementation(self.def.name, executor.name).is_some())
        };
        let versions = executors().into_iter().filter(may_run).map(|own| match own.version {
            LIBRARY => own.name.to_owned(),
            version => format!("{} {version}", own.name),
        });
        let options = Some(self.options.to_string()).filter(|text| !text.is_empty());
        versions.chain(options).collect::<Vec<String>>().join(", ")
    }
}

/// The version of this library, which records have anyway.
const LIBRARY: &str = env!("CARGO_PKG_VERSION");

/// The precisions that are asked for by naming executors that have them.
pub fn precisions_of(list: &[&'static ExecutorDef]) -> Precisions {
    list.iter().map(|executor| executor.precision).collect()
}

/// The answer to a question.
#[derive(Debug, Clone)]
pub enum Found {
    /// Nothing is recorded.
    Nothing,
    /// Nothing is recorded yet: [`Choices::measure`] would measure the candidates. The list decides until then.
    Unmeasured,
    /// A record.
    Entry(Arc<Entry>),
    /// A record that does not count here, and why.
    Ignored(String),
}

/// A call that could be measured, as a compilation gathers it.
#[derive(Clone)]
pub struct Wanted {
    /// What records name it by.
    pub call: Call,
    /// How often the program has it.
    pub count: usize,
    def: &'static OperatorDef,
    metas: Vec<Arg<TensorMeta>>,
    list: Vec<&'static ExecutorDef>,
    target: Target,
    options: ExecutorOptions,
}

impl Wanted {
    /// One call.
    pub fn new(question: &Question<'_>) -> Wanted {
        let Question { def, metas, list, target, options, .. } = *question;
        let (metas, list, target, options) = (metas.to_vec(), list.to_vec(), target.clone(), options.clone());
        Wanted { call: question.call(), count: 1, def, metas, list, target, options }
    }

    /// The call that is asked about.
    pub fn question(&self) -> Question<'_> {
        let Wanted { def, metas, list, target, call, options, .. } = self;
        Question { def, metas, purpose: call.purpose, list, target, is_program: call.is_program, options }
    }
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wanted({} x {})", self.count, self.call)
    }
}

/// Where recorded winners come from. Equal questions get equal answers in all programs that a process compiles.
pub trait Choices: Send + Sync + fmt::Debug {
    /// What is recorded of a call.
    fn find(&self, question: &Question<'_>) -> Found;

    /// Measures calls of which [`Choices::find`] said [`Found::Unmeasured`]; from then on it answers all of them, those
    /// that are left to the list with [`Found::Ignored`] and the reason. Where another thread records what the device
    /// does meanwhile, the calls that were not measured are answered with [`Found::Nothing`], as long as it does. A
    /// compilation gathers its calls, has them measured, and is repeated. `peak` is what the program that asks needs of
    /// the device's memory, in bytes, if that is known.
    fn measure(&self, wanted: &[Wanted], peak: Option<u64>) {
        let _ = (wanted, peak);
    }

    /// Called when a program, or one with its vector-Jacobian product, was compiled to be run; `told` is what was found
    /// for its calls.
    fn compiled(&self, told: &[Told]) {
        let _ = told;
    }
}

/// What a ranking found out, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// The call.
    pub call: Call,
    /// The record that was followed, or why one was not.
    pub outcome: Result<Arc<Entry>, String>,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok(entry) => write!(f, "choice of {}: {entry}", self.call),
            Err(reason) => write!(f, "no choice of {}: {reason}", self.call),
        }
    }
}

/// The order of executors for one call.
pub struct Ranked<'a> {
    /// The executors that are asked, in order; empty if the decomposition won.
    pub executors: Cow<'a, [&'static ExecutorDef]>,
    /// Why the recorded winner is not the first of them.
    pub refusal: Option<Refusal>,
}

/// The list of executors, and what is recorded of single calls.
pub struct Ranking<'a> {
    list: &'a [&'static ExecutorDef],
    target: &'a Target,
    choices: Option<&'a dyn Choices>,
    /// The call that is the whole program, if it is one.
    only: Option<(&'static OperatorDef, Vec<Arg<TensorMeta>>)>,
    options: ExecutorOptions,
    told: RefCell<IndexMap<Call, Told>>,
    wanted: RefCell<IndexMap<Call, Wanted>>,
}

impl<'a> Ranking<'a> {
    /// The executors of `list` for programs for `target`; `choices` know winners of single calls.
    pub fn new(list: &'a [&'static ExecutorDef], target: &'a Target, choices: Option<&'a dyn Choices>) -> Ranking<'a> {
        let (told, wanted) = (RefCell::default(), RefCell::default());
        Ranking { list, target, choices, only: None, options: ExecutorOptions::default(), told, wanted }
    }

    /// With these values of executors' options.
    pub fn with_options(self, options: &ExecutorOptions) -> Ranking<'a> {
        Ranking { options: options.clone(), ..self }
    }

    /// For the calls of a program: if it has one, that has no neighbours. What it is decomposed into has.
    pub fn of_program(self, trace: &Trace) -> Ranking<'a> {
        let only = match &trace.block.symbols[..] {
            [symbol] => symbol.operator().map(|def| (def, trace.block.argument_metas(symbol))),
            _ => None,
        };
        Ranking { only, ..self }
    }

    /// The list, in its order, for every call.
    pub fn list(list: &'a [&'static ExecutorDef], target: &'a Target) -> Ranking<'a> {
        Ranking::new(list, target, None)
    }

    /// A ranking without executors, where operators' own rules apply.
    pub(crate) fn of_nobody(&self) -> Ranking<'a> {
        Ranking::list(&[], self.target)
    }

    /// Whether an executor runs on the target. The others affect no transform before the claim.
    pub(crate) fn is_of_target(&self, executor: &ExecutorDef) -> bool {
        executor.runs_on(self.target.kind())
    }

    /// The executors in the order of the list.
    pub fn executors(&self) -> &'a [&'static ExecutorDef] {
        self.list
    }

    /// What was recorded of the calls that were asked for, each once, in the order of the questions.
    pub fn told(&self) -> Vec<Told> {
        self.told.borrow().values().cloned().collect()
    }

    /// The calls that were asked for and could be measured, in the order of the questions.
    pub fn wanted(&self) -> Vec<Wanted> {
        self.wanted.borrow().values().cloned().collect()
    }

    /// The order for one call: the recorded winner first.
    pub fn of(&self, def: &'static OperatorDef, metas: &[Arg<TensorMeta>], purpose: Purpose) -> Ranked<'a> {
        let as_listed = |refusal| Ranked { executors: Cow::Borrowed(self.list), refusal };
        let Some(choices) = self.choices.filter(|_| !matches!(def.kind, OperatorKind::Symbol(_))) else {
            return as_listed(None);
        };
        let is_program = self.only.as_ref().is_some_and(|(own, of)| own.name == def.name && of[..] == *metas);
        let (list, target) = (self.list, self.target);
        let question = Question { def, metas, purpose, list, target, is_program, options: &self.options };
        let entry = match choices.find(&question) {
            Found::Nothing => return as_listed(None),
            Found::Unmeasured => {
                let mut wanted = self.wanted.borrow_mut();
                wanted
                    .entry(question.call())
                    .and_modify(|one| one.count += 1)
                    .or_insert_with(|| Wanted::new(&question));
                return as_listed(None);
            }
            Found::Ignored(reason) => {
                self.tell(question.call(), Err(reason));
                return as_listed(None);
            }
            Found::Entry(entry) => entry,
        };
        match self.first(&entry.winner, def, purpose) {
            Ok(first) => {
                self.tell(entry.call.clone(), Ok(entry));
                let others =
                    self.list.iter().copied().filter(|other| first.is_some_and(|first| first.name != other.name));
                Ranked { executors: first.into_iter().chain(others).collect(), refusal: None }
            }
            Err(reason) => {
                let refusal = Refusal { executor: interned_name(&entry.winner), reason: reason.clone() };
                self.tell(question.call(), Err(format!("{} won, but {reason}", entry.winner)));
                as_listed(Some(refusal))
            }
        }
    }

    /// The executor that a record names; `None` for the decomposition.
    ///
    /// # Errors
    /// Why it cannot be asked.
    fn first(&self, winner: &str, def: &OperatorDef, purpose: Purpose) -> Result<Option<&'static ExecutorDef>, String> {
        if winner == DECOMPOSED {
            let own = purpose == Purpose::Differentiated && GradientRules::of(def).grad.is_some();
            return match own || TracingRules::of(def).decomposition.is_some() {
                true => Ok(None),
                false => Err(format!("{} has no decomposition", def.name)),
            };
        }
        let executor =
            find_executor(winner).map_err(|_| "it is recorded as the fastest, and is not linked into this program")?;
        if !executor.runs_on(self.target.kind()) {
            return Err(format!("it runs on {}, the target is {}", executor.device, self.target.kind()));
        }
        if !precisions_of(self.list).contains(executor.precision) {
            return Err(format!("it computes in {}, which was not asked for", executor.precision.name()));
        }
        if executor.claims.is_none() && find_implementation(def.name, executor.name).is_none() {
            return Err(format!("it is recorded as the fastest, and has no implementation of {}", def.name));
        }
        Ok(Some(executor))
    }

    fn tell(&self, call: Call, outcome: Result<Arc<Entry>, String>) {
        self.told.borrow_mut().entry(call.clone()).or_insert(Told { call, outcome });
    }
}

impl fmt::Debug for Ranking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.list.iter().map(|executor| executor.name).collect();
        f.debug_struct("Ranking").field("list", &names).field("choices", &self.choices).finish_non_exhaustive()
    }
}
