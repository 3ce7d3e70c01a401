//! Engines that the library has for a graph, and plans with them.

use super::super::error::Result;
use super::descriptor::Descriptor;
use super::library::Cudnn;
use super::sys::{Attribute, HeuristicsMode, Kind, MOST_KNOBS, MOST_NOTES, ValueKind};
use fulgurite_kernels::launch::DeviceAddress;
use std::ffi::{c_int, c_void};

/// The graph of some operations.
pub(super) fn whole_graph(library: &Cudnn, operations: &[&Descriptor]) -> Result<Descriptor> {
    let mut whole = Descriptor::new(Kind::OperationGraph)?;
    library.name_handle(&mut whole, Attribute::GraphHandle)?;
    whole.refer_all(Attribute::GraphOperations, operations)?;
    whole.finalize()?;
    Ok(whole)
}

/// The configurations of engines that the library's heuristics rate best first.
pub(super) fn configurations(graph: &Descriptor, mode: HeuristicsMode) -> Result<Vec<Descriptor>> {
    let mut heuristics = Descriptor::new(Kind::EngineHeuristics)?;
    heuristics.refer(Attribute::HeuristicsGraph, graph)?;
    heuristics.set(Attribute::HeuristicsMode, mode)?;
    heuristics.finalize()?;
    let count = heuristics.count(Attribute::HeuristicsResults, ValueKind::Descriptor)?;
    let room = (0..count).map(|_| Descriptor::new(Kind::EngineConfiguration)).collect::<Result<Vec<_>>>()?;
    heuristics.descriptors(Attribute::HeuristicsResults, room)
}

/// The engine of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Engine {
    pub(super) index: i64,
    /// What it says of its numbers: see [`super::sys::notes`].
    pub(super) notes: Vec<c_int>,
}

/// The engine of a configuration; `None` if it has none.
pub(super) fn engine_of(configuration: &Descriptor) -> Result<Option<Engine>> {
    let engine = Descriptor::new(Kind::Engine)?;
    let engine = configuration.descriptors(Attribute::ConfigurationEngine, vec![engine])?;
    let Some(engine) = engine.first() else { return Ok(None) };
    let index = engine.number(Attribute::EngineIndex)?;
    let mut notes = vec![0 as c_int; MOST_NOTES];
    // SAFETY: there is room for as many notes.
    let count = unsafe {
        engine.get_raw(
            Attribute::EngineNumericalNotes,
            ValueKind::NumericalNote,
            notes.len(),
            notes.as_mut_ptr().cast(),
        )
    }?;
    notes.truncate(count);
    Ok(Some(Engine { index, notes }))
}

/// What one version of the library on one kind of device knows a configuration by: its engine, and the value of each of
/// its knobs, as `67, 2=5 13=0`.
pub(super) fn name_of(configuration: &Descriptor, engine: &Engine) -> Result<String> {
    let room = (0..MOST_KNOBS).map(|_| Descriptor::new(Kind::KnobChoice)).collect::<Result<Vec<_>>>()?;
    let mut knobs = Vec::new();
    for knob in configuration.descriptors(Attribute::ConfigurationKnobs, room)? {
        let mut which: c_int = 0;
        // SAFETY: there is room for one value of the kind.
        unsafe { knob.get_raw(Attribute::KnobType, ValueKind::KnobType, 1, (&raw mut which).cast()) }?;
        knobs.push((which, knob.number(Attribute::KnobValue)?));
    }
    knobs.sort_unstable();
    let knobs: Vec<String> = knobs.iter().map(|(which, value)| format!("{which}={value}")).collect();
    Ok(format!("{}, {}", engine.index, knobs.join(" ")))
}

/// The plan of a configuration, and the workspace that it needs, in bytes.
pub(super) fn plan_of(library: &Cudnn, configuration: &Descriptor) -> Result<(Descriptor, usize)> {
    let mut plan = Descriptor::new(Kind::ExecutionPlan)?;
    library.name_handle(&mut plan, Attribute::PlanHandle)?;
    plan.refer(Attribute::PlanConfiguration, configuration)?;
    plan.finalize()?;
    let workspace_bytes = usize::try_from(plan.number(Attribute::PlanWorkspace)?).unwrap_or(0);
    Ok((plan, workspace_bytes))
}

/// The addresses of a run: those of tensors by their ids, and that of the workspace.
///
/// # Safety
/// The plan that runs with them uses what is there.
pub(super) unsafe fn pack_of(named: &[(i64, *mut c_void)], workspace: DeviceAddress) -> Result<Descriptor> {
    let (names, pointers): (Vec<i64>, Vec<*mut c_void>) = named.iter().copied().unzip();
    let workspace = workspace.0 as *mut c_void;
    let mut pack = Descriptor::new(Kind::VariantPack)?;
    pack.set_all(Attribute::PackIds, &names)?;
    // SAFETY: as many pointers as names; what they are to is promised by the caller.
    unsafe {
        pack.set_raw(Attribute::PackPointers, ValueKind::Pointer, pointers.len(), pointers.as_ptr().cast())?;
        pack.set_raw(Attribute::PackWorkspace, ValueKind::Pointer, 1, (&raw const workspace).cast())?;
    }
    pack.finalize()?;
    Ok(pack)
}
