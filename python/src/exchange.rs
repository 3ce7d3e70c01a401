//! Tensors of PyTorch as arrays and back, all those of a call at once.
//!
//! PyTorch's tensor type has the C functions that DLPack 1.3 names (`__dlpack_c_exchange_api__`, PyTorch 2.11): they
//! take a tensor's memory, make a tensor of memory, and say which stream is current, without ordering anything. The
//! order is that of `fulgurite::exchange::Exchange`.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use fulgurite::dlpack::{DLManagedTensorVersioned, DLPackVersion, Managed, OtherStream};
use fulgurite::exchange::{Call, Exchange};
use fulgurite::{Array, Device};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyList, PyType};
use pyo3::{ffi, intern};

use crate::array::{PyArray, buffer_start, or_raise};
use crate::error::without_lock;

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

/// The functions of `torch.Tensor`.
fn functions(py: Python<'_>) -> PyResult<&'static Functions> {
    static FOUND: PyOnceLock<&'static Functions> = PyOnceLock::new();
    FOUND
        .get_or_try_init(py, || {
            let tensor = py.import("torch")?.getattr("Tensor")?.cast_into::<PyType>()?;
            let Ok(table) = tensor.getattr("__dlpack_c_exchange_api__") else {
                let message = "torch.Tensor has no '__dlpack_c_exchange_api__': PyTorch 2.11 or newer is needed";
                return Err(PyRuntimeError::new_err(message));
            };
            let table = table.cast_into::<PyCapsule>()?;
            let mut header = table.pointer_checked(Some(NAME))?.as_ptr().cast_const().cast::<Header>();
            // SAFETY: the capsule's name says what it points to, which lives as long as the process; a table may lead
            // to one of an older version.
            unsafe {
                while !header.is_null() && (*header).version.major != 1 {
                    header = (*header).previous;
                }
                header.cast::<Functions>().as_ref()
            }
            .ok_or_else(|| PyRuntimeError::new_err("PyTorch has no version 1 of DLPack's C functions"))
        })
        .copied()
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

/// The tensors of one call, as arrays, and its results, as tensors.
#[pyclass(frozen, module = "fulgurite")]
pub(crate) struct Crossing {
    arrays: Vec<Array>,
    /// `None` where all tensors are on the host, and when the results have crossed.
    call: Mutex<Option<Call>>,
}

#[pymethods]
impl Crossing {
    /// Takes tensors of the host and of one other device. On that device work waits for PyTorch's current stream.
    #[new]
    fn new(py: Python<'_>, tensors: &Bound<'_, PyList>) -> PyResult<Crossing> {
        let functions = functions(py)?;
        let mut found = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let is_negative: bool = tensor.call_method0(intern!(py, "is_neg"))?.extract()?;
            let tensor = if is_negative { tensor.call_method0(intern!(py, "resolve_neg"))? } else { tensor };
            found.push(taken(py, functions, &tensor)?);
        }
        let device = found.iter().map(|(_, device)| *device).find(|device| !device.is_cpu());
        let exchange = device.map(|device| current(py, functions, device)).transpose()?;
        without_lock(py, || {
            let call = exchange.map(|exchange| exchange.begin()).transpose()?;
            let import = |(managed, _): (Managed, Device)| match &call {
                Some(call) => call.import(managed),
                None => Array::from_dlpack(managed, OtherStream::Unordered),
            };
            let arrays = found.into_iter().map(import).collect::<fulgurite::Result<Vec<Array>>>()?;
            Ok(Crossing { arrays, call: Mutex::new(call) })
        })
    }

    /// The arrays, in the order of the tensors.
    #[getter]
    fn arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let arrays: PyResult<Vec<_>> = self.arrays.iter().map(|array| Bound::new(py, PyArray(array.clone()))).collect();
        PyList::new(py, arrays?)
    }

    /// Ends the call: tensors over the memory of arrays, contiguous, which may be written to. What has memory of
    /// another library, or of an array before it, is copied: PyTorch's operators return memory that nobody else has.
    fn results<'py>(&self, py: Python<'py>, arrays: Vec<PyRef<'py, PyArray>>) -> PyResult<Bound<'py, PyList>> {
        let functions = functions(py)?;
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (mut known, mut tensors) = (Vec::new(), Vec::with_capacity(arrays.len()));
        for array in &arrays {
            let array = &array.0;
            let managed = match &call {
                Some(call) => call.export(array),
                None => array.to_dlpack(OtherStream::Unordered),
            };
            let tensor = given(py, functions, or_raise(py, managed)?)?;
            let address = (!array.meta().is_empty()).then(|| buffer_start(array));
            let shared = array.is_external() || address.is_some_and(|address| known.contains(&address));
            known.extend(address);
            tensors.push((tensor, shared || !array.is_contiguous()));
        }
        // PyTorch's copies come after what computes the results.
        drop(call);
        let keywords = PyDict::new(py);
        keywords.set_item("memory_format", py.import("torch")?.getattr("contiguous_format")?)?;
        let copied = tensors.into_iter().map(|(tensor, copied)| match copied {
            true => tensor.call_method("clone", (), Some(&keywords)),
            false => Ok(tensor),
        });
        PyList::new(py, copied.collect::<PyResult<Vec<_>>>()?)
    }
}

/// Waits for the programs that were called with tensors of PyTorch's current stream of `device`, and raises what their
/// kernels found wrong with their data.
#[pyfunction]
pub(crate) fn check_calls(py: Python<'_>, device: &Bound<'_, PyAny>) -> PyResult<()> {
    let device = crate::array::device_of(device)?;
    if device.is_cpu() {
        return Ok(());
    }
    if device.kind() != "cuda" {
        return Err(PyTypeError::new_err(format!("expected a device of CUDA, not {device}")));
    }
    let exchange = current(py, functions(py)?, device)?;
    without_lock(py, || exchange.check())
}
