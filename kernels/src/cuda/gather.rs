//! Many small copies within a device by one launch: each by itself takes longer to enqueue and to start than to do.

use super::cache::KernelCache;
use super::context::Context;
use super::error::{CudaError, Result};
use super::launch::Arguments;
use super::module::{Function, Module};
use super::nvrtc::Compilation;
use super::sources;
use super::stream::Stream;
use crate::launch::{CopyRange, LaunchShape};

/// Ranges of one launch: what every device has room for among a kernel's arguments (4 KiB).
const LIMIT: usize = 160;
const THREADS: u32 = 256;
/// Bytes of a block: each of its threads copies sixteen, four times.
const BYTES_OF_BLOCK: usize = 4 * 16 * THREADS as usize;
/// Blocks of a range at most.
const MOST_BLOCKS: usize = 32;

/// The kernel that copies, loaded into a context.
#[derive(Debug)]
pub struct Gather {
    function: Function,
}

impl Gather {
    /// The kernel's source, as it is compiled.
    pub fn compile(cache: &KernelCache, architecture: &str) -> Result<std::sync::Arc<super::nvrtc::Cubin>> {
        let options = [format!("-DLIMIT={LIMIT}")];
        let name = "gather.cu";
        let source = sources::edited(name, include_str!("gather.cu"))
            .map_err(|text| CudaError::Nvrtc { call: "nvrtcCreateProgram", text })?;
        cache.compile(&Compilation { name, source: &source, architecture, options: &options })
    }

    /// Compiles and loads it.
    ///
    /// # Errors
    /// Those of the compiler and the driver.
    pub fn new(context: &Context) -> Result<Gather> {
        let cubin = Gather::compile(KernelCache::global(), &context.device().architecture())?;
        Ok(Gather { function: Module::load(context, &cubin)?.function("copy_ranges")? })
    }

    /// Enqueues the copies, in no order among themselves.
    ///
    /// # Safety
    /// As [`Stream::copy_on_device`], for each of them; what one writes no other may read or write.
    pub unsafe fn copy(&self, stream: &Stream, copies: &[CopyRange]) -> Result<()> {
        let copies: Vec<&CopyRange> = copies.iter().filter(|copy| copy.bytes > 0).collect();
        for copies in copies.chunks(LIMIT) {
            let mut table = [0u8; LIMIT * 24];
            for (entry, copy) in table.chunks_exact_mut(24).zip(copies) {
                let fields = [copy.from.0, copy.to.0, copy.bytes as u64];
                let places = entry.chunks_exact_mut(8).zip(fields);
                places.for_each(|(place, field)| place.copy_from_slice(&field.to_le_bytes()));
            }
            let largest = copies.iter().map(|copy| copy.bytes).max().unwrap_or(0);
            let blocks = largest.div_ceil(BYTES_OF_BLOCK).clamp(1, MOST_BLOCKS) as u32;
            let shape = LaunchShape::new([blocks, copies.len() as u32, 1], [THREADS, 1, 1]);
            // SAFETY: each block copies a part of the range that the table says, which the caller vouches for.
            unsafe { self.function.launch(stream, &shape, &Arguments::new().bytes(&table)) }?;
        }
        Ok(())
    }
}
