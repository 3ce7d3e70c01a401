//! Libraries, opened where a program first needs them.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::nccl::{Communicator, Watch};
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
            communicators: Communicators::new(context),
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

thread_local! {
    /// The communicators that a rank on this thread has joined. They last as long as the thread: a program that is
    /// dropped before the next one is loaded does not end a connection that other ranks still have, so that ranks may
    /// drop programs in any order. A program that outlives the thread keeps its communicators.
    static JOINED: RefCell<Vec<Arc<Communicator>>> = const { RefCell::new(Vec::new()) };
}

/// The communicators of the ranks whose device this is, which their programs share.
#[derive(Debug)]
pub(super) struct Communicators {
    context: Context,
    known: Mutex<Vec<(u64, Axis, Weak<Communicator>)>>,
    /// Looks after what waits in them.
    pub(super) watch: Arc<Watch>,
}

impl Communicators {
    fn new(context: &Context) -> Communicators {
        let watch = Arc::new(Watch::new());
        let guard: Weak<Watch> = Arc::downgrade(&watch);
        context.set_guard(guard);
        Communicators { context: context.clone(), known: Mutex::default(), watch }
    }

    /// The communicator of the ranks along an axis of the mesh that runs. Ranks load one program, so that all of them
    /// ask for it.
    pub(super) fn along(&self, axis: &Axis) -> Result<Arc<Communicator>, CudaError> {
        let run = ranks::run_number();
        let find = |known: &[(u64, Axis, Weak<Communicator>)]| {
            known.iter().find(|(of, along, _)| (*of, along) == (run, axis)).and_then(|(.., known)| known.upgrade())
        };
        if let Some(known) = find(&self.known.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(known);
        }
        // Not locked: other ranks may have the same device by mistake, and NCCL says so.
        let made = Arc::new(Communicator::join(&self.context, axis)?);
        JOINED.with_borrow_mut(|joined| joined.push(made.clone()));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(.., known)| known.strong_count() > 0);
        known.push((run, axis.clone(), Arc::downgrade(&made)));
        Ok(made)
    }
}
