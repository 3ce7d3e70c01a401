//! Errors and panics as Python exceptions, with the caller's line in Python.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite::{Error, Failure};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::declare::raised::{CODE, ends, take_cause, take_fatal};
use crate::words::in_python;

/// The folder of the package: frames in it are not the caller's.
static PACKAGE: PyOnceLock<String> = PyOnceLock::new();

thread_local! {
    /// The place that errors have instead of the calling frame, where Python code interprets a program of others.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Says in which folder the package is.
#[pyfunction]
pub(crate) fn package(py: Python<'_>, folder: String) {
    // A second import of the module is of the same package.
    let _ = PACKAGE.set(py, folder);
}

/// Sets the place that errors of this thread have (`file:line`), and returns the one before; `None` is the calling
/// frame.
#[pyfunction]
#[pyo3(signature = (place))]
pub(crate) fn place(place: Option<String>) -> Option<String> {
    PLACE.replace(place)
}

/// The folder of PyTorch, if the program has imported it: it calls operators and compiled modules for its own caller.
fn torch_folder(py: Python<'_>) -> Option<String> {
    let modules = py.import("sys").ok()?.getattr("modules").ok()?;
    let file: String = modules.get_item("torch").ok()?.getattr("__file__").ok()?.extract().ok()?;
    file.strip_suffix("__init__.py").map(str::to_owned)
}

/// Where the caller of the package is, as `file:line`.
fn caller(py: Python<'_>) -> Option<String> {
    if let Some(place) = PLACE.with_borrow(Clone::clone) {
        return Some(place);
    }
    let package = PACKAGE.get(py)?;
    let torch = torch_folder(py);
    let mut frame = py.import("sys").ok()?.getattr("_getframe").ok()?.call0().ok()?;
    // The last resort: a backward pass is called by PyTorch alone.
    let mut of_torch = None;
    while !frame.is_none() {
        let file: String = frame.getattr("f_code").ok()?.getattr("co_filename").ok()?.extract().ok()?;
        let place = |frame: &Bound<'_, PyAny>| -> Option<String> {
            let line: u32 = frame.getattr("f_lineno").ok()?.extract().ok()?;
            Some(format!("{file}:{line}"))
        };
        if torch.as_ref().is_some_and(|torch| file.starts_with(torch)) {
            of_torch = of_torch.or_else(|| place(&frame));
        } else if !file.starts_with(package.as_str()) {
            return place(&frame);
        }
        frame = frame.getattr("f_back").ok()?;
    }
    of_torch
}

/// The text of an error without places in this crate, which no user wrote.
fn without_own_places(text: &str) -> String {
    let own = file!().trim_end_matches("error.rs");
    let lines = text.lines().filter(|line| !line.trim_start().starts_with(&format!("at {own}")));
    let called = format!(", called at {own}");
    lines.map(|line| line.split_once(&called).map_or(line, |(frame, _)| frame)).collect::<Vec<_>>().join("\n")
}

/// The operator and the argument that an error is of, as far as it names them.
fn subjects(error: &Error) -> (Option<String>, Option<String>) {
    let (operator, message) = match error {
        Error::Operator { operator, failure, .. } | Error::Run { operator, failure, .. } => {
            (operator, failure.message.as_str())
        }
        Error::StaleHandle { operator, argument, .. } => return (Some(operator.clone()), Some(argument.clone())),
        Error::NoTrace { operator, .. } | Error::NoGradient { operator, .. } | Error::Unclaimed { operator, .. } => {
            return (Some(operator.clone()), None);
        }
        Error::Argument { argument, .. } => return (None, Some(argument.clone())),
        _ => return (None, None),
    };
    // A running operator is told behind the one that the author called.
    let called = operator.split(": ").next().unwrap_or(operator);
    let params = fulgurite::registry::find_operator(called).map_or(&[][..], |def| def.params);
    let names = |name: &str| {
        let quoted = message.contains(&format!("'{name}'"));
        quoted || message.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', ',', ':']))
    };
    let argument = params.iter().map(|param| param.name).find(|name| names(name));
    (Some(operator.clone()), argument.map(str::to_owned))
}

/// What is raised for an error.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let (operator, argument) = subjects(error);
    let cause = take_cause(error.code(), &error.to_string());
    let cause = match cause {
        // Ctrl-C and `sys.exit` are nobody's error.
        Some(ending) if ends(py, &ending) => return ending,
        cause => cause,
    };
    let made = exception(py, "Error", &without_own_places(&error.to_string()), error.code(), (operator, argument));
    if cause.is_some() {
        made.set_cause(py, cause);
    }
    made
}

/// What is raised for an argument that an operator or a function does not take: `fulgurite.ArgumentError`, which is
/// also a `TypeError`.
pub(crate) fn argument_error(py: Python<'_>, operator: &str, argument: Option<&str>, message: &str) -> PyErr {
    let text = format!("{operator}: {message}");
    exception(py, "ArgumentError", &text, "ArgumentType", (Some(operator.to_owned()), argument.map(str::to_owned)))
}

fn exception(
    py: Python<'_>,
    class: &str,
    text: &str,
    code: &str,
    (operator, argument): (Option<String>, Option<String>),
) -> PyErr {
    let text = in_python(text);
    let text = match caller(py) {
        Some(place) => format!("{text}\n  at {place}"),
        None => text,
    };
    let made = || {
        let class = py.import("fulgurite._errors")?.getattr(class)?;
        let fields = PyDict::new(py);
        fields.set_item("code", code)?;
        fields.set_item("operator", operator)?;
        fields.set_item("argument", argument)?;
        class.call((text,), Some(&fields))
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// Runs what needs no Python without the interpreter's lock. An error or a panic becomes an exception, and signals that
/// came meanwhile (Ctrl-C) are handled afterwards.
pub(crate) fn without_lock<T: Send>(py: Python<'_>, run: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
    let outcome = py.detach(|| catch_unwind(AssertUnwindSafe(run)));
    py.check_signals()?;
    if let Some((text, cause)) = take_fatal() {
        if ends(py, &cause) {
            return Err(cause);
        }
        let made = exception(py, "Error", &text, CODE, (None, None));
        made.set_cause(py, Some(cause));
        return Err(made);
    }
    match outcome {
        Ok(result) => result.map_err(|error| raised(py, &error)),
        Err(panic) => Err(panicked(py, &*panic)),
    }
}

/// As [`without_lock`], for what takes less time than to give the lock up and to take it again.
pub(crate) fn at_once<T>(py: Python<'_>, run: impl FnOnce() -> Result<T, Error>) -> PyResult<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|error| raised(py, &error)),
        Err(panic) => Err(panicked(py, &*panic)),
    }
}

/// The exception of a panic.
pub(crate) fn panicked(py: Python<'_>, panic: &(dyn std::any::Any + Send)) -> PyErr {
    let failure = Failure::panicked("the call", panic);
    exception(py, "Error", &failure.message, failure.code, (None, None))
}
