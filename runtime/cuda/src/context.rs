//! An opened device: its primary context, the memory that this process holds on it, and errors that could not be
//! returned.

use super::call::driver;
use super::device::{self, Device};
use super::error::{CudaError, Result};
use cudarc::driver::sys::{CUcontext, CUdevice, CUmemorytype_enum, CUpointer_attribute_enum};
use fulgurite_kernels::launch::DeviceAddress;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// The primary context of a device. Clones are the same context, and so is that of another call of [`Context::new`] for
/// the same device while one of them is alive.
///
/// Usable from every thread: each call makes the context current where it runs, and leaves the thread with the context
/// that it had.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    device: Device,
    handle: CUdevice,
    raw: CUcontext,
    allocated: AtomicUsize,
    peak: AtomicUsize,
    error: Mutex<Option<CudaError>>,
    guard: RwLock<Option<Weak<dyn Guard>>>,
}

/// What a wait of the host asks from time to time while the device itself may wait: for other ranks, which may never
/// come.
pub(super) trait Guard: Send + Sync {
    /// Whether the device may wait for others now.
    fn is_on(&self) -> bool;

    /// Fails where others are waited for in vain; then it has seen to it that the device's work ends all the same.
    fn check(&self) -> Result<()>;
}

/// A guarded wait looks without a pause for so long, as the driver's own does: a step of training is over by then.
const WITHOUT_PAUSE: Duration = Duration::from_millis(20);
/// The pause between two looks after that.
const PAUSE: Duration = Duration::from_micros(50);
/// How often a guarded wait asks the guard.
const BETWEEN_CHECKS: Duration = Duration::from_millis(100);
/// How long a wait that failed lets the device come to its end: memory that it uses must not be given away.
const TO_THE_END: Duration = Duration::from_secs(10);

// SAFETY: the driver's functions may be called with a context from any thread, and the rest is atomic or locked.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// A context that is current on this thread; see [`Context::enter`].
#[must_use = "the context is current as long as this lives"]
pub struct Current {
    /// What was current before, unless it was the same; null if nothing was.
    previous: Option<CUcontext>,
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(previous) = self.previous {
            // SAFETY: it was current on this thread, to which the value is tied, when the value was made. If it was
            // destroyed since, the call returns an error.
            let _ = unsafe { driver!(cuCtxSetCurrent(previous)) };
        }
    }
}

/// A handle of a library for one call, with its context current.
pub(super) struct Bound<T> {
    pub(super) raw: T,
    pub(super) _current: Current,
}

/// Device memory, in bytes, as seen by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free for all processes.
    pub free: usize,
    /// Memory of the device.
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
            guard: RwLock::new(None),
        });
        if contexts.len() <= ordinal {
            contexts.resize_with(ordinal + 1, Weak::new);
        }
        contexts[ordinal] = Arc::downgrade(&inner);
        Ok(Context(inner))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The driver's number of the device.
    pub(super) fn handle(&self) -> CUdevice {
        self.0.handle
    }

    /// The driver's handle.
    pub(super) fn raw(&self) -> CUcontext {
        self.0.raw
    }

    /// Makes the context current on this thread, as the driver's functions expect, until the value is dropped. Inside,
    /// other calls for this context find it current, which is faster.
    pub fn enter(&self) -> Result<Current> {
        let mut previous = std::ptr::null_mut();
        // SAFETY: the driver is loaded, since there is a context; the pointer is valid for the call.
        unsafe { driver!(cuCtxGetCurrent(&mut previous)) }?;
        if previous == self.0.raw {
            return Ok(Current { previous: None });
        }
        // SAFETY: the context is retained as long as `self` lives.
        unsafe { driver!(cuCtxSetCurrent(self.0.raw)) }?;
        Ok(Current { previous: Some(previous) })
    }

    /// Whether `address` is in memory of this device: of an allocation of this or another library of the process.
    ///
    /// # Errors
    /// [`CudaError::Foreign`] with where it is instead.
    pub fn check_address(&self, address: DeviceAddress) -> Result<()> {
        let _current = self.enter()?;
        let (mut kind, mut ordinal) = (0u32, 0i32);
        use CUpointer_attribute_enum::{CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
        let kind_at = std::ptr::from_mut(&mut kind).cast();
        let ordinal_at = std::ptr::from_mut(&mut ordinal).cast();
        // SAFETY: the pointers are valid for the calls and of the attributes' types; any address may be asked for.
        let known = unsafe {
            driver!(cuPointerGetAttribute(kind_at, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address.0)).and_then(|()| {
                driver!(cuPointerGetAttribute(ordinal_at, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address.0))
            })
        };
        let own = self.device().ordinal;
        let found = match known {
            Err(_) => "no memory of any device".to_owned(),
            Ok(()) if kind != CUmemorytype_enum::CU_MEMORYTYPE_DEVICE as u32 => "memory of the host".to_owned(),
            Ok(()) if ordinal as usize != own => format!("memory of device {ordinal}"),
            Ok(()) => return Ok(()),
        };
        Err(CudaError::Foreign { address: address.0, found, expected: own })
    }

    /// Waits until all work on the device that this process gave it is done.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.enter()?;
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

    /// Has waits for the device ask `guard` from now on.
    pub(super) fn set_guard(&self, guard: Weak<dyn Guard>) {
        *self.0.guard.write().unwrap_or_else(PoisonError::into_inner) = Some(guard);
    }

    /// Waits on the host until something is `done`: by `wait`, or by looking again and again while the device may wait
    /// for other ranks.
    pub(super) fn wait_until(&self, done: impl Fn() -> Result<bool>, wait: impl FnOnce() -> Result<()>) -> Result<()> {
        let guard = self.0.guard.read().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(Weak::upgrade);
        let Some(guard) = guard.filter(|guard| guard.is_on()) else { return wait() };
        let began = Instant::now();
        let mut checked = began;
        loop {
            match done() {
                Ok(false) => {}
                Ok(true) => return guard.check(),
                Err(error) => {
                    // Other ranks need not wait for this one any more; the fault itself is what is told here.
                    let _ = guard.check();
                    return Err(error);
                }
            }
            if checked.elapsed() >= BETWEEN_CHECKS {
                checked = Instant::now();
                if let Err(error) = guard.check() {
                    while checked.elapsed() < TO_THE_END && !done()? {
                        std::thread::sleep(PAUSE);
                    }
                    return Err(error);
                }
            }
            if began.elapsed() < WITHOUT_PAUSE { std::thread::yield_now() } else { std::thread::sleep(PAUSE) }
        }
    }

    /// The free memory of the device, also counting memory of other processes as used.
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let _current = self.enter()?;
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
