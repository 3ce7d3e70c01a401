//! Streams and events of a device. TODO: the driver's queues; here all work is done at once, so that no stream waits.

use std::any::Any;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use fulgurite::device::{DeviceError, DeviceEvent, DeviceStream};
use fulgurite::kernels::launch::{CopyRange, DeviceAddress};

use crate::error::KindError;

/// A stream.
#[derive(Debug)]
pub struct Stream;

/// Memory of the device as a pointer. TODO: a driver's addresses are none of the host.
pub(crate) fn pointer(address: DeviceAddress) -> *mut u8 {
    address.0 as *mut u8
}

impl DeviceStream for Stream {
    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn is_idle(&self) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait(&self, _event: &dyn DeviceEvent) -> Result<(), DeviceError> {
        Ok(())
    }

    fn record(&self, event: &dyn DeviceEvent) -> Result<(), DeviceError> {
        Event::of(event)?.reach();
        Ok(())
    }

    unsafe fn copy_in(&self, to: DeviceAddress, from: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller says that as many bytes are the device's.
        unsafe { std::ptr::copy(from.as_ptr(), pointer(to), from.len()) }
        Ok(())
    }

    unsafe fn copy_out(&self, to: &mut [u8], from: DeviceAddress) -> Result<(), DeviceError> {
        // SAFETY: as in `copy_in`.
        unsafe { std::ptr::copy(pointer(from), to.as_mut_ptr(), to.len()) }
        Ok(())
    }

    unsafe fn copy(&self, range: CopyRange) -> Result<(), DeviceError> {
        // SAFETY: as in `copy_in`.
        unsafe { std::ptr::copy(pointer(range.from), pointer(range.to), range.bytes) }
        Ok(())
    }

    unsafe fn fill(&self, to: DeviceAddress, byte: u8, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: as in `copy_in`.
        unsafe { std::ptr::write_bytes(pointer(to), byte, bytes) }
        Ok(())
    }
}

/// A mark in a stream: when it was reached.
#[derive(Debug, Default)]
pub struct Event(Mutex<Option<Instant>>);

impl Event {
    fn of(event: &dyn DeviceEvent) -> Result<&Event, KindError> {
        (event as &dyn Any).downcast_ref().ok_or(KindError::Foreign)
    }

    fn reach(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn at(&self) -> Result<Instant, KindError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ok_or(KindError::NotRecorded)
    }
}

impl DeviceEvent for Event {
    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn is_reached(&self) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn milliseconds_since(&self, earlier: &dyn DeviceEvent) -> Result<f64, DeviceError> {
        Ok(self.at()?.saturating_duration_since(Event::of(earlier)?.at()?).as_secs_f64() * 1e3)
    }
}
