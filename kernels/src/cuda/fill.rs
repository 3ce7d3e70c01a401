//! Memory filled by a kernel. The driver launches a graph that is a chain of kernels in a few microseconds, whatever
//! their number; one that also has fills of its own takes ten times as long (3 and 22 to 55 us on an H200, 266 nodes, a
//! fill before every twentieth).

use super::cache::KernelCache;
use super::context::Context;
use super::error::{CudaError, Result};
use super::launch::Arguments;
use super::module::{Function, Module};
use super::nvrtc::Compilation;
use super::sources;
use super::stream::Stream;
use crate::launch::{DeviceAddress, LaunchShape};

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

impl Fill {
    /// The kernel's source, as it is compiled.
    ///
    /// # Errors
    /// Those of the compiler.
    pub fn compile(cache: &KernelCache, architecture: &str) -> Result<std::sync::Arc<super::nvrtc::Cubin>> {
        let name = "fill.cu";
        let source = sources::edited(name, include_str!("fill.cu"))
            .map_err(|text| CudaError::Nvrtc { call: "nvrtcCreateProgram", text })?;
        cache.compile(&Compilation { name, source: &source, architecture, options: &[] })
    }

    /// Compiles and loads it.
    ///
    /// # Errors
    /// Those of the compiler and the driver.
    pub fn new(context: &Context) -> Result<Fill> {
        let cubin = Fill::compile(KernelCache::global(), &context.device().architecture())?;
        Ok(Fill { function: Module::load(context, &cubin)?.function("fill_range")? })
    }

    /// Sets `bytes` bytes to `byte`.
    ///
    /// # Safety
    /// The range must be allocated, and used by no work that is not ordered with this stream.
    pub unsafe fn enqueue(&self, stream: &Stream, to: DeviceAddress, byte: u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let blocks = bytes.div_ceil(BYTES_OF_BLOCK).clamp(1, MOST_BLOCKS) as u32;
        let arguments = Arguments::new().pointer(to).u64(bytes as u64).u32(u32::from_ne_bytes([byte; 4]));
        // SAFETY: the kernel writes the range, which the caller vouches for, and nothing else.
        unsafe { self.function.launch(stream, &LaunchShape::linear(blocks, THREADS), &arguments) }
    }
}
