//! The structures of `dlpack.h`, version 1.0, under their names there.
#![allow(missing_docs)]

use std::ffi::c_void;

/// A version of the structures. Those of one major version are compatible.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLPackVersion {
    pub major: u32,
    pub minor: u32,
}

/// A device: its type, and its number.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLDevice {
    pub device_type: i32,
    pub device_id: i32,
}

/// An element type: its class, its size in bits, and how many make an element.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLDataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// A tensor that owns nothing. Strides are in elements; null stands for row-major ones.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DLTensor {
    pub data: *mut c_void,
    pub device: DLDevice,
    pub ndim: i32,
    pub dtype: DLDataType,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

/// A tensor from before versions.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    pub dl_tensor: DLTensor,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// A tensor with its version and flags.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    pub version: DLPackVersion,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    pub flags: u64,
    pub dl_tensor: DLTensor,
}

/// The receiver may only read.
pub const FLAG_READ_ONLY: u64 = 1;
/// The data was copied for the receiver.
pub const FLAG_IS_COPIED: u64 = 2;

/// The version that is written.
pub(super) const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 0 };

/// Types of devices.
pub(super) const CPU: i32 = 1;
/// Types of devices whose page-locked host memory has a type of its own, and that type.
pub(crate) const HOST_MEMORY: [(i32, i32); 2] = [(2, 3), (10, 11)];

/// Classes of element types.
pub(super) const INT: u8 = 0;
pub(super) const UINT: u8 = 1;
pub(super) const FLOAT: u8 = 2;
pub(super) const BFLOAT: u8 = 4;
pub(super) const COMPLEX: u8 = 5;
pub(super) const BOOL: u8 = 6;

impl DLManagedTensorVersioned {
    /// One without data, whose fields are still to be written.
    pub(super) const EMPTY: DLManagedTensorVersioned = DLManagedTensorVersioned {
        version: VERSION,
        manager_ctx: std::ptr::null_mut(),
        deleter: None,
        flags: 0,
        dl_tensor: DLTensor {
            data: std::ptr::null_mut(),
            device: DLDevice { device_type: CPU, device_id: 0 },
            ndim: 0,
            dtype: DLDataType { code: FLOAT, bits: 32, lanes: 1 },
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        },
    };
}
