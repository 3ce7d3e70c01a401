//! Memory of arrays on a device.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulgurite_kernels::buffer::Owner;
use fulgurite_kernels::launch::DeviceAddress;
use fulgurite_kernels::scratch::try_zeroed;

use super::block::Block;
use super::faults::Origins;
use super::state::{DeviceState, Written};
use super::stream::DeviceMemory;
use crate::error::Result;
use crate::meta::Device;

/// Device memory owned by arrays. When the last of them is gone it is kept for the next array of its size.
#[derive(Debug)]
pub struct DeviceBuffer {
    /// That of the memory, which is looked at in each run.
    address: DeviceAddress,
    state: Arc<DeviceState>,
    memory: Option<Block>,
    /// Where the memory goes in the end, if it is not kept for the next array.
    origin: Option<Box<Origin>>,
    /// `None` if it was not written by a run, and depends on none.
    content: Mutex<Option<Arc<Content>>>,
}

/// Whose a block is.
pub(super) trait Lender: Debug + Send + Sync {
    /// Takes back the block of arrays that are gone. Work that was enqueued with them may still use it.
    fn take_back(self: Box<Self>, block: Block);
}

/// The stream of another library that gets memory back without the host's waiting.
pub trait Release: Debug + Send + Sync {
    /// Has what that stream does from now on come after what is enqueued on the streams here.
    ///
    /// # Errors
    /// The driver's.
    fn order(&self) -> Result<()>;
}

/// Whose memory it is that was not allocated for arrays in general.
#[derive(Debug)]
enum Origin {
    /// Memory that was allocated elsewhere; what keeps it alive, and the stream that it goes back to. Without one the
    /// host waits.
    External(Owner, Option<Arc<dyn Release>>),
    /// Memory that a lender lends to arrays again and again.
    Lent(Box<dyn Lender>),
}

/// Where the content of blocks comes from. All that one run writes share it: a training step has hundreds of results.
/// If the next run writes all of them again, and no other array shares it, it is changed for all of them at once.
#[derive(Debug)]
pub struct Content(Mutex<Known>);

/// What is known of the content of a block.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The runs that it depends on.
    pub origins: Origins,
    /// A mark behind the last of them; `None` if it was not written by a run.
    pub written: Option<Arc<Written>>,
}

impl Content {
    /// Content of which this is known.
    pub fn new(known: Known) -> Arc<Content> {
        Arc::new(Content(Mutex::new(known)))
    }

    /// What is known of it.
    fn known(&self) -> Known {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds the runs that it comes from.
    pub fn add_origins(&self, to: &mut Origins) {
        to.add(&self.0.lock().unwrap_or_else(PoisonError::into_inner).origins);
    }

    /// A run has written all that shares it.
    pub fn replace(&self, known: Known) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

impl DeviceBuffer {
    /// `bytes` bytes of unspecified content on `device`.
    pub fn new(device: Device, bytes: usize) -> Result<DeviceBuffer> {
        DeviceBuffer::on(&DeviceState::of(device)?, bytes)
    }

    /// As [`DeviceBuffer::new`], on a device that is open.
    pub fn on(state: &Arc<DeviceState>, bytes: usize) -> Result<DeviceBuffer> {
        Ok(DeviceBuffer::of(state.clone(), state.take(bytes)?, None))
    }

    fn of(state: Arc<DeviceState>, memory: Block, origin: Option<Origin>) -> DeviceBuffer {
        let (address, origin) = (memory.address(), origin.map(Box::new));
        DeviceBuffer { address, state, memory: Some(memory), origin, content: Mutex::default() }
    }

    /// A block that goes back to its lender when the last array that uses it is gone.
    pub(super) fn lent(state: Arc<DeviceState>, block: Block, lender: Box<dyn Lender>) -> DeviceBuffer {
        DeviceBuffer::of(state, block, Some(Origin::Lent(lender)))
    }

    /// Memory of `device` that was allocated elsewhere. When the last array that uses it is gone, the host waits for
    /// the work that uses it, or `release` orders it, and drops `owner`.
    ///
    /// # Safety
    /// The memory must be valid and unchanged until `owner` is dropped, for work that is enqueued on the device's
    /// streams after this call.
    ///
    /// # Errors
    /// If the device is not available, or the memory is not its own.
    pub unsafe fn external(
        device: Device,
        (address, bytes): (DeviceAddress, usize),
        owner: Owner,
        release: Option<Arc<dyn Release>>,
    ) -> Result<DeviceBuffer> {
        let state = DeviceState::of(device)?;
        if bytes > 0 {
            state.context().check_address(address)?;
        }
        let memory: Box<dyn DeviceMemory> = Box::new(External { address, bytes });
        Ok(DeviceBuffer::of(state, memory.into(), Some(Origin::External(owner, release))))
    }

    /// Whether the memory was allocated elsewhere.
    pub fn is_external(&self) -> bool {
        matches!(self.origin.as_deref(), Some(Origin::External(..)))
    }

    /// `bytes` zero bytes.
    pub fn zeroed(device: Device, bytes: usize) -> Result<DeviceBuffer> {
        let buffer = DeviceBuffer::new(device, bytes)?;
        // SAFETY: the memory is the buffer's own, and later uses of it are on this stream.
        unsafe { buffer.state.stream().fill(buffer.address(), 0, bytes) }?;
        Ok(buffer)
    }

    /// Filled with `bytes`.
    pub fn from_bytes(device: Device, bytes: &[u8]) -> Result<DeviceBuffer> {
        let mut buffer = DeviceBuffer::new(device, bytes.len())?;
        if let Some(memory) = &mut buffer.memory {
            buffer.state.write(memory, bytes)?;
        }
        Ok(buffer)
    }

    /// Address of its first byte.
    pub fn address(&self) -> DeviceAddress {
        self.address
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, Block::bytes)
    }

    /// Whether the size is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device it is on.
    pub fn state(&self) -> &Arc<DeviceState> {
        &self.state
    }

    /// What is known of the content, shared with other arrays; `None` if it was not written by a run.
    pub fn shared_content(&self) -> Option<Arc<Content>> {
        self.locked().clone()
    }

    /// As [`DeviceBuffer::shared_content`], of memory that nobody else holds.
    pub fn own_content(&mut self) -> Option<&Arc<Content>> {
        self.content.get_mut().unwrap_or_else(PoisonError::into_inner).as_ref()
    }

    /// Says that a run writes the content.
    pub fn set_written(&self, content: &Arc<Content>) {
        *self.locked() = Some(content.clone());
    }

    /// Fails if a kernel found something wrong with the data that the content comes from. Waits where that is not known
    /// yet.
    ///
    /// # Errors
    /// As [`DeviceBuffer::to_bytes`].
    pub(crate) fn check_origins(&self) -> Result<()> {
        let Some(known) = self.known().filter(|known| !known.origins.is_empty()) else { return Ok(()) };
        self.state.synchronize()?;
        self.state.faults().check(&known.origins)
    }

    /// The runs that the content comes from, as far as they are not known to be without fault.
    pub(crate) fn origins(&self) -> Origins {
        self.known().map(|known| known.origins).unwrap_or_default()
    }

    /// Says that the content is copied from `other`, on the compute stream.
    pub fn set_copied(&self, other: &DeviceBuffer) {
        let of = |known: Known| Content::new(Known { written: None, ..known });
        *self.locked() = other.known().map(of);
    }

    fn locked(&self) -> MutexGuard<'_, Option<Arc<Content>>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> Option<Known> {
        self.locked().as_ref().map(|content| content.known())
    }

    /// Its content, once the run that wrote it has ended. What is enqueued behind that run goes on meanwhile.
    ///
    /// # Errors
    /// What a kernel of a run that the content comes from found wrong with its data, such as an index out of range:
    /// at each read, by any reader. The driver's otherwise.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let known = self.known();
        let mut bytes = try_zeroed(self.len())?;
        if let Some(memory) = &self.memory {
            let written = known.as_ref().and_then(|known| known.written.as_deref());
            self.state.read(memory, written, &mut bytes)?;
        }
        known.map_or(Ok(()), |known| self.state.faults().check(&known.origins))?;
        Ok(bytes)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        match self.origin.take().map(|origin| *origin) {
            None => self.state.give_back(memory),
            Some(Origin::Lent(lender)) => lender.take_back(memory),
            Some(Origin::External(owner, release)) => {
                let ordered = release.map_or(Ok(false), |release| release.order().map(|()| true));
                let waited = ordered.and_then(|ordered| if ordered { Ok(()) } else { self.state.synchronize() });
                if let Err(error) = waited {
                    tracing::error!(%error, "waiting for work that uses memory of others");
                }
                drop(owner);
            }
        }
    }
}

/// Memory that was allocated elsewhere, and is freed there.
#[derive(Debug)]
struct External {
    address: DeviceAddress,
    bytes: usize,
}

impl DeviceMemory for External {
    fn address(&self) -> DeviceAddress {
        self.address
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
