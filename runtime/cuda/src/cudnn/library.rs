//! cuDNN, opened for a device, and calls of it.

use super::super::context::Context;
use super::super::error::Result;
use super::super::library::{self, Version};
use super::super::stream::Stream;
use super::call::{alone, cudnn, functions};
use super::convolution::ConvolutionProblem;
use super::descriptor::Descriptor;
use super::planned::Planned;
use super::problem::Problem;
use super::sys::{Attribute, Handle, ValueKind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The library, opened for a device, with the plans that were made so far. Clones are the same.
#[derive(Debug, Clone)]
pub struct Cudnn(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    context: Context,
    /// Its stream is part of its state, so it is locked from the choice of the stream to the call.
    raw: Mutex<RawHandle>,
    planned: Mutex<HashMap<Problem, Arc<Planned>>>,
    convolutions: Mutex<HashMap<ConvolutionProblem, Arc<Planned>>>,
}

#[derive(Debug)]
struct RawHandle(Handle);

// SAFETY: the library's functions may be called with a handle from any thread, by one at a time.
unsafe impl Send for RawHandle {}

impl Cudnn {
    /// Opens the library.
    ///
    /// # Errors
    /// [`CudaError::Unavailable`](super::super::CudaError::Unavailable) without the library, or the library's own.
    pub fn new(context: &Context) -> Result<Cudnn> {
        functions()?;
        // The library opens the compiler by its name, and finds it once it is in the process.
        library::nvrtc().require()?;
        let _current = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a context is current; the pointer is valid for the call.
        unsafe { cudnn!(cudnnCreate(&mut raw)) }?;
        let (raw, convolutions) = (Mutex::new(RawHandle(raw)), Mutex::default());
        Ok(Cudnn(Arc::new(Opened { context: context.clone(), raw, planned: Mutex::default(), convolutions })))
    }

    /// The library's version.
    pub fn version(&self) -> Option<Version> {
        library::cudnn().version()
    }

    /// The device's context.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    pub(super) fn planned(&self, problem: &Problem) -> Option<Arc<Planned>> {
        self.0.planned.lock().unwrap_or_else(PoisonError::into_inner).get(problem).cloned()
    }

    pub(super) fn keep(&self, problem: &Problem, planned: Arc<Planned>) {
        self.0.planned.lock().unwrap_or_else(PoisonError::into_inner).insert(problem.clone(), planned);
    }

    pub(super) fn planned_convolution(&self, problem: &ConvolutionProblem) -> Option<Arc<Planned>> {
        self.0.convolutions.lock().unwrap_or_else(PoisonError::into_inner).get(problem).cloned()
    }

    pub(super) fn keep_convolution(&self, problem: &ConvolutionProblem, planned: Arc<Planned>) {
        self.0.convolutions.lock().unwrap_or_else(PoisonError::into_inner).insert(problem.clone(), planned);
    }

    /// Sets the handle of a descriptor.
    pub(super) fn name_handle(&self, descriptor: &mut Descriptor, attribute: Attribute) -> Result<()> {
        let handle = self.0.raw.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: one handle, which lives as long as what is made of the descriptor: plans hold the library.
        unsafe { descriptor.set_raw(attribute, ValueKind::Handle, 1, (&raw const handle.0).cast()) }
    }

    /// Enqueues a plan on a stream.
    ///
    /// # Safety
    /// As [`super::AttentionPlan::run`] and [`super::ConvolutionPlan::run`].
    pub(super) unsafe fn execute(&self, stream: &Stream, plan: &Descriptor, pack: &Descriptor) -> Result<()> {
        let bound = stream.bound()?;
        let _alone = alone();
        let handle = self.0.raw.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the handle, the stream and the descriptors are alive; the rest is promised by the caller.
        unsafe {
            cudnn!(cudnnSetStream(handle.0, bound.raw.cast()))?;
            cudnn!(cudnnBackendExecute(handle.0, plan.raw(), pack.raw()))
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let handle = self.raw.get_mut().unwrap_or_else(PoisonError::into_inner).0;
        let planned = self.planned.get_mut().unwrap_or_else(PoisonError::into_inner);
        let convolutions = self.convolutions.get_mut().unwrap_or_else(PoisonError::into_inner);
        let closed = self.context.enter().and_then(|_current| {
            // Descriptors name the handle, and are destroyed before it.
            planned.clear();
            convolutions.clear();
            // SAFETY: opened in `Cudnn::new` and not used afterwards: plans hold it.
            unsafe { cudnn!(cudnnDestroy(handle)) }
        });
        self.context.keep(closed);
    }
}
