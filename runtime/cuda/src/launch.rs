//! Launching kernels.

use super::call::driver;
use super::error::{CudaError, Result};
use super::module::Function;
use super::stream::Stream;
use cudarc::driver::sys::{
    CUlaunchAttribute, CUlaunchAttributeID_enum as Attribute, CUlaunchAttributeValue,
    CUlaunchAttributeValue_union__bindgen_ty_1 as ClusterDimensions, CUlaunchConfig,
};
use fulgurite_kernels::launch::{DeviceAddress, LaunchShape};
use smallvec::SmallVec;
use std::ffi::c_void;

/// A kernel's arguments, packed in order.
///
/// ```
/// # use fulgurite_cuda::{Arguments, DeviceAddress};
/// let arguments = Arguments::new().pointer(DeviceAddress(0x7f00_0000)).u64(1 << 20).f32(1e-5);
/// assert_eq!(arguments.sizes().collect::<Vec<_>>(), [8, 8, 4]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    bytes: SmallVec<[u8; 128]>,
    /// Where each argument ends in `bytes`.
    ends: SmallVec<[u32; 16]>,
}

impl Arguments {
    /// No arguments.
    pub fn new() -> Arguments {
        Arguments::default()
    }

    /// An argument passed by value, as the device's memory would hold it: a structure, or a type of one or two bytes.
    pub fn bytes(mut self, value: &[u8]) -> Arguments {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len() as u32);
        self
    }

    /// A pointer.
    pub fn pointer(self, address: DeviceAddress) -> Arguments {
        self.u64(address.0)
    }

    /// An `unsigned long long`.
    pub fn u64(self, value: u64) -> Arguments {
        self.bytes(&value.to_le_bytes())
    }

    /// A `long long`.
    pub fn i64(self, value: i64) -> Arguments {
        self.bytes(&value.to_le_bytes())
    }

    /// An `unsigned`.
    pub fn u32(self, value: u32) -> Arguments {
        self.bytes(&value.to_le_bytes())
    }

    /// An `int`.
    pub fn i32(self, value: i32) -> Arguments {
        self.bytes(&value.to_le_bytes())
    }

    /// A `float`.
    pub fn f32(self, value: f32) -> Arguments {
        self.bytes(&value.to_le_bytes())
    }

    /// A `double`.
    pub fn f64(self, value: f64) -> Arguments {
        self.bytes(&value.to_le_bytes())
    }

    /// The arguments' sizes in bytes, in order.
    pub fn sizes(&self) -> impl ExactSizeIterator<Item = usize> {
        (0..self.ends.len()).map(|n| self.ends[n] as usize - self.start(n))
    }

    fn start(&self, n: usize) -> usize {
        if n == 0 { 0 } else { self.ends[n - 1] as usize }
    }

    /// Where each argument is, as the driver takes them: it reads them, and writes nothing.
    pub(super) fn pointers(&self) -> SmallVec<[*mut c_void; 16]> {
        (0..self.ends.len()).map(|n| self.bytes[self.start(n)..].as_ptr().cast_mut().cast::<c_void>()).collect()
    }
}

impl Function {
    /// Enqueues the kernel on `stream`.
    ///
    /// # Errors
    /// [`CudaError::Launch`] if number or sizes of the arguments are not those of the kernel's parameters, or the shape
    /// is impossible on the device; the driver's otherwise. Faults of the kernel itself come out where the stream is
    /// waited for.
    ///
    /// # Safety
    /// The kernel must be right for these arguments and this shape: it reads and writes only memory that is allocated,
    /// and that no work uses which is not ordered with the stream.
    pub unsafe fn launch(&self, stream: &Stream, shape: &LaunchShape, arguments: &Arguments) -> Result<()> {
        let refuse = |reason: String| Err(CudaError::Launch { kernel: self.name().to_owned(), reason });
        if stream.context() != self.context() {
            return refuse(format!("it is loaded in {:?}, the stream is of {:?}", self.context(), stream.context()));
        }
        let parameters = &self.resources().parameters;
        if !parameters.iter().map(|parameter| parameter.bytes).eq(arguments.sizes()) {
            let expected: Vec<usize> = parameters.iter().map(|parameter| parameter.bytes).collect();
            let given: Vec<usize> = arguments.sizes().collect();
            return refuse(format!("its parameters have {expected:?} bytes, the arguments {given:?}"));
        }
        if let Some(reason) = shape.fault(self.max_threads()) {
            return refuse(reason);
        }
        self.allow_shared(shape.shared_bytes)?;
        if shape.cluster.is_some_and(|cluster| cluster.iter().product::<u32>() > 8) {
            self.allow_large_clusters()?;
        }

        let mut attributes: SmallVec<[CUlaunchAttribute; 3]> = SmallVec::new();
        if let Some([x, y, z]) = shape.cluster {
            let clusters = CUlaunchAttributeValue { clusterDim: ClusterDimensions { x, y, z } };
            attributes.push(attribute(Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, clusters));
        }
        if shape.cooperative {
            let on = CUlaunchAttributeValue { cooperative: 1 };
            attributes.push(attribute(Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, on));
        }
        if shape.overlaps_previous {
            let on = CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 };
            attributes.push(attribute(Attribute::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, on));
        }
        let stream = stream.bound()?;
        let config = CUlaunchConfig {
            gridDimX: shape.grid[0],
            gridDimY: shape.grid[1],
            gridDimZ: shape.grid[2],
            blockDimX: shape.block[0],
            blockDimY: shape.block[1],
            blockDimZ: shape.block[2],
            sharedMemBytes: shape.shared_bytes,
            hStream: stream.raw,
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        };
        let mut pointers = arguments.pointers();
        // SAFETY: the driver copies the arguments during the call, of the sizes that were compared above; the rest is
        // alive; what the kernel does is promised by the caller.
        unsafe { driver!(cuLaunchKernelEx(&config, self.raw(), pointers.as_mut_ptr(), std::ptr::null_mut())) }
    }
}

fn attribute(id: Attribute, value: CUlaunchAttributeValue) -> CUlaunchAttribute {
    CUlaunchAttribute { id, pad: [0; 4], value }
}
