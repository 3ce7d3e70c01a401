//! The device work of every symbol of a planned trace, written down by executors without a device.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::regions::alignment;
use crate::DType;
use crate::argument::{Arg, Attribute, Scalar, map_arguments};
use crate::device::host_work::Outside;
use crate::device::kind::{find_kind, properties_for};
use crate::device::{Address, CodeStep, Command, DeviceTensor, Place, Plan, Report, Source};
use crate::error::{Failure, Result};
use crate::executor::{VIEW, find_executor, find_implementation};
use crate::kernel::KernelRules;
use crate::meta::Device;
use crate::operator::{OperatorKind, Role, RuleSet};
use crate::program::placement::{Base, Placement};
use crate::stream_kind::StreamKind;
use crate::trace::{BoundSymbol, Callee, Schedule, Trace, ValueId};
use crate::transforms::layout::layouts;

/// What the runtime keeps of a step beside its work.
pub(super) struct Step {
    /// The symbol of the trace.
    pub(super) symbol: usize,
    /// Describes a fault that the kernels report.
    pub(super) report: Option<Report>,
    /// The work of a symbol that no command of the device computes.
    pub(super) outside: Option<Outside>,
    /// Operands whose elements the kernels expect in the memory of results: indices of values.
    pub(super) continued: Vec<(usize, usize)>,
}

/// Inputs of so many bytes and fewer are copied to where the program has them, whatever kernels ask: what they hold may
/// be new in each run.
const LEAST_SETTLED: usize = 1 << 14;

/// The steps of a program.
pub(super) struct Steps {
    /// What the runtime keeps of each.
    pub(super) steps: Vec<Step>,
    /// What a backend loads of each.
    pub(super) work: Vec<CodeStep>,
    /// The most that a step of each stream uses, in bytes.
    pub(super) workspace_bytes: [u64; StreamKind::ALL.len()],
    /// Inputs that kernels read where the caller has them, however small they are.
    pub(super) in_place: FxHashSet<usize>,
}

/// The device that a trace's values are on.
pub(super) fn device_of(trace: &Trace) -> Device {
    let devices = trace.block.values.iter().map(|value| value.meta.device());
    devices.into_iter().find(|device| !device.is_cpu()).unwrap_or_else(|| trace.target.device())
}

/// Plans every symbol. With `least_aligned` the kernels assume element alignment only.
pub(super) fn planned(trace: &Trace, placement: &Placement, least_aligned: bool) -> Result<Steps> {
    let kind = find_kind(trace.target.kind())?;
    let properties = properties_for(kind, &trace.target, device_of(trace).index());
    let block = &trace.block;
    let mut steps = Vec::with_capacity(block.symbols.len());
    let mut work = Vec::with_capacity(block.symbols.len());
    let mut workspace_bytes = [0; StreamKind::ALL.len()];
    let mut in_place = FxHashSet::default();
    let written = written_inputs(trace, placement);
    let counted = counted(trace);
    // The step that computes a value.
    let mut step_of: FxHashMap<ValueId, usize> = FxHashMap::default();
    for (index, symbol) in block.symbols.iter().enumerate() {
        if symbol.callee == Callee::Delete || symbol.executor == Some(VIEW) {
            continue;
        }
        let tensor = |id: ValueId, place: Place| {
            let slot = &placement.slots[id.index()];
            DeviceTensor {
                meta: slot.meta.clone(),
                strides: slot.strides.to_vec(),
                address: Address { place, offset: 0 },
                alignment: if least_aligned { slot.meta.dtype().size() } else { alignment(slot.base, slot.offset) },
            }
        };
        let mut operand = 0;
        let arguments = map_arguments(&symbol.arguments, |id| {
            operand += 1;
            tensor(*id, Place::Operand(operand - 1))
        });
        let results: Vec<DeviceTensor> =
            symbol.results.iter().enumerate().map(|(i, id)| tensor(*id, Place::Result(i as u32))).collect();
        let mut plan = Plan::new(kind, properties.clone());
        for (operand, id) in symbol.operands().enumerate() {
            if let Base::Input(input) = placement.slots[id.index()].base
                && !written.contains(&input)
                && block.meta(block.parameters[input]).bytes() > LEAST_SETTLED
            {
                plan.settle(operand as u32);
            }
            if counted.contains(&id) {
                plan.count(operand as u32);
            }
        }
        let place = |id: ValueId| (placement.slots[id.index()].base, placement.slots[id.index()].offset);
        for (operand, read) in symbol.operands().enumerate() {
            for (result, written) in symbol.results.iter().enumerate().filter(|(_, id)| place(**id) == place(read)) {
                // Of nothing there are no elements to be found.
                if !block.meta(*written).is_empty() {
                    plan.overlay(operand as u32, result as u32);
                }
            }
        }
        plan_of(&mut plan, symbol, &arguments, &results).map_err(|failure| symbol.failed(block, failure))?;
        let Schedule { stream, after } = &symbol.schedule;
        let most = &mut workspace_bytes[stream.index()];
        *most = plan.workspace_bytes().max(*most);
        let after = after.iter().filter_map(|id| step_of.get(id).copied()).collect();
        step_of.extend(symbol.results.iter().map(|id| (*id, work.len())));
        let report = plan.report().cloned();
        in_place.extend(plan.read_in_place().iter().filter_map(|operand| {
            let id = symbol.operands().nth(*operand as usize)?;
            match placement.slots[id.index()].base {
                Base::Input(input) => Some(input),
                Base::Arena(_) | Base::Output(_) => None,
            }
        }));
        let operands: Vec<usize> = symbol.operands().map(ValueId::index).collect();
        let results: Vec<usize> = symbol.results.iter().map(|id| id.index()).collect();
        let continued = plan.continued().iter();
        steps.push(Step {
            symbol: index,
            report,
            outside: plan.outside().cloned(),
            continued: continued
                .map(|(operand, result)| (operands[*operand as usize], results[*result as usize]))
                .collect(),
        });
        let mut commands = plan.into_commands();
        // The first of a stream waits for all that came before the program: what this writes is settled then.
        if work.iter().all(|step: &CodeStep| step.stream != *stream || step.commands.is_empty())
            && let Some(Command::Launch { shape, .. }) = commands.first_mut()
        {
            shape.overlaps_previous = false;
        }
        work.push(CodeStep { commands, operands, results, fault_code: index as u32 + 1, stream: *stream, after });
    }
    Ok(Steps { steps, work, workspace_bytes, in_place })
}

/// The values whose memory holds 0, 1, 2, ... from their first element on: results of an iota, and views that begin
/// where it begins.
fn counted(trace: &Trace) -> FxHashSet<ValueId> {
    let block = &trace.block;
    let counts = |symbol: &&BoundSymbol| {
        let def = symbol.operator().filter(|def| def.overload == Some(Role::Iota));
        def.is_some_and(|def| {
            let is = |name: &str, number: i64| {
                let argument = def.param(name).and_then(|at| symbol.arguments.get(at));
                matches!(argument, Some(Arg::Attribute(Attribute::Scalar(Scalar::Int(n)))) if *n == number)
            };
            is("start", 0) && is("step", 1)
        })
    };
    let counters: FxHashSet<ValueId> =
        block.symbols.iter().filter(counts).flat_map(|symbol| symbol.results.iter().copied()).collect();
    if counters.is_empty() {
        return counters;
    }
    let layouts = layouts(trace);
    let narrow = |id: &ValueId| block.meta(*id).dtype() == DType::I32;
    let all = (0..).map(ValueId).zip(&layouts);
    all.filter(|(id, layout)| layout.offset == 0 && counters.contains(&layout.root) && narrow(id))
        .map(|(id, _)| id)
        .collect()
}

/// The inputs whose memory results overwrite.
fn written_inputs(trace: &Trace, placement: &Placement) -> FxHashSet<usize> {
    let of_executors = |symbol: &&BoundSymbol| symbol.callee != Callee::Delete && symbol.executor != Some(VIEW);
    let results = trace.block.symbols.iter().filter(of_executors).flat_map(|symbol| symbol.results.iter());
    let input = |id: &ValueId| match placement.slots[id.index()].base {
        Base::Input(input) => Some(input),
        Base::Arena(_) | Base::Output(_) => None,
    };
    results.filter_map(input).collect()
}

fn plan_of(
    plan: &mut Plan,
    symbol: &BoundSymbol,
    arguments: &[Arg<DeviceTensor>],
    results: &[DeviceTensor],
) -> Result<(), Failure> {
    let missing = |what: &str| Failure::new("NoKernel", format!("{what} has no device kernel"));
    match (&symbol.callee, symbol.executor) {
        (Callee::Region { executor }, _) => {
            let executor =
                find_executor(executor).map_err(|error| Failure::new("UnknownExecutor", error.to_string()))?;
            let rule = executor.plan_region.ok_or_else(|| missing(executor.name))?;
            let body = symbol.body.as_ref().ok_or_else(|| Failure::new("NoBody", "the region has no body"))?;
            let operands: Vec<DeviceTensor> = arguments.iter().flat_map(Arg::tensors).cloned().collect();
            rule(plan, body, &operands, results)
        }
        (Callee::Operator(def), Some(name)) => {
            if let OperatorKind::Symbol(_) = def.kind {
                return KernelRules::of(def).plan.ok_or_else(|| missing(def.name))?(plan, arguments, results);
            }
            if let Some(implementation) = find_implementation(def.name, name) {
                return implementation.kernel.plan.ok_or_else(|| missing(def.name))?(plan, arguments, results);
            }
            let executor = find_executor(name).map_err(|error| Failure::new("UnknownExecutor", error.to_string()))?;
            executor.plan.ok_or_else(|| missing(def.name))?(plan, def, arguments, results)
        }
        _ => Err(Failure::new("Unclaimed", format!("'{}' was not claimed by an executor", symbol.name()))),
    }
}

/// The sources of steps, each once, in the order of their first use; also of those that run only where a library
/// cannot.
pub(super) fn sources_of<'a>(work: impl IntoIterator<Item = &'a CodeStep>) -> Vec<Arc<Source>> {
    let mut seen = FxHashSet::default();
    let mut sources = Vec::new();
    let mut left: Vec<&Command> = work.into_iter().flat_map(|step| &step.commands).collect();
    left.reverse();
    while let Some(command) = left.pop() {
        match command {
            Command::Launch { source, .. } if seen.insert(source.clone()) => sources.push(source.clone()),
            Command::Library(call) => left.extend(call.instead.iter().rev()),
            _ => {}
        }
    }
    sources
}
