//! Steps that the host runs: operands are copied from the device, and results back.

use std::sync::Arc;

use fulgurite_kernels::Buffer;
use fulgurite_kernels::launch::DeviceAddress;
use fulgurite_kernels::view::{TensorMut, TensorRef, contiguous_strides};

use crate::array::{Array, Strides};
use crate::device::host_time::waiting;
use crate::device::host_work::HostWork;
use crate::device::{Address, DeviceStream, DeviceTensor};
use crate::error::{Error, Failure, Result};
use crate::meta::Device;

/// What went wrong: on the way, or with the data.
pub(super) enum Problem {
    Error(Error),
    Data(Failure),
}

impl<E: Into<Error>> From<E> for Problem {
    fn from(error: E) -> Problem {
        Problem::Error(error.into())
    }
}

/// Waits for what is enqueued, and runs the symbol, with the addresses that `at` gives.
///
/// # Safety
/// The addresses must be those of the step, allocated, and used by no work that is not ordered with the stream.
pub(super) unsafe fn run(
    work: &HostWork,
    stream: &dyn DeviceStream,
    at: &dyn Fn(&Address) -> DeviceAddress,
) -> Result<(), Problem> {
    // SAFETY: promised by the caller.
    let mut operands = unsafe { fetched(&work.operands, stream, at) }?;
    if work.contiguous {
        operands = operands.iter().map(Array::to_contiguous).collect::<Result<_>>()?;
    }
    let views = operands.iter().map(Array::view).collect::<Result<Vec<TensorRef<'_>>>>()?;
    let strides: Vec<Vec<isize>> = work.results.iter().map(|result| contiguous_strides(result.shape())).collect();
    let buffers = work.results.iter().map(|result| Buffer::zeroed(result.meta.bytes()));
    let mut buffers = buffers.collect::<Result<Vec<Buffer>, _>>()?;
    let mut results: Vec<TensorMut<'_>> = work
        .results
        .iter()
        .zip(&strides)
        .zip(&mut buffers)
        // SAFETY: the buffer has as many bytes, is used by this kernel alone, and is aligned for every element type.
        .map(|((result, strides), buffer)| unsafe {
            TensorMut::new(result.dtype(), result.shape(), strides, buffer.as_bytes_mut().as_mut_ptr())
        })
        .collect();
    // As on the host: a panic is that operator's error.
    Failure::caught("the kernel", || (work.kernel)(&views, &mut results)).flatten().map_err(Problem::Data)?;
    drop(results);
    let mut sent = work.results.iter().zip(&buffers);
    // SAFETY: as above; the copies that were enqueued are waited for, also if one of them could not be.
    let enqueued =
        sent.try_for_each(|(result, buffer)| unsafe { stream.copy_in(at(&result.address), buffer.as_bytes()) });
    let waited = waiting(|| stream.synchronize());
    enqueued?;
    Ok(waited?)
}

/// The tensors on the host, once what is enqueued is done.
///
/// # Safety
/// As [`run`].
unsafe fn fetched(
    tensors: &[DeviceTensor],
    stream: &dyn DeviceStream,
    at: &dyn Fn(&Address) -> DeviceAddress,
) -> Result<Vec<Array>> {
    let buffers = tensors.iter().map(|tensor| Buffer::zeroed(reach(tensor).1 * tensor.dtype().size()));
    let mut buffers = buffers.collect::<Result<Vec<Buffer>, _>>()?;
    let enqueued = tensors.iter().zip(&mut buffers).try_for_each(|(tensor, buffer)| {
        let start = at(&tensor.address).0 - (reach(tensor).0 * tensor.dtype().size()) as u64;
        // SAFETY: the elements are the tensor's; nobody looks at the buffers before the copies are waited for, and none
        // is dropped, also if one of the copies could not be enqueued.
        unsafe { stream.copy_out(buffer.as_bytes_mut(), DeviceAddress(start)) }
    });
    let waited = waiting(|| stream.synchronize());
    enqueued?;
    waited?;
    let arrays = tensors.iter().zip(buffers).map(|(tensor, buffer)| {
        let meta = tensor.meta.with_device(Device::CPU);
        Array::from_shared(Arc::new(buffer), meta, Strides::from_slice(&tensor.strides), reach(tensor).0)
    });
    Ok(arrays.collect())
}

/// How many elements the strides reach before the first one, and how many in all.
fn reach(tensor: &DeviceTensor) -> (usize, usize) {
    if tensor.is_empty() {
        return (0, 0);
    }
    let of = |wanted: fn(isize) -> bool| -> usize {
        let all = tensor.shape().iter().zip(&tensor.strides).filter(|(_, stride)| wanted(**stride));
        all.map(|(n, stride)| n.saturating_sub(1) * stride.unsigned_abs()).sum()
    };
    (of(|stride| stride < 0), of(|_| true) + 1)
}
