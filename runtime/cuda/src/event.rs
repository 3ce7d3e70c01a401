//! Events: marks in a stream that others wait for, or measure time between.

use super::call::{driver, idle};
use super::context::Context;
use super::error::Result;
use cudarc::driver::sys::{CUevent, CUevent_flags_enum as Flags};

/// A mark in a stream.
#[derive(Debug)]
pub struct Event {
    context: Context,
    raw: CUevent,
}

// SAFETY: the driver's functions may be called with an event from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// A mark to wait for. It keeps no time, which makes it cheaper.
    pub fn new(context: &Context) -> Result<Event> {
        Event::with_flags(context, Flags::CU_EVENT_DISABLE_TIMING)
    }

    /// A mark that keeps the time when it was reached.
    pub fn timed(context: &Context) -> Result<Event> {
        Event::with_flags(context, Flags::CU_EVENT_DEFAULT)
    }

    fn with_flags(context: &Context, flags: Flags) -> Result<Event> {
        let _current = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current; the pointer is valid for the call.
        unsafe { driver!(cuEventCreate(&mut raw, flags as u32)) }?;
        Ok(Event { context: context.clone(), raw })
    }

    pub(super) fn raw(&self) -> CUevent {
        self.raw
    }

    /// Waits on the host until the mark is reached; at once if it was never recorded.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.context.enter()?;
        // SAFETY: the event is alive.
        self.context.wait_until(|| self.is_reached(), || unsafe { driver!(cuEventSynchronize(self.raw)) })
    }

    /// Whether the mark is reached, or was never recorded.
    pub fn is_reached(&self) -> Result<bool> {
        let _current = self.context.enter()?;
        // SAFETY: the event is alive.
        idle(unsafe { driver!(cuEventQuery(self.raw)) })
    }

    /// Milliseconds of device time from `earlier` to this mark, to about half a microsecond.
    ///
    /// # Errors
    /// The driver's, if one of the two keeps no time, was not recorded, or is not reached yet.
    pub fn milliseconds_since(&self, earlier: &Event) -> Result<f32> {
        let _current = self.context.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: both are alive; the pointer is valid for the call.
        unsafe { driver!(cuEventElapsedTime_v2(&mut milliseconds, earlier.raw, self.raw)) }?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is alive and not used afterwards; the driver keeps what a stream still waits for.
        self.context.keep(self.context.enter().and_then(|_current| unsafe { driver!(cuEventDestroy_v2(self.raw)) }));
    }
}
