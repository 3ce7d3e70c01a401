//! From the status codes of cuDNN to [`CudaError`].

use super::super::call::static_text;
use super::super::error::{CudaError, Result};
use super::super::library;
use super::sys::{Functions, Status};
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Calls a function of cuDNN and turns its status into a `Result`; see `driver!`.
macro_rules! cudnn {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::cudnn::call::functions().and_then(|functions| {
            let status = (functions.$function)($($argument),*);
            $crate::cudnn::call::check(functions, stringify!($function), status)
        })
    };
}
pub(super) use cudnn;

/// What is held while the library works with a handle: to make or to ask for what descriptors stand for, it uses the
/// handle that they name, which one thread may do at a time.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The library's functions.
///
/// # Errors
/// [`CudaError::Unavailable`] without the library.
pub(super) fn functions() -> Result<&'static Functions> {
    library::cudnn_functions()
}

/// `Ok` for success; otherwise the status' name, and what the library says of its last error.
pub(super) fn check(functions: &Functions, call: &'static str, status: Status) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    let mut message = [0 as c_char; 1024];
    // SAFETY: the name is a string that lives as long as the process; the message ends in NUL within its room.
    let (name, text) = unsafe {
        (functions.cudnnGetLastErrorString)(message.as_mut_ptr(), message.len());
        message[message.len() - 1] = 0;
        (static_text((functions.cudnnGetErrorString)(status)), CStr::from_ptr(message.as_ptr()).to_string_lossy())
    };
    let name = name.unwrap_or_else(|| format!("status {status}"));
    Err(CudaError::Cudnn { call, of: String::new(), name, text: text.trim().to_owned() })
}
