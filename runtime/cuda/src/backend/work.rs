//! Commands made ready: sources compiled, modules loaded, products planned; and how they are enqueued.

use std::sync::{Arc, Weak};

use crate::collectives::{
    Combine, Communicator, Peers, PeersMemory, Reduction, Tensors, Transfer, Transferred, Waiting,
};
use crate::cublaslt::{MatmulOperands, MatmulPlan, Problem, Tuner};
use crate::cudnn::{AttentionPlan, ConvolutionPlan, ConvolutionTuner};
use crate::{Arguments, Compilation, Context, Cubin, CudaError, Fill, Function, KernelCache, Module, Stream};
use fulgurite_kernels::DType;
use fulgurite_kernels::launch::{DeviceAddress, LaunchShape};
use fulgurite_kernels::mesh::Axis;
use fulgurite_kernels::ranks;
use rustc_hash::{FxHashMap, FxHashSet};

use super::attention::{Attention, Operands};
use super::collective::Collective;
use super::convolution::{self, Convolution};
use super::library::Libraries;
use super::matmul::{Matmul, OPERANDS};
use fulgurite_base::device::{
    Address, Category, CodeError, CodeStep, Command, DeviceCode, DeviceError, LibraryCall, Parameter, Room, Source,
};

/// Set to 0, products and convolutions are computed by what the libraries' heuristics rate best, and nothing is
/// measured or recorded.
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
    Convolution {
        plan: ConvolutionPlan,
        operands: [Address; convolution::OPERANDS],
    },
    /// From and to where each tensor goes.
    Collective {
        link: Link,
        combine: Option<Arc<Combine>>,
        collective: Collective,
        pairs: Vec<[Address; 2]>,
        workspace: Option<Address>,
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

/// How a collective goes from device to device.
pub(super) enum Link {
    /// The devices write to each other's memory, where this one is the collective of a number. Its results are in the
    /// program's own memory, or go there by slots of the workspace.
    Peers {
        peers: Arc<Peers>,
        memory: Arc<PeersMemory>,
        number: u32,
        by_slots: bool,
    },
    Nccl(Arc<Communicator>),
}

impl Link {
    /// What a device waits in.
    pub(super) fn waiting(&self) -> Weak<dyn Waiting> {
        match self {
            Link::Peers { peers, .. } => {
                let weak: Weak<Peers> = Arc::downgrade(peers);
                weak
            }
            Link::Nccl(communicator) => {
                let weak: Weak<Communicator> = Arc::downgrade(communicator);
                weak
            }
        }
    }

    /// The simulation whose ranks joined.
    pub(super) fn run_number(&self) -> u64 {
        match self {
            Link::Peers { peers, .. } => peers.run_number(),
            Link::Nccl(communicator) => communicator.run_number(),
        }
    }
}

/// The plan of each product; `None` where the library has no algorithm and something else is done.
type Plans = FxHashMap<Problem, Option<Arc<MatmulPlan>>>;

/// What a library does in a call.
enum Called<'a> {
    Matmul(&'a Matmul),
    Attention(&'a Attention),
    Convolution(&'a Convolution),
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
        if let Some(convolution) = call.payload() {
            return Ok(Called::Convolution(convolution));
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
        pin(libraries, code, stream, room)?;
    }
    tracing::debug!(function = %code.name, "algorithms of products and convolutions chosen");
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
    let mut links = Links { context, libraries, code, room, memories: Vec::new(), kernels: FxHashMap::default() };
    let mut work = Vec::with_capacity(resolved.len());
    for (i, commands) in resolved.iter().enumerate() {
        let step = &code.steps[i];
        let ready =
            commands.iter().map(|command| one(command, &modules, fill.as_ref(), &plans, (libraries, step, &mut links)));
        work.push(ready.collect::<Result<Vec<Work>, _>>().map_err(|error| CodeError::at(i, error))?);
    }
    tracing::debug!(function = %code.name, "modules loaded");
    Ok(work)
}

/// Compares the program's collectives with those of all ranks, before one of them waits for what will not come: what
/// they are, and where in a program's own memory others write to.
fn same_on_all_ranks(code: &DeviceCode) -> Result<(), DeviceError> {
    let mut lines = String::new();
    for step in &code.steps {
        for command in &step.commands {
            let Command::Library(call) = command else { continue };
            if let Called::Collective(collective) = Called::of(call)? {
                let at: Vec<String> = call.operands.iter().flatten().map(|at| place(code, step, at)).collect();
                lines += &format!("{collective}, at {}\n", at.join(" "));
            }
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    let compared = ranks::same(&format!("the loading of '{}'", code.name), &lines);
    Ok(compared.map_err(CudaError::from)?)
}

/// Where in the program's own memory an address is; `given` for what each run is given.
fn place(code: &DeviceCode, step: &CodeStep, address: &Address) -> String {
    match code.own(step, address) {
        Some(offset) => offset.to_string(),
        None => "given".to_owned(),
    }
}

/// Makes links for the collectives of a program, which all ranks load in the same order.
struct Links<'a> {
    context: &'a Context,
    libraries: &'a Libraries,
    code: &'a DeviceCode,
    room: Room,
    /// The program's memory on all ranks along an axis, if their devices write there.
    memories: Vec<(Axis, Option<(Arc<Peers>, Arc<PeersMemory>)>)>,
    kernels: FxHashMap<([DType; 2], Reduction, usize), Arc<Combine>>,
}

impl Links<'_> {
    fn memory(&mut self, axis: &Axis) -> Result<Option<(Arc<Peers>, Arc<PeersMemory>)>, CudaError> {
        if let Some((_, known)) = self.memories.iter().find(|(known, _)| known == axis) {
            return Ok(known.clone());
        }
        let made = match self.libraries.groups.peers(axis)? {
            Some(peers) => peers.memory(axis, self.room.own)?.map(|memory| (peers, Arc::new(memory))),
            None => None,
        };
        self.memories.push((axis.clone(), made.clone()));
        Ok(made)
    }

    /// The link of a collective whose results are at `to`, and the kernel that combines, if one does.
    fn of(
        &mut self,
        collective: &Collective,
        step: &CodeStep,
        to: impl Iterator<Item = Address>,
    ) -> Result<(Link, Option<Arc<Combine>>), CudaError> {
        let Collective { axis, transfer, dtypes, .. } = collective;
        let mut to = to;
        let own = to.all(|to| self.code.own(step, &to).is_some());
        let combines = match transfer {
            Transfer::AllReduce(by) | Transfer::ReduceScatter(by) => Some(*by),
            _ => None,
        };
        let link = match self.memory(axis)? {
            Some((peers, memory)) if own || combines.is_some() => {
                Link::Peers { number: peers.next(), peers, memory, by_slots: !own }
            }
            _ => Link::Nccl(self.libraries.groups.communicator(axis)?),
        };
        let by_kernel = |by: &Reduction| matches!(link, Link::Peers { .. }) || !Communicator::combines(*dtypes, *by);
        let Some(by) = combines.filter(by_kernel) else { return Ok((link, None)) };
        let key = (*dtypes, by, axis.extent());
        if !self.kernels.contains_key(&key) {
            self.kernels.insert(key, Arc::new(Combine::new(self.context, key.0, key.1, key.2)?));
        }
        Ok((link, self.kernels.get(&key).cloned()))
    }
}

/// Has the algorithms of products and convolutions measured, or their records read, in the program's memory before
/// anything is there.
fn pin(libraries: &Libraries, code: &DeviceCode, stream: &Stream, room: Room) -> Result<(), DeviceError> {
    let mut seen: FxHashSet<&Problem> = FxHashSet::default();
    for command in code.steps.iter().flat_map(|step| &step.commands) {
        let Command::Library(call) = command else { continue };
        let pinned = match Called::of(call)? {
            Called::Matmul(Matmul { problem, workspace_bytes, .. }) if seen.insert(problem) => {
                // SAFETY: the program's memory was just allocated, and holds nothing yet.
                let tuner = unsafe { Tuner::new(libraries.cublaslt.get()?, stream, room.own, room.bytes) };
                tuner.pin(problem, *workspace_bytes as usize)
            }
            // The library keeps what was chosen, so that equal calls are measured once.
            Called::Convolution(Convolution { problem }) => {
                // SAFETY: as above.
                let tuner = unsafe { ConvolutionTuner::new(libraries.cudnn.get()?, stream, room.own, room.bytes) };
                tuner.pin(problem)
            }
            _ => continue,
        };
        match pinned {
            // What the library does not know is told, or done otherwise, where it is planned.
            Ok(()) | Err(CudaError::Problem(_) | CudaError::Convolution(_)) => {}
            Err(error) => return Err(error.into()),
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
    (libraries, step, links): (&Libraries, &CodeStep, &mut Links<'_>),
) -> Result<Work, DeviceError> {
    Ok(match command {
        Command::Launch { source, kernel, shape, parameters } => {
            let module = modules.get(&**source).unwrap_or_else(|| unreachable!("every source was loaded"));
            let function = module.function(kernel)?;
            // Before the first launch of any: the driver has one number for all launches of a kernel.
            function.allow_shared(shape.shared_bytes)?;
            let placed = |parameter: &Parameter| match parameter {
                Parameter::PlaceAlong(axis) => {
                    let place =
                        ranks::place(axis).map_err(|error| DeviceError::new(Category::Other, error.to_string()))?;
                    Ok(Parameter::from(place))
                }
                parameter => Ok(parameter.clone()),
            };
            let parameters = parameters.iter().map(placed).collect::<Result<_, DeviceError>>()?;
            Work::Launch { function, shape: *shape, parameters }
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
            Called::Convolution(Convolution { problem }) => {
                let operands: Vec<Address> = call.operands.iter().copied().flatten().collect();
                let operands =
                    operands.try_into().map_err(|_| operands_of(call, "a convolution", convolution::OPERANDS))?;
                Work::Convolution { plan: ConvolutionPlan::new(libraries.cudnn.get()?, problem)?, operands }
            }
            Called::Collective(collective) => {
                let given: Vec<Address> = call.operands.iter().copied().flatten().collect();
                let (pairs, rest) = given.as_chunks::<2>();
                if pairs.len() != collective.counts.len() || rest.len() != usize::from(collective.workspace() > 0) {
                    return Err(operands_of(call, "a collective", 2 * collective.counts.len()));
                }
                let (link, combine) = links.of(collective, step, pairs.iter().map(|[_, to]| *to))?;
                let (pairs, workspace) = (pairs.to_vec(), rest.first().copied());
                Work::Collective { link, combine, collective: collective.clone(), pairs, workspace }
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
                    Parameter::PlaceAlong(axis) => unreachable!("the place along {axis} was found when it was loaded"),
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
            Work::Convolution { plan, operands } => {
                let operands = Convolution::at(operands, at);
                // SAFETY: as above; the problem describes the layouts of the operands.
                unsafe { plan.run(stream, &operands) }?;
            }
            Work::Collective { link, combine, collective, pairs, workspace } => {
                let tensors: Vec<Transferred> = (collective.counts.iter().zip(pairs))
                    .map(|(count, [from, to])| Transferred { count: *count, from: at(from), to: at(to) })
                    .collect();
                let workspace = workspace.as_ref().map_or(DeviceAddress::NULL, at);
                let Collective { transfer, dtypes, .. } = *collective;
                let tensors = Tensors { transfer, dtypes, tensors: &tensors, workspace };
                // SAFETY: as above; ranks run one program, whose collectives are in one order and whose memory is laid
                // out alike, as was compared when it was loaded.
                unsafe {
                    match link {
                        Link::Peers { peers, memory, number, by_slots } => {
                            peers.run(stream, (*number, memory, *by_slots), &tensors, combine.as_deref())
                        }
                        Link::Nccl(communicator) => communicator.run(stream, &tensors, combine.as_deref()),
                    }
                }?;
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
