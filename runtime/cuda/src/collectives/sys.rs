//! NCCL's interface as it is: the functions that are called, and the numbers of its enumerations.

use std::ffi::{c_char, c_int, c_void};

use fulgurite_kernels::DType;

use crate::function_table::functions;

/// `ncclComm_t`
pub(super) type RawCommunicator = *mut c_void;
/// `ncclResult_t`: 0 is success.
pub(super) type Status = c_int;

/// The bytes of an `ncclUniqueId`, by which the ranks of a communicator find each other.
pub(super) const ID_BYTES: usize = 128;

/// `ncclUniqueId`
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId {
    pub(super) bytes: [u8; ID_BYTES],
}

functions! {
    ncclGetErrorString(status: Status) -> *const c_char;
    ncclGetLastError(communicator: RawCommunicator) -> *const c_char;
    ncclGetUniqueId(id: *mut UniqueId) -> Status;
    ncclCommInitRank(communicator: *mut RawCommunicator, ranks: c_int, id: UniqueId, rank: c_int) -> Status;
    ncclCommDestroy(communicator: RawCommunicator) -> Status;
    ncclCommAbort(communicator: RawCommunicator) -> Status;
    ncclCommGetAsyncError(communicator: RawCommunicator, status: *mut Status) -> Status;
    ncclAllReduce(
        from: *const c_void, to: *mut c_void, count: usize, dtype: c_int, operation: c_int,
        communicator: RawCommunicator, stream: *mut c_void,
    ) -> Status;
    ncclReduceScatter(
        from: *const c_void, to: *mut c_void, count_of_a_rank: usize, dtype: c_int, operation: c_int,
        communicator: RawCommunicator, stream: *mut c_void,
    ) -> Status;
    ncclAllGather(
        from: *const c_void, to: *mut c_void, count_of_a_rank: usize, dtype: c_int, communicator: RawCommunicator,
        stream: *mut c_void,
    ) -> Status;
    ncclBroadcast(
        from: *const c_void, to: *mut c_void, count: usize, dtype: c_int, root: c_int, communicator: RawCommunicator,
        stream: *mut c_void,
    ) -> Status;
    ncclSend(
        from: *const c_void, count: usize, dtype: c_int, to_rank: c_int, communicator: RawCommunicator,
        stream: *mut c_void,
    ) -> Status;
    ncclRecv(
        to: *mut c_void, count: usize, dtype: c_int, from_rank: c_int, communicator: RawCommunicator,
        stream: *mut c_void,
    ) -> Status;
    ncclGroupStart() -> Status;
    ncclGroupEnd() -> Status;
}

/// `ncclDataType_t`
pub(super) fn number_of(dtype: DType) -> c_int {
    match dtype {
        DType::I8 => 0,
        DType::Bool | DType::U8 => 1,
        DType::I32 => 2,
        DType::U32 => 3,
        DType::I64 => 4,
        // NCCL has no integers of 16 bits: it moves them as what has as many, and does not combine them.
        DType::F16 | DType::U16 | DType::I16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
        DType::C64 | DType::C128 => unreachable!("collectives take no complex numbers"),
    }
}
