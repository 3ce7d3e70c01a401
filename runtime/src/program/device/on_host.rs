//! Steps that the host runs: operands are copied from the device, and results back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fulgurite_kernels::Buffer;
use fulgurite_kernels::launch::DeviceAddress;
use fulgurite_kernels::view::{TensorMut, TensorRef, contiguous_strides};

use crate::array::{Array, Strides};
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
    let operands = work.operands.iter().map(|operand| unsafe { fetched(operand, stream, at(&operand.address)) });
    let mut operands = operands.collect::<Result<Vec<Array>>>()?;
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
    let run = AssertUnwindSafe(|| (work.kernel)(&views, &mut results));
    catch_unwind(run).unwrap_or_else(|panic| Err(Failure::panicked("the kernel", &*panic))).map_err(Problem::Data)?;
    drop(results);
    for (result, buffer) in work.results.iter().zip(&buffers) {
        // SAFETY: as above, and the copy is waited for.
        unsafe { stream.copy_in(at(&result.address), buffer.as_bytes()) }?;
    }
    Ok(stream.synchronize()?)
}

/// The tensor at `start`, on the host.
///
/// # Safety
/// As [`run`].
unsafe fn fetched(tensor: &DeviceTensor, stream: &dyn DeviceStream, start: DeviceAddress) -> Result<Array> {
    let size = tensor.dtype().size();
    // From the lowest element that strides reach to the highest one.
    let reach = |wanted: fn(isize) -> bool| -> usize {
        let all = tensor.shape().iter().zip(&tensor.strides).filter(|(_, stride)| wanted(**stride));
        all.map(|(n, stride)| n.saturating_sub(1) * stride.unsigned_abs()).sum()
    };
    let (before, elements) = match tensor.is_empty() {
        true => (0, 0),
        false => (reach(|stride| stride < 0), reach(|_| true) + 1),
    };
    let mut buffer = Buffer::zeroed(elements * size)?;
    // SAFETY: the elements are the tensor's; the buffer is waited for before anybody looks at it.
    unsafe { stream.copy_out(buffer.as_bytes_mut(), DeviceAddress(start.0 - (before * size) as u64)) }?;
    stream.synchronize()?;
    let meta = tensor.meta.with_device(Device::CPU);
    Ok(Array::from_shared(Arc::new(buffer), meta, Strides::from_slice(&tensor.strides), before))
}
