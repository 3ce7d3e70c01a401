//! DLPack through C functions, for `exchange.py`: a tensor of another library comes in, an array goes out.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use fulgurite_executors as _;
use fulgurite_ops as _;
use fulgurite_runtime::dlpack::{DLManagedTensor, DLManagedTensorVersioned, Managed, OtherStream, stream_of};
use fulgurite_runtime::{Array, Device, Result, Tensor, jit};

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// What is done with a tensor.
#[derive(Clone, Copy)]
enum Action {
    /// It is given back as it came.
    Pass,
    /// It is added to itself.
    Double,
    /// A copy of it is given back.
    Copy,
}

fn done(tensor: Managed, action: Action, streams: [OtherStream; 2]) -> Result<Managed> {
    let [producer, consumer] = streams;
    let array = Array::from_dlpack(tensor, producer)?;
    match action {
        Action::Pass => array.to_dlpack(consumer),
        Action::Copy => array.to_dlpack_copy(consumer),
        Action::Double => jit(|x: Tensor| x + x).call(array)?.to_dlpack(consumer),
    }
}

/// The result's tensor; null where there is an error, which [`fulgurite_dlpack_error`] then says.
fn answer(result: Result<Managed>) -> *mut DLManagedTensorVersioned {
    match result {
        Ok(managed) => managed.into_raw().unwrap_or(std::ptr::null_mut()),
        Err(error) => {
            let text = error.to_string().replace('\0', " ");
            ERROR.set(CString::new(text).unwrap_or_default());
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// Streams above 2 must be handles of the tensor's device.
unsafe fn exchange(tensor: Result<Managed>, action: i32, streams: [i64; 2]) -> *mut DLManagedTensorVersioned {
    let action = match action {
        0 => Action::Pass,
        1 => Action::Double,
        _ => Action::Copy,
    };
    // SAFETY: promised by the caller.
    let of = |stream: i64| unsafe { OtherStream::from_python((stream != 0).then_some(stream)) };
    answer(tensor.and_then(|tensor| done(tensor, action, [of(streams[0])?, of(streams[1])?])))
}

/// Takes a tensor over, does 0: nothing, 1: addition to itself, 2: a copy, and gives the result. Streams are numbered
/// as by `__dlpack__`, 0 standing for none given.
///
/// # Safety
/// As [`Managed::from_raw`]; streams above 2 must be handles of the tensor's device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_dlpack_exchange(
    tensor: *mut DLManagedTensorVersioned,
    action: i32,
    producer: i64,
    consumer: i64,
) -> *mut DLManagedTensorVersioned {
    // SAFETY: promised by the caller.
    unsafe { exchange(Managed::from_raw(tensor), action, [producer, consumer]) }
}

/// As [`fulgurite_dlpack_exchange`], of a tensor from before versions.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_dlpack_exchange_unversioned(
    tensor: *mut DLManagedTensor,
    action: i32,
    producer: i64,
    consumer: i64,
) -> *mut DLManagedTensorVersioned {
    // SAFETY: promised by the caller.
    unsafe { exchange(Managed::from_raw_unversioned(tensor), action, [producer, consumer]) }
}

/// The handle of the stream that work on CUDA device `index` is enqueued on; 0 without one.
#[unsafe(no_mangle)]
pub extern "C" fn fulgurite_dlpack_stream(index: u32) -> u64 {
    stream_of(Device::new("cuda", index)).unwrap_or(0)
}

/// The last error of this thread. The text is valid until the next one.
#[unsafe(no_mangle)]
pub extern "C" fn fulgurite_dlpack_error() -> *const c_char {
    ERROR.with_borrow(|error| error.as_ptr())
}
