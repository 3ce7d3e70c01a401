//! Positions of largest elements, and lines along any dimension of operands of any strides.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{TensorMeta, binds, refuse_unless, source_files};

use super::cuda;
use super::support::{Dimension, collapsed, dimensions, offset, positions, type_of};

/// The threads that one launch should have at least to fill a device.
pub(super) const ENOUGH_THREADS: usize = 1 << 16;

/// Lines along one dimension: where they start in N tensors, and how they go on.
pub(super) struct Lines<const N: usize> {
    pub(super) starts: Vec<Dimension<N>>,
    pub(super) count: usize,
    pub(super) length: usize,
    pub(super) along: [i64; N],
}

/// The lines of a tensor along a dimension, and the elements of each; there are none in a tensor without elements.
pub(super) fn lines_of(input: &TensorMeta, dim: usize) -> (usize, usize) {
    let length = input.shape()[dim];
    (input.len() / length.max(1), length)
}

/// Whether a launch can have a block for each line.
pub(super) fn lines_fit(input: &TensorMeta, dim: usize) -> Claim {
    let (count, _) = lines_of(input, dim);
    refuse_unless!(
        count <= i32::MAX as usize,
        "has a block for each of at most {} lines, input is {input}: {count} lines along dimension {dim}",
        i32::MAX
    );
    Ok(())
}

impl<const N: usize> Lines<N> {
    /// Of tensors whose lines [`lines_fit`] a launch.
    pub(super) fn new(shape: &[usize], strides: [&[isize]; N], dim: usize) -> Lines<N> {
        let mut all = dimensions(shape, strides);
        let (length, along) = all.remove(dim);
        let starts = collapsed(all);
        let count = positions(&starts);
        Lines { starts, count, length, along: along.map(|stride| stride as i64) }
    }

    /// Threads of a block that has a line, where each thread has at least `items` elements.
    pub(super) fn threads(&self, items: usize, most: usize) -> u32 {
        self.length.div_ceil(items).next_multiple_of(32).clamp(32, most) as u32
    }
}

#[implementation(of = fulgurite_ops::prims::argmax, by = cuda, strided)]
mod argmax_by_cuda {
    fn checker(input: &TensorMeta, dim: usize) -> Claim {
        super::lines_fit(input, dim)
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, dim: usize, out: &DeviceTensor) -> Result<()> {
        super::argmax(plan, input, dim, out)
    }
}

fn argmax(plan: &mut Plan, input: &DeviceTensor, dim: usize, out: &DeviceTensor) -> Result<()> {
    if out.meta.is_empty() {
        return Ok(());
    }
    let lines = Lines::new(input.shape(), [&input.strides], dim);
    let Lines { count, length, along: [along], .. } = lines;
    // Enough pieces to fill the device, none shorter than 1024 elements.
    let pieces = (ENOUGH_THREADS / count).clamp(1, (length / 1024).max(1)).min(1024);
    let piece = length.div_ceil(pieces);
    let pieces = length.div_ceil(piece);
    plan.source(source_files!["argmax.cu"]);
    plan.define("IN", type_of(input.meta.dtype()));
    plan.define("KEPT(i)", offset(&lines.starts, 0, "i"));
    let (keys, places): (Parameter, Parameter) = if pieces == 1 {
        (0u64.into(), 0u64.into())
    } else {
        let bytes = (count * pieces * 8) as u64;
        (plan.workspace(bytes).into(), plan.workspace(bytes).into())
    };
    let by_block = piece >= 64 && (along == 1 || count * pieces < ENOUGH_THREADS / 32);
    let threads = if by_block { lines.threads(4, 512) } else { 128 };
    let (kernel, blocks) =
        if by_block { ("argmax_rows", count) } else { ("argmax_columns", count.div_ceil(threads as usize)) };
    let shape = LaunchShape::new([blocks as u32, pieces as u32, 1], [threads, 1, 1]);
    plan.launch(kernel, shape, binds![input, out, keys.clone(), places.clone(), count, length, piece, along])?;
    if pieces == 1 {
        return Ok(());
    }
    let shape = LaunchShape::linear(count.div_ceil(128) as u32, 128);
    plan.launch("argmax_pieces", shape, binds![keys, places, out, count, pieces])
}
