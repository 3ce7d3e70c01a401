//! Libraries, opened where a program first needs them.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::nccl::Communicator;
use crate::{Context, CublasLt, CudaError, Cudnn};
use fulgurite_kernels::mesh::Axis;
use fulgurite_kernels::ranks;

/// The libraries that programs call.
#[derive(Debug)]
pub(super) struct Libraries {
    /// Products.
    pub(super) cublaslt: Library<CublasLt>,
    /// Attention.
    pub(super) cudnn: Library<Cudnn>,
    /// Collectives.
    pub(super) communicators: Communicators,
}

impl Libraries {
    pub(super) fn new(context: &Context) -> Libraries {
        Libraries {
            cublaslt: Library::new(context, CublasLt::new),
            cudnn: Library::new(context, Cudnn::new),
            communicators: Communicators { context: context.clone(), joined: Mutex::default() },
        }
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

/// The communicators of the ranks whose device this is. Programs share them, and the last program that is dropped ends
/// them, on a thread of its own rank. (A version that kept them until another simulation joined, and ended them on a
/// thread of that one, died of a double free while several simulations ran; why is not known.)
#[derive(Debug)]
pub(super) struct Communicators {
    context: Context,
    joined: Mutex<Vec<(u64, Axis, Weak<Communicator>)>>,
}

impl Communicators {
    /// The communicator of the ranks along an axis of the mesh that runs. Ranks load one program, so that all of them
    /// ask for it.
    pub(super) fn along(&self, axis: &Axis) -> Result<Arc<Communicator>, CudaError> {
        let run = ranks::run_number();
        let find = |joined: &[(u64, Axis, Weak<Communicator>)]| {
            joined.iter().find(|(of, along, _)| (*of, along) == (run, axis)).and_then(|(.., known)| known.upgrade())
        };
        if let Some(known) = find(&self.joined.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(known);
        }
        // Not locked: other ranks may have the same device by mistake, and NCCL says so.
        let made = Arc::new(Communicator::join(&self.context, axis)?);
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        joined.retain(|(.., known)| known.strong_count() > 0);
        joined.push((run, axis.clone(), Arc::downgrade(&made)));
        Ok(made)
    }
}
