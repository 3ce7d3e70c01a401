//! From the result codes of the driver and of NVRTC to [`CudaError`].

use super::error::{CudaError, Result};
use cudarc::driver::sys::{self, CUresult};
use cudarc::nvrtc::sys::{nvrtcGetErrorString, nvrtcResult};
use std::ffi::{CStr, c_char};

/// Calls a function of the driver and turns its code into a `Result`; the error carries the function's name.
///
/// It expands to a call of an unsafe function, so it is used in an `unsafe` block with a reason.
macro_rules! driver {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::call::check(stringify!($function), cudarc::driver::sys::$function($($argument),*))
    };
}
pub(super) use driver;

/// `Ok` for success; otherwise the error's name and text, as the driver gives them.
pub(super) fn check(call: &'static str, code: CUresult) -> Result<()> {
    if code == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut name: *const c_char = std::ptr::null();
    let mut text: *const c_char = std::ptr::null();
    // SAFETY: a code came from the driver, so the driver is loaded; both functions only write the pointer given.
    unsafe {
        let _ = sys::cuGetErrorName(code, &mut name);
        let _ = sys::cuGetErrorString(code, &mut text);
    }
    // SAFETY: both are null or strings that the driver keeps for the life of the process.
    let (name, text) = unsafe { (static_text(name), static_text(text)) };
    Err(CudaError::Driver { call, name: name.unwrap_or_else(|| format!("{code:?}")), text: text.unwrap_or_default() })
}

/// The answer of a query: not ready is no error.
pub(super) fn idle(result: Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(CudaError::Driver { name, .. }) if name == "CUDA_ERROR_NOT_READY" => Ok(false),
        Err(error) => Err(error),
    }
}

/// `Ok` for success, otherwise NVRTC's own text.
pub(super) fn check_nvrtc(call: &'static str, code: nvrtcResult) -> Result<()> {
    if code == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    // SAFETY: a code came from NVRTC, so it is loaded; the text is a string that lives as long as the process.
    let text = unsafe { static_text(nvrtcGetErrorString(code)) };
    Err(CudaError::Nvrtc { call, text: text.unwrap_or_else(|| format!("{code:?}")) })
}

/// A copy of a C string; `None` for null.
///
/// # Safety
/// `pointer` must be null or point to a string that ends in NUL and stays unchanged during the call.
pub(super) unsafe fn static_text(pointer: *const c_char) -> Option<String> {
    // SAFETY: promised by the caller.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}
