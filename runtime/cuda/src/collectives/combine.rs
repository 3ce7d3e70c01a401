//! Parts of all ranks' tensors as one, by a kernel.

use std::sync::Arc;

use fulgurite_kernels::DType;
use fulgurite_kernels::launch::{DeviceAddress, LaunchShape};

use super::super::cache::KernelCache;
use super::super::context::Context;
use super::super::error::Result;
use super::super::headers::type_of;
use super::super::launch::Arguments;
use super::super::module::Function;
use super::super::nvrtc::Cubin;
use super::super::own_kernels::OwnKernel;
use super::super::stream::Stream;
use super::transfer::Reduction;

/// Parts of one launch: what every device has room for among a kernel's arguments (4 KiB).
const LIMIT: usize = 96;
const THREADS: u32 = 256;
/// Bytes of a block at least: each of its threads makes sixteen, four times.
const BYTES_OF_BLOCK: usize = 4 * 16 * THREADS as usize;
/// Blocks of a part at most. Memory is the limit, and two blocks on each multiprocessor use all of it.
const MOST_BLOCKS: usize = 264;

/// A part that a rank combines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Combined {
    /// Of its own tensor.
    pub(super) own: DeviceAddress,
    /// Of the other ranks' tensors, in the order of ranks.
    pub(super) others: DeviceAddress,
    /// From one of them to the next.
    pub(super) slot_bytes: usize,
    /// Where the result is written; it may be that of `own`.
    pub(super) to: DeviceAddress,
    /// Of its own part.
    pub(super) bytes: usize,
}

/// The kernel, for the types of what is given and got, a reduction, and the ranks of a group.
#[derive(Debug)]
pub struct Combine {
    function: Function,
    size: usize,
}

const KERNEL: OwnKernel = OwnKernel { source: "combine.cu", text: include_str!("combine.cu"), kernel: "combine_parts" };

fn options([from, to]: [DType; 2], by: Reduction, ranks: usize) -> Vec<String> {
    // NaN is not equal to itself.
    let combine = match by {
        Reduction::Sum | Reduction::Mean => "((a)+(b))",
        Reduction::Product => "((a)*(b))",
        Reduction::Max => "((a)!=(a)||(a)>(b)?(a):(b))",
        Reduction::Min => "((a)!=(a)||(a)<(b)?(a):(b))",
    };
    let finish = if by == Reduction::Mean { "((a)/RANKS)" } else { "(a)" };
    vec![
        format!("-DLIMIT={LIMIT}"),
        format!("-DELEMENT={}", type_of(from)),
        format!("-DRESULT={}", type_of(to)),
        format!("-DRANKS={ranks}"),
        format!("-DCOMBINE(a,b)={combine}"),
        format!("-DFINISH(a)={finish}"),
    ]
}

impl Combine {
    /// The kernel's source, as it is compiled.
    ///
    /// # Errors
    /// Those of the compiler.
    pub fn compile(
        cache: &KernelCache,
        architecture: &str,
        (dtypes, by, ranks): ([DType; 2], Reduction, usize),
    ) -> Result<Arc<Cubin>> {
        KERNEL.compile(cache, architecture, &options(dtypes, by, ranks))
    }

    /// Compiles and loads it.
    ///
    /// # Errors
    /// Those of the compiler and the driver.
    pub(crate) fn new(context: &Context, dtypes: [DType; 2], by: Reduction, ranks: usize) -> Result<Combine> {
        Ok(Combine { function: KERNEL.load(context, &options(dtypes, by, ranks))?, size: dtypes[0].size() })
    }

    /// Enqueues it for the parts of the rank at `place`.
    ///
    /// # Safety
    /// The parts are as they are described, and used by no work that is not ordered with the stream.
    pub(super) unsafe fn run(&self, stream: &Stream, place: usize, parts: &[Combined]) -> Result<()> {
        for parts in parts.chunks(LIMIT) {
            let mut table = [0u8; LIMIT * 40];
            for (entry, part) in table.chunks_exact_mut(40).zip(parts) {
                let (count, stride) = (part.bytes / self.size, part.slot_bytes / self.size);
                let fields = [part.own.0, part.others.0, part.to.0, count as u64, stride as u64];
                let places = entry.chunks_exact_mut(8).zip(fields);
                places.for_each(|(place, field)| place.copy_from_slice(&field.to_le_bytes()));
            }
            let largest = parts.iter().map(|part| part.bytes).max().unwrap_or(0);
            let blocks = largest.div_ceil(BYTES_OF_BLOCK).clamp(1, MOST_BLOCKS) as u32;
            let shape = LaunchShape::new([blocks, parts.len() as u32, 1], [THREADS, 1, 1]);
            let arguments = Arguments::new().bytes(&table).u32(place as u32);
            // SAFETY: each block combines a part of what the table says, which the caller vouches for.
            unsafe { self.function.launch(stream, &shape, &arguments) }?;
        }
        Ok(())
    }
}
