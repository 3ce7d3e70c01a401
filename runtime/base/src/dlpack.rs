//! DLPack: arrays given to other libraries of this process and taken from them, without a copy.
//!
//! Structures are those of `dlpack.h`. What is exported has version 1.0; what is imported may be of any version 1, or
//! of the one before versions. Elements are the same on both sides: `bool` is a byte, `bf16` is DLPack's `bfloat`.
//!
//! - An array's data does not change, so exports are marked read-only, unless they are copies (marked as such).
//! - Imports are [memory of others](Array::from_external): read where it is, never donated, and given back when the
//!   last array that uses it is gone.
//! - Work on a device is asynchronous: [`OtherStream`] says on which stream the other library works.

mod abi;

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use fulgurite_kernels::DType;

pub(crate) use abi::HOST_MEMORY;
pub use abi::{DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor};
pub use abi::{FLAG_IS_COPIED, FLAG_READ_ONLY};

use crate::array::{Array, Memory};
use crate::device::memory::Release;
use crate::device::{DeviceState, DeviceStream, device_kinds, find_kind};
use crate::error::{Error, Result};
use crate::meta::{Device, TensorMeta};
use crate::stream_kind::StreamKind;

/// The stream on which the other library uses the data: what the argument `stream` of Python's `__dlpack__` says. It is
/// of no interest on the host, except that an import of memory that is page-locked for a device waits for the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherStream {
    /// None: nobody waits for anything. The caller has made sure of the order (`-1`).
    Unordered,
    /// The legacy default stream (`None` or `1`), or that of the calling thread (`2`).
    Default {
        /// Whether it is the thread's.
        per_thread: bool,
    },
    /// A stream by its handle. Made by [`OtherStream::of_handle`].
    Stream(Handle),
}

/// The handle of a stream that another library made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(u64);

impl OtherStream {
    /// The stream of a handle.
    ///
    /// # Safety
    /// It must be a stream of the array's device, and stay one until the call that it is given to returns.
    pub unsafe fn of_handle(handle: u64) -> OtherStream {
        OtherStream::Stream(Handle(handle))
    }

    /// What the argument `stream` of `__dlpack__` says.
    ///
    /// # Safety
    /// As [`OtherStream::of_handle`], for numbers above 2.
    ///
    /// # Errors
    /// For 0, which is ambiguous, and for negative numbers but -1.
    pub unsafe fn from_python(stream: Option<i64>) -> Result<OtherStream> {
        match stream {
            None | Some(1) => Ok(OtherStream::Default { per_thread: false }),
            Some(2) => Ok(OtherStream::Default { per_thread: true }),
            Some(-1) => Ok(OtherStream::Unordered),
            Some(handle @ 3..) => Ok(OtherStream::Stream(Handle(handle as u64))),
            Some(other) => {
                Err(wrong(format!("stream {other} is ambiguous or no stream, expected -1, 1, 2 or a handle")))
            }
        }
    }

    pub(crate) fn handle(self) -> Option<u64> {
        match self {
            OtherStream::Unordered => None,
            OtherStream::Default { per_thread } => Some(if per_thread { 2 } else { 1 }),
            OtherStream::Stream(Handle(handle)) => Some(handle),
        }
    }
}

/// The handle of the stream that all work on `device` is enqueued on: what is given to a producer's
/// `__dlpack__(stream=...)`; [`Array::from_dlpack`] then needs [`OtherStream::Unordered`].
///
/// # Errors
/// If the device is not available, or its streams have no handles.
pub fn stream_of(device: Device) -> Result<u64> {
    let state = DeviceState::of(device)?;
    state.stream().handle().ok_or_else(|| wrong(format!("streams of {device} have no handles for other libraries")))
}

pub(crate) fn wrong(message: String) -> Error {
    Error::Argument { argument: "dlpack".into(), message }
}

/// A tensor of DLPack that this process owns: its deleter is called when the value is dropped.
#[derive(Debug)]
pub struct Managed(Raw);

#[derive(Debug, Clone, Copy)]
enum Raw {
    Versioned(NonNull<DLManagedTensorVersioned>),
    Unversioned(NonNull<DLManagedTensor>),
}

// SAFETY: DLPack lets any thread use and delete a tensor.
unsafe impl Send for Managed {}

impl Managed {
    /// Takes a versioned tensor over.
    ///
    /// # Safety
    /// The pointer must be to a valid tensor that nobody else deletes. Its data must be valid, and written by nobody,
    /// until its deleter is called.
    ///
    /// # Errors
    /// For null.
    pub unsafe fn from_raw(tensor: *mut DLManagedTensorVersioned) -> Result<Managed> {
        let tensor = NonNull::new(tensor).ok_or_else(|| wrong("the tensor is null".into()))?;
        Ok(Managed(Raw::Versioned(tensor)))
    }

    /// As [`Managed::from_raw`], of a tensor from before versions.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// For null.
    pub unsafe fn from_raw_unversioned(tensor: *mut DLManagedTensor) -> Result<Managed> {
        let tensor = NonNull::new(tensor).ok_or_else(|| wrong("the tensor is null".into()))?;
        Ok(Managed(Raw::Unversioned(tensor)))
    }

    /// Gives a versioned tensor away, whose receiver calls its deleter once; `None` for one from before versions.
    pub fn into_raw(self) -> Option<*mut DLManagedTensorVersioned> {
        let Raw::Versioned(tensor) = self.0 else { return None };
        std::mem::forget(self);
        Some(tensor.as_ptr())
    }

    /// Whether the data may only be read. It is not known before versions.
    pub fn is_read_only(&self) -> bool {
        self.flags() & FLAG_READ_ONLY != 0
    }

    /// Whether the data is a copy that was made for the receiver.
    pub fn is_copied(&self) -> bool {
        self.flags() & FLAG_IS_COPIED != 0
    }

    fn flags(&self) -> u64 {
        match self.0 {
            // SAFETY: the tensor is valid as long as the value is. Other major versions have other fields.
            Raw::Versioned(tensor) => unsafe {
                if (*tensor.as_ptr()).version.major == abi::VERSION.major { (*tensor.as_ptr()).flags } else { 0 }
            },
            Raw::Unversioned(_) => 0,
        }
    }

    /// The tensor itself.
    ///
    /// # Errors
    /// If its version has other fields.
    fn tensor(&self) -> Result<&DLTensor> {
        match self.0 {
            Raw::Versioned(tensor) => {
                // SAFETY: the version comes first in every version, and the tensor is valid as long as the value is.
                let DLPackVersion { major, minor } = unsafe { (*tensor.as_ptr()).version };
                if major != abi::VERSION.major {
                    return Err(wrong(format!("the tensor has version {major}.{minor} of DLPack, expected version 1")));
                }
                // SAFETY: as above, of a version with these fields.
                Ok(unsafe { &(*tensor.as_ptr()).dl_tensor })
            }
            // SAFETY: the tensor is valid as long as the value is.
            Raw::Unversioned(tensor) => Ok(unsafe { &(*tensor.as_ptr()).dl_tensor }),
        }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        // SAFETY: the tensor is this value's, and is deleted once. The deleter comes at the same place in all versions.
        unsafe {
            match self.0 {
                Raw::Versioned(tensor) => {
                    if let Some(deleter) = (*tensor.as_ptr()).deleter {
                        deleter(tensor.as_ptr());
                    }
                }
                Raw::Unversioned(tensor) => {
                    if let Some(deleter) = (*tensor.as_ptr()).deleter {
                        deleter(tensor.as_ptr());
                    }
                }
            }
        }
    }
}

/// What an exported tensor refers to.
struct Exported {
    managed: DLManagedTensorVersioned,
    shape: Vec<i64>,
    strides: Vec<i64>,
    array: Array,
    consumer: Consumer,
}

/// Keeps the memory of deleted exports until what is enqueued here comes after their use by another library.
pub(crate) trait Keeper: Send + Sync {
    /// Keeps the array of an export that was deleted.
    fn keep(&self, array: Array) -> Result<()>;
}

/// The user of an exported tensor.
pub(crate) enum Consumer {
    /// A stream: what is enqueued here after the tensor is deleted comes after what the stream did with it.
    Stream(OtherStream),
    /// A stream that is waited for later; what keeps the memory until then.
    Kept(Arc<dyn Keeper>),
}

/// The deleter of exported tensors.
unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: DLPack calls the deleter once, with a tensor that `to_dlpack` made; its context is the box that it is in.
    let exported = unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Exported>()) };
    if let Err(error) = exported.released() {
        tracing::error!(%error, "waiting for a library that used an array");
    }
}

impl Exported {
    /// What is enqueued from now on comes after what the consumer did with the data.
    fn released(self) -> Result<()> {
        let device = self.array.device();
        if device.is_cpu() {
            return Ok(());
        }
        let consumer = match self.consumer {
            Consumer::Stream(consumer) => consumer,
            Consumer::Kept(keeper) => return keeper.keep(self.array),
        };
        let state = DeviceState::of(device)?;
        match consumer {
            OtherStream::Unordered => Ok(()),
            // The stream may be gone, or be that of another thread than this one.
            OtherStream::Stream(_) | OtherStream::Default { per_thread: true } => Ok(state.context().synchronize()?),
            OtherStream::Default { per_thread: false } => {
                after(&state, consumer, |own, other| order(&state, other, own))
            }
        }
    }
}

/// Has `f` order each of the device's own streams and the other library's, if there is one.
fn after(
    state: &DeviceState,
    sync: OtherStream,
    f: impl Fn(&dyn DeviceStream, &dyn DeviceStream) -> Result<()>,
) -> Result<()> {
    let Some(handle) = sync.handle() else { return Ok(()) };
    // SAFETY: promised where the `OtherStream` was made; the value is dropped before this function returns.
    let other = unsafe { state.context().stream_of(handle) }?;
    StreamKind::ALL.into_iter().try_for_each(|kind| f(state.stream_of(kind), &*other))
}

/// Has `second` wait for what is enqueued on `first`.
fn order(state: &DeviceState, first: &dyn DeviceStream, second: &dyn DeviceStream) -> Result<()> {
    let event = state.context().event(false)?;
    first.record(&*event)?;
    Ok(second.wait(&*event)?)
}

impl Array {
    /// The array for another library, which uses its memory as it is. Dropping or deleting the result lets go of it.
    /// `consumer` is the stream on which it is used: work there waits until the data is computed.
    ///
    /// # Errors
    /// If the array is on a kind of device that DLPack does not name, or the device reports an error.
    pub fn to_dlpack(&self, consumer: OtherStream) -> Result<Managed> {
        self.exported(consumer, FLAG_READ_ONLY)
    }

    /// As [`Array::to_dlpack`], of a row-major copy that the other library may write to.
    ///
    /// # Errors
    /// As there; if there is no memory for a copy.
    pub fn to_dlpack_copy(&self, consumer: OtherStream) -> Result<Managed> {
        self.to_contiguous()?.to_device(self.device())?.exported(consumer, FLAG_IS_COPIED)
    }

    fn exported(&self, consumer: OtherStream, flags: u64) -> Result<Managed> {
        if let Memory::Device(buffer) = self.memory() {
            let state = DeviceState::of(self.device())?;
            buffer.check_origins()?;
            after(&state, consumer, |own, other| order(&state, own, other))?;
        }
        self.given(Consumer::Stream(consumer), flags)
    }

    /// The tensor of the array's memory; `consumer` says what happens when it comes back.
    pub(crate) fn given(&self, consumer: Consumer, flags: u64) -> Result<Managed> {
        let device = self.device();
        let (data, device) = match self.memory() {
            Memory::Host(buffer) => (buffer.as_ptr().addr(), DLDevice { device_type: abi::CPU, device_id: 0 }),
            Memory::Device(buffer) => {
                let device_type = find_kind(device.kind())?.dlpack_type();
                let device_type =
                    device_type.ok_or_else(|| wrong(format!("DLPack has no devices of kind '{}'", device.kind())))?;
                let device_id = device.index() as i32;
                (buffer.address().0 as usize, DLDevice { device_type, device_id })
            }
        };
        let mut exported = Box::new(Exported {
            managed: DLManagedTensorVersioned::EMPTY,
            shape: self.shape().iter().map(|extent| *extent as i64).collect(),
            strides: self.strides().iter().map(|stride| *stride as i64).collect(),
            array: self.clone(),
            consumer,
        });
        let data = if self.meta().is_empty() { 0 } else { data + self.byte_offset() };
        exported.managed = DLManagedTensorVersioned {
            version: abi::VERSION,
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete),
            flags,
            dl_tensor: DLTensor {
                data: std::ptr::with_exposed_provenance_mut(data),
                device,
                ndim: exported.shape.len() as i32,
                dtype: data_type(self.dtype()),
                shape: exported.shape.as_mut_ptr(),
                strides: exported.strides.as_mut_ptr(),
                byte_offset: 0,
            },
        };
        let exported = Box::into_raw(exported);
        // SAFETY: the box was just given up; its memory is valid until the deleter takes it back.
        let managed = unsafe {
            (*exported).managed.manager_ctx = exported.cast::<c_void>();
            NonNull::new_unchecked(&raw mut (*exported).managed)
        };
        Ok(Managed(Raw::Versioned(managed)))
    }

    /// An array over the memory of another library's tensor, which is deleted when the last array that uses it is gone,
    /// or before an error is returned. `producer` is the stream on which the data is computed: work on the array waits
    /// for it. Where the data is in memory of the host that is page-locked for a device, the import waits.
    ///
    /// # Errors
    /// If the tensor is of another version, on a device that is not linked or not available, of an element type that
    /// there is not (with lanes, less than a byte, complex numbers of 16-bit parts), not aligned to an element, or on
    /// another device than it says.
    pub fn from_dlpack(tensor: Managed, producer: OtherStream) -> Result<Array> {
        let parts = Parts::of(&tensor)?;
        let writer = writer_of(parts.on, producer)?;
        let device = parts.meta.device();
        if !device.is_cpu() {
            let state = DeviceState::of(device)?;
            after(&state, producer, |own, other| order(&state, other, own))?;
        }
        // The host reads at any time.
        if let Some(writer) = writer {
            writer.synchronize()?;
        }
        // SAFETY: promised where the tensor was taken over; it is deleted when the deleter drops it, not before.
        unsafe { parts.array(tensor, None) }
    }
}

/// What a tensor of DLPack says.
pub(crate) struct Parts {
    pointer: *mut u8,
    pub(crate) meta: TensorMeta,
    strides: Option<Vec<isize>>,
    on: DLDevice,
}

impl Parts {
    pub(crate) fn of(tensor: &Managed) -> Result<Parts> {
        let DLTensor { data, device: on, ndim, dtype, shape, strides, byte_offset } = *tensor.tensor()?;
        let rank = usize::try_from(ndim).map_err(|_| wrong(format!("the tensor has {ndim} dimensions")))?;
        if rank > 0 && shape.is_null() {
            return Err(wrong("the tensor has no shape".into()));
        }
        let list = |start: *mut i64| -> &[i64] {
            // SAFETY: a valid tensor has as many numbers there, which live as long as it does.
            if rank == 0 || start.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(start, rank) } }
        };
        let extents = list(shape).iter().map(|extent| usize::try_from(*extent));
        let extents: Vec<usize> =
            extents.collect::<Result<_, _>>().map_err(|_| wrong(format!("its shape is {:?}", list(shape))))?;
        let elements = extents.iter().try_fold(1usize, |count, extent| count.checked_mul(*extent));
        let dtype = element_type(dtype)?;
        if elements.and_then(|count| count.checked_mul(dtype.size())).is_none() && !extents.contains(&0) {
            return Err(wrong(format!("its shape {extents:?} is larger than any memory")));
        }
        let strides: Option<Vec<isize>> =
            (!strides.is_null() && rank > 0).then(|| list(strides).iter().map(|stride| *stride as isize).collect());
        let device = device_of(on)?;
        let offset = usize::try_from(byte_offset).map_err(|_| wrong(format!("its offset is {byte_offset} bytes")))?;
        // An offset would make another address of it.
        if data.is_null() && !extents.contains(&0) {
            return Err(wrong("its data is null".to_owned()));
        }
        let pointer = data.cast::<u8>().wrapping_add(offset);
        Ok(Parts { pointer, meta: TensorMeta::new(extents, dtype, device), strides, on })
    }

    /// The array; `release` is the stream that memory of a device goes back to.
    ///
    /// # Safety
    /// `tensor` is the one that these are the parts of. Work on the array must be ordered behind what computes it.
    pub(crate) unsafe fn array(self, tensor: Managed, release: Option<Arc<dyn Release>>) -> Result<Array> {
        let strides = self.strides.as_deref();
        // SAFETY: promised by the caller, and where the tensor was taken over.
        unsafe { Array::from_external_of(self.pointer, self.meta, strides, move || drop(tensor), None, release) }
    }
}

/// The device of DLPack's. Memory of the host that is page-locked for a device is memory of the host.
fn device_of(device: DLDevice) -> Result<Device> {
    let DLDevice { device_type, device_id } = device;
    if device_type == abi::CPU || HOST_MEMORY.iter().any(|(_, host)| *host == device_type) {
        return Ok(Device::CPU);
    }
    if device_kinds().into_iter().any(|kind| kind.dlpack_host_type() == Some(device_type)) {
        return Ok(Device::CPU);
    }
    let kind = device_kinds().into_iter().find(|kind| kind.dlpack_type() == Some(device_type)).ok_or_else(|| {
        wrong(format!("its memory is on a device of DLPack's type {device_type}, of which no kind is linked here"))
    })?;
    Ok(Device::new(kind.name(), index_of(device_id)?))
}

fn index_of(device_id: i32) -> Result<u32> {
    u32::try_from(device_id).map_err(|_| wrong(format!("its device has the number {device_id}")))
}

/// The stream that writes memory of the host which is page-locked for a device.
fn writer_of(device: DLDevice, producer: OtherStream) -> Result<Option<Box<dyn DeviceStream>>> {
    let DLDevice { device_type, device_id } = device;
    let (Some(handle), true) = (producer.handle(), device_type != abi::CPU) else { return Ok(None) };
    let Some(kind) = device_kinds().into_iter().find(|kind| kind.dlpack_host_type() == Some(device_type)) else {
        return match device_of(device)?.is_cpu() {
            true => Err(wrong(format!(
                "its memory has DLPack's type {device_type} and is written by a stream of a kind of device that is \
                 not linked here: wait for it, and import it unordered"
            ))),
            false => Ok(None),
        };
    };
    let state = DeviceState::of(Device::new(kind.name(), index_of(device_id)?))?;
    // SAFETY: promised where the `OtherStream` was made; the value is dropped before the import returns.
    Ok(Some(unsafe { state.context().stream_of(handle) }?))
}

/// Codes of DLPack's element types.
const TYPES: [(DType, u8, u8); 14] = [
    (DType::Bool, abi::BOOL, 8),
    (DType::U8, abi::UINT, 8),
    (DType::I8, abi::INT, 8),
    (DType::U16, abi::UINT, 16),
    (DType::I16, abi::INT, 16),
    (DType::U32, abi::UINT, 32),
    (DType::I32, abi::INT, 32),
    (DType::I64, abi::INT, 64),
    (DType::F16, abi::FLOAT, 16),
    (DType::BF16, abi::BFLOAT, 16),
    (DType::F32, abi::FLOAT, 32),
    (DType::F64, abi::FLOAT, 64),
    (DType::C64, abi::COMPLEX, 64),
    (DType::C128, abi::COMPLEX, 128),
];

/// DLPack's code and bits of an element type.
pub fn data_type(dtype: DType) -> DLDataType {
    let found = TYPES.iter().find(|(own, ..)| *own == dtype);
    let (_, code, bits) = found.unwrap_or_else(|| unreachable!("every type is in the table"));
    DLDataType { code: *code, bits: *bits, lanes: 1 }
}

fn element_type(DLDataType { code, bits, lanes }: DLDataType) -> Result<DType> {
    let found = TYPES.iter().find(|(_, own, width)| lanes == 1 && *own == code && *width == bits);
    found.map(|(dtype, ..)| *dtype).ok_or_else(|| {
        let known = DType::ALL.map(|dtype| dtype.name()).join(", ");
        wrong(format!("its elements have DLPack's type code {code}, {bits} bits and {lanes} lanes, there are: {known}"))
    })
}
