//! cuBLASLt, opened for a device, and calls of it.

use super::super::call::static_text;
use super::super::context::{Bound, Context};
use super::super::error::{CudaError, Result};
use super::super::library::{self, Version};
use super::algorithm::Algorithm;
use super::problem::Problem;
use cudarc::cublaslt::sys::{self, cublasLtHandle_t, cublasStatus_t};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Calls a function of cuBLASLt and turns its status into a `Result`; see `driver!`.
macro_rules! cublaslt {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::cublaslt::library::check(stringify!($function), cudarc::cublaslt::sys::$function($($argument),*))
    };
}
pub(super) use cublaslt;

/// The library, opened for a device, with the algorithms that were chosen so far. Clones are the same.
#[derive(Debug, Clone)]
pub struct CublasLt(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    context: Context,
    raw: cublasLtHandle_t,
    /// What the heuristics chose for a problem and an amount of workspace.
    chosen: Mutex<HashMap<(Problem, usize), Algorithm>>,
}

// SAFETY: the library's functions may be called with a handle from any thread.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl CublasLt {
    /// Opens the library.
    ///
    /// # Errors
    /// [`CudaError::Unavailable`] without the library, or the library's own.
    pub fn new(context: &Context) -> Result<CublasLt> {
        library::cublaslt().require()?;
        let _current = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library is loaded, and a context is current; the pointer is valid for the call.
        unsafe { cublaslt!(cublasLtCreate(&mut raw)) }?;
        Ok(CublasLt(Arc::new(Opened { context: context.clone(), raw, chosen: Mutex::default() })))
    }

    /// The library's version. A recorded [`Algorithm`] belongs to one version and one device.
    pub fn version(&self) -> Option<Version> {
        library::cublaslt().version()
    }

    /// The device's context.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    pub(super) fn bound(&self) -> Result<Bound<cublasLtHandle_t>> {
        Ok(Bound { _current: self.0.context.enter()?, raw: self.0.raw })
    }

    pub(super) fn chosen(&self, problem: &Problem, workspace_bytes: usize) -> Option<Algorithm> {
        let chosen = self.0.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.get(&(problem.clone(), workspace_bytes)).cloned()
    }

    pub(super) fn choose(&self, problem: &Problem, workspace_bytes: usize, algorithm: &Algorithm) {
        let mut chosen = self.0.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.insert((problem.clone(), workspace_bytes), algorithm.clone());
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened in `CublasLt::new` and not used afterwards: plans hold it.
        let closed = self.context.enter().and_then(|_current| unsafe { cublaslt!(cublasLtDestroy(self.raw)) });
        self.context.keep(closed);
    }
}

/// `Ok` for success; otherwise the status' name and text, as the library gives them.
pub(super) fn check(call: &'static str, status: cublasStatus_t) -> Result<()> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    // SAFETY: a status came from the library, so it is loaded; both are strings that live as long as the process.
    let (name, text) =
        unsafe { (static_text(sys::cublasLtGetStatusName(status)), static_text(sys::cublasLtGetStatusString(status))) };
    let name = name.unwrap_or_else(|| format!("{status:?}"));
    Err(CudaError::Cublaslt { call, name, text: text.unwrap_or_default() })
}
