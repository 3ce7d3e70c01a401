//! Memory filled by a kernel. The driver launches a graph that is a chain of kernels in a few microseconds, whatever
//! their number; one that also has fills of its own takes ten times as long (3 and 22 to 55 us on an H200, 266 nodes, a
//! fill before every twentieth).

use std::sync::Arc;

use super::cache::KernelCache;
use super::context::Context;
use super::error::Result;
use super::launch::Arguments;
use super::module::Function;
use super::nvrtc::Cubin;
use super::own_kernels::OwnKernel;
use super::stream::Stream;
use fulgurite_kernels::launch::{DeviceAddress, LaunchShape};

const THREADS: u32 = 256;
/// Bytes of a block: each of its threads writes sixteen, four times.
const BYTES_OF_BLOCK: usize = 4 * 16 * THREADS as usize;
/// Blocks at most; they fill larger ranges in several turns.
const MOST_BLOCKS: usize = 2048;

/// The kernel that fills, loaded into a context.
#[derive(Debug)]
pub struct Fill {
    function: Function,
}

const KERNEL: OwnKernel = OwnKernel { source: "fill.cu", text: include_str!("fill.cu"), kernel: "fill_range" };

impl Fill {
    /// The kernel's source, as it is compiled.
    ///
    /// # Errors
    /// Those of the compiler.
    pub fn compile(cache: &KernelCache, architecture: &str) -> Result<Arc<Cubin>> {
        KERNEL.compile(cache, architecture, &[])
    }

    /// Compiles and loads it.
    ///
    /// # Errors
    /// Those of the compiler and the driver.
    pub fn new(context: &Context) -> Result<Fill> {
        Ok(Fill { function: KERNEL.load(context, &[])? })
    }

    /// Sets `bytes` bytes to `byte`.
    ///
    /// # Safety
    /// The range must be allocated, and used by no work that is not ordered with this stream.
    pub unsafe fn enqueue(&self, stream: &Stream, to: DeviceAddress, byte: u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let (function, shape, arguments) = self.launch_of(to, byte, bytes);
        // SAFETY: the kernel writes the range, which the caller vouches for, and nothing else.
        unsafe { function.launch(stream, &shape, &arguments) }
    }

    /// The kernel, and how it is launched to set `bytes` bytes to `byte`.
    pub(super) fn launch_of(&self, to: DeviceAddress, byte: u8, bytes: usize) -> (&Function, LaunchShape, Arguments) {
        let blocks = bytes.div_ceil(BYTES_OF_BLOCK).clamp(1, MOST_BLOCKS) as u32;
        let arguments = Arguments::new().pointer(to).u64(bytes as u64).u32(u32::from_ne_bytes([byte; 4]));
        (&self.function, LaunchShape::linear(blocks, THREADS), arguments)
    }
}
