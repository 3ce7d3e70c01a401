//! The device in use: its context, the stream that programs run on, the products' library, and memory that is used again.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use fulgurite_kernels::cuda::{Context, CublasLt, CudaError, DeviceMemory, Stream};

use super::faults::FaultLog;
use crate::error::Result;
use crate::meta::{Device, Target};

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
    faults: FaultLog,
    unfinished: Mutex<Unfinished>,
}

/// Functions that the stream has not been waited for since they were enqueued: one of them causes the next error of the device.
#[derive(Debug, Default)]
struct Unfinished {
    enqueued: u64,
    /// Each with its last number, in the order of their first.
    functions: Vec<(Arc<str>, u64)>,
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
            faults: FaultLog::default(),
            unfinished: Mutex::default(),
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

    /// What kernels reported of their data.
    pub(crate) fn faults(&self) -> &FaultLog {
        &self.faults
    }

    /// Says that the work of a function is being enqueued.
    pub(crate) fn enqueued(&self, function: &Arc<str>) {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        unfinished.enqueued += 1;
        let number = unfinished.enqueued;
        match unfinished.functions.iter_mut().find(|(known, _)| known == function) {
            Some((_, last)) => *last = number,
            None => unfinished.functions.push((function.clone(), number)),
        }
    }

    /// What is told of an error that came from work enqueued earlier.
    fn faulted(&self, error: CudaError) -> crate::Error {
        let unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<String> = unfinished.functions.iter().map(|(name, _)| format!("'{name}'")).collect();
        match names.is_empty() {
            false => crate::Error::DeviceFault { functions: names.join(" or "), error: Box::new(error) },
            true => error.into(),
        }
    }

    /// Waits for everything enqueued.
    ///
    /// # Errors
    /// A fault of the device itself, such as an illegal address, after which nothing runs on it any more; all work is on one stream, so
    /// whoever waits is told, with the functions that it may have come from. What kernels find wrong with their data is told to
    /// whoever reads an array that comes from it.
    pub fn synchronize(&self) -> Result<()> {
        let before = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner).enqueued;
        self.stream.synchronize().map_err(|error| self.faulted(error))?;
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        unfinished.functions.retain(|(_, number)| *number > before);
        Ok(())
    }

    /// Why nothing runs on the device any more in this process, after all work that is enqueued: it had a fault of
    /// the device itself.
    pub fn lost(&self) -> Option<crate::Error> {
        match self.stream.synchronize() {
            Err(error) if error.is_fatal() => Some(self.faulted(error)),
            _ => None,
        }
    }
}

impl Target {
    /// What programs for `device` are compiled for: its kind and, of a CUDA device, the architecture.
    ///
    /// # Errors
    /// If the device is not available, with the reason.
    pub fn of(device: Device) -> Result<Target> {
        let architecture = if device.is_cuda() { Some(DeviceState::of(device)?.architecture()) } else { None };
        Ok(Target::new(device.kind(), architecture))
    }
}
