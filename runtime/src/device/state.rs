//! The device in use: its context, the stream that programs run on, the products' library, and memory that is used again.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use fulgurite_kernels::cuda::{Context, CublasLt, CudaError, DeviceMemory, Stream};

use crate::error::Result;
use crate::meta::Device;

/// Freed blocks kept for the next of their size: allocating waits for the device.
const KEPT_BLOCKS: usize = 256;
/// So many bytes of them in all; what is more goes back to the driver.
const KEPT_BYTES: usize = 512 << 20;

/// A CUDA device that this process uses. All its work is enqueued on one stream.
#[derive(Debug)]
pub struct DeviceState {
    context: Context,
    stream: Stream,
    cublaslt: OnceLock<CublasLt>,
    /// Held by who opens the library.
    opening: Mutex<()>,
    free: Mutex<Vec<DeviceMemory>>,
    faults: Mutex<Vec<std::sync::Weak<dyn Faulty>>>,
    /// The function that was enqueued last.
    last: Mutex<Option<Arc<str>>>,
}

/// A device that is being opened; see [`DeviceState::open_ahead`].
#[derive(Debug)]
#[must_use = "waits for the thread where it is dropped"]
pub struct Opening(Option<JoinHandle<Result<()>>>);

impl Drop for Opening {
    /// The process may not end while the driver is at work.
    fn drop(&mut self) {
        // Who uses the device is told what the thread found.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

/// Something whose kernels may have found a fault in the data by the time the stream is waited for.
pub(crate) trait Faulty: Send + Sync + std::fmt::Debug {
    /// Enqueues a copy of the record to the host; false if nothing ran since the last one.
    fn fetch(&self) -> Result<bool>;

    /// The fault in the copy, once; the stream has been waited for since it was fetched.
    fn take_fault(&self) -> Option<crate::Error>;
}

impl DeviceState {
    /// The state of `device`, opened on first use.
    ///
    /// # Errors
    /// If `device` is no CUDA device, or has no driver; with the reason.
    pub fn of(device: Device) -> Result<Arc<DeviceState>> {
        static OPENED: Mutex<Vec<(Device, Arc<DeviceState>)>> = Mutex::new(Vec::new());
        if !device.is_cuda() {
            return Err(crate::Error::Argument {
                argument: "device".into(),
                message: format!("'{device}' has no memory of its own, expected 'cuda', 'cuda:1', ..."),
            });
        }
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, state)) = opened.iter().find(|(known, _)| *known == device) {
            return Ok(state.clone());
        }
        let context = Context::new(device.index() as usize)?;
        let stream = Stream::new(&context)?;
        tracing::debug!(%device, "context made");
        let state = Arc::new(DeviceState {
            context,
            stream,
            cublaslt: OnceLock::new(),
            opening: Mutex::new(()),
            free: Mutex::new(Vec::new()),
            faults: Mutex::new(Vec::new()),
            last: Mutex::new(None),
        });
        opened.push((device, state.clone()));
        Ok(state)
    }

    /// Begins to open `device` and its libraries on a thread of its own, which takes some tenths of a second: who needs it sooner waits,
    /// and is told what is wrong with it. The thread has ended when what is returned is gone.
    pub fn open_ahead(device: Device) -> Opening {
        let open = move || DeviceState::of(device).and_then(|state| state.cublaslt().map(|_| ()));
        let thread =
            device.is_cuda().then(|| std::thread::Builder::new().name("opening the device".into()).spawn(open));
        Opening(thread.and_then(std::io::Result::ok))
    }

    /// The device's context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The stream that all work is enqueued on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The products' library, opened on first use.
    pub fn cublaslt(&self) -> Result<&CublasLt> {
        let opening =
            self.cublaslt.get().is_none().then(|| self.opening.lock().unwrap_or_else(PoisonError::into_inner));
        if opening.is_some() && self.cublaslt.get().is_none() {
            let library = CublasLt::new(&self.context)?;
            tracing::debug!("cuBLASLt opened");
            let _ = self.cublaslt.set(library);
        }
        Ok(self.cublaslt.get().unwrap_or_else(|| unreachable!("set above")))
    }

    /// The architecture kernels are compiled for: `sm_90a`, ...
    pub fn architecture(&self) -> String {
        self.context.device().architecture()
    }

    /// A block of exactly `bytes` bytes, maybe used before.
    pub(crate) fn take(&self, bytes: usize) -> Result<DeviceMemory> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(i) = free.iter().rposition(|memory| memory.len() == bytes) {
            return Ok(free.swap_remove(i));
        }
        drop(free);
        Ok(self.allocate(bytes)?)
    }

    /// A new block. If memory is short, what is kept for later is given up first.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<DeviceMemory, CudaError> {
        match DeviceMemory::new(&self.context, bytes) {
            Err(CudaError::OutOfMemory { .. }) => {
                self.free.lock().unwrap_or_else(PoisonError::into_inner).clear();
                DeviceMemory::new(&self.context, bytes)
            }
            memory => memory,
        }
    }

    /// Keeps a block for the next of its size. Work on the stream that still uses it comes before that of its next user.
    pub(crate) fn give_back(&self, memory: DeviceMemory) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: usize = free.iter().map(DeviceMemory::len).sum();
        if kept + memory.len() <= KEPT_BYTES && free.len() < KEPT_BLOCKS {
            free.push(memory);
        }
    }

    /// Has `faulty` asked for its fault whenever the stream is waited for.
    pub(crate) fn watch(&self, faulty: std::sync::Weak<dyn Faulty>) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.retain(|known| known.strong_count() > 0);
        faults.push(faulty);
    }

    /// Says that the work of a function was enqueued.
    pub(crate) fn enqueued(&self, function: &Arc<str>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(function.clone());
    }

    /// What is told of an error that came from work enqueued earlier.
    fn faulted(&self, error: CudaError) -> crate::Error {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match last {
            Some(function) => crate::Error::DeviceFault { function: function.to_string(), error: Box::new(error) },
            None => error.into(),
        }
    }

    /// Waits for everything enqueued.
    ///
    /// # Errors
    /// A fault of a kernel, or an index that a kernel found out of range. All work is on one stream, so who waits first is told,
    /// even if another thread enqueued it.
    pub fn synchronize(&self) -> Result<()> {
        // Held to the end: the copies of the records are waited for before another thread has them made anew.
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fetched = Vec::new();
        for faulty in faults.iter().filter_map(std::sync::Weak::upgrade) {
            if faulty.fetch()? {
                fetched.push(faulty);
            }
        }
        self.stream.synchronize().map_err(|error| self.faulted(error))?;
        match fetched.iter().find_map(|faulty| faulty.take_fault()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}
