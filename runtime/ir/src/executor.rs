//! Executors: named sets of kernel symbols and implementations, tried in the order of a list.

mod option;

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashSet;

use crate::argument::Arg;
use crate::device::{DeviceTensor, Plan, find_kind};
use crate::error::{Error, Failure, Result};
use crate::fuel::Fuel;
use crate::gradient::GradRule;
pub use crate::host_kernel::HostKernel;
use crate::kernel::KernelRules;
use crate::meta::{Device, Target, TensorMeta};
use crate::operator::{OperatorDef, ParamDef, slip_of};
use crate::precision::Precision;
use crate::registered;
use crate::strided::PaddedRule;
use crate::strided::Strided;
use crate::testing::rules::SamplesRule;
use crate::trace::Block;
use crate::tracer::rules::TracedRule;
pub use option::{Entered, ExecutorOption, ExecutorOptions, OptionDef};

/// What a checker answers: `Ok` to take the symbol, or the reason why not.
pub type Claim = std::result::Result<(), String>;

/// Whether an executor takes a call by the operator's rules.
pub type ClaimRule = &'static (dyn Fn(&'static OperatorDef, &[Arg<TensorMeta>]) -> Claim + Send + Sync);
/// The kernel of a symbol: operator, arguments, results.
pub type PrepareRule =
    &'static (dyn Fn(&'static OperatorDef, &[Arg<Strided>], &[Strided]) -> Result<HostKernel, Failure> + Send + Sync);
/// The kernel of a region: body, operands, results.
pub type PrepareRegionRule =
    &'static (dyn Fn(&Block, &[Strided], &[Strided]) -> Result<HostKernel, Failure> + Send + Sync);
/// Whether an executor runs a region as its operators say: its body.
pub type AdmitsRegionRule = &'static (dyn Fn(&Block) -> Claim + Send + Sync);
/// The device work of a symbol: operator, arguments, results.
pub type PlanSymbolRule = &'static (
             dyn Fn(&mut Plan, &'static OperatorDef, &[Arg<DeviceTensor>], &[DeviceTensor]) -> Result<(), Failure>
                 + Send
                 + Sync
         );
/// The device work of a region: body, operands, results.
pub type PlanRegionRule =
    &'static (dyn Fn(&mut Plan, &Block, &[DeviceTensor], &[DeviceTensor]) -> Result<(), Failure> + Send + Sync);

/// Groups claimed symbols of a flat block into regions.
pub type FuseRule = &'static (dyn Fn(&Block, &mut Fuel) -> Block + Send + Sync);
/// Whether an implementation takes these arguments.
pub type CheckerRule = &'static (dyn Fn(&[Arg<TensorMeta>]) -> Claim + Send + Sync);
/// Whether a rewrite applies to what its pattern matched: its tensors, and the attributes that it binds.
pub type ConditionRule = &'static (dyn Fn(&[Arg<TensorMeta>]) -> Claim + Send + Sync);

/// An executor.
pub struct ExecutorDef {
    /// Unique name.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub docs: &'static str,
    /// Its version. What was measured of another version is not followed.
    pub version: &'static str,
    /// Whether it is a value of a kernel's `#[tune]` beside the default. What was measured of other values is not
    /// followed.
    pub tuned: bool,
    /// Its options.
    pub options: &'static [&'static dyn OptionDef],
    /// The kind of device it runs on.
    pub device: &'static str,
    /// Priority in the default list of its device kind: lower priorities run first. An executor with `None` must be
    /// named.
    pub priority: Option<u32>,
    /// Whether its kernels take operands of any strides; otherwise they get contiguous ones.
    pub strided: bool,
    /// As [`KernelRules::strided_results`], of regions and of the elementwise symbols that it takes by `claims`.
    pub strided_results: Option<usize>,
    /// The precision it computes in; the tolerances of its generated tests follow from it.
    pub precision: Precision,
    /// Claims symbols by their rules rather than by name, for example every operator with a `scalar` rule.
    pub claims: Option<ClaimRule>,
    /// The kernel of a symbol taken by `claims`: operator, arguments (operands in place of tensors), results.
    pub prepare: Option<PrepareRule>,
    /// The device work of a symbol taken by `claims`.
    pub plan: Option<PlanSymbolRule>,
    /// Groups claimed symbols of a flat block into regions of this executor.
    pub fuse: Option<FuseRule>,
    /// Whether the executor computes a region with this body exactly as its operators define, also if it did not make
    /// the region. The verifier calls it for every region.
    pub admits_region: Option<AdmitsRegionRule>,
    /// The kernel of a region: its body, operands, results.
    pub prepare_region: Option<PrepareRegionRule>,
    /// The device work of a region.
    pub plan_region: Option<PlanRegionRule>,
    /// The package that declares it.
    pub package: &'static str,
}

impl ExecutorDef {
    /// Whether it runs on devices of this kind.
    pub fn runs_on(&self, device: &str) -> bool {
        self.device == device || (self.device == "any" && !Device::is_host(device))
    }
}

/// How an executor runs an operator that it does not own.
pub struct ImplementationDef {
    /// The operator.
    pub of: &'static str,
    /// The executor.
    pub by: &'static str,
    /// Whether it takes these arguments.
    pub checker: CheckerRule,
    /// What the symbol becomes, in terms of the executor's kernel symbols.
    pub execution: Option<TracedRule>,
    /// A gradient of its own.
    pub grad: Option<GradRule>,
    /// Kernels that run the symbol as it is.
    pub kernel: KernelRules,
    /// The shapes that its operands would better have; see the pass `pad`.
    pub padded: Option<PaddedRule>,
    /// The package that declares it.
    pub package: &'static str,
    /// Source file.
    pub file: &'static str,
    /// Line.
    pub line: u32,
}

impl ImplementationDef {
    /// Whether it takes a call with these arguments: each tensor is on a device that the executor runs on, and the
    /// checker says so.
    pub fn accepts(&self, arguments: &[Arg<TensorMeta>]) -> Claim {
        let executor = find_executor(self.by).map_err(|error| error.to_string())?;
        for tensor in arguments.iter().flat_map(Arg::tensors) {
            let device = tensor.device();
            if !executor.runs_on(device.kind()) {
                return Err(format!("an operand is on {device}, {} runs on {}", executor.name, executor.device));
            }
        }
        (self.checker)(arguments)
    }
}

/// Two arrangements of symbols that mean the same; see `#[rewrite]`.
pub struct RewriteDef {
    /// Unique name.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub docs: &'static str,
    /// The pattern's tensors, and the attributes that it binds, in order.
    pub params: &'static [ParamDef],
    /// How many dimensions tensors may have, by their places in `params`. Others may have any number.
    pub ranks: &'static [(usize, Ranks)],
    /// What is looked for.
    pub pattern: TracedRule,
    /// What takes its place.
    pub replacement: TracedRule,
    /// Side conditions on the matched tensors and attributes, beyond the pattern itself.
    pub condition: Option<ConditionRule>,
    /// Inputs on which both sides must agree.
    pub samples: Option<SamplesRule>,
    /// Whether it runs without being named.
    pub default: bool,
    /// Whether it runs after autodiff instead of on the acquired trace.
    pub late: bool,
    /// The executors that it serves: it runs, late, if one of them is in the list.
    pub executors: &'static [&'static str],
    /// Whether a match is replaced only where an executor of the list runs every symbol of the replacement as it is,
    /// and none before that one runs a symbol of the pattern.
    pub claimed: bool,
    /// Whether lines outside may read inner values of the pattern: the symbols that compute them are then kept.
    pub keep_inner: bool,
    /// The package that declares it.
    pub package: &'static str,
    /// Source file.
    pub file: &'static str,
    /// Line.
    pub line: u32,
}

impl RewriteDef {
    /// Whether it applies to these arguments of its pattern: tensors have the declared ranks, and the condition holds.
    pub fn accepts(&self, arguments: &[Arg<TensorMeta>]) -> Claim {
        for (place, ranks) in self.ranks {
            let name = self.params[*place].name;
            for tensor in arguments.get(*place).map_or(&[][..], Arg::tensors) {
                if !ranks.hold(tensor.rank()) {
                    return Err(format!("{name} is {tensor}, the pattern takes {ranks}"));
                }
            }
        }
        self.condition.map_or(Ok(()), |condition| condition(arguments))
    }
}

/// How many dimensions a tensor of a pattern may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    /// The fewest.
    pub least: usize,
    /// The most.
    pub most: usize,
}

impl Ranks {
    /// Whether a tensor may have so many dimensions.
    pub fn hold(self, rank: usize) -> bool {
        (self.least..=self.most).contains(&rank)
    }
}

impl std::fmt::Display for Ranks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ranks { least, most } = *self;
        let dimensions = |count: usize| if count == 1 { "dimension" } else { "dimensions" };
        match most {
            usize::MAX => write!(f, "{least} {} or more", dimensions(least)),
            _ if least == most => write!(f, "{least} {}", dimensions(least)),
            _ => write!(f, "{least} to {most} {}", dimensions(most)),
        }
    }
}

/// Runs on the host the symbols that a device has no kernel for; last in the default list of kinds that enable it.
pub const HOST: &str = "host";
/// Runs nothing: symbols that are views of their operand's memory.
pub const VIEW: &str = "view";
/// Runs nothing: symbols whose operands are written where they belong in the result; see
/// [`mod@crate::trace::joins`].
pub const JOIN: &str = "join";

/// What runs nothing, on whatever device.
const NOTHING: ExecutorDef = ExecutorDef {
    name: "",
    docs: "",
    version: env!("CARGO_PKG_VERSION"),
    tuned: false,
    options: &[],
    device: "any",
    priority: None,
    strided: true,
    strided_results: None,
    precision: Precision::Exact,
    claims: None,
    prepare: None,
    plan: None,
    fuse: None,
    admits_region: None,
    prepare_region: None,
    plan_region: None,
    package: env!("CARGO_PKG_NAME"),
};

#[linkme::distributed_slice(EXECUTORS)]
static VIEWS: &ExecutorDef = &ExecutorDef {
    name: VIEW,
    docs: "Symbols that only look at their operand's memory in another way; nothing runs for them.",
    ..NOTHING
};

#[linkme::distributed_slice(EXECUTORS)]
static JOINS: &ExecutorDef = &ExecutorDef {
    name: JOIN,
    docs: "Symbols whose operands are written where they belong in the result; nothing runs for them.",
    plan: Some(&|_, _, _, _| Ok(())),
    ..NOTHING
};

/// Every executor linked into the program.
#[linkme::distributed_slice]
pub static EXECUTORS: [&'static ExecutorDef];
/// Every implementation linked into the program.
#[linkme::distributed_slice]
pub static IMPLEMENTATIONS: [&'static ImplementationDef];
/// Every rewrite linked into the program.
#[linkme::distributed_slice]
pub static REWRITES: [&'static RewriteDef];

/// The linked records of a type and the registered ones.
fn all_of<T: std::any::Any>(linked: &[&'static T]) -> Vec<&'static T> {
    linked.iter().copied().chain(registered::records()).collect()
}

/// All executors, sorted by name.
pub fn executors() -> Vec<&'static ExecutorDef> {
    let mut all = all_of(&EXECUTORS);
    all.sort_by_key(|executor| executor.name);
    all
}

/// All implementations, sorted by operator and executor.
pub fn implementations() -> Vec<&'static ImplementationDef> {
    let mut all = all_of(&IMPLEMENTATIONS);
    all.sort_by_key(|implementation| (implementation.of, implementation.by));
    all
}

/// All rewrites, sorted by name.
pub fn rewrites() -> Vec<&'static RewriteDef> {
    let mut all = all_of(&REWRITES);
    all.sort_by_key(|rewrite| rewrite.name);
    all
}

/// The executor of that name.
pub fn find_executor(name: &str) -> Result<&'static ExecutorDef> {
    let linked = EXECUTORS.iter().copied().find(|executor| executor.name == name);
    linked.or_else(|| registered::find(|executor: &ExecutorDef| executor.name == name)).ok_or_else(|| {
        let known: Vec<&str> = executors().iter().map(|executor| executor.name).collect();
        // Another executor's name is a suggestion only for a slip of one letter: short names are near each other, and
        // the one that is meant may be of a crate that is not linked.
        let hint = slip_of(name, known.iter().copied());
        Error::UnknownExecutor { name: name.to_owned(), hint, known: known.join(", ") }
    })
}

/// The one of a kernel symbol's executors that runs on devices of this kind.
pub fn owner_on(owners: &[&'static str], device: &str) -> Result<Option<&'static ExecutorDef>> {
    let all = owners.iter().map(|name| find_executor(name)).collect::<Result<Vec<_>>>()?;
    Ok(all.into_iter().find(|executor| executor.runs_on(device)))
}

/// The option `executor.name`.
///
/// # Errors
/// If no executor has that name, or it has no such option.
pub fn find_option(path: &str) -> Result<&'static dyn OptionDef> {
    let wrong = |message: String| Error::Argument { argument: format!("option {path}"), message };
    let Some((executor, name)) = path.split_once('.') else {
        return Err(wrong("expected an executor and its option, as in 'sim.block'".into()));
    };
    let executor = find_executor(executor)?;
    let names = || executor.options.iter().map(|option| option.name());
    executor.options.iter().copied().find(|option| option.name() == name).ok_or_else(|| {
        let known: Vec<&str> = names().collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        let hint = slip_of(name, names());
        wrong(format!("{} has no option '{name}'{hint} (it has: {known})", executor.name))
    })
}

/// The executor's own name, or a copy that lives forever: an executor that refused a symbol need not be linked into
/// this program.
pub fn interned_name(name: &str) -> &'static str {
    static NAMES: Mutex<Option<FxHashSet<&'static str>>> = Mutex::new(None);
    if let Ok(executor) = find_executor(name) {
        return executor.name;
    }
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(known) = names.get(name) {
        return known;
    }
    let leaked: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(leaked);
    leaked
}

/// The word in a list of names that stands for the default executors of the device kind, but those that the list names.
pub const DEFAULT: &str = "default";

/// The executors of these names, in this order; [`DEFAULT`] stands for those of the device kind that are not named.
///
/// # Errors
/// [`Error::UnknownExecutor`] for the first name that no executor has.
pub fn executors_named(names: &[&str], device: &str) -> Result<Vec<&'static ExecutorDef>> {
    let mut list = Vec::new();
    for name in names {
        if *name == DEFAULT {
            list.extend(default_executors(device).into_iter().filter(|executor| !names.contains(&executor.name)));
        } else {
            list.push(find_executor(name)?);
        }
    }
    Ok(list)
}

/// Those of `executors` that run on the target. The others refuse every line with that reason and do not affect the
/// transforms before the claim.
pub fn executors_of(executors: &[&'static ExecutorDef], target: &Target) -> Vec<&'static ExecutorDef> {
    executors.iter().copied().filter(|executor| executor.runs_on(target.kind())).collect()
}

/// How `executor` runs `operator`, if it brought an implementation.
pub fn find_implementation(operator: &str, executor: &str) -> Option<&'static ImplementationDef> {
    static INDEX: std::sync::OnceLock<rustc_hash::FxHashMap<(&'static str, &'static str), &'static ImplementationDef>> =
        std::sync::OnceLock::new();
    let index = INDEX.get_or_init(|| IMPLEMENTATIONS.iter().map(|imp| ((imp.of, imp.by), *imp)).collect());
    // The map's keys are 'static; a lookup with shorter borrows is fine.
    let key: (&str, &str) = (operator, executor);
    let registered = || registered::find(|own: &ImplementationDef| own.of == operator && own.by == executor);
    index.get(&key).copied().or_else(registered)
}

/// The default list for a kind of device.
pub fn default_executors(device: &str) -> Vec<&'static ExecutorDef> {
    let mut list = all_of(&EXECUTORS);
    list.retain(|executor| executor.device == device && executor.priority.is_some());
    list.sort_by_key(|executor| (executor.priority, executor.name));
    if find_kind(device).is_ok_and(|kind| kind.falls_back_to_host()) {
        list.extend(EXECUTORS.iter().copied().filter(|executor| executor.name == HOST));
    }
    list
}

/// `list` with the executors of `precision` before the others, if they come in one package with an executor of the
/// list. Without such an executor the list is unchanged.
pub fn rounded_to(precision: Precision, list: &[&'static ExecutorDef]) -> Vec<&'static ExecutorDef> {
    let rounds = |executor: &&'static ExecutorDef| executor.precision == precision;
    let comes_with = |executor: &&'static ExecutorDef| list.iter().any(|own| own.package == executor.package);
    let first = executors().into_iter().filter(|executor| rounds(executor) && comes_with(executor));
    first.chain(list.iter().copied().filter(|executor| !rounds(executor))).collect()
}
