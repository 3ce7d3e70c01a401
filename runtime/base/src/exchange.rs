//! Arrays that cross between this library and a stream of another one, ordered once for all arrays of a call.
//!
//! [`Array::from_dlpack`] and [`Array::to_dlpack`] order each array by itself, and the host waits where memory goes
//! back, since the other library's stream may be gone by then. A call with the parameters of a model crosses hundreds
//! of times; here the streams wait for each other when the call begins and when it ends, and the host never does.

use std::sync::{Arc, Mutex, PoisonError};

use crate::array::{Array, Memory};
use crate::device::faults::Origins;
use crate::device::memory::Release;
use crate::device::{Awaited, DeviceEvent, DeviceState, DeviceStream};
use crate::dlpack::{Consumer, FLAG_READ_ONLY, Keeper, Managed, OtherStream, Parts, wrong};
use crate::error::Result;
use crate::meta::Device;

/// Exported memory that is deleted is kept until the next call begins; beyond so many bytes it is ordered at once.
const MOST_KEPT: usize = 256 << 20;

/// A stream of another library, and the arrays that cross to it and from it.
#[derive(Debug)]
pub struct Exchange {
    device: Device,
    state: Arc<DeviceState>,
    other: Box<dyn DeviceStream>,
    shared: Mutex<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Recorded on the other stream, again and again: a wait is for the mark as it was last recorded when the wait was
    /// enqueued.
    other: Box<dyn DeviceEvent>,
    /// As above, on the compute stream here.
    own: Box<dyn DeviceEvent>,
    /// What streams were asked for when the other stream last waited for all of them.
    left_at: Option<u64>,
    /// Deleted exports: the other stream may still use them.
    returned: Vec<Array>,
    /// Bytes of their memory.
    returned_bytes: usize,
    /// The runs that exported arrays come from and whose faults nobody was told.
    unchecked: Origins,
}

impl Exchange {
    /// The exchange with a stream of `device`.
    ///
    /// # Safety
    /// The stream must not be destroyed before the value is dropped, which is as long as arrays that crossed are alive.
    ///
    /// # Errors
    /// If the device is not available, if its kind has no streams of others, and for
    /// [`OtherStream::Unordered`].
    pub unsafe fn new(device: Device, stream: OtherStream) -> Result<Arc<Exchange>> {
        let state = DeviceState::of(device)?;
        let handle = stream.handle().ok_or_else(|| wrong("an exchange needs a stream".into()))?;
        // SAFETY: promised by the caller.
        let other = unsafe { state.context().stream_of(handle) }?;
        let shared = Shared {
            other: state.context().event(false)?,
            own: state.context().event(false)?,
            left_at: None,
            returned: Vec::new(),
            returned_bytes: 0,
            unchecked: Origins::default(),
        };
        Ok(Arc::new(Exchange { device, state, other, shared: Mutex::new(shared) }))
    }

    /// Begins a call: what is enqueued here from now on comes after what the other stream does by now.
    ///
    /// # Errors
    /// What kernels of earlier calls found wrong with their data, such as an index out of range, as far as it is known:
    /// exports do not wait for it, and each fault is told once. The driver's.
    pub fn begin(self: &Arc<Self>) -> Result<Call> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let returned = self.behind_other(&mut shared)?;
        let checked = self.state.faults().check_ended_once(&mut shared.unchecked);
        drop(shared);
        drop(returned);
        checked.map(|()| Call(self.clone()))
    }

    /// As [`Call::import`], of a tensor outside of calls: whatever is enqueued here from now on comes behind what the
    /// other stream does by now. One wait orders all tensors that are imported before it.
    ///
    /// # Errors
    /// As there.
    pub fn import(self: &Arc<Self>, tensor: Managed) -> Result<Array> {
        self.state.await_later(self);
        self.taken(tensor)
    }

    fn taken(self: &Arc<Self>, tensor: Managed) -> Result<Array> {
        let parts = Parts::of(&tensor)?;
        let device = parts.meta.device();
        if device.is_cpu() {
            // Memory of the host is written when the producer's call returns, unless it is page-locked for a device.
            return Array::from_dlpack(tensor, OtherStream::Unordered);
        }
        if device != self.device {
            return Err(wrong(format!("its memory is on {device}, expected {}", self.device)));
        }
        // SAFETY: promised where the tensor was taken over; streams here wait for the other one before they read it.
        unsafe { parts.array(tensor, Some(self.clone())) }
    }

    /// Lets go of deleted exports, once what is enqueued here comes after the other stream's use of them. A stream that
    /// is no longer used should not keep memory.
    ///
    /// # Errors
    /// The driver's.
    pub fn let_go(&self) -> Result<()> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let returned = if shared.returned.is_empty() { Vec::new() } else { self.behind_other(&mut shared)? };
        drop(shared);
        drop(returned);
        Ok(())
    }

    /// Waits for what is enqueued, and tells what kernels of earlier calls found wrong with their data.
    ///
    /// # Errors
    /// As [`Exchange::begin`].
    pub fn check(&self) -> Result<()> {
        self.state.synchronize()?;
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.faults().check_ended_once(&mut shared.unchecked)
    }

    /// Has the compute stream wait for the other one: programs begin and end there, whatever streams their steps are
    /// on, and what is read by a stream beside them is waited for by the host. The memory that the other stream no
    /// longer uses is to be dropped when the lock is given up: what is over memory of others takes it.
    fn behind_other(&self, shared: &mut Shared) -> Result<Vec<Array>> {
        self.wait_for_other(shared)?;
        shared.returned_bytes = 0;
        Ok(std::mem::take(&mut shared.returned))
    }

    fn wait_for_other(&self, shared: &Shared) -> Result<()> {
        self.other.record(&*shared.other)?;
        Ok(self.state.compute().wait(&*shared.other)?)
    }

    /// Has the other stream wait for what is enqueued here.
    fn other_behind(&self, shared: &mut Shared) -> Result<()> {
        let uses = self.state.uses();
        self.state.compute().record(&*shared.own)?;
        self.other.wait(&*shared.own)?;
        shared.left_at = Some(uses);
        Ok(())
    }
}

impl Keeper for Exchange {
    fn keep(&self, array: Array) -> Result<()> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.returned_bytes += match array.memory() {
            Memory::Host(buffer) => buffer.len(),
            Memory::Device(buffer) => buffer.len(),
        };
        shared.returned.push(array);
        let returned = if shared.returned_bytes > MOST_KEPT { self.behind_other(&mut shared)? } else { Vec::new() };
        drop(shared);
        drop(returned);
        Ok(())
    }
}

impl Awaited for Exchange {
    fn order(&self) -> Result<()> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let ordered = self.wait_for_other(&shared);
        drop(shared);
        // Otherwise the host waits.
        ordered.or_else(|_| Ok(self.other.synchronize()?))
    }
}

impl Release for Exchange {
    fn order(&self) -> Result<()> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        // Hundreds of arrays go at the end of a call, behind which nothing was enqueued.
        if shared.left_at == Some(self.state.uses()) { Ok(()) } else { self.other_behind(&mut shared) }
    }
}

/// A call whose arrays cross. Dropping it ends the call: what the other stream does from then on comes after what was
/// enqueued here.
#[derive(Debug)]
pub struct Call(Arc<Exchange>);

impl Call {
    /// As [`Array::from_dlpack`], of a tensor that the other stream, or the host, computes. The call must not have
    /// ended when the array is used, or a later call of the same exchange must have begun.
    ///
    /// # Errors
    /// As there; for memory of another device than the exchange's or the host's.
    pub fn import(&self, tensor: Managed) -> Result<Array> {
        self.0.taken(tensor)
    }

    /// As [`Array::to_dlpack`], for the other stream, once the call has ended. What kernels find wrong with the data is
    /// told by a later call.
    ///
    /// # Errors
    /// If the array is on a kind of device that DLPack does not name.
    pub fn export(&self, array: &Array) -> Result<Managed> {
        match array.memory() {
            Memory::Host(_) => array.to_dlpack(OtherStream::Unordered),
            Memory::Device(buffer) => {
                let origins = buffer.origins();
                self.0.shared.lock().unwrap_or_else(PoisonError::into_inner).unchecked.add(&origins);
                array.given(Consumer::Kept(self.0.clone()), FLAG_READ_ONLY)
            }
        }
    }
}

impl Array {
    /// Whether the runs that the array comes from are known to have ended. The host waits for none.
    ///
    /// # Errors
    /// What the kernels of those that have ended found wrong with their data, such as an index out of range; the
    /// driver's.
    pub fn check_ended(&self) -> Result<bool> {
        match self.memory() {
            Memory::Host(_) => Ok(true),
            Memory::Device(buffer) => {
                let mut origins = buffer.origins();
                DeviceState::of(self.device())?.faults().check_ended(&mut origins)?;
                Ok(origins.is_empty())
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // What is exported may have been imported from another stream. Before the lock, which ordering takes.
        self.0.state.behind_awaited();
        let mut shared = self.0.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let ordered = self.0.other_behind(&mut shared);
        drop(shared);
        if let Err(error) = ordered.or_else(|_| self.0.state.synchronize()) {
            tracing::error!(%error, "ordering the stream of another library behind a call");
        }
    }
}
