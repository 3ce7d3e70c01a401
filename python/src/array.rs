//! `fulgurite.Array`.

use fulgurite::array::Memory;
use fulgurite::notebook::Show;
use fulgurite::{Array, DType, Device, TensorMeta};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyComplex, PyList, PyTuple};

use crate::dlpack;
use crate::error::{argument_error, raised, without_lock};
use crate::exchange::taken_alone;
use crate::types::{PyDType, dtype_of};

/// A tensor with data: memory, shape, element type and device. Its data does not change.
#[pyclass(frozen, name = "Array", module = "fulgurite")]
pub(crate) struct PyArray(pub Array);

/// What is known of a tensor before it is computed: shape, element type and device.
#[pyclass(frozen, name = "Meta", module = "fulgurite")]
pub(crate) struct PyMeta(pub TensorMeta);

/// The device of a name, or of an object whose text is one (`torch.device`).
pub(crate) fn device_of(value: &Bound<'_, PyAny>) -> PyResult<Device> {
    value.str()?.to_cow()?.parse().map_err(PyValueError::new_err)
}

fn given_dtype(value: &Bound<'_, PyAny>) -> PyResult<DType> {
    dtype_of(value)?.ok_or_else(|| PyValueError::new_err("expected an element type or its name"))
}

#[pymethods]
impl PyMeta {
    #[new]
    fn new(shape: Vec<usize>, dtype: &Bound<'_, PyAny>, device: &Bound<'_, PyAny>) -> PyResult<PyMeta> {
        Ok(PyMeta(TensorMeta::new(shape, given_dtype(dtype)?, device_of(device)?)))
    }

    /// Extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// Element type.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.0.dtype())
    }

    /// Device: `cpu`, `cuda:0`.
    #[getter]
    fn device(&self) -> String {
        self.0.device().to_string()
    }

    fn __repr__(&self) -> String {
        format!("Meta({} on {})", self.0, self.0.device())
    }
}

#[pymethods]
impl PyArray {
    /// An array over the memory of an object that has `__dlpack__`: a tensor of PyTorch, an array of NumPy or JAX.
    /// Nothing is copied. While the array is used, nobody may write to the memory.
    #[staticmethod]
    pub(crate) fn from_dlpack(py: Python<'_>, producer: &Bound<'_, PyAny>) -> PyResult<PyArray> {
        dlpack::import(py, producer).map(PyArray)
    }

    /// An array of the bytes of its elements in row-major order, which are copied.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, shape: Vec<usize>, dtype: &Bound<'_, PyAny>, bytes: &[u8]) -> PyResult<PyArray> {
        let dtype = given_dtype(dtype)?;
        without_lock(py, || Array::from_bytes(shape, dtype, bytes)).map(PyArray)
    }

    /// A capsule of DLPack with the array's memory, marked as read-only, or with a copy.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, u32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        if max_version.is_none_or(|(major, _)| major < 1) {
            let message = "the array's memory is read-only, which DLPack says since version 1.0: the consumer must ask \
                           with max_version=(1, 0) (NumPy since 2.1, PyTorch since 2.9)";
            return Err(PyBufferError::new_err(message));
        }
        if let Some(wanted) = dl_device
            && wanted != dlpack::device_numbers(self.0.device())?
        {
            let message = format!("the array is on {}: copy it with to(device) before", self.0.device());
            return Err(PyBufferError::new_err(message));
        }
        let stream = if self.0.device().is_cpu() { None } else { stream };
        dlpack::export(py, &self.0, stream, copy == Some(true))
    }

    fn __dlpack_device__(&self) -> PyResult<(i32, u32)> {
        dlpack::device_numbers(self.0.device())
    }

    /// Extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// Distance of neighbours in each dimension, in elements.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.strides())
    }

    /// Element type.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.0.dtype())
    }

    /// Device: `cpu`, `cuda:0`.
    #[getter]
    fn device(&self) -> String {
        self.0.device().to_string()
    }

    /// Number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.0.meta().rank()
    }

    /// Number of elements.
    fn numel(&self) -> usize {
        self.0.meta().len()
    }

    /// Whether the elements are in row-major order without gaps.
    fn is_contiguous(&self) -> bool {
        self.0.is_contiguous()
    }

    /// Whether the memory is that of another library.
    #[getter]
    fn is_external(&self) -> bool {
        self.0.is_external()
    }

    /// Whether the two arrays are in one buffer.
    fn shares_memory(&self, other: &PyArray) -> bool {
        self.0.shares_memory(&other.0)
    }

    /// Where the array's buffer begins: arrays with equal numbers share memory.
    #[getter]
    fn buffer_address(&self) -> usize {
        buffer_start(&self.0)
    }

    /// Where the array's first element is.
    #[getter]
    fn data_address(&self) -> usize {
        first_byte(&self.0)
    }

    /// The array, or a row-major copy.
    fn contiguous(&self, py: Python<'_>) -> PyResult<PyArray> {
        without_lock(py, || self.0.to_contiguous()).map(PyArray)
    }

    /// The array on a device; itself if it is there.
    fn to_device(&self, py: Python<'_>, device: &Bound<'_, PyAny>) -> PyResult<PyArray> {
        let device = device_of(device)?;
        without_lock(py, || self.0.to_device(device)).map(PyArray)
    }

    /// The bytes of the elements in row-major order.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = without_lock(py, || self.0.to_bytes())?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The elements in row-major order as a list of numbers.
    fn flat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        match self.0.dtype() {
            // Beyond 2⁵³ these are no f64.
            DType::I64 => PyList::new(py, without_lock(py, || self.0.to_vec::<i64>())?),
            dtype => {
                let values = without_lock(py, || self.0.to_f64())?;
                match dtype {
                    DType::Bool => PyList::new(py, values.iter().map(|value| *value != 0.0)),
                    _ if dtype.is_floating() => PyList::new(py, values),
                    _ if dtype.is_complex() => {
                        PyList::new(py, values.chunks_exact(2).map(|z| PyComplex::from_doubles(py, z[0], z[1])))
                    }
                    _ => PyList::new(py, values.iter().map(|value| *value as i64)),
                }
            }
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let text = without_lock(py, || Ok(self.0.content().text))?;
        Ok(format!("Array({})", text.trim_end()))
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        without_lock(py, || Ok(self.0.content().html))
    }
}

/// The array of any object that has ``__dlpack__``, over its memory.
///
/// Nothing is copied: while the array is used, nobody may write to the memory.
#[pyfunction]
pub(crate) fn from_dlpack<'py>(producer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = producer.py();
    if producer.cast::<PyArray>().is_ok() {
        return Ok(producer.clone());
    }
    let array = match taken_alone(producer)? {
        Some(array) => array,
        None if producer.hasattr("__dlpack__")? => dlpack::import_by_method(py, producer)?,
        None => {
            let text: String = producer.repr()?.to_string().chars().take(60).collect();
            let message = format!("expected an array of a library with DLPack, got {text}");
            return Err(argument_error(py, "from_dlpack", Some("producer"), &message));
        }
    };
    Ok(Bound::new(py, PyArray(array))?.into_any())
}

/// Where an array's buffer begins.
pub(crate) fn buffer_start(array: &Array) -> usize {
    match array.memory() {
        Memory::Host(buffer) => buffer.as_ptr().expose_provenance(),
        Memory::Device(buffer) => buffer.address().0 as usize,
    }
}

/// Where an array's first element is.
pub(crate) fn first_byte(array: &Array) -> usize {
    buffer_start(array) + array.byte_offset()
}

/// The array that an object is or has the memory of; `None` if it is no array of anybody's.
pub(crate) fn array_of(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Option<Array>> {
    if let Ok(own) = value.cast::<PyArray>() {
        return Ok(Some(own.get().0.clone()));
    }
    if value.hasattr("__dlpack__")? { dlpack::import(py, value).map(Some) } else { Ok(None) }
}

/// The exception of an error of this library.
pub(crate) fn or_raise<T>(py: Python<'_>, result: fulgurite::Result<T>) -> PyResult<T> {
    result.map_err(|error| raised(py, &error))
}
