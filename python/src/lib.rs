//! The native part of the Python package `fulgurite`: arrays, operators by their declarations, traced functions and
//! their traces. What needs no Rust is in `python/fulgurite`.

mod array;
mod bind;
mod declare;
mod dlpack;
mod eager;
mod error;
mod exchange;
mod function;
mod library;
mod lines;
mod narrow;
mod operator;
mod options;
mod replaced;
mod step;
mod tensor;
mod trace;
mod tree;
mod types;
mod words;

/// The module `fulgurite._native`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::array::{PyArray, PyMeta, from_dlpack};
    #[pymodule_export]
    use crate::declare::kernel::{Foreign, Lent};
    #[pymodule_export]
    use crate::declare::samples::{Case, PyErrorSamples, PySampleTensor, PySamples};
    #[pymodule_export]
    use crate::declare::tests::{PyTest, tests};
    #[pymodule_export]
    use crate::declare::{
        PyRegistration, device_names, devices, register_executor, register_implementation, register_operator,
    };
    #[pymodule_export]
    use crate::error::{package, place};
    #[pymodule_export]
    use crate::exchange::{Crossing, as_tensor, check_calls, check_ended, free_kept};
    #[pymodule_export]
    use crate::function::{Form, Function, Pullback, VjpFunction, value_and_grad};
    #[pymodule_export]
    use crate::library::{Front, Kernel};
    #[pymodule_export]
    use crate::lines::{PyLine, PyValue};
    #[pymodule_export]
    use crate::operator::{Operator, executors, operators};
    #[pymodule_export]
    use crate::replaced::replaced;
    #[pymodule_export]
    use crate::step::{State, StepFunction};
    #[pymodule_export]
    use crate::tensor::{PyTensor, is_tracing, scope};
    #[pymodule_export]
    use crate::trace::{PyTrace, show};
    #[pymodule_export]
    use crate::types::{PyDType, dtypes};
}
