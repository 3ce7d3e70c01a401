//! Kernels that are Python functions of arrays: of NumPy, PyTorch, Triton, or whatever takes DLPack.
//!
//! A kernel gets copies of its operands, unless it borrows them: then it promises to neither write nor keep them. Its
//! results are compared with what the operator's meta says, and copied to where the program has them; they may be the
//! operands, or views of them. On a device all of this is enqueued on the stream of the program.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fulgurite::argument::{Arg, map_arguments};
use fulgurite::array::{Array, Memory, Strides};
use fulgurite::device::host_work::{StreamCall, StreamWork};
use fulgurite::device::{DeviceBuffer, DeviceTensor, Plan};
use fulgurite::dlpack::{DLDevice, DLManagedTensorVersioned, DLPackVersion, DLTensor, Managed};
use fulgurite::dlpack::{FLAG_IS_COPIED, FLAG_READ_ONLY, data_type, stream_of};
use fulgurite::kernels::access::for_each_offset;
use fulgurite::kernels::launch::{CopyRange, DeviceAddress};
use fulgurite::kernels::view::contiguous_strides;
use fulgurite::rules::{TensorMut, TensorRef};
use fulgurite::{Device, Error, Failure, TensorMeta};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::raised::failure;
use super::rules::{Own, arguments, result_name};
use crate::array::{PyArray, device_of, first_byte};
use crate::dlpack::{capsule_of, device_numbers};
use crate::tensor::outside;
use crate::types::dtype_of;

/// A kernel in Python.
pub(crate) struct Kernel {
    /// Takes the arguments as a tuple and the stream as a number (`None` on the host); returns a list of `Array` and
    /// `Foreign`.
    pub(super) function: Py<PyAny>,
    /// What messages call it.
    pub(super) who: String,
    /// Whether it takes the program's own memory, which it neither writes nor keeps.
    pub(super) borrows: bool,
    /// Whether it takes arrays of this library.
    pub(super) plain: bool,
    pub(super) own: Own,
}

/// A tensor of another library by its address, which is used on the stream of the program alone.
#[pyclass(frozen, module = "fulgurite._native")]
pub(crate) struct Foreign {
    address: usize,
    meta: TensorMeta,
    /// What keeps the memory alive.
    _owner: Py<PyAny>,
}

#[pymethods]
impl Foreign {
    /// A contiguous tensor whose first element is at `address`, alive as long as `owner`.
    #[new]
    fn new(
        address: usize,
        shape: Vec<usize>,
        dtype: &Bound<'_, PyAny>,
        device: &Bound<'_, PyAny>,
        owner: Py<PyAny>,
    ) -> PyResult<Foreign> {
        let dtype = dtype_of(dtype)?.ok_or_else(|| PyTypeError::new_err("expected an element type"))?;
        Ok(Foreign { address, meta: TensorMeta::new(shape, dtype, device_of(device)?), _owner: owner })
    }
}

/// An operand of a kernel, which `__dlpack__` gives out: a copy that is the kernel's own, or the program's memory for
/// one call.
#[pyclass(frozen, module = "fulgurite._native")]
pub(crate) struct Lent {
    address: usize,
    meta: TensorMeta,
    /// The copy.
    own: Option<Array>,
    out: Arc<AtomicUsize>,
}

/// What a tensor of DLPack over lent memory refers to.
struct LentTensor {
    managed: DLManagedTensorVersioned,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _own: Option<Array>,
    out: Arc<AtomicUsize>,
}

unsafe extern "C" fn give_back(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: DLPack calls the deleter once, with a tensor that `tensor` made; its context is the box that it is in.
    let lent = unsafe { Box::from_raw((*tensor).manager_ctx.cast::<LentTensor>()) };
    lent.out.fetch_sub(1, Ordering::AcqRel);
}

impl Lent {
    fn tensor(&self) -> PyResult<Managed> {
        let (device_type, device_id) = device_numbers(self.meta.device())?;
        let strides = contiguous_strides(self.meta.shape());
        let mut lent = Box::new(LentTensor {
            managed: DLManagedTensorVersioned {
                version: DLPackVersion { major: 1, minor: 0 },
                manager_ctx: std::ptr::null_mut(),
                deleter: Some(give_back),
                flags: if self.own.is_some() { FLAG_IS_COPIED } else { FLAG_READ_ONLY },
                dl_tensor: DLTensor {
                    data: std::ptr::with_exposed_provenance_mut(if self.meta.is_empty() { 0 } else { self.address }),
                    device: DLDevice { device_type, device_id: device_id as i32 },
                    ndim: self.meta.rank() as i32,
                    dtype: data_type(self.meta.dtype()),
                    shape: std::ptr::null_mut(),
                    strides: std::ptr::null_mut(),
                    byte_offset: 0,
                },
            },
            shape: self.meta.shape().iter().map(|extent| *extent as i64).collect(),
            strides: strides.iter().map(|stride| *stride as i64).collect(),
            _own: self.own.clone(),
            out: self.out.clone(),
        });
        lent.managed.dl_tensor.shape = lent.shape.as_mut_ptr();
        lent.managed.dl_tensor.strides = lent.strides.as_mut_ptr();
        self.out.fetch_add(1, Ordering::AcqRel);
        let lent = Box::into_raw(lent);
        // SAFETY: the box was just given up; its memory is valid until the deleter takes it back. The data is valid as
        // long as the call lasts, which is what its author promises to need it for, and the count checks.
        let managed = unsafe {
            (*lent).managed.manager_ctx = lent.cast::<c_void>();
            Managed::from_raw(&raw mut (*lent).managed)
        };
        managed.map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }
}

#[pymethods]
impl Lent {
    #[pyo3(signature = (**_keywords))]
    fn __dlpack__(&self, py: Python<'_>, _keywords: Option<&Bound<'_, pyo3::types::PyDict>>) -> PyResult<Py<PyAny>> {
        capsule_of(py, self.tensor()?)
    }

    fn __dlpack_device__(&self) -> PyResult<(i32, u32)> {
        device_numbers(self.meta.device())
    }
}

/// An operand as the function gets it.
enum Operand {
    Copied(Array),
    Lent { address: usize, meta: TensorMeta },
}

/// What a kernel returned.
enum Found {
    Array(Array),
    Memory(Py<Foreign>),
}

impl Kernel {
    fn wrong(&self, code: &'static str, message: impl std::fmt::Display) -> Failure {
        Failure::new(code, format!("{} {message}", self.who))
    }

    fn error(&self, error: &Error) -> Failure {
        self.wrong("KernelOperand", format!("has no operands: {error}"))
    }

    /// Calls the function, and hands what it returned to `take`. Borrowed operands are back when this returns.
    fn call(
        &self,
        given: &[Arg<Operand>],
        stream: Option<u64>,
        take: impl FnOnce(Vec<Found>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let out = Arc::new(AtomicUsize::new(0));
        let found = Python::attach(|py| {
            outside(|| self.returned(py, given, stream, &out)).map_err(|error| failure(py, &self.who, error))
        })?;
        // What is returned may be an operand. The deleters of arrays take the interpreter's lock themselves.
        let taken = take(found);
        if self.borrows && out.load(Ordering::Acquire) > 0 {
            let collected = Python::attach(|py| py.import("gc")?.call_method0("collect").map(|_| ()));
            if collected.is_err() || out.load(Ordering::Acquire) > 0 {
                let message = "keeps an operand after it returned, although it is declared to borrow them";
                return Err(self.wrong("OperandKept", message));
            }
        }
        taken
    }

    /// What the function returns. Its arguments are let go of.
    fn returned(
        &self,
        py: Python<'_>,
        given: &[Arg<Operand>],
        stream: Option<u64>,
        out: &Arc<AtomicUsize>,
    ) -> PyResult<Vec<Found>> {
        let given: Bound<'_, PyTuple> = arguments(py, given, |operand| match operand {
            Operand::Copied(array) if self.plain => Ok(Py::new(py, PyArray(array.clone()))?.into_any()),
            Operand::Copied(array) => {
                let (meta, own) = (array.meta().clone(), Some(array.clone()));
                Ok(Py::new(py, Lent { address: first_byte(array), meta, own, out: Arc::default() })?.into_any())
            }
            Operand::Lent { address, meta } => {
                let lent = Lent { address: *address, meta: meta.clone(), own: None, out: out.clone() };
                Ok(Py::new(py, lent)?.into_any())
            }
        })?;
        let results = self.function.bind(py).call1((given, stream))?;
        let each = results.try_iter()?.map(|result| {
            let result = result?;
            Ok(match result.cast::<PyArray>() {
                Ok(array) => Found::Array(array.get().0.clone()),
                Err(_) => Found::Memory(result.cast::<Foreign>()?.clone().unbind()),
            })
        });
        each.collect()
    }

    /// That a result is what the meta says.
    fn check(&self, index: usize, found: &TensorMeta, expected: &TensorMeta) -> Result<(), Failure> {
        if found == expected {
            return Ok(());
        }
        let of = |meta: &TensorMeta| match found.device() == expected.device() {
            true => meta.to_string(),
            false => format!("{meta} on {}", meta.device()),
        };
        let message =
            format!("returned {} as {}, its meta says {}", of(found), result_name(&self.own, index), of(expected));
        Err(self.wrong("KernelResult", message))
    }

    fn count(&self, found: usize, expected: usize) -> Result<(), Failure> {
        if found == expected {
            return Ok(());
        }
        Err(self.wrong("KernelResult", format!("returned {found} results, its meta says {expected}")))
    }

    fn run(&self, given: &[Arg<TensorRef<'_>>], results: &mut [TensorMut<'_>]) -> Result<(), Failure> {
        let mut operands = Vec::with_capacity(given.len());
        for argument in given {
            operands.push(try_map(argument, |tensor| self.operand(tensor))?);
        }
        self.call(&operands, None, |found| {
            self.count(found.len(), results.len())?;
            for (i, (found, result)) in found.iter().zip(results).enumerate() {
                let Found::Array(array) = found else {
                    return Err(self.wrong("KernelResult", "returned memory of a device"));
                };
                let expected = TensorMeta::new(result.shape(), result.dtype(), Device::CPU);
                self.check(i, array.meta(), &expected)?;
                let view = array.view().map_err(|error| self.error(&error))?;
                copy(&view, result);
            }
            Ok(())
        })
    }

    fn operand(&self, tensor: &TensorRef<'_>) -> Result<Operand, Failure> {
        let meta = TensorMeta::new(tensor.shape(), tensor.dtype(), Device::CPU);
        if self.borrows && !self.plain && tensor.is_contiguous() && !tensor.is_overlapped() {
            let address = tensor.as_ptr().expose_provenance();
            return Ok(Operand::Lent { address, meta });
        }
        let copied = Array::written_bytes(tensor.shape(), tensor.dtype(), |bytes| {
            let strides = contiguous_strides(tensor.shape());
            // SAFETY: the bytes are those of a contiguous tensor of this shape and type, aligned for every type.
            let mut to = unsafe { TensorMut::new(tensor.dtype(), tensor.shape(), &strides, bytes.as_mut_ptr()) };
            copy(tensor, &mut to);
            Ok(())
        });
        copied.map(Operand::Copied).map_err(|error| self.error(&error))
    }

    /// Enqueues a call on the stream of a device program.
    fn enqueue(
        &self,
        form: &[Arg<()>],
        operands: &[DeviceTensor],
        results: &[DeviceTensor],
        call: &StreamCall<'_>,
    ) -> Result<(), Failure> {
        let device = call.device;
        let stream = stream_of(device).map_err(|error| self.error(&error))?;
        if call.stream.handle() != Some(stream) {
            return Err(self.wrong("Stream", format!("runs on the stream of {device} alone")));
        }
        let mut given = Vec::with_capacity(operands.len());
        for (tensor, address) in operands.iter().zip(call.operands) {
            if !tensor.is_contiguous() {
                return Err(self.wrong("KernelLayout", format!("takes contiguous operands, one is {}", tensor.meta)));
            }
            let meta = tensor.meta.with_device(device);
            given.push(if self.borrows && !self.plain {
                Operand::Lent { address: address.0 as usize, meta }
            } else {
                let bytes = meta.bytes();
                let buffer = DeviceBuffer::new(device, bytes).map_err(|error| self.error(&error))?;
                if bytes > 0 {
                    let range = CopyRange { from: *address, to: buffer.address(), bytes };
                    // SAFETY: both are allocated for as many bytes; the copy is new, and used on this stream.
                    let copied = unsafe { call.stream.copy(range) };
                    copied.map_err(|error| self.error(&error.into()))?;
                }
                let strides = Strides::from_slice(&contiguous_strides(meta.shape()));
                Operand::Copied(Array::from_memory(Memory::Device(Arc::new(buffer)), meta, strides, 0))
            });
        }
        let mut given = given.into_iter();
        let given: Vec<Arg<Operand>> =
            map_arguments(form, |()| given.next().unwrap_or_else(|| unreachable!("one for each tensor")));
        self.call(&given, Some(stream), |found| {
            self.count(found.len(), results.len())?;
            for (i, (found, (result, to))) in found.iter().zip(results.iter().zip(call.results)).enumerate() {
                let expected = result.meta.with_device(device);
                let (from, meta) = match found {
                    Found::Memory(memory) => (memory.get().address as u64, &memory.get().meta),
                    Found::Array(array) => {
                        let Memory::Device(buffer) = array.memory() else {
                            return self.check(i, array.meta(), &expected);
                        };
                        if !array.is_contiguous() {
                            return Err(self.wrong("KernelLayout", "returned a result that is not contiguous"));
                        }
                        (buffer.address().0 + array.byte_offset() as u64, array.meta())
                    }
                };
                self.check(i, meta, &expected)?;
                if !result.is_contiguous() {
                    return Err(self.wrong("KernelLayout", "writes contiguous results"));
                }
                if expected.bytes() > 0 {
                    let range = CopyRange { from: DeviceAddress(from), to: *to, bytes: expected.bytes() };
                    // SAFETY: what was returned is as large, and alive until the copy is enqueued; its owner uses the
                    // memory again behind it, on this stream. The result is the program's own.
                    unsafe { call.stream.copy(range) }.map_err(|error| self.error(&error.into()))?;
                }
            }
            Ok(())
        })
    }
}

fn try_map<V, W>(argument: &Arg<V>, mut f: impl FnMut(&V) -> Result<W, Failure>) -> Result<Arg<W>, Failure> {
    Ok(match argument {
        Arg::Tensor(tensor) => Arg::Tensor(f(tensor)?),
        Arg::Optional(tensor) => Arg::Optional(tensor.as_ref().map(f).transpose()?),
        Arg::List(tensors) => Arg::List(tensors.iter().map(f).collect::<Result<_, _>>()?),
        Arg::Attribute(attribute) => Arg::Attribute(attribute.clone()),
    })
}

/// Copies the elements of a tensor to one of the same shape and type.
fn copy(from: &TensorRef<'_>, to: &mut TensorMut<'_>) {
    let size = from.dtype().size();
    let (source, target) = (from.as_ptr(), to.as_mut_ptr());
    if from.is_contiguous() && to.is_contiguous() {
        // SAFETY: both views have as many elements, one behind the other; a result is no operand.
        unsafe { source.copy_to_nonoverlapping(target, from.len() * size) };
        return;
    }
    let mut offsets = Vec::with_capacity(from.len());
    for_each_offset(from.shape(), from.strides(), |offset| offsets.push(offset * size as isize));
    let mut offsets = offsets.into_iter();
    let (shape, strides) = (to.shape().to_vec(), to.strides().to_vec());
    for_each_offset(&shape, &strides, |offset| {
        let Some(own) = offsets.next() else { return };
        // SAFETY: the views' contracts cover every element that their shapes and strides reach.
        unsafe { source.offset(own).copy_to_nonoverlapping(target.offset(offset * size as isize), size) };
    });
}

/// The kernel on the host.
pub(super) fn host(
    kernel: Arc<Kernel>,
) -> impl Fn(&[Arg<TensorRef<'_>>], &mut [TensorMut<'_>]) -> Result<(), Failure> + Send + Sync + 'static {
    move |arguments, results| kernel.run(arguments, results)
}

/// The kernel on a device.
pub(super) fn device(
    kernel: Arc<Kernel>,
) -> impl Fn(&mut Plan, &[Arg<DeviceTensor>], &[DeviceTensor]) -> Result<(), Failure> + Send + Sync + 'static {
    move |plan, arguments, results| {
        let form: Vec<Arg<()>> = map_arguments(arguments, |_| ());
        let operands: Vec<DeviceTensor> = arguments.iter().flat_map(Arg::tensors).cloned().collect();
        let (kernel, read, written) = (kernel.clone(), operands.clone(), results.to_vec());
        let enqueue = move |call: &StreamCall<'_>| kernel.enqueue(&form, &read, &written, call);
        plan.on_stream(StreamWork { operands, results: results.to_vec(), enqueue: Arc::new(enqueue) });
        Ok(())
    }
}
