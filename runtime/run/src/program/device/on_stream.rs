//! Steps that a function of the host enqueues, and the programs that are in such a function.

use std::cell::RefCell;

use fulgurite_kernels::launch::DeviceAddress;

use super::on_host::Problem;
use crate::device::host_work::{StreamCall, StreamWork};
use crate::device::{Address, DeviceStream, DeviceTensor};
use crate::error::Failure;
use crate::meta::Device;

thread_local! {
    /// The programs whose functions this thread is in, each of which it holds.
    static CALLING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Whether this thread is in a function that the program at this address calls: it holds the program until that
/// returns.
pub(super) fn is_calling(program: usize) -> bool {
    CALLING.with_borrow(|calling| calling.contains(&program))
}

/// Has the function of a step enqueue its work, with the addresses that `at` gives; `program` is where the program is.
pub(super) fn run(
    program: usize,
    work: &StreamWork,
    (device, stream): (Device, &dyn DeviceStream),
    at: &dyn Fn(&Address) -> DeviceAddress,
) -> Result<(), Problem> {
    struct Calling;
    impl Drop for Calling {
        fn drop(&mut self) {
            CALLING.with_borrow_mut(Vec::pop);
        }
    }
    let addresses = |tensors: &[DeviceTensor]| tensors.iter().map(|tensor| at(&tensor.address)).collect::<Vec<_>>();
    let (operands, results) = (addresses(&work.operands), addresses(&work.results));
    let call = StreamCall { device, stream, operands: &operands, results: &results };
    CALLING.with_borrow_mut(|calling| calling.push(program));
    let _calling = Calling;
    Failure::caught("the kernel", || (work.enqueue)(&call)).flatten().map_err(Problem::Data)
}
