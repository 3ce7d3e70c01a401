//! The device in use: its context, the stream that programs run on, and memory that is used again.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::block::Block;
use super::context::DeviceContext;
use super::error::{Category, DeviceError};
use super::faults::FaultLog;
use super::kind::find_kind;
use super::stream::DeviceStream;
use crate::error::Result;
use crate::meta::Device;

/// Freed blocks kept for the next of their size: allocating waits for the device.
const KEPT_BLOCKS: usize = 256;
/// So many bytes of them in all; what is more goes back to the driver.
const KEPT_BYTES: usize = 512 << 20;

/// A device that this process uses. All its work is enqueued on one stream.
#[derive(Debug)]
pub struct DeviceState {
    device: Device,
    free: Mutex<Vec<Block>>,
    faults: FaultLog,
    unfinished: Mutex<Unfinished>,
    stream: Box<dyn DeviceStream>,
    context: Arc<dyn DeviceContext>,
}

/// Functions that the stream has not been waited for since they were enqueued: one of them causes the next error of the
/// device.
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
    /// If `device` is the host, or is not available; with the reason.
    pub fn of(device: Device) -> Result<Arc<DeviceState>> {
        static OPENED: Mutex<Vec<(Device, Arc<DeviceState>)>> = Mutex::new(Vec::new());
        if device.is_cpu() {
            return Err(crate::Error::Argument {
                argument: "device".into(),
                message: format!("'{device}' has no memory of its own, expected 'cuda', 'cuda:1', ..."),
            });
        }
        let kind = find_kind(device.kind())?;
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, state)) = opened.iter().find(|(known, _)| *known == device) {
            return Ok(state.clone());
        }
        let context = kind.open(device.index())?;
        let stream = context.stream()?;
        tracing::debug!(%device, "context made");
        let state = Arc::new(DeviceState {
            device,
            free: Mutex::new(Vec::new()),
            faults: FaultLog::default(),
            unfinished: Mutex::default(),
            stream,
            context,
        });
        opened.push((device, state.clone()));
        Ok(state)
    }

    /// Begins to open `device` and its libraries on its own thread, which takes some tenths of a second. A call that
    /// needs the device earlier waits and gets the error, if any. Dropping the returned value joins the thread.
    pub fn open_ahead(device: Device) -> Opening {
        let open = move || DeviceState::of(device).and_then(|state| Ok(state.context.warm()?));
        let thread =
            (!device.is_cpu()).then(|| std::thread::Builder::new().name("opening the device".into()).spawn(open));
        Opening(thread.and_then(std::io::Result::ok))
    }

    /// The device's context.
    pub fn context(&self) -> &dyn DeviceContext {
        &*self.context
    }

    /// The stream that all work is enqueued on.
    pub fn stream(&self) -> &dyn DeviceStream {
        &*self.stream
    }

    /// A block of exactly `bytes` bytes, maybe used before.
    pub(crate) fn take(&self, bytes: usize) -> Result<Block> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(i) = free.iter().rposition(|memory| memory.bytes() == bytes) {
            return Ok(free.swap_remove(i));
        }
        drop(free);
        Ok(self.allocate(bytes)?)
    }

    /// A new block. If memory is short, what is kept for later is given up first.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Block, DeviceError> {
        let memory = match self.context.allocate(bytes) {
            Err(error) if error.category() == Category::OutOfMemory => {
                self.free.lock().unwrap_or_else(PoisonError::into_inner).clear();
                self.context.allocate(bytes)
            }
            memory => memory,
        };
        memory.map(Block::from).map_err(|error| error.on(self.device))
    }

    /// Keeps a block for the next of its size. Work on the stream that still uses it comes before that of its next
    /// user.
    pub(crate) fn give_back(&self, memory: Block) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: usize = free.iter().map(Block::bytes).sum();
        if kept + memory.bytes() <= KEPT_BYTES && free.len() < KEPT_BLOCKS {
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

    /// The error for a failure of work that was enqueued earlier.
    fn faulted(&self, error: DeviceError) -> crate::Error {
        let unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<String> = unfinished.functions.iter().map(|(name, _)| format!("'{name}'")).collect();
        match names.is_empty() {
            false => crate::Error::DeviceFault { functions: names.join(" or "), error },
            true => error.into(),
        }
    }

    /// Waits for everything enqueued.
    ///
    /// # Errors
    /// A fault of the device itself, such as an illegal address, after which the device runs nothing. All work is on
    /// one stream, so the next synchronizing call returns the error, naming the functions that may have caused it.
    /// Invalid data that kernels report is an error of reading an array that depends on it.
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
            Err(error) if error.category() == Category::Lost => Some(self.faulted(error)),
            _ => None,
        }
    }
}
