//! Libraries, opened where a program first needs them.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::{Context, CublasLt, CudaError, Cudnn};

/// The libraries that programs call.
#[derive(Debug)]
pub(super) struct Libraries {
    /// Products.
    pub(super) cublaslt: Library<CublasLt>,
    /// Attention.
    pub(super) cudnn: Library<Cudnn>,
}

impl Libraries {
    pub(super) fn new(context: &Context) -> Libraries {
        Libraries { cublaslt: Library::new(context, CublasLt::new), cudnn: Library::new(context, Cudnn::new) }
    }
}

/// A library, opened on first use.
#[derive(Debug)]
pub(super) struct Library<T> {
    context: Context,
    open: fn(&Context) -> Result<T, CudaError>,
    opened: OnceLock<T>,
    /// Held while opening it.
    opening: Mutex<()>,
}

impl<T> Library<T> {
    fn new(context: &Context, open: fn(&Context) -> Result<T, CudaError>) -> Library<T> {
        Library { context: context.clone(), open, opened: OnceLock::new(), opening: Mutex::new(()) }
    }

    pub(super) fn get(&self) -> Result<&T, CudaError> {
        let opening = self.opened.get().is_none().then(|| self.opening.lock().unwrap_or_else(PoisonError::into_inner));
        if opening.is_some() && self.opened.get().is_none() {
            let library = (self.open)(&self.context)?;
            tracing::debug!(library = std::any::type_name::<T>(), "library opened");
            let _ = self.opened.set(library);
        }
        Ok(self.opened.get().unwrap_or_else(|| unreachable!("set above")))
    }
}
