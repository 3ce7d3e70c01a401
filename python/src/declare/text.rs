//! Kernels that are CUDA C++ text: Python says what a call launches, by `python/fulgurite/_cuda.py`, when the program
//! is planned. The launches are the program's own from then on: they are replayed as graphs, and run without Python.

use std::sync::Arc;

use fulgurite::argument::Arg;
use fulgurite::device::{Address, DeviceTensor, Parameter, Plan, SourceText};
use fulgurite::kernels::launch::LaunchShape;
use fulgurite::testing::check_launches;
use fulgurite::{DType, Failure};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::raised::failure;
use super::rules::{Own, arguments, result_name};
use crate::array::PyMeta;

/// A kernel as text.
pub(super) struct Text {
    /// Takes the arguments of a call, with metas for tensors, and a list with the metas of the results; returns the
    /// sizes of the pieces of workspace, and the launches in order.
    pub(super) function: Py<PyAny>,
    /// What messages call it.
    pub(super) who: String,
    pub(super) own: Own,
}

/// One launch, as Python has it.
#[derive(FromPyObject)]
struct Launch {
    /// What messages call the source.
    name: String,
    text: String,
    /// Names with their values in the source.
    defines: Vec<(String, String)>,
    entry: String,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: Option<[u32; 3]>,
    shared: u32,
    /// `argument`, `result` or `workspace` with a number, or `value` with bytes.
    arguments: Vec<(String, usize, Vec<u8>)>,
    /// Where the text is declared, `file:line`.
    place: String,
}

impl Text {
    fn wrong(&self, launch: &Launch, problem: impl std::fmt::Display) -> Failure {
        Failure::new("CudaKernel", format!("{}: {problem}\n  declared at {}", self.who, launch.place))
    }

    fn write(&self, plan: &mut Plan, given: &[Arg<DeviceTensor>], results: &[DeviceTensor]) -> Result<(), Failure> {
        let asked: Result<(Vec<u64>, Vec<Launch>), Failure> = Python::attach(|py| {
            let called = || {
                let meta = |tensor: &DeviceTensor| Ok(Py::new(py, PyMeta(tensor.meta.clone()))?.into_any());
                let values = arguments(py, given, meta)?;
                let metas = results.iter().map(meta).collect::<PyResult<Vec<_>>>()?;
                self.function.bind(py).call1((values, PyList::new(py, metas)?))?.extract()
            };
            called().map_err(|error| failure(py, &self.who, error))
        });
        let (workspace, launches) = asked?;
        let workspace: Vec<Address> = workspace.into_iter().map(|bytes| plan.workspace(bytes)).collect();
        for launch in &launches {
            self.launch(plan, launch, given, results, &workspace)?;
        }
        Ok(())
    }

    /// What messages call the operands, and their element types.
    fn operands(&self, given: &[Arg<DeviceTensor>]) -> Vec<(String, DType)> {
        let mut all = Vec::new();
        for (index, argument) in given.iter().enumerate() {
            all.extend(
                argument.tensors().iter().map(|tensor| (format!("'{}'", self.name(index)), tensor.meta.dtype())),
            );
        }
        all
    }

    fn name(&self, index: usize) -> &'static str {
        self.own.get().map_or("?", |def| def.params[index].name)
    }

    fn launch(
        &self,
        plan: &mut Plan,
        launch: &Launch,
        given: &[Arg<DeviceTensor>],
        results: &[DeviceTensor],
        workspace: &[Address],
    ) -> Result<(), Failure> {
        let mut parameters = Vec::with_capacity(launch.arguments.len());
        for (kind, index, bytes) in &launch.arguments {
            parameters.push(match kind.as_str() {
                "argument" => match &given[*index] {
                    Arg::Tensor(tensor) | Arg::Optional(Some(tensor)) => Parameter::from(tensor),
                    // No address: the kernel compares the pointer with it.
                    Arg::Optional(None) => Parameter::from(0_u64),
                    Arg::List(tensors) => Parameter::Addresses(tensors.iter().map(|tensor| tensor.address).collect()),
                    Arg::Attribute(_) => {
                        let message = format!("'{}' is a number in this call, not a tensor", self.name(*index));
                        return Err(self.wrong(launch, message));
                    }
                },
                "result" => Parameter::from(&results[*index]),
                "workspace" => Parameter::from(workspace[*index]),
                _ => Parameter::Value(bytes.iter().copied().collect()),
            });
        }
        let shape = LaunchShape {
            cluster: launch.cluster,
            shared_bytes: launch.shared,
            ..LaunchShape::new(launch.grid, launch.block)
        };
        let (most, room) = (plan.properties().threads_per_block, plan.properties().shared_bytes_per_block);
        if let Some(fault) = shape.fault(u32::try_from(most).unwrap_or(u32::MAX)) {
            return Err(self.wrong(launch, format!("kernel '{}': {fault}", launch.entry)));
        }
        if launch.shared as usize > room {
            let message =
                format!("kernel '{}': {} bytes of shared memory, a block has {room}", launch.entry, launch.shared);
            return Err(self.wrong(launch, message));
        }
        plan.source(SourceText::new(launch.name.clone(), launch.text.clone()));
        for (name, value) in &launch.defines {
            plan.define(name, value);
        }
        plan.launch(&launch.entry, shape, parameters)?;
        let written = results.iter().enumerate();
        let written = written.map(|(i, result)| (result_name(&self.own, i), result.meta.dtype())).collect();
        check_launches(plan, self.operands(given), written).map_err(|problem| self.wrong(launch, problem))
    }
}

/// The kernel's work on a device.
pub(super) fn device(
    text: Arc<Text>,
) -> impl Fn(&mut Plan, &[Arg<DeviceTensor>], &[DeviceTensor]) -> Result<(), Failure> + Send + Sync + 'static {
    move |plan, arguments, results| text.write(plan, arguments, results)
}
