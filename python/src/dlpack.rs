//! DLPack's capsules.

use std::ffi::CStr;

use fulgurite::dlpack::{DLManagedTensor, DLManagedTensorVersioned, Managed, OtherStream, stream_of};
use fulgurite::{Array, Device};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{raised, without_lock};
use crate::exchange::taken_alone;

const VERSIONED: &CStr = c"dltensor_versioned";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";
const UNVERSIONED: &CStr = c"dltensor";
const USED_UNVERSIONED: &CStr = c"used_dltensor";

/// DLPack's numbers of kinds of devices.
const CPU: i32 = 1;
const CUDA: i32 = 2;

/// The array of an object that has `__dlpack__`, by the C functions of its type where there are any. Nothing is copied.
pub(crate) fn import(py: Python<'_>, producer: &Bound<'_, PyAny>) -> PyResult<Array> {
    match taken_alone(producer)? {
        Some(array) => Ok(array),
        None => import_by_method(py, producer),
    }
}

/// As [`import`], by `__dlpack__`.
pub(crate) fn import_by_method(py: Python<'_>, producer: &Bound<'_, PyAny>) -> PyResult<Array> {
    let (kind, index): (i32, u32) = match producer.getattr("__dlpack_device__") {
        Ok(method) => method.call0()?.extract()?,
        Err(_) => (CPU, 0),
    };
    let options = PyDict::new(py);
    options.set_item("max_version", (1, 0))?;
    if kind == CUDA {
        let stream = without_lock(py, || stream_of(Device::new("cuda", index)))?;
        options.set_item("stream", stream)?;
    }
    let managed = managed(py, producer, &options)?;
    // The deleter of the producer may need the interpreter, which it then takes itself.
    without_lock(py, move || Array::from_dlpack(managed, OtherStream::Unordered))
}

/// As [`import`], of memory that programs may write to: the caller has promised what [`Array::lent`] wants. Streams are
/// not ordered, neither here nor for later runs.
pub(crate) fn lent(py: Python<'_>, producer: &Bound<'_, PyAny>) -> PyResult<Array> {
    let options = PyDict::new(py);
    options.set_item("max_version", (1, 0))?;
    let (kind, _): (i32, u32) = producer.getattr("__dlpack_device__")?.call0()?.extract()?;
    if kind == CUDA {
        // The producer is not to order anything.
        options.set_item("stream", -1)?;
    }
    let managed = managed(py, producer, &options)?;
    if managed.is_read_only() || managed.is_copied() {
        return Err(PyBufferError::new_err("the memory may only be read, or is a copy: it cannot be updated in place"));
    }
    let array = without_lock(py, move || Array::from_dlpack(managed, OtherStream::Unordered))?;
    // SAFETY: promised by the caller.
    Ok(unsafe { array.lent() })
}

/// The tensor that `__dlpack__` of an object returns.
fn managed(py: Python<'_>, producer: &Bound<'_, PyAny>, options: &Bound<'_, PyDict>) -> PyResult<Managed> {
    let method = producer.getattr("__dlpack__")?;
    let capsule = match method.call((), Some(options)) {
        // A producer from before versions does not know the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            options.del_item("max_version")?;
            method.call((), Some(options))?
        }
        other => other?,
    };
    take(py, &capsule)
}

/// The tensor in a capsule, which no longer has it.
fn take(py: Python<'_>, capsule: &Bound<'_, PyAny>) -> PyResult<Managed> {
    let pointer = capsule.as_ptr();
    let taken = |name: &CStr, used: &CStr| {
        // SAFETY: the object is alive; the functions check that it is a capsule of this name. The new name is static.
        unsafe {
            if ffi::PyCapsule_IsValid(pointer, name.as_ptr()) == 0 {
                return None;
            }
            let tensor = ffi::PyCapsule_GetPointer(pointer, name.as_ptr());
            (ffi::PyCapsule_SetName(pointer, used.as_ptr()) == 0).then_some(tensor)
        }
    };
    let managed = if let Some(tensor) = taken(VERSIONED, USED_VERSIONED) {
        // SAFETY: the producer gave a tensor of this structure, and the capsule's name says that it is ours now.
        unsafe { Managed::from_raw(tensor.cast::<DLManagedTensorVersioned>()) }
    } else if let Some(tensor) = taken(UNVERSIONED, USED_UNVERSIONED) {
        // SAFETY: as above.
        unsafe { Managed::from_raw_unversioned(tensor.cast::<DLManagedTensor>()) }
    } else {
        return Err(PyTypeError::new_err("__dlpack__ returned no capsule of DLPack"));
    };
    managed.map_err(|error| raised(py, &error))
}

/// A capsule with the array's memory, or with a copy of it.
pub(crate) fn export(py: Python<'_>, array: &Array, stream: Option<i64>, copy: bool) -> PyResult<Py<PyAny>> {
    // SAFETY: the consumer promises by the protocol that the number is a stream of the array's device.
    let stream = unsafe { OtherStream::from_python(stream) }.map_err(|error| raised(py, &error))?;
    let managed = without_lock(py, || if copy { array.to_dlpack_copy(stream) } else { array.to_dlpack(stream) })?;
    capsule_of(py, managed)
}

/// A capsule with a tensor.
pub(crate) fn capsule_of(py: Python<'_>, managed: Managed) -> PyResult<Py<PyAny>> {
    let Some(tensor) = managed.into_raw() else {
        return Err(PyBufferError::new_err("the array has no versioned tensor"));
    };
    // SAFETY: the pointer is not null, the name is static, and the destructor frees what nobody took.
    unsafe {
        let capsule = ffi::PyCapsule_New(tensor.cast(), VERSIONED.as_ptr(), Some(delete_unused));
        Bound::from_owned_ptr_or_err(py, capsule).map(Bound::unbind)
    }
}

/// Frees the tensor of a capsule that no consumer took.
unsafe extern "C" fn delete_unused(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule that is being freed. A consumer that took the tensor changed the name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 0 {
            return;
        }
        let tensor = ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr());
        drop(Managed::from_raw(tensor.cast::<DLManagedTensorVersioned>()));
    }
}

/// DLPack's numbers of a device.
pub(crate) fn device_numbers(device: Device) -> PyResult<(i32, u32)> {
    match device.kind() {
        _ if device.is_cpu() => Ok((CPU, 0)),
        "cuda" => Ok((CUDA, device.index())),
        kind => Err(PyBufferError::new_err(format!("DLPack has no number for devices of kind '{kind}'"))),
    }
}
