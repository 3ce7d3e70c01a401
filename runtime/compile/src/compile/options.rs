//! What is asked of a compilation, and transforms of the user's own.

use std::sync::Arc;
use std::time::Duration;

use fulgurite_kernels::DType;

use crate::argument::AttributeType;
use crate::choices::{Choices, Ranking};
use crate::error::{Error, Result};
use crate::executor::{ExecutorDef, ExecutorOption, ExecutorOptions, default_executors, executors_named, find_option};
use crate::fuel::Fuel;
use crate::mesh::Mesh;
use crate::meta::{Device, Target};
use crate::trace::{StageName, Trace};
use crate::transforms::fsdp::{self, Sharding};
use crate::transforms::tensor_parallel::{self, Division};
use crate::transforms::{bucket, ddp, recompute};

/// How long a compilation measures at most by default.
const CHOOSE_FOR: Duration = Duration::from_secs(10);

/// Options of compilation.
#[derive(Clone)]
pub struct Options {
    /// The device on which compiled functions run: arguments on the host are copied to it. `None` is the device of the
    /// arguments.
    pub device: Option<Device>,
    /// The ranks that run compiled functions, each on its own data; one rank by default. Collectives go along its axes.
    pub mesh: Mesh,
    /// Executors in the order of their priority; `None` is the default list of the target's device kind. A compilation
    /// fails if one of them, or of the rewrites, was withdrawn ([`crate::registration`]), also if it was replaced.
    pub executors: Option<Vec<&'static ExecutorDef>>,
    /// Values of the options that executors declare. All others have their defaults.
    pub executor_options: ExecutorOptions,
    /// Recorded winners of single calls, which are asked before the list ([`mod@crate::choices`]). `None` follows
    /// [`Options::choose`].
    pub choices: Option<Arc<dyn Choices>>,
    /// Whether candidates of costly calls are measured where nothing is recorded. For several ranks nothing is measured
    /// and no record of this machine is followed, only [`Options::choices`] that are given: all ranks run one program.
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
    /// The arguments that are parts of tensors, and the shapes that the program is traced with in their place
    /// ([`Options::with_fsdp`]).
    pub sharding: Option<Arc<Sharding>>,
    /// The arguments that are divided among ranks along a dimension, and the shapes that the program is traced with in
    /// their place ([`Options::with_tensor_parallel`]).
    pub division: Option<Arc<Division>>,
    /// Minimum size, in bytes, of values that are recomputed for the backward pass instead of being saved, if that is
    /// cheap ([`crate::transforms::recompute`]); `None` saves all values.
    pub recompute: Option<u64>,
    /// Maximum number of optimizations.
    pub fuel: Fuel,
    /// Whether small products and sums that are alike become one ([`mod@crate::transforms::batch`]).
    pub batch: bool,
    /// Bytes up to which the tensors of collectives that are alike go through one exchange
    /// ([`mod@crate::transforms::bucket`]); 0 keeps each to itself.
    pub bucket: u64,
    /// Whether kernels get the larger operands that they ask for ([`mod@crate::transforms::pad`]).
    pub pad: bool,
    /// Whether kernels that gain by it have the channels of images innermost ([`mod@crate::transforms::channels`]).
    pub channels: bool,
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
    /// On the program in the types that it computes in: after `autocast`, before `autodiff`.
    BeforeAutodiff,
    /// On the differentiated program, of `jit` and `vjp` alike: after `autodiff` or `vjp`, before it is simplified.
    AfterAutodiff,
    /// On what executors are asked to run, of `vjp` on forward and backward program each: just before `claim`.
    BeforeClaim,
}

/// A transform of the user's own: its name, what it does, and where. Its result is verified whatever the options say.
#[derive(Clone)]
pub struct UserTransform {
    /// The name in the history of traces; none of [`StageName`].
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
            .field("mesh", &self.mesh)
            .field("executors", &executors)
            .field("executor_options", &self.executor_options)
            .field("choices", &self.choices)
            .field("choose", &self.choose)
            .field("choose_for", &self.choose_for)
            .field("rewrites", &rewrites)
            .field("transforms", &self.transforms.iter().map(|t| &t.name).collect::<Vec<_>>())
            .field("autocast", &self.autocast)
            .field("sharding", &self.sharding)
            .field("division", &self.division)
            .field("recompute", &self.recompute)
            .field("fuel", &self.fuel)
            .field("batch", &self.batch)
            .field("bucket", &self.bucket)
            .field("pad", &self.pad)
            .field("channels", &self.channels)
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
            mesh: Mesh::ONE,
            executors: None,
            executor_options: ExecutorOptions::default(),
            choices: None,
            choose: Choose::default(),
            choose_for: CHOOSE_FOR,
            rewrites: None,
            transforms: Vec::new(),
            autocast: None,
            sharding: None,
            division: None,
            recompute: Some(recompute::FROM_BYTES),
            fuel: Fuel::UNLIMITED,
            batch: true,
            bucket: bucket::BYTES,
            pad: true,
            channels: true,
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

    /// Trains by data parallelism over the ranks along an axis of [`Options::mesh`] ([`mod@crate::transforms::ddp`]).
    pub fn with_ddp(mut self, axis: &str) -> Options {
        let axis = axis.to_owned();
        self.transforms.push(UserTransform::new(ddp::DDP, move |trace| ddp::ddp(trace, &axis)));
        self
    }

    /// Has each rank along an axis of [`Options::mesh`] keep a part of the arguments that `sharding` names, and trains
    /// by data parallelism over them ([`mod@crate::transforms::fsdp`]).
    pub fn with_fsdp(mut self, sharding: Sharding) -> Options {
        let sharding = Arc::new(sharding);
        self.sharding = Some(sharding.clone());
        self.transforms.push(UserTransform::new(fsdp::FSDP, move |trace| fsdp::fsdp(trace, &sharding)));
        self
    }

    /// Has each rank along an axis of [`Options::mesh`] keep parts of the arguments that `division` names, and compute
    /// parts of what one rank would ([`mod@crate::transforms::tensor_parallel`]).
    pub fn with_tensor_parallel(mut self, division: Division) -> Options {
        let division = Arc::new(division);
        self.division = Some(division.clone());
        let divide = move |trace: &Trace| tensor_parallel::tensor_parallel(trace, &division);
        let transform = UserTransform::new(tensor_parallel::TENSOR_PARALLEL, divide);
        self.transforms.push(transform.at(Place::BeforeAutodiff));
        self
    }

    /// Gives an option of an executor a value.
    pub fn with_option<T: AttributeType + Sync>(mut self, option: &'static ExecutorOption<T>, value: T) -> Options {
        self.executor_options.set(option, value.to_attribute());
        self
    }

    /// Gives the option `executor.name` the value that a text says.
    ///
    /// # Errors
    /// If there is no such executor or option, or the value is of another type.
    pub fn with_option_named(mut self, path: &str, value: &str) -> Result<Options> {
        let option = find_option(path)?;
        let value = option.parse(value).ok_or_else(|| {
            let (type_name, default) = (option.type_name(), option.default());
            let message = format!("is '{value}', expected a value of type {type_name}, as its default {default}");
            Error::Argument { argument: format!("option {path}"), message }
        })?;
        self.executor_options.set(option, value);
        Ok(self)
    }

    /// The executors that are asked for the calls of a program for `target`.
    pub fn ranking<'a>(&'a self, executors: &'a [&'static ExecutorDef], target: &'a Target, of: &Trace) -> Ranking<'a> {
        let ranking = Ranking::new(executors, target, self.choices.as_deref()).of_program(of);
        ranking.with_options(&self.executor_options)
    }

    /// The list that a program for `device` is compiled with.
    pub fn executor_list(&self, device: &str) -> Vec<&'static ExecutorDef> {
        self.executors.clone().unwrap_or_else(|| default_executors(device))
    }
}

/// Fails for a transform that has the name of a stage: what is done to a trace is known by these names.
pub(crate) fn stage_name(name: &str) -> Result<()> {
    if StageName::of(name).is_none() {
        return Ok(());
    }
    let message = "is a stage of every compilation, expected another name".to_owned();
    Err(Error::Path { what: "transform", path: name.to_owned(), message, stack: Box::default() })
}
