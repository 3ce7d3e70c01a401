//! Many small copies within a device by one launch: each by itself takes longer to enqueue and to start than to do.

use std::sync::Arc;

use super::cache::KernelCache;
use super::context::Context;
use super::error::Result;
use super::launch::Arguments;
use super::module::Function;
use super::nvrtc::Cubin;
use super::own_kernels::OwnKernel;
use super::stream::Stream;
use fulgurite_kernels::launch::{CopyRange, LaunchShape};

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

const KERNEL: OwnKernel = OwnKernel { source: "gather.cu", text: include_str!("gather.cu"), kernel: "copy_ranges" };

fn options() -> [String; 1] {
    [format!("-DLIMIT={LIMIT}")]
}

impl Gather {
    /// The kernel's source, as it is compiled.
    ///
    /// # Errors
    /// Those of the compiler.
    pub fn compile(cache: &KernelCache, architecture: &str) -> Result<Arc<Cubin>> {
        KERNEL.compile(cache, architecture, &options())
    }

    /// Compiles and loads it.
    ///
    /// # Errors
    /// Those of the compiler and the driver.
    pub fn new(context: &Context) -> Result<Gather> {
        Ok(Gather { function: KERNEL.load(context, &options())? })
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
