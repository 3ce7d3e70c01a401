//! An opened device: its primary context, the memory that this process holds on it, and errors that could not be
//! returned.

use super::call::driver;
use super::device::{self, Device};
use super::error::{CudaError, Result};
use cudarc::driver::sys::{CUcontext, CUdevice};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The primary context of a device. Clones are the same context, and so is that of another call of [`Context::new`] for
/// the same device while one of them is alive.
///
/// Usable from every thread: each call makes the context current where it runs.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    device: Device,
    handle: CUdevice,
    raw: CUcontext,
    allocated: AtomicUsize,
    peak: AtomicUsize,
    error: Mutex<Option<CudaError>>,
}

// SAFETY: the driver's functions may be called with a context from any thread, and the rest is atomic or locked.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// Device memory, in bytes, as seen by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free for all processes.
    pub free: usize,
    /// All of it.
    pub total: usize,
}

/// The contexts that are alive, at the place of their device's number.
static CONTEXTS: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

impl Context {
    /// The context of device `ordinal`.
    ///
    /// # Errors
    /// [`CudaError::Unavailable`] without a driver, [`CudaError::NoSuchDevice`], or what the driver says.
    pub fn new(ordinal: usize) -> Result<Context> {
        let count = device::count()?;
        if ordinal >= count {
            return Err(CudaError::NoSuchDevice { ordinal, count });
        }
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inner) = contexts.get(ordinal).and_then(Weak::upgrade) {
            return Ok(Context(inner));
        }
        let (device, handle) = (device::describe(ordinal)?, device::handle(ordinal)?);
        let mut raw = std::ptr::null_mut();
        // SAFETY: the device is one of the driver's; the pointer is valid for the call.
        unsafe { driver!(cuDevicePrimaryCtxRetain(&mut raw, handle)) }?;
        let inner = Arc::new(Inner {
            device,
            handle,
            raw,
            allocated: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            error: Mutex::new(None),
        });
        if contexts.len() <= ordinal {
            contexts.resize_with(ordinal + 1, Weak::new);
        }
        contexts[ordinal] = Arc::downgrade(&inner);
        let context = Context(inner);
        context.bind()?;
        Ok(context)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The driver's handle.
    pub(super) fn raw(&self) -> CUcontext {
        self.0.raw
    }

    /// Makes the context current on this thread, as the driver's functions expect.
    pub(super) fn bind(&self) -> Result<()> {
        // SAFETY: the context is retained as long as `self` lives.
        unsafe { driver!(cuCtxSetCurrent(self.0.raw)) }
    }

    /// Waits until all work on the device that this process gave it is done.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the context is current.
        unsafe { driver!(cuCtxSynchronize()) }
    }

    /// The first error since the last call that could not be returned, because it occurred in a destructor.
    pub fn check(&self) -> Result<()> {
        self.0.error.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// Keeps an error for [`Context::check`].
    pub(super) fn keep(&self, result: Result<()>) {
        if let Err(error) = result {
            self.0.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    /// The free memory of the device, also counting memory of other processes as used.
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        self.bind()?;
        let mut info = MemoryInfo { free: 0, total: 0 };
        // SAFETY: the context is current; the pointers are valid for the call.
        unsafe { driver!(cuMemGetInfo_v2(&mut info.free, &mut info.total)) }?;
        Ok(info)
    }

    /// Bytes held by this process's live [`super::DeviceMemory`] on this device.
    pub fn allocated_bytes(&self) -> usize {
        self.0.allocated.load(Ordering::Relaxed)
    }

    /// The largest value that [`Context::allocated_bytes`] had since [`Context::reset_peak`].
    pub fn peak_bytes(&self) -> usize {
        self.0.peak.load(Ordering::Relaxed)
    }

    /// Starts a new measurement of [`Context::peak_bytes`] at the present level.
    pub fn reset_peak(&self) {
        self.0.peak.store(self.allocated_bytes(), Ordering::Relaxed);
    }

    pub(super) fn count_allocated(&self, bytes: usize) {
        let now = self.0.allocated.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.0.peak.fetch_max(now, Ordering::Relaxed);
    }

    pub(super) fn count_freed(&self, bytes: usize) {
        self.0.allocated.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl PartialEq for Context {
    fn eq(&self, other: &Context) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({}: {})", self.0.device.ordinal, self.0.device.name)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: retained once in `Context::new`; everything made in the context holds a clone, so nothing is left.
        // An error has nobody left to go to: at the end of the process the driver may be gone already.
        let _ = unsafe { driver!(cuDevicePrimaryCtxRelease_v2(self.handle)) };
    }
}
