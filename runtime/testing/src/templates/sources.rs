//! The kernels of plans, without a device: each source compiles by the compiler of the device's kind alone, and each
//! launch names a kernel of its source and gives it the parameters that it takes.

use crate::kernel::KernelRules;
use crate::operator::RuleSet;
use std::sync::Arc;

use fulgurite_kernels::DType;
use fulgurite_kernels::view::contiguous_strides;
use rustc_hash::FxHashMap;

use crate::argument::{Arg, map_arguments};
use crate::device::{
    Address, Command, DeviceKind, DeviceTensor, Entry, Parameter, Place, Plan, PlanRule, Source, find_kind,
};
use crate::executor::{ExecutorDef, find_implementation};
use crate::generate::sampled_dtypes;
use crate::meta::{Device, TensorMeta};
use crate::operator::{OperatorDef, OperatorKind, nearest};
use crate::pointers::of_kernel;
use crate::problem::{Check, Problem, ensure};
use crate::subject::{accepted_samples, describe, sample_metas};
use crate::test::selected_sample;
use crate::test::{Context, Outcome, PASSED, nothing};

/// With this variable set to `part`, as the gate has it, the first source of each operator and executor is compiled and
/// one in [`PART`] of the others: the same ones for the same text. There are thousands, of a third of a second each.
/// Without it all are, as on a device, where every test compiles what it runs.
const SOURCES: &str = "FULGURITE_SOURCES";
const PART: u64 = 8;

/// Whether a source is compiled where a part is: by its text, so that a changed source may be another part's.
pub fn in_part(source: &Source) -> bool {
    let part = std::env::var(SOURCES).is_ok_and(|value| value == "part");
    let bytes = source.options.iter().flat_map(|option| option.bytes()).chain(source.text.bytes());
    // FNV-1a: the same number on every machine.
    !part
        || bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
            % PART
            == 0
}

/// The rule that writes down the work of `def` by kernels of `executor`, if it has one for these arguments.
fn rule_of(def: &OperatorDef, executor: &ExecutorDef, metas: Option<&[Arg<TensorMeta>]>) -> Option<PlanRule> {
    match def.kind {
        OperatorKind::Symbol(owners) => KernelRules::of(def).plan.filter(|_| owners.contains(&executor.name)),
        _ => {
            let own = find_implementation(def.name, executor.name)?;
            own.kernel.plan.filter(|_| metas.is_none_or(|metas| own.accepts(metas).is_ok()))
        }
    }
}

/// Whether `def` has sources to be checked for `executor`.
pub(crate) fn applies(def: &OperatorDef, executor: &ExecutorDef) -> bool {
    let compiles = find_kind(executor.device).is_ok_and(|kind| kind.usual_architecture().is_some());
    compiles && rule_of(def, executor, None).is_some()
}

/// Sources that were compiled. Kernels that compile for one architecture compile for others, unless they ask for what
/// one alone has.
struct Compiled {
    kind: &'static dyn DeviceKind,
    sources: FxHashMap<Arc<Source>, Arc<Vec<Entry>>>,
}

impl Compiled {
    /// The kernels of a source; `None` if it is in no part that is compiled.
    fn entries(&mut self, source: &Arc<Source>) -> Check<Option<Arc<Vec<Entry>>>> {
        if let Some(known) = self.sources.get(source) {
            return Ok(Some(known.clone()));
        }
        if !self.sources.is_empty() && !in_part(source) {
            return Ok(None);
        }
        let architecture = self.kind.usual_architecture().unwrap_or_default();
        let made = self.kind.entries(architecture, source).map_err(|error| Problem(error.to_string()))?;
        let made = Arc::new(made);
        self.sources.insert(source.clone(), made.clone());
        Ok(Some(made))
    }
}

/// What this machine lacks to compile the sources of `executor`. Where the environment requires the compiler, the tests
/// that need it run and fail.
pub(crate) fn lacks(executor: &ExecutorDef) -> Option<String> {
    let kind = find_kind(executor.device).ok()?;
    let absent = kind.compiler().err()?;
    (!kind.requires_compiler()).then(|| absent.to_string())
}

/// See the module.
pub(crate) fn check(context: &Context) -> Check<Outcome> {
    let Some(executor) = context.executor else { return nothing("no executor was named") };
    let kind = find_kind(executor.device)?;
    // It is ignored there, unless it is asked for.
    kind.compiler().map_err(|absent| Problem(absent.to_string()))?;
    let mut compiled = Compiled { kind, sources: FxHashMap::default() };
    let mut compile = |command: &Command, plan: &Plan| match command {
        Command::Launch { source, .. } => match compiled.entries(source)? {
            Some(kernels) => launch(command, plan, &kernels),
            None => Ok(()),
        },
        _ => Ok(()),
    };
    match each_launch(context.def, executor, &mut compile)? {
        0 => nothing("no sample launches a kernel"),
        _ => PASSED,
    }
}

/// What needs no compiler: the samples' calls can be planned, and the kernels' pointers have the types of their
/// tensors.
pub(crate) fn check_uncompiled(def: &'static OperatorDef, executor: &'static ExecutorDef) -> Check<Outcome> {
    match each_launch(def, executor, &mut |_, _| Ok(()))? {
        0 => nothing("no sample launches a kernel"),
        _ => PASSED,
    }
}

/// That the launches of a plan fit their sources: the types of pointers those of the tensors that they are given (what
/// messages call each operand and result, and its element type), and, where the kind's compiler is at hand, names and
/// parameters those of the compiled kernels.
///
/// # Errors
/// What does not fit, or does not compile.
pub fn check_launches(
    plan: &Plan,
    operands: Vec<(String, DType)>,
    results: Vec<(String, DType)>,
) -> Result<(), String> {
    let (kind, tensors) = (plan.kind(), Tensors { operands, results });
    let architecture = plan.properties().architecture.as_deref().or(kind.usual_architecture()).unwrap_or_default();
    let compiles = kind.compiler().is_ok();
    let each = all_launches(plan.commands()).into_iter().try_for_each(|command| {
        pointers(command, &tensors)?;
        let Command::Launch { source, .. } = command else { return Ok(()) };
        if !compiles {
            return Ok(());
        }
        let kernels = kind.entries(architecture, source).map_err(|error| Problem(error.to_string()))?;
        launch(command, plan, &kernels)
    });
    each.map_err(|problem| problem.0)
}

/// Plans every sample, compares the pointers of each launch with its tensors and calls `f` with it: how many there
/// were.
fn each_launch(
    def: &'static OperatorDef,
    executor: &'static ExecutorDef,
    f: &mut dyn FnMut(&Command, &Plan) -> Check,
) -> Check<usize> {
    let kind = find_kind(executor.device)?;
    let mut launches = 0;
    for dtype in sampled_dtypes(def) {
        for (index, sample) in accepted_samples(def, dtype) {
            if selected_sample().is_some_and(|selected| selected != index) {
                continue;
            }
            let metas = sample_metas(&sample, Device::new(executor.device, 0));
            // Where every tensor begins at a multiple of many bytes, and where it is aligned for one element.
            for aligned in [true, false] {
                let within = |problem: Problem| problem.within(format!("({}), sample {index}", describe(&metas)));
                let plan = planned(def, (executor, kind), &metas, aligned).map_err(within)?;
                let Some((plan, tensors)) = plan else { continue };
                for command in all_launches(plan.commands()) {
                    launches += 1;
                    pointers(command, &tensors).and_then(|()| f(command, &plan)).map_err(within)?;
                }
            }
        }
    }
    Ok(launches)
}

/// A call's tensors: what messages call each, and its element type.
struct Tensors {
    operands: Vec<(String, DType)>,
    results: Vec<(String, DType)>,
}

/// Compares the types that pointers have in a kernel's source with those of the tensors that they are given. A tensor
/// that is given twice may replace an optional one that the kernel does not read, of any type.
fn pointers(command: &Command, tensors: &Tensors) -> Check {
    let Command::Launch { source, kernel, parameters, .. } = command else { return Ok(()) };
    let declared = of_kernel(&source.text, &source.options, kernel);
    // Parameters that a macro adds are not seen.
    if declared.len() != parameters.len() {
        return Ok(());
    }
    for (parameter, pointer) in parameters.iter().zip(declared) {
        let (Parameter::Address(address), Some(pointer)) = (parameter, pointer) else { continue };
        let same = |other: &&Parameter| matches!(other, Parameter::Address(other) if other == address);
        if parameters.iter().filter(same).count() > 1 {
            continue;
        }
        let given = match address.place {
            Place::Operand(n) => tensors.operands.get(n as usize),
            Place::Result(n) => tensors.results.get(n as usize),
            _ => continue,
        };
        let Some((what, given)) = given else { continue };
        ensure!(
            *given == pointer.element,
            "kernel '{kernel}' of {} takes '{}', which is a pointer to {}; it is given {what} of {given}",
            source.name,
            pointer.spelled,
            pointer.element
        );
    }
    Ok(())
}

/// The work of one call and its tensors; `None` if the executor does not take it.
fn planned(
    def: &'static OperatorDef,
    (executor, kind): (&ExecutorDef, &'static dyn DeviceKind),
    metas: &[Arg<TensorMeta>],
    aligned: bool,
) -> Check<Option<(Plan, Tensors)>> {
    let Some(rule) = rule_of(def, executor, Some(metas)) else { return Ok(None) };
    let tensor = |meta: &TensorMeta, place: Place| DeviceTensor {
        meta: meta.clone(),
        strides: contiguous_strides(meta.shape()),
        address: Address { place, offset: 0 },
        alignment: if aligned { 256 } else { meta.dtype().size() },
    };
    let mut operands = 0..;
    let arguments = map_arguments(metas, |meta| tensor(meta, Place::Operand(operands.next().unwrap_or(0))));
    let results = match crate::tracer::infer(def, metas) {
        Ok((results, _)) => results,
        Err(_) => return Ok(None), // The other templates say so.
    };
    let called = |what: &str, (n, meta): (usize, &TensorMeta)| (format!("{what} {n}"), meta.dtype());
    let given = metas.iter().flat_map(Arg::tensors).enumerate();
    let tensors = Tensors {
        operands: given.map(|each| called("operand", each)).collect(),
        results: results.iter().enumerate().map(|each| called("result", each)).collect(),
    };
    let results: Vec<DeviceTensor> = results.iter().zip(0..).map(|(meta, n)| tensor(meta, Place::Result(n))).collect();
    let mut plan = Plan::new(kind, kind.typical(kind.usual_architecture()));
    rule(&mut plan, &arguments, &results).map_err(|failure| Problem::from(failure).within("the plan fails"))?;
    Ok(Some((plan, tensors)))
}

/// Every launch, also those that replace a call of a library.
fn all_launches(commands: &[Command]) -> Vec<&Command> {
    let mut all = Vec::new();
    for command in commands {
        match command {
            Command::Launch { .. } => all.push(command),
            Command::Library(call) => all.extend(all_launches(&call.instead)),
            _ => {}
        }
    }
    all
}

/// Compares a launch with the kernels of its source.
fn launch(command: &Command, plan: &Plan, kernels: &[Entry]) -> Check {
    let Command::Launch { source, kernel, shape, parameters } = command else { return Ok(()) };
    let Some(found) = kernels.iter().find(|found| found.name == *kernel) else {
        let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        let hint = nearest(kernel, names.iter().copied()).map(|near| format!(", did you mean '{near}'?"));
        return Err(Problem(format!(
            "{} has no kernel '{kernel}'{} (there are: {}; kernels are declared `extern \"C\" __global__ void`)",
            source.name,
            hint.unwrap_or_default(),
            names.join(", ")
        )));
    };
    let given: Vec<usize> = parameters.iter().map(Parameter::bytes).collect();
    let taken = &found.parameters;
    ensure!(
        given == *taken,
        "kernel '{kernel}' of {} takes {} parameters of {taken:?} bytes, the launch gives {} of {given:?}",
        source.name,
        taken.len(),
        given.len()
    );
    let workspace = plan.workspace_bytes();
    for (position, parameter) in parameters.iter().enumerate() {
        let addresses = match parameter {
            Parameter::Address(address) => std::slice::from_ref(address),
            Parameter::Addresses(addresses) => addresses,
            _ => continue,
        };
        for address in addresses.iter().filter(|address| address.place == Place::Workspace) {
            ensure!(
                address.offset < workspace,
                "kernel '{kernel}': parameter {position} begins at byte {} of a workspace of {workspace} bytes",
                address.offset
            );
        }
    }
    let threads: u64 = shape.block.iter().map(|extent| u64::from(*extent)).product();
    let most = plan.properties().threads_per_block as u64;
    ensure!(
        (1..=most).contains(&threads),
        "kernel '{kernel}': {threads} threads per block, a device takes 1 to {most}"
    );
    let limits = plan.properties().grid;
    ensure!(
        shape.grid.iter().zip(&limits).all(|(extent, limit)| (1..=*limit).contains(extent)),
        "kernel '{kernel}': a grid of {:?} blocks; its extents may be 1 to {limits:?}",
        shape.grid
    );
    Ok(())
}
