//! Element types as Python objects.

use fulgurite::DType;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

/// An element type: `fulgurite.float32`.
#[pyclass(frozen, eq, hash, skip_from_py_object, name = "dtype", module = "fulgurite")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyDType(pub DType);

#[pymethods]
impl PyDType {
    #[new]
    fn new(value: &Bound<'_, PyAny>) -> PyResult<PyDType> {
        dtype_of(value)?.map(PyDType).ok_or_else(|| {
            let kind = value.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
            PyTypeError::new_err(format!("expected an element type or its name, got {kind}"))
        })
    }

    /// PyTorch's and NumPy's name: `float32`.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.torch_name()
    }

    /// The name in traces: `f32`.
    #[getter]
    fn short_name(&self) -> &'static str {
        self.0.name()
    }

    /// Bytes per element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }

    /// Whether it is one of float16, bfloat16, float32 and float64.
    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_floating()
    }

    /// Whether it is a complex type, which is not a floating-point one.
    #[getter]
    fn is_complex(&self) -> bool {
        self.0.is_complex()
    }

    fn __repr__(&self) -> String {
        format!("fulgurite.{}", self.0.torch_name())
    }

    fn __str__(&self) -> &'static str {
        self.0.torch_name()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (&'static str,)) {
        (py.get_type::<PyDType>(), (self.0.torch_name(),))
    }
}

/// Every element type.
#[pyfunction]
pub(crate) fn dtypes() -> Vec<PyDType> {
    DType::ALL.into_iter().map(PyDType).collect()
}

/// The element type that an object names: ours, a name, PyTorch's, NumPy's (`numpy.dtype` and scalar types). `None` if
/// the object is of another kind.
pub(crate) fn dtype_of(value: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    if let Ok(own) = value.cast::<PyDType>() {
        return Ok(Some(own.get().0));
    }
    let unknown = |error: fulgurite::kernels::dtype::UnknownDType| PyValueError::new_err(error.to_string());
    if let Ok(name) = value.cast::<PyString>() {
        return name.to_cow()?.parse().map(Some).map_err(unknown);
    }
    // A class of numpy: `numpy.float32`.
    if let Ok(class) = value.cast::<PyType>() {
        let module: String = class.getattr("__module__")?.extract()?;
        return if module == "numpy" { class.name()?.to_cow()?.parse().map(Some).map_err(unknown) } else { Ok(None) };
    }
    let class = value.get_type();
    let module: String = class.getattr("__module__")?.extract()?;
    if class.name()?.to_cow()? == "dtype" || module.starts_with("numpy") {
        return value.str()?.to_cow()?.parse().map(Some).map_err(unknown);
    }
    Ok(None)
}
