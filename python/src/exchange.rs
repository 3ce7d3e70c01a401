//! Tensors of PyTorch as arrays and back, all those of a call at once.
//!
//! PyTorch's tensor type has the C functions that DLPack 1.3 names (`__dlpack_c_exchange_api__`, PyTorch 2.11): they
//! take a tensor's memory, make a tensor of memory, and say which stream is current, without ordering anything. The
//! order is that of `fulgurite::exchange::Exchange`.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use fulgurite::device::DeviceState;
use fulgurite::dlpack::{DLManagedTensorVersioned, DLPackVersion, Managed, OtherStream};
use fulgurite::exchange::{Call, Exchange};
use fulgurite::{Array, Device};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyList, PyType};
use pyo3::{ffi, intern};

use crate::array::{PyArray, buffer_start, or_raise};
use crate::error::{at_once, without_lock};

const NAME: &CStr = c"dlpack_exchange_api";
/// DLPack's number of CUDA.
const CUDA: c_int = 2;

/// The beginning of the table in every version.
#[repr(C)]
struct Header {
    version: DLPackVersion,
    previous: *const Header,
}

/// `DLPackExchangeAPI` of `dlpack.h`, version 1.
#[repr(C)]
struct Functions {
    header: Header,
    allocate: *const c_void,
    from_object: unsafe extern "C" fn(*mut ffi::PyObject, *mut *mut DLManagedTensorVersioned) -> c_int,
    to_object: unsafe extern "C" fn(*mut DLManagedTensorVersioned, *mut *mut ffi::PyObject) -> c_int,
    view: *const c_void,
    current_stream: unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int,
}

// SAFETY: the functions and the table are those of a library that is never unloaded; nobody writes to it.
unsafe impl Sync for Functions {}
// SAFETY: as above.
unsafe impl Send for Functions {}

/// The table in a capsule of `__dlpack_c_exchange_api__`, if it has version 1.
fn table(capsule: &Bound<'_, PyAny>) -> PyResult<Option<&'static Functions>> {
    let capsule = capsule.cast::<PyCapsule>()?;
    let mut header = capsule.pointer_checked(Some(NAME))?.as_ptr().cast_const().cast::<Header>();
    // SAFETY: the capsule's name says what it points to, which lives as long as the process; a table may lead to one of
    // an older version.
    unsafe {
        while !header.is_null() && (*header).version.major != 1 {
            header = (*header).previous;
        }
        Ok(header.cast::<Functions>().as_ref())
    }
}

/// The functions of `torch.Tensor`.
fn functions(py: Python<'_>) -> PyResult<&'static Functions> {
    static FOUND: PyOnceLock<&'static Functions> = PyOnceLock::new();
    FOUND
        .get_or_try_init(py, || {
            let Ok(capsule) = py.import("torch")?.getattr("Tensor")?.getattr("__dlpack_c_exchange_api__") else {
                let message = "torch.Tensor has no '__dlpack_c_exchange_api__': PyTorch 2.11 or newer is needed";
                return Err(PyRuntimeError::new_err(message));
            };
            table(&capsule)?.ok_or_else(|| PyRuntimeError::new_err("PyTorch has no version 1 of DLPack's C functions"))
        })
        .copied()
}

/// The C functions of a type.
#[derive(Clone, Copy)]
struct Source {
    functions: &'static Functions,
    /// Whether the type is `torch.Tensor` or `torch.nn.Parameter`.
    of_torch: bool,
}

/// How many types are kept with their functions.
const MOST_TYPES: usize = 64;

/// The C functions of an object's type; `None` if `__dlpack__` says what its memory is.
fn source(value: &Bound<'_, PyAny>) -> PyResult<Option<Source>> {
    /// Types are kept, so that no other one gets the address of one of these.
    static KNOWN: Mutex<Vec<(Py<PyType>, Option<Source>)>> = Mutex::new(Vec::new());
    let kind = value.get_type_ptr().cast::<ffi::PyObject>();
    {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, source)) = known.iter().find(|(known, _)| known.as_ptr() == kind) {
            return Ok(*source);
        }
    }
    let kind = value.get_type();
    let source = source_of(&kind)?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() < MOST_TYPES {
        known.push((kind.unbind(), source));
    }
    Ok(source)
}

fn source_of(kind: &Bound<'_, PyType>) -> PyResult<Option<Source>> {
    let py = kind.py();
    let Ok(capsule) = kind.getattr("__dlpack_c_exchange_api__") else { return Ok(None) };
    let Ok(Some(functions)) = table(&capsule) else { return Ok(None) };
    let torch = py.import("sys")?.getattr("modules")?.call_method1("get", ("torch",))?;
    if torch.is_none() {
        return Ok(Some(Source { functions, of_torch: false }));
    }
    let tensor = torch.getattr("Tensor")?.cast_into::<PyType>()?;
    let of_torch = kind.is(&tensor) || kind.is(&torch.getattr("nn")?.getattr("Parameter")?);
    // A subclass has `__torch_function__`, which its `__dlpack__` asks.
    let known = of_torch || !kind.is_subclass(&tensor)?;
    Ok(known.then_some(Source { functions, of_torch }))
}

/// Whether an object's type has the C functions, by which it is taken.
pub(crate) fn has_functions(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    source(value).map(|source| source.is_some())
}

fn raised_or(py: Python<'_>, message: &'static str) -> PyErr {
    PyErr::take(py).unwrap_or_else(|| PyRuntimeError::new_err(message))
}

/// The tensor's memory.
fn taken(py: Python<'_>, functions: &Functions, tensor: &Bound<'_, PyAny>) -> PyResult<(Managed, Device)> {
    let mut managed = std::ptr::null_mut();
    // SAFETY: the object is alive, and a tensor: the function raises for others.
    if unsafe { (functions.from_object)(tensor.as_ptr(), &raw mut managed) } != 0 || managed.is_null() {
        return Err(raised_or(py, "PyTorch gave no memory of a tensor"));
    }
    // SAFETY: the function gave a valid tensor, which is ours now.
    let (device, managed) = unsafe { ((*managed).dl_tensor.device, Managed::from_raw(managed)) };
    let device = match device.device_type {
        CUDA => Device::new("cuda", u32::try_from(device.device_id).unwrap_or(0)),
        _ => Device::CPU,
    };
    Ok((or_raise(py, managed)?, device))
}

/// A tensor of PyTorch over memory of ours.
fn given<'py>(py: Python<'py>, functions: &Functions, managed: Managed) -> PyResult<Bound<'py, PyAny>> {
    let Some(raw) = managed.into_raw() else {
        return Err(PyRuntimeError::new_err("an array has no versioned tensor"));
    };
    let mut object = std::ptr::null_mut();
    // SAFETY: the function takes the tensor over, also where it fails; what it gives is a new reference.
    unsafe {
        if (functions.to_object)(raw, &raw mut object) != 0 {
            return Err(raised_or(py, "PyTorch made no tensor of an array"));
        }
        Bound::from_owned_ptr_or_err(py, object)
    }
}

/// The exchange with PyTorch's current stream of a device. Streams that are no longer current let go of their memory.
fn current(py: Python<'_>, functions: &Functions, device: Device) -> PyResult<Arc<Exchange>> {
    static KNOWN: LazyLock<Mutex<HashMap<(Device, u64), Arc<Exchange>>>> = LazyLock::new(Mutex::default);
    let mut stream = std::ptr::null_mut();
    // SAFETY: the function writes the handle.
    if unsafe { (functions.current_stream)(CUDA, device.index() as i32, &raw mut stream) } != 0 {
        return Err(raised_or(py, "PyTorch has no current stream"));
    }
    let handle = stream as u64;
    let of = match handle {
        0 => OtherStream::Default { per_thread: false },
        // SAFETY: PyTorch's streams are of pools that live as long as the process.
        handle => unsafe { OtherStream::of_handle(handle) },
    };
    without_lock(py, || {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let exchange = match known.get(&(device, handle)) {
            Some(exchange) => exchange.clone(),
            None => {
                // SAFETY: as above.
                let made = unsafe { Exchange::new(device, of) }?;
                known.insert((device, handle), made.clone());
                made
            }
        };
        let mut others = known.iter().filter(|(key, _)| **key != (device, handle));
        others.try_for_each(|(_, other)| other.let_go())?;
        Ok(exchange)
    })
}

/// The tensors of one call, which are taken one by one. On a device, work here waits once for PyTorch's current stream;
/// dropping the value ends the call, so that this stream waits for the work here.
#[derive(Default)]
pub(crate) struct Taking {
    calls: Vec<(Device, Call)>,
    /// Memory of a device goes back when the call has ended, behind which nothing is to be ordered again.
    kept: Vec<Array>,
    /// Whether PyTorch's dispatcher calls, which has seen to gradients.
    dispatched: bool,
    /// Whether an array is taken outside of calls.
    alone: bool,
}

impl Taking {
    /// Of a call by PyTorch's dispatcher: tensors may require gradients, and `None` is the default.
    pub(crate) fn dispatched() -> Taking {
        Taking { dispatched: true, ..Taking::default() }
    }

    /// Whether PyTorch's dispatcher calls.
    pub(crate) fn is_dispatched(&self) -> bool {
        self.dispatched
    }

    /// Leaves the call without its end: arrays that stay are ordered when their memory goes back, and results are no
    /// tensors.
    pub(crate) fn leave(mut self) {
        // Dropping one would have PyTorch's stream wait for whatever runs here.
        self.calls.drain(..).for_each(|(_, call)| std::mem::forget(call));
    }

    /// The array over the memory of an object whose type has the C functions; `None` if `__dlpack__` is to be asked for
    /// it, or for what is wrong with it.
    pub(crate) fn array(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Option<Array>> {
        let found = self.as_it_is(value)?;
        // PyTorch's functions do not say that a tensor is the conjugate of what they give.
        if found.as_ref().is_some_and(|array| array.dtype().is_complex()) && is_conjugate(value)? {
            return self.as_it_is(&value.call_method0(intern!(value.py(), "resolve_conj"))?);
        }
        Ok(found)
    }

    /// As [`Taking::array`], of the numbers in memory.
    fn as_it_is(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Option<Array>> {
        let py = value.py();
        let source = match self.dispatched {
            true => Source { functions: functions(py)?, of_torch: true },
            false => match source(value)? {
                Some(source) => source,
                None => return Ok(None),
            },
        };
        if source.of_torch && !self.dispatched && value.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
            return Ok(None);
        }
        let is_negative = source.of_torch && value.call_method0(intern!(py, "is_neg"))?.is_truthy()?;
        let taken = match is_negative {
            true => taken(py, source.functions, &value.call_method0(intern!(py, "resolve_neg"))?),
            false => taken(py, source.functions, value),
        };
        let (managed, device) = match taken {
            Err(_) if !self.dispatched => return Ok(None),
            taken => taken?,
        };
        if device.is_cpu() {
            return at_once(py, || Array::from_dlpack(managed, OtherStream::Unordered)).map(Some);
        }
        if !source.of_torch {
            // Streams of others may be destroyed.
            return Ok(None);
        }
        if self.alone {
            let exchange = current(py, source.functions, device)?;
            return at_once(py, || exchange.import(managed)).map(Some);
        }
        let call = self.call(py, source.functions, device)?;
        let array = without_lock(py, || call.import(managed))?;
        if self.dispatched {
            self.kept.push(array.clone());
        }
        Ok(Some(array))
    }

    /// The call of a device.
    fn call(&mut self, py: Python<'_>, functions: &Functions, device: Device) -> PyResult<&Call> {
        let at = match self.calls.iter().position(|(known, _)| *known == device) {
            Some(at) => at,
            None => {
                let exchange = current(py, functions, device)?;
                self.calls.push((device, without_lock(py, || exchange.begin())?));
                self.calls.len() - 1
            }
        };
        Ok(&self.calls[at].1)
    }

    fn export(&mut self, py: Python<'_>, functions: &Functions, array: &Array) -> PyResult<Managed> {
        if array.device().is_cpu() {
            return at_once(py, || array.to_dlpack(OtherStream::Unordered));
        }
        let call = self.call(py, functions, array.device())?;
        without_lock(py, || call.export(array))
    }

    /// Ends the call: tensors over the memory of arrays, contiguous, which may be written to. What has memory of
    /// another library, or of an array before it, is copied: PyTorch's operators return memory that nobody else has.
    pub(crate) fn tensors<'py>(mut self, py: Python<'py>, arrays: &[Array]) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let functions = functions(py)?;
        let (mut known, mut tensors) = (Vec::new(), Vec::with_capacity(arrays.len()));
        let mut copied = Vec::new();
        for array in arrays {
            tensors.push(given(py, functions, self.export(py, functions, array)?)?);
            let address = (!array.meta().is_empty()).then(|| buffer_start(array));
            let shared = array.is_external() || address.is_some_and(|address| known.contains(&address));
            if shared || !array.is_contiguous() {
                copied.push(tensors.len() - 1);
            }
            known.extend(address);
        }
        // PyTorch's copies come after what computes the results.
        drop(self);
        for at in copied {
            let keywords = PyDict::new(py);
            keywords.set_item("memory_format", py.import("torch")?.getattr("contiguous_format")?)?;
            tensors[at] = tensors[at].call_method("clone", (), Some(&keywords))?;
        }
        Ok(tensors)
    }
}

/// Whether a tensor of PyTorch's is a conjugate that is yet to be computed.
fn is_conjugate(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let name = intern!(value.py(), "is_conj");
    if value.hasattr(name)? { value.call_method0(name)?.is_truthy() } else { Ok(false) }
}

/// The array over the memory of an object whose type has the C functions; `None` if `__dlpack__` is to be asked. It is
/// ordered when work is enqueued, and when its memory goes back.
pub(crate) fn taken_alone(value: &Bound<'_, PyAny>) -> PyResult<Option<Array>> {
    Taking { alone: true, ..Taking::default() }.array(value)
}

/// The tensor of PyTorch over an array's memory, which nobody may write to. On CUDA PyTorch's current stream waits for
/// what computes it.
#[pyfunction]
pub(crate) fn as_tensor<'py>(py: Python<'py>, array: PyRef<'_, PyArray>) -> PyResult<Bound<'py, PyAny>> {
    let functions = functions(py)?;
    let managed = Taking::default().export(py, functions, &array.0)?;
    given(py, functions, managed)
}

/// The tensors of one call, as arrays, and its results, as tensors.
#[pyclass(frozen, module = "fulgurite")]
pub(crate) struct Crossing {
    arrays: Vec<Array>,
    /// `None` when the results have crossed.
    taking: Mutex<Option<Taking>>,
}

#[pymethods]
impl Crossing {
    /// Takes tensors of the host and of devices. There work waits for PyTorch's current stream.
    #[new]
    fn new(tensors: &Bound<'_, PyList>) -> PyResult<Crossing> {
        let mut taking = Taking::dispatched();
        let mut arrays = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            arrays.extend(taking.array(&tensor)?);
        }
        Ok(Crossing { arrays, taking: Mutex::new(Some(taking)) })
    }

    /// The arrays, in the order of the tensors.
    #[getter]
    fn arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let arrays: PyResult<Vec<_>> = self.arrays.iter().map(|array| Bound::new(py, PyArray(array.clone()))).collect();
        PyList::new(py, arrays?)
    }

    /// Ends the call: see [`Taking::tensors`].
    fn results<'py>(&self, py: Python<'py>, arrays: Vec<PyRef<'py, PyArray>>) -> PyResult<Bound<'py, PyList>> {
        let taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner).take();
        let arrays: Vec<Array> = arrays.iter().map(|array| array.0.clone()).collect();
        PyList::new(py, taking.unwrap_or_else(Taking::dispatched).tensors(py, &arrays)?)
    }
}

/// Waits for the programs that were called with tensors of PyTorch's current stream of `device`, and raises what their
/// kernels found wrong with their data.
#[pyfunction]
pub(crate) fn check_calls(py: Python<'_>, device: &Bound<'_, PyAny>) -> PyResult<()> {
    let Some((_, exchange)) = current_of(py, device)? else { return Ok(()) };
    without_lock(py, || exchange.check())
}

/// Whether the runs that the array comes from are known to have ended, of which none is waited for. Raises what the
/// kernels of those that have ended found wrong with their data.
#[pyfunction]
pub(crate) fn check_ended(py: Python<'_>, array: PyRef<'_, PyArray>) -> PyResult<bool> {
    let array = &array.0;
    without_lock(py, || array.check_ended())
}

/// Gives memory of `device` that no array uses back to the driver, once the work that used it has ended.
#[pyfunction]
pub(crate) fn free_kept(py: Python<'_>, device: &Bound<'_, PyAny>) -> PyResult<()> {
    let Some((device, exchange)) = current_of(py, device)? else { return Ok(()) };
    without_lock(py, || {
        exchange.let_go()?;
        DeviceState::of(device)?.give_up_kept();
        Ok(())
    })
}

/// A device of CUDA and the exchange with PyTorch's current stream of it; `None` for the host.
fn current_of(py: Python<'_>, device: &Bound<'_, PyAny>) -> PyResult<Option<(Device, Arc<Exchange>)>> {
    let device = crate::array::device_of(device)?;
    if device.is_cpu() {
        return Ok(None);
    }
    if device.kind() != "cuda" {
        return Err(PyTypeError::new_err(format!("expected a device of CUDA, not {device}")));
    }
    Ok(Some((device, current(py, functions(py)?, device)?)))
}
