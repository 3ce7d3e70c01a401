//! Libraries, opened where a program first needs them.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::collectives::{Communicator, Peers, Waiting, Watch};
use crate::{Context, CublasLt, CudaError, Cudnn};
use fulgurite_kernels::mesh::Axis;
use fulgurite_kernels::ranks;

/// The libraries that programs call.
#[derive(Debug)]
pub(super) struct Libraries {
    /// Products.
    pub(super) cublaslt: Library<CublasLt>,
    /// Attention and convolutions.
    pub(super) cudnn: Library<Cudnn>,
    /// Collectives.
    pub(super) groups: Groups,
}

impl Libraries {
    pub(super) fn new(context: &Context) -> Libraries {
        Libraries {
            cublaslt: Library::new(context, CublasLt::new),
            cudnn: Library::new(context, Cudnn::new),
            groups: Groups::new(context),
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
    /// The groups that a rank on this thread has joined. They last as long as the thread: a program that is dropped
    /// before the next one is loaded does not end a connection that other ranks still have, so that ranks may drop
    /// programs in any order. A program that outlives the thread keeps its groups.
    static JOINED: RefCell<Vec<Arc<dyn Waiting>>> = const { RefCell::new(Vec::new()) };
}

/// The groups along the axes of the meshes that run, each with the number of its run.
type Known<T> = Mutex<Vec<(u64, Axis, T)>>;

/// The groups of the ranks whose device this is, which their programs share.
#[derive(Debug)]
pub(super) struct Groups {
    context: Context,
    communicators: Known<Weak<Communicator>>,
    /// None where devices do not write to each other's memory.
    peers: Known<Option<Weak<Peers>>>,
    /// Looks after what waits in them.
    pub(super) watch: Arc<Watch>,
}

fn known<T: Clone>(all: &Known<T>, axis: &Axis) -> Option<T> {
    let run = ranks::run_number();
    let all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().find(|(of, along, _)| (*of, along) == (run, axis)).map(|(.., known)| known.clone())
}

impl Groups {
    fn new(context: &Context) -> Groups {
        let watch = Arc::new(Watch::new());
        let guard: Weak<Watch> = Arc::downgrade(&watch);
        context.set_guard(guard);
        Groups { context: context.clone(), communicators: Mutex::default(), peers: Mutex::default(), watch }
    }

    /// The communicator of the ranks along an axis of the mesh that runs. Ranks load one program, so that all of them
    /// ask for it.
    pub(super) fn communicator(&self, axis: &Axis) -> Result<Arc<Communicator>, CudaError> {
        if let Some(known) = known(&self.communicators, axis).and_then(|known| known.upgrade()) {
            return Ok(known);
        }
        // Not locked: other ranks may have the same device by mistake, and NCCL says so.
        let made = Arc::new(Communicator::join(&self.context, axis)?);
        JOINED.with_borrow_mut(|joined| joined.push(made.clone()));
        let mut known = self.communicators.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(.., known)| known.strong_count() > 0);
        known.push((ranks::run_number(), axis.clone(), Arc::downgrade(&made)));
        Ok(made)
    }

    /// The devices of the ranks along an axis, if they write to each other's memory. All ranks ask for them.
    pub(super) fn peers(&self, axis: &Axis) -> Result<Option<Arc<Peers>>, CudaError> {
        match known(&self.peers, axis) {
            Some(None) => return Ok(None),
            Some(Some(known)) if known.strong_count() > 0 => return Ok(known.upgrade()),
            _ => {}
        }
        let made = Peers::join(&self.context, axis)?.map(Arc::new);
        if let Some(made) = &made {
            JOINED.with_borrow_mut(|joined| joined.push(made.clone()));
        }
        let run = ranks::run_number();
        let mut known = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, _, known)| *of == run || known.as_ref().is_some_and(|known| known.strong_count() > 0));
        known.retain(|(of, along, _)| (*of, along) != (run, axis));
        known.push((run, axis.clone(), made.as_ref().map(Arc::downgrade)));
        Ok(made)
    }
}
