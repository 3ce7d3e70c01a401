//! Commands made ready: sources compiled, modules loaded, products planned; and how they are enqueued.

use std::sync::Arc;

use crate::cublaslt::{MatmulOperands, MatmulPlan, Problem, Tuner};
use crate::cudnn::AttentionPlan;
use crate::nccl::{Communicator, Transferred};
use crate::{Arguments, Compilation, Context, Cubin, CudaError, Fill, Function, KernelCache, Module, Stream};
use fulgurite_kernels::launch::{DeviceAddress, LaunchShape};
use fulgurite_kernels::ranks;
use rustc_hash::{FxHashMap, FxHashSet};

use super::attention::{Attention, Operands};
use super::collective::Collective;
use super::library::Libraries;
use super::matmul::{Matmul, OPERANDS};
use fulgurite_base::device::{
    Address, Category, CodeError, Command, DeviceCode, DeviceError, LibraryCall, Parameter, Room, Source,
};

/// Set to 0, products are computed by what the library's heuristics rate best, and nothing is measured or recorded.
const TUNE_VARIABLE: &str = "FULGURITE_TUNE";

/// A command with everything but its addresses.
pub(super) enum Work {
    Launch {
        function: Function,
        shape: LaunchShape,
        parameters: Vec<Parameter>,
    },
    Matmul {
        plan: Arc<MatmulPlan>,
        operands: [Option<Address>; OPERANDS],
        alpha: f64,
    },
    Attention {
        plan: AttentionPlan,
        operands: Operands,
        scale: f32,
    },
    /// From and to where each tensor goes.
    Collective {
        communicator: Arc<Communicator>,
        collective: Collective,
        pairs: Vec<[Address; 2]>,
    },
    Fill {
        fill: Option<Arc<Fill>>,
        to: Address,
        byte: u8,
        bytes: usize,
    },
    Copy {
        from: Address,
        to: Address,
        bytes: usize,
    },
}

/// The plan of each product; `None` where the library has no algorithm and something else is done.
type Plans = FxHashMap<Problem, Option<Arc<MatmulPlan>>>;

/// What a library does in a call.
enum Called<'a> {
    Matmul(&'a Matmul),
    Attention(&'a Attention),
    Collective(&'a Collective),
}

impl Called<'_> {
    fn of(call: &LibraryCall) -> Result<Called<'_>, DeviceError> {
        if let Some(matmul) = call.payload() {
            return Ok(Called::Matmul(matmul));
        }
        if let Some(attention) = call.payload() {
            return Ok(Called::Attention(attention));
        }
        call.payload().map(Called::Collective).ok_or_else(|| {
            let message = format!("a call of a library that CUDA devices do not have: {:?}", call.payload);
            DeviceError::new(Category::Other, message)
        })
    }
}

/// The work of each step of `code`.
pub(super) fn ready(
    context: &Context,
    libraries: &Libraries,
    code: &DeviceCode,
    stream: &Stream,
    room: Room,
) -> Result<Vec<Vec<Work>>, CodeError> {
    if std::env::var_os(TUNE_VARIABLE).is_none_or(|value| value != "0") {
        pin_products(libraries, code, stream, room)?;
    }
    tracing::debug!(function = %code.name, "algorithms of products chosen");
    same_on_all_ranks(code)?;
    let mut plans: Plans = FxHashMap::default();
    let resolved = code.commands(|call| planned(call, libraries, &mut plans))?;
    tracing::debug!(function = %code.name, products = plans.len(), "products planned");
    let sources = sources_of(resolved.iter().flatten().copied());
    let cubins = compile(&sources, &context.device().architecture())?;
    tracing::debug!(function = %code.name, kernels = cubins.len(), "kernels compiled, or read from the cache");
    let mut modules: FxHashMap<&Source, Module> = FxHashMap::default();
    for (source, cubin) in sources.iter().zip(&cubins) {
        modules.insert(source, Module::load(context, cubin)?);
    }
    let fills = resolved.iter().flatten().any(|command| matches!(command, Command::Fill { .. }));
    let fill = if fills { fill_of(context)?.map(Arc::new) } else { None };
    let mut work = Vec::with_capacity(resolved.len());
    for (i, commands) in resolved.iter().enumerate() {
        let ready = commands.iter().map(|command| one(command, &modules, fill.as_ref(), &plans, libraries));
        work.push(ready.collect::<Result<Vec<Work>, _>>().map_err(|error| CodeError::at(i, error))?);
    }
    tracing::debug!(function = %code.name, "modules loaded");
    Ok(work)
}

/// Compares the program's collectives with those of all ranks, before one of them waits in NCCL for what will not come.
fn same_on_all_ranks(code: &DeviceCode) -> Result<(), DeviceError> {
    let mut lines = String::new();
    for command in code.steps.iter().flat_map(|step| &step.commands) {
        let Command::Library(call) = command else { continue };
        if let Called::Collective(collective) = Called::of(call)? {
            lines += &format!("{collective}\n");
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    let compared = ranks::same(&format!("the loading of '{}'", code.name), &lines);
    Ok(compared.map_err(CudaError::from)?)
}

/// Has the products' algorithms measured, or their records read, in the program's memory before anything is there.
fn pin_products(libraries: &Libraries, code: &DeviceCode, stream: &Stream, room: Room) -> Result<(), DeviceError> {
    let mut seen: FxHashSet<&Problem> = FxHashSet::default();
    for command in code.steps.iter().flat_map(|step| &step.commands) {
        let Command::Library(call) = command else { continue };
        let Called::Matmul(Matmul { problem, workspace_bytes, .. }) = Called::of(call)? else { continue };
        if seen.insert(problem) {
            // SAFETY: the program's memory was just allocated, and holds nothing yet.
            let tuner = unsafe { Tuner::new(libraries.cublaslt.get()?, stream, room.own, room.bytes) };
            match tuner.pin(problem, *workspace_bytes as usize) {
                // What the library does not know is told, or done otherwise, where it is planned.
                Ok(()) | Err(CudaError::Problem(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// The sources of launches, each once, in the order of their first use.
fn sources_of<'a>(commands: impl Iterator<Item = &'a Command>) -> Vec<Arc<Source>> {
    let mut seen = FxHashSet::default();
    commands
        .filter_map(|command| match command {
            Command::Launch { source, .. } => seen.insert(source.clone()).then(|| source.clone()),
            _ => None,
        })
        .collect()
}

/// Compiles every source that the cache does not have, several at a time.
fn compile(sources: &[Arc<Source>], architecture: &str) -> Result<Vec<Arc<Cubin>>, CudaError> {
    use rayon::prelude::*;
    sources
        .par_iter()
        .map(|source| {
            let compilation =
                Compilation { name: &source.name, source: &source.text, architecture, options: &source.options };
            KernelCache::global().compile(&compilation)
        })
        .collect()
}

/// Plans the product that a call asks for. False if the library has no algorithm for it, and something else is done.
fn planned(call: &LibraryCall, libraries: &Libraries, plans: &mut Plans) -> Result<bool, DeviceError> {
    let Called::Matmul(Matmul { problem, workspace_bytes, .. }) = Called::of(call)? else { return Ok(true) };
    let known = plans.get(problem).map(Option::is_some);
    // Another call of the same product may have had something to be done instead, where this one has nothing.
    if known == Some(true) || (known == Some(false) && !call.instead.is_empty()) {
        return Ok(known == Some(true));
    }
    let plan = match MatmulPlan::new(libraries.cublaslt.get()?, problem, *workspace_bytes as usize) {
        Ok(plan) => Some(Arc::new(plan)),
        Err(CudaError::Problem(error)) if !call.instead.is_empty() => {
            tracing::info!(%error, "done by several commands");
            None
        }
        Err(error) => return Err(error.into()),
    };
    let found = plan.is_some();
    plans.insert(problem.clone(), plan);
    Ok(found)
}

fn one(
    command: &Command,
    modules: &FxHashMap<&Source, Module>,
    fill: Option<&Arc<Fill>>,
    plans: &Plans,
    libraries: &Libraries,
) -> Result<Work, DeviceError> {
    Ok(match command {
        Command::Launch { source, kernel, shape, parameters } => {
            let module = modules.get(&**source).unwrap_or_else(|| unreachable!("every source was loaded"));
            let function = module.function(kernel)?;
            // Before the first launch of any: the driver has one number for all launches of a kernel.
            function.allow_shared(shape.shared_bytes)?;
            Work::Launch { function, shape: *shape, parameters: parameters.clone() }
        }
        Command::Library(call) => match Called::of(call)? {
            Called::Matmul(Matmul { problem, alpha, .. }) => {
                let plan = plans.get(problem).cloned().flatten();
                let plan = plan.unwrap_or_else(|| unreachable!("every product that is run was planned"));
                let operands = call.operands[..].try_into().map_err(|_| operands_of(call, "a product", OPERANDS))?;
                Work::Matmul { plan, operands, alpha: *alpha }
            }
            Called::Attention(attention) => {
                if call.operands.len() != attention.operands() {
                    return Err(operands_of(call, "attention", attention.operands()));
                }
                // The library keeps plans, so that equal calls share one.
                let plan = AttentionPlan::new(libraries.cudnn.get()?, &attention.problem)?;
                Work::Attention { plan, operands: call.operands.clone(), scale: attention.scale }
            }
            Called::Collective(collective) => {
                let given: Vec<Address> = call.operands.iter().copied().flatten().collect();
                let (pairs, rest) = given.as_chunks::<2>();
                if pairs.len() != collective.counts.len() || !rest.is_empty() {
                    return Err(operands_of(call, "a collective", 2 * collective.counts.len()));
                }
                let communicator = libraries.communicators.along(&collective.axis)?;
                Work::Collective { communicator, collective: collective.clone(), pairs: pairs.to_vec() }
            }
        },
        Command::Fill { to, byte, bytes } => {
            Work::Fill { fill: fill.cloned(), to: *to, byte: *byte, bytes: *bytes as usize }
        }
        Command::Copy { from, to, bytes } => Work::Copy { from: *from, to: *to, bytes: *bytes as usize },
    })
}

/// The kernel that fills memory. Without a compiler the driver fills it: programs of a library's calls need none.
pub(super) fn fill_of(context: &Context) -> Result<Option<Fill>, CudaError> {
    match Fill::new(context) {
        Ok(fill) => Ok(Some(fill)),
        Err(error) if error.is_fatal() => Err(error),
        Err(error) => {
            tracing::info!(%error, "the driver fills memory");
            Ok(None)
        }
    }
}

fn operands_of(call: &LibraryCall, what: &str, expected: usize) -> DeviceError {
    let message = format!("{what} of {} operands, expected {expected}", call.operands.len());
    DeviceError::new(Category::Other, message)
}

/// Enqueues the work of a step, with the addresses that `at` gives. `fault_code` is the step's.
///
/// # Safety
/// As [`fulgurite_base::device::LoadedCode::step`].
pub(super) unsafe fn enqueue(
    work: &[Work],
    stream: &Stream,
    fault_code: u32,
    at: &dyn Fn(&Address) -> DeviceAddress,
) -> Result<(), CudaError> {
    // Once for all of them.
    let _current = stream.context().enter()?;
    for work in work {
        match work {
            Work::Launch { function, shape, parameters } => {
                let arguments = parameters.iter().fold(Arguments::new(), |arguments, parameter| match parameter {
                    Parameter::Address(address) => arguments.pointer(at(address)),
                    Parameter::Addresses(addresses) => {
                        let table: Vec<u8> = addresses.iter().flat_map(|address| at(address).0.to_le_bytes()).collect();
                        arguments.bytes(&table)
                    }
                    Parameter::Value(bytes) => arguments.bytes(bytes),
                    Parameter::FaultCode => arguments.u32(fault_code),
                });
                // SAFETY: addresses are those of the symbol's operands, results and workspace, alive and used on this
                // stream alone, as the caller promises; that the kernel stays within them is its author's promise,
                // which the generated tests of bounds check.
                unsafe { function.launch(stream, shape, &arguments) }?;
            }
            Work::Matmul { plan, operands, alpha } => {
                let [a, b, c, d, bias, aux, workspace, a_factor, b_factor] =
                    operands.map(|operand| operand.map_or(DeviceAddress::NULL, |address| at(&address)));
                let operands = MatmulOperands { a, b, c, d, bias, aux, workspace, factors: [a_factor, b_factor] };
                // SAFETY: as above; the problem describes the layouts of the operands.
                unsafe { plan.run(stream, &operands, *alpha) }?;
            }
            Work::Attention { plan, operands, scale } => {
                let operands = Attention::at(operands, at);
                // SAFETY: as above; the problem describes the layouts of the operands.
                unsafe { plan.run(stream, &operands, *scale) }?;
            }
            Work::Collective { communicator, collective, pairs } => {
                let tensors: Vec<Transferred> = (collective.counts.iter().zip(pairs))
                    .map(|(count, [from, to])| Transferred { count: *count, from: at(from), to: at(to) })
                    .collect();
                // SAFETY: as above; ranks run one program, whose collectives are in one order.
                unsafe { communicator.run(stream, collective.transfer, collective.dtype, &tensors) }?;
            }
            // SAFETY: as above; the range is one tensor's.
            Work::Fill { fill, to, byte, bytes } => unsafe {
                match fill {
                    Some(fill) => fill.enqueue(stream, at(to), *byte, *bytes),
                    None => stream.fill_u8(at(to), *byte, *bytes),
                }
            }?,
            // What a result has from its operand's memory is there.
            Work::Copy { from, to, .. } if at(from) == at(to) => {}
            // SAFETY: as above; the ranges are tensors of as many bytes.
            Work::Copy { from, to, bytes } => unsafe { stream.copy_on_device(at(to), at(from), *bytes) }?,
        }
    }
    Ok(())
}
