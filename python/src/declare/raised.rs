//! What Python functions raise where the compiler or a program called them.
//!
//! A rule's failure has a code and a text. The exception itself is kept on the thread until the failure has become an
//! exception again, whose cause it then is.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use fulgurite::Failure;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

/// The code of failures that Python raised.
pub(crate) const CODE: &str = "PythonException";

thread_local! {
    /// The text of the last failure, and what was raised.
    static CAUSE: RefCell<Option<(String, PyErr)>> = const { RefCell::new(None) };
    /// What was raised where no failure is possible, and by what: it is raised again behind the compilation.
    static FATAL: RefCell<Option<(String, PyErr)>> = const { RefCell::new(None) };
}

/// A copy of a text that lives as long as the process; one for all equal texts.
pub(crate) fn interned(text: &str) -> &'static str {
    static TEXTS: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let texts = texts.get_or_insert_default();
    if let Some(known) = texts.get(text) {
        return known;
    }
    let leaked: &'static str = Box::leak(text.to_owned().into_boxed_str());
    texts.insert(leaked);
    leaked
}

/// The name of an exception's class, and its text.
fn told(py: Python<'_>, error: &PyErr) -> String {
    let class = error.get_type(py).name().map_or_else(|_| "an exception".into(), |name| name.to_string());
    let text = error.value(py).to_string();
    if text.is_empty() { class } else { format!("{class}: {text}") }
}

/// The precondition that `fulgurite.require` states: its code and its text.
fn refusal(py: Python<'_>, error: &PyErr) -> Option<(String, String)> {
    let class = py.import("fulgurite._errors").ok()?.getattr("Refusal").ok()?;
    let value = error.value(py);
    if !value.is_instance(&class).ok()? {
        return None;
    }
    Some((value.getattr("code").ok()?.extract().ok()?, value.to_string()))
}

/// The failure of a rule, `who`, in which Python raised `error`.
pub(crate) fn failure(py: Python<'_>, who: &str, error: PyErr) -> Failure {
    if let Some((code, text)) = refusal(py, &error) {
        return Failure::new(interned(&code), text);
    }
    let text = format!("{who} raised {}", told(py, &error));
    CAUSE.replace(Some((text.clone(), error)));
    Failure::new(CODE, text)
}

/// What was raised for a failure with this code that `text` tells of.
pub(crate) fn take_cause(code: &str, text: &str) -> Option<PyErr> {
    let (message, cause) = CAUSE.take()?;
    (code == CODE && text.contains(&message)).then_some(cause)
}

/// Lets go of an exception that nobody asked for.
pub(crate) fn forget() {
    CAUSE.take();
}

/// Whether an exception ends the program rather than a call: Ctrl-C, `sys.exit`.
pub(crate) fn ends(py: Python<'_>, error: &PyErr) -> bool {
    !error.is_instance_of::<PyException>(py)
}

/// Keeps what a rule raised that has no failure: the reason of a refusal for the trace.
pub(crate) fn fatal(py: Python<'_>, who: &str, error: PyErr) -> String {
    let text = format!("{who} raised {}", told(py, &error));
    FATAL.replace(Some((text.clone(), error)));
    text
}

/// What a rule raised that has no failure.
pub(crate) fn take_fatal() -> Option<(String, PyErr)> {
    FATAL.take()
}
