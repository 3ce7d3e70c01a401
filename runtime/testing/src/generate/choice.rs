//! What operators are tested with: executors and element types.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use fulgurite_kernels::DType;

use crate::argument::Arg;
use crate::executor::{ExecutorDef, default_executors, executors, find_implementation, implementations};
use crate::kernel::KernelRules;
use crate::meta::{Device, Target, TensorMeta};
use crate::operator::{OperatorDef, OperatorKind, RuleSet};
use crate::subject::{accepted_samples, sample_metas, trace_call};
use crate::trace::{Block, Callee};
use crate::tracer::rules::TracingRules;
use fulgurite_ir::registry::find_operator;

/// The order in which element types are tried; where samples do not depend on it, the first that is accepted speaks for
/// all.
pub(crate) const DTYPES: [DType; 14] = [
    DType::F32,
    DType::F64,
    DType::BF16,
    DType::F16,
    DType::I64,
    DType::I32,
    DType::U8,
    DType::Bool,
    DType::I8,
    DType::U16,
    DType::I16,
    DType::U32,
    DType::C64,
    DType::C128,
];

/// Integers that are computed as i32 and u8 are: what differs is what they hold, and what type they meet others in.
pub(crate) fn is_further_integer(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::U16 | DType::I16 | DType::U32)
}

/// An element type, and the metas of the arguments of its samples.
pub(super) type TypedMetas = (DType, Vec<Vec<Arg<TensorMeta>>>);

/// The element types that samples of `def` are made and accepted for, with the metas of the arguments.
pub(super) fn dtypes_of(def: &'static OperatorDef) -> Vec<TypedMetas> {
    let mut found = Vec::new();
    let mut seen = Vec::new();
    for dtype in DTYPES {
        let samples = accepted_samples(def, dtype);
        if samples.is_empty() || seen.contains(&samples) {
            continue;
        }
        found.push((dtype, samples.iter().map(|(_, sample)| sample_metas(sample, Device::CPU)).collect()));
        seen.push(samples);
    }
    found
}

/// The element types that samples of `def` are made and accepted for; one, where samples do not depend on it.
pub fn sampled_dtypes(def: &'static OperatorDef) -> Vec<DType> {
    dtypes_of(def).into_iter().map(|(dtype, _)| dtype).collect()
}

/// Whether `executor` takes the operator by itself for any of these arguments.
pub(super) fn may_claim(def: &'static OperatorDef, executor: &ExecutorDef, metas: &[Vec<Arg<TensorMeta>>]) -> bool {
    if let OperatorKind::Symbol(owners) = def.kind {
        return owners.contains(&executor.name) && KernelRules::of(def).runs_on(executor.device);
    }
    find_implementation(def.name, executor.name).is_some()
        || executor.claims.is_some_and(|claims| metas.iter().any(|arguments| claims(def, arguments).is_ok()))
}

/// The executor that runs what is tested.
pub(super) struct Runner {
    /// The executor that tests are named after; the others of its device come behind it by default.
    pub first: &'static ExecutorDef,
    /// Those whose operators are tested.
    all: Vec<&'static ExecutorDef>,
}

/// The executors that can run on this machine, each by itself; or those of one kind of device, together.
pub(super) fn runners(device: Option<&str>) -> Vec<Runner> {
    let absent = absent_devices();
    let here = |executor: &ExecutorDef| absent.iter().all(|(kind, _)| *kind != executor.device);
    match device {
        Some(kind) => {
            let all = default_executors(kind);
            let first = all.first().copied().filter(|executor| executor.device == kind && here(executor));
            first.map(|first| Runner { first, all }).into_iter().collect()
        }
        None => {
            let found = executors().into_iter().filter(|executor| executor.device != "any" && here(executor));
            found.map(|first| Runner { first, all: vec![first] }).collect()
        }
    }
}

/// Whether tests of `def` are made for `runner`: where it takes the operator or parts of its decomposition.
pub(super) fn tested_with(def: &'static OperatorDef, runner: &Runner, metas: &[Vec<Arg<TensorMeta>>]) -> bool {
    let opened = TracingRules::of(def).decomposition.is_some()
        && runner.first.priority.is_some()
        && runs_parts(runner, def, metas)
        && !needs_others(runner, def, metas)
        && !matches!(def.kind, OperatorKind::Symbol(_));
    opened || runner.all.iter().any(|executor| may_claim(def, executor, metas))
}

/// Whether the executor runs parts of such a decomposition. One with implementations alone, before others of its
/// device, runs those of composites that hold what it implements; the rest would be tests of the executor behind it.
/// Composites with collectives are tested with executors of collectives alone: the list need not have one behind the
/// others.
fn runs_parts(runner: &Runner, def: &'static OperatorDef, metas: &[Vec<Arg<TensorMeta>>]) -> bool {
    let executor = runner.first;
    let implemented = || -> Vec<_> {
        let own = implementations().into_iter().filter(|implementation| implementation.by == executor.name);
        own.filter_map(|implementation| find_operator(implementation.of).ok()).collect()
    };
    if def.effects.collective {
        return implemented().iter().any(|def| def.effects.collective);
    }
    if executor.claims.is_some() || executor.prepare_region.is_some() || runner.all.len() > 1 {
        return true;
    }
    let listed = default_executors(executor.device).into_iter().skip_while(|other| other.name != executor.name);
    let is_last = !listed.skip(1).any(|other| other.device == executor.device);
    let operators = implemented();
    is_last || operators.is_empty() || holds_any(def, metas, &operators)
}

/// Whether the decomposition has a line that another executor of the device implements, and the runner has nothing for:
/// linear algebra of the host, before kernels of a device. The composite is tested with that executor then, and with
/// the others behind it.
fn needs_others(runner: &Runner, def: &'static OperatorDef, metas: &[Vec<Arg<TensorMeta>>]) -> bool {
    type Names = Vec<&'static str>;
    static KNOWN: Mutex<BTreeMap<Names, Vec<&'static OperatorDef>>> = Mutex::new(BTreeMap::new());
    let names: Names = taking_part(runner).iter().map(|executor| executor.name).collect();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let prims = known.entry(names).or_insert_with(|| prims_of_others(runner)).clone();
    drop(known);
    holds_any(def, metas, &prims)
}

/// The executors of a test of the runner: its own, and those behind the first by default.
fn taking_part(runner: &Runner) -> Vec<&'static ExecutorDef> {
    let mut found = runner.all.clone();
    let behind = default_executors(runner.first.device).into_iter().skip_while(|one| one.name != runner.first.name);
    found.extend(behind.filter(|one| runner.all.iter().all(|own| own.name != one.name)).collect::<Vec<_>>());
    found
}

/// The prims that executors of the runner's device implement which take no part in its tests, and of which those that
/// do take no sample.
fn prims_of_others(runner: &Runner) -> Vec<&'static OperatorDef> {
    let own = taking_part(runner);
    let others = executors().into_iter().filter(|executor| executor.device == runner.first.device);
    let others = others.filter(|executor| own.iter().all(|one| one.name != executor.name));
    let others: Vec<&str> = others.map(|executor| executor.name).collect();
    let theirs = implementations().into_iter().filter(|implementation| others.contains(&implementation.by));
    let mut prims: Vec<_> = theirs.filter_map(|implementation| find_operator(implementation.of).ok()).collect();
    // What decomposes is run by its parts.
    prims.retain(|prim| TracingRules::of(prim).decomposition.is_none());
    prims.retain(|prim| {
        let metas: Vec<_> = dtypes_of(prim).into_iter().flat_map(|(_, metas)| metas).collect();
        !own.iter().any(|executor| may_claim(prim, executor, &metas))
    });
    prims
}

/// Whether a line of the decomposition, for any of these arguments, is a call of one of these operators.
fn holds_any(def: &'static OperatorDef, metas: &[Vec<Arg<TensorMeta>>], operators: &[&'static OperatorDef]) -> bool {
    !operators.is_empty()
        && metas.iter().any(|arguments| trace_call(def, arguments).is_ok_and(|trace| holds(&trace.block, operators)))
}

/// Whether a line of the block, or of a body in it, is a call of one of these operators.
fn holds(block: &Block, operators: &[&'static OperatorDef]) -> bool {
    block.symbols.iter().any(|symbol| {
        let called = matches!(symbol.callee, Callee::Operator(def) if operators.iter().any(|own| own.name == def.name));
        called || symbol.body.as_ref().is_some_and(|body| holds(body, operators))
    })
}

/// Kinds of devices that executors run on and this machine lacks, each with the reason.
pub fn absent_devices() -> Vec<(&'static str, String)> {
    static ABSENT: OnceLock<Vec<(&'static str, String)>> = OnceLock::new();
    let find = || {
        let mut kinds: Vec<&'static str> = executors().iter().map(|executor| executor.device).collect();
        kinds.retain(|kind| !["any", "cpu"].contains(kind));
        kinds.sort_unstable();
        kinds.dedup();
        let opened = kinds.into_iter().map(|kind| (kind, Target::of(Device::new(kind, 0))));
        opened.filter_map(|(kind, target)| Some((kind, target.err()?.to_string()))).collect()
    };
    ABSENT.get_or_init(find).clone()
}

/// What autocast takes to other types, one that it must leave alone of each kind, and one that is low already.
pub(super) fn wanted_under_autocast(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::BF16 | DType::I64 | DType::Bool)
}

/// Whether any of these arguments has a gradient.
pub(super) fn floating_input(metas: &[Vec<Arg<TensorMeta>>]) -> bool {
    metas.iter().flatten().flat_map(Arg::tensors).any(|meta| meta.dtype().is_differentiable())
}
