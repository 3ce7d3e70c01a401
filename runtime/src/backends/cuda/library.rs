//! cuBLASLt, opened where a program first has a product.

use std::sync::{Mutex, OnceLock, PoisonError};

use fulgurite_kernels::cuda::{Context, CublasLt, CudaError};

/// The products' library, opened on first use.
#[derive(Debug)]
pub(super) struct Library {
    context: Context,
    opened: OnceLock<CublasLt>,
    /// Held by who opens it.
    opening: Mutex<()>,
}

impl Library {
    pub(super) fn new(context: &Context) -> Library {
        Library { context: context.clone(), opened: OnceLock::new(), opening: Mutex::new(()) }
    }

    pub(super) fn get(&self) -> Result<&CublasLt, CudaError> {
        let opening = self.opened.get().is_none().then(|| self.opening.lock().unwrap_or_else(PoisonError::into_inner));
        if opening.is_some() && self.opened.get().is_none() {
            let library = CublasLt::new(&self.context)?;
            tracing::debug!("cuBLASLt opened");
            let _ = self.opened.set(library);
        }
        Ok(self.opened.get().unwrap_or_else(|| unreachable!("set above")))
    }
}
