//! Streams: queues of device work, in order within one, independent between two.

use super::call::{driver, idle};
use super::context::{Bound, Context};
use super::error::Result;
use super::event::Event;
use cudarc::driver::sys::{CUstream, CUstream_flags_enum::CU_STREAM_NON_BLOCKING};

/// How a stream's work competes with that of other streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// The driver's default.
    #[default]
    Normal,
    /// Its blocks start first wherever both wait for room.
    High,
}

/// A queue of device work. It does not wait for the legacy default stream, nor the other way round.
#[derive(Debug)]
pub struct Stream {
    context: Context,
    raw: CUstream,
    /// Whether it is destroyed with the value.
    owned: bool,
}

// SAFETY: the driver's functions may be called with a stream from any thread; the driver orders what is enqueued.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream of normal priority.
    pub fn new(context: &Context) -> Result<Stream> {
        Stream::with_priority(context, Priority::Normal)
    }

    /// A stream of the given priority.
    pub fn with_priority(context: &Context, priority: Priority) -> Result<Stream> {
        let _current = context.enter()?;
        let (mut least, mut greatest) = (0, 0);
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current; the pointers are valid for the calls.
        unsafe {
            driver!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest))?;
            let number = if priority == Priority::High { greatest } else { least };
            driver!(cuStreamCreateWithPriority(&mut raw, CU_STREAM_NON_BLOCKING as u32, number))?;
        }
        Ok(Stream { context: context.clone(), raw, owned: true })
    }

    /// A stream that another library made, by the driver's handle; 1 is the legacy default stream, 2 the one of the
    /// thread. It is not destroyed with the value.
    ///
    /// # Safety
    /// The handle must be one of `context` that is not destroyed before the value is dropped.
    pub unsafe fn of_handle(context: &Context, handle: u64) -> Stream {
        Stream { context: context.clone(), raw: handle as CUstream, owned: false }
    }

    /// The driver's handle, for other libraries of this process. It is valid as long as the stream is alive.
    pub fn handle(&self) -> u64 {
        self.raw as u64
    }

    /// The context it belongs to.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Makes the stream's context current and returns the handle to enqueue on.
    pub(super) fn bound(&self) -> Result<Bound<CUstream>> {
        Ok(Bound { _current: self.context.enter()?, raw: self.raw })
    }

    /// Waits on the host until everything enqueued is done. Errors of that work come out here.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is alive and its context is current.
        let wait = || unsafe { driver!(cuStreamSynchronize(self.bound()?.raw)) };
        self.context.wait_until(|| self.is_idle(), wait)
    }

    /// Whether everything enqueued is done.
    pub fn is_idle(&self) -> Result<bool> {
        // SAFETY: as above.
        idle(unsafe { driver!(cuStreamQuery(self.bound()?.raw)) })
    }

    /// Work enqueued from now on waits until `event`, as last recorded, has happened; the host does not wait.
    pub fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: as above, and the event is alive.
        unsafe { driver!(cuStreamWaitEvent(self.bound()?.raw, event.raw(), 0)) }
    }

    /// Work enqueued from now on waits for what is enqueued on `other` by now.
    pub fn wait_for(&self, other: &Stream) -> Result<()> {
        let event = Event::new(&other.context)?;
        event.record(other)?;
        self.wait(&event)
    }
}

// An event knows no stream; what needs both is defined here.
impl Event {
    /// Puts the mark behind everything enqueued on `stream` by now, instead of where it was before.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are alive, and the stream's context is current.
        unsafe { driver!(cuEventRecord(self.raw(), stream.bound()?.raw)) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: the stream is alive and not used afterwards; the driver finishes what is enqueued.
        self.context.keep(self.bound().and_then(|stream| unsafe { driver!(cuStreamDestroy_v2(stream.raw)) }));
    }
}
