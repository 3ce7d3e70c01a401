//! Bringing a program to its device: sources compiled, modules loaded, products planned, memory allocated.

use std::sync::Arc;

use fulgurite_kernels::cuda::cublaslt::Problem;
use fulgurite_kernels::cuda::cublaslt::{MatmulOperands, MatmulPlan, Tuner};
use fulgurite_kernels::cuda::{
    Arguments, Compilation, Cubin, CudaError, Function, KernelCache, LaunchShape, Module, Stream,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::replay::Graphs;
use super::{
    Address, Command, DeviceAddress, DeviceMemory, DeviceProgram, DeviceState, FaultCell, Gather, Source, Staging,
    device_of, sources_of,
};
use crate::device::plan::Parameter;
use crate::error::{Error, Result};

/// Set to 0, products are computed by what the library's heuristics rate best, and nothing is measured or recorded.
const TUNE_VARIABLE: &str = "FULGURITE_TUNE";

/// A program on its device.
pub(super) struct Loaded {
    pub(super) state: Arc<DeviceState>,
    /// Arena, workspace, staged inputs, fresh outputs.
    pub(super) memory: DeviceMemory,
    pub(super) staging: Staging,
    pub(super) graphs: Graphs,
    /// Copies small inputs that are on the device, once there were several.
    pub(super) gather: Option<Gather>,
    /// If some kernel checks its data.
    pub(super) fault: Option<Arc<FaultCell>>,
    /// For each step.
    work: Vec<Vec<Work>>,
}

/// A command with everything but its addresses.
enum Work {
    Launch { function: Function, shape: LaunchShape, parameters: Vec<Parameter> },
    Matmul { plan: Arc<MatmulPlan>, operands: [Option<Address>; 6], workspace: Address, alpha: f64 },
    Fill { to: Address, byte: u8, bytes: usize },
    Copy { from: Address, to: Address, bytes: usize },
}

impl DeviceProgram {
    /// Opens the device and loads the program.
    pub(super) fn load(&self) -> Result<Loaded> {
        let state = DeviceState::of(device_of(&self.trace))?;
        let memory = state.allocate(self.regions.total as usize).map_err(|error| self.too_large(&error))?;
        tracing::debug!(function = %self.name, bytes = self.regions.total, "memory allocated");
        if std::env::var_os(TUNE_VARIABLE).is_none_or(|value| value != "0") {
            self.pin_products(&state, &memory)?;
        }
        tracing::debug!(function = %self.name, "algorithms of products chosen");
        let mut plans: Products = FxHashMap::default();
        let resolved: Vec<Vec<&Command>> = self
            .steps
            .iter()
            .enumerate()
            .map(|(i, step)| resolve(&step.commands, &state, &mut plans).map_err(|error| self.located(error, i)))
            .collect::<Result<_>>()?;
        tracing::debug!(function = %self.name, products = plans.len(), "products planned");
        let sources = sources_of(resolved.iter().flatten().copied());
        let cubins = compile(&sources, &state.architecture())?;
        tracing::debug!(function = %self.name, kernels = cubins.len(), "kernels compiled, or read from the cache");
        let mut modules: FxHashMap<&Source, Module> = FxHashMap::default();
        for (source, cubin) in sources.iter().zip(&cubins) {
            modules.insert(source, Module::load(state.context(), cubin)?);
        }
        let mut work = Vec::with_capacity(self.steps.len());
        for (i, commands) in resolved.iter().enumerate() {
            let ready = commands.iter().map(|command| ready(command, &modules, &plans));
            work.push(ready.collect::<Result<Vec<Work>>>().map_err(|error| self.located(error, i))?);
        }
        tracing::debug!(function = %self.name, "modules loaded");
        let mut meanings = vec![None; self.trace.block.symbols.len()];
        for step in &self.steps {
            meanings[step.symbol].clone_from(&step.report);
        }
        let reports = meanings.iter().any(Option::is_some);
        let fault = reports.then(|| FaultCell::new(&state, &self.trace, meanings)).transpose()?;
        let staging = Staging::new(&state, (self.regions.staged.end - self.regions.staged.start) as usize)?;
        Ok(Loaded { state, memory, staging, graphs: Graphs::default(), gather: None, fault, work })
    }

    /// Has the products' algorithms measured, or their records read, in the program's memory before anything is there.
    fn pin_products(&self, state: &DeviceState, memory: &DeviceMemory) -> Result<()> {
        let commands = self.steps.iter().flat_map(|step| &step.commands);
        let products = commands.filter_map(|command| match command {
            Command::Matmul { problem, workspace: (_, bytes), .. } => Some((problem, *bytes as usize)),
            _ => None,
        });
        let mut seen: FxHashSet<&Problem> = FxHashSet::default();
        for (problem, workspace_bytes) in products {
            if seen.insert(problem) {
                // SAFETY: the program's memory was just allocated, and holds nothing yet.
                let tuner = unsafe { Tuner::new(state.cublaslt()?, state.stream(), memory.address(), memory.len()) };
                match tuner.pin(problem, workspace_bytes) {
                    // What the library does not know is told, or done otherwise, where it is planned.
                    Ok(()) | Err(CudaError::Problem(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Names the largest values with the size that could not be had.
    fn too_large(&self, error: &CudaError) -> Error {
        let mut largest: Vec<(usize, &str)> =
            self.trace.block.values.iter().map(|value| (value.meta.bytes(), &*value.name)).collect();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        let list: Vec<String> = largest.iter().take(5).map(|(bytes, name)| format!("{name} ({bytes} bytes)")).collect();
        let memory = self.memory_use();
        let message = format!(
            "{error}; the plan's peak is {} bytes, {} of them the program's own; the largest values are {}",
            memory.peak(),
            self.regions.total,
            list.join(", ")
        );
        Error::DeviceMemory { message }
    }
}

/// Compiles every source that the cache does not have, several at a time.
fn compile(sources: &[Arc<Source>], architecture: &str) -> Result<Vec<Arc<Cubin>>> {
    use rayon::prelude::*;
    sources
        .par_iter()
        .map(|source| {
            let compilation =
                Compilation { name: &source.name, source: &source.text, architecture, options: &source.options };
            Ok(KernelCache::global().compile(&compilation)?)
        })
        .collect()
}

/// The plan of each product; `None` where the library has no algorithm and something else is done.
type Products = FxHashMap<Problem, Option<Arc<MatmulPlan>>>;

/// The commands that are run on this device: products that the library does not know are replaced by what stands for them.
fn resolve<'a>(commands: &'a [Command], state: &DeviceState, plans: &mut Products) -> Result<Vec<&'a Command>> {
    let mut resolved = Vec::with_capacity(commands.len());
    for command in commands {
        let Command::Matmul { problem, workspace: (_, bytes), instead, .. } = command else {
            resolved.push(command);
            continue;
        };
        let plan = match plans.get(&**problem) {
            Some(plan) => plan.clone(),
            None => {
                let plan = match MatmulPlan::new(state.cublaslt()?, problem, *bytes as usize) {
                    Ok(plan) => Some(Arc::new(plan)),
                    Err(CudaError::Problem(error)) if !instead.is_empty() => {
                        tracing::info!(%error, "done by several commands");
                        None
                    }
                    Err(error) => return Err(error.into()),
                };
                plans.insert((**problem).clone(), plan.clone());
                plan
            }
        };
        match plan {
            Some(_) => resolved.push(command),
            // Another call of the same product had something to be done instead.
            None if instead.is_empty() => {
                MatmulPlan::new(state.cublaslt()?, problem, *bytes as usize)?;
            }
            None => resolved.extend(resolve(instead, state, plans)?),
        }
    }
    Ok(resolved)
}

fn ready(command: &Command, modules: &FxHashMap<&Source, Module>, plans: &Products) -> Result<Work> {
    Ok(match command {
        Command::Launch { source, kernel, shape, parameters } => {
            let module = modules.get(&**source).unwrap_or_else(|| unreachable!("every source was loaded"));
            let function = module.function(kernel)?;
            // Before the first launch of any: the driver has one number for all launches of a kernel.
            function.allow_shared(shape.shared_bytes)?;
            Work::Launch { function, shape: *shape, parameters: parameters.clone() }
        }
        Command::Matmul { problem, a, b, c, d, bias, aux, alpha, workspace: (workspace, _), .. } => {
            let plan = plans.get(&**problem).cloned().flatten();
            let plan = plan.unwrap_or_else(|| unreachable!("every product that is run was planned"));
            let operands = [Some(*a), Some(*b), Some(c.unwrap_or(*d)), Some(*d), *bias, *aux];
            Work::Matmul { plan, operands, workspace: *workspace, alpha: *alpha }
        }
        Command::Fill { to, byte, bytes } => Work::Fill { to: *to, byte: *byte, bytes: *bytes as usize },
        Command::Copy { from, to, bytes } => Work::Copy { from: *from, to: *to, bytes: *bytes as usize },
    })
}

impl Loaded {
    /// Where kernels report an index out of range.
    pub(super) fn fault_address(&self) -> DeviceAddress {
        self.fault.as_ref().map_or(DeviceAddress::NULL, |fault| fault.address())
    }

    /// Enqueues what comes before a run's first step.
    pub(super) fn begin(&self, stream: &Stream) -> Result<()> {
        self.fault.as_ref().map_or(Ok(()), |fault| fault.clear(stream))
    }

    /// Enqueues a step of symbol number `symbol`, with the addresses that `at` gives.
    pub(super) fn enqueue(
        &self,
        stream: &Stream,
        step: usize,
        symbol: usize,
        at: &dyn Fn(&Address) -> DeviceAddress,
    ) -> Result<()> {
        for work in &self.work[step] {
            match work {
                Work::Launch { function, shape, parameters } => {
                    let arguments = parameters.iter().fold(Arguments::new(), |arguments, parameter| match parameter {
                        Parameter::Address(address) => arguments.pointer(at(address)),
                        Parameter::Addresses(addresses) => {
                            let table: Vec<u8> =
                                addresses.iter().flat_map(|address| at(address).0.to_le_bytes()).collect();
                            arguments.bytes(&table)
                        }
                        Parameter::Value(bytes) => arguments.bytes(bytes),
                        Parameter::FaultCode => arguments.u32(symbol as u32 + 1),
                    });
                    // SAFETY: addresses are those of the symbol's operands, results and workspace, alive and used on this
                    // stream alone; that the kernel stays within them is its author's promise, which the generated
                    // tests of bounds check.
                    unsafe { function.launch(stream, shape, &arguments) }?;
                }
                Work::Matmul { plan, operands, workspace, alpha } => {
                    let [a, b, c, d, bias, aux] =
                        operands.map(|operand| operand.map_or(DeviceAddress::NULL, |address| at(&address)));
                    let operands = MatmulOperands { a, b, c, d, bias, aux, workspace: at(workspace) };
                    // SAFETY: as above; the problem describes the operands as they lie.
                    unsafe { plan.run(stream, &operands, *alpha) }?;
                }
                // SAFETY: as above; the range is one tensor's.
                Work::Fill { to, byte, bytes } => unsafe { stream.fill_u8(at(to), *byte, *bytes) }?,
                // SAFETY: as above; the ranges are tensors of as many bytes.
                Work::Copy { from, to, bytes } => unsafe { stream.copy_on_device(at(to), at(from), *bytes) }?,
            }
        }
        Ok(())
    }
}
