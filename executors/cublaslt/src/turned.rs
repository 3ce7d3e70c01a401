//! Operands of products in TF32 that are transposed before they are multiplied.
//!
//! The tensor cores of sm_90a read operands of 32 bits along what is summed over, and no other way. Where the memory of
//! both operands has a row for each term of the sums, as those of a weight's gradient have, the library's products are
//! slower; with one of them transposed they are nearly as fast as others. Measured on an H200 (`benches/RESULTS.md`,
//! "Transposed operands in TF32"), sums of 4096 terms, the best of the library's 32 algorithms: 2304 x 768 in 90 us,
//! with the smaller operand transposed in 53; 3072 x 768 in 117 and 77; 50304 x 768 in 1243 and 837; 768 x 768 in 43
//! and 36, which a copy takes back.

use fulgurite_runtime::kernels::cuda::cublaslt::Compute;
use fulgurite_runtime::kernels::view::contiguous_strides;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Plan, Result};
use fulgurite_runtime::{DType, binds, source_files};

/// Seconds that an operation takes longer where neither operand is transposed: 162 TFLOP/s, and 275.
const LOST: f64 = 1.0 / 162e12 - 1.0 / 275e12;
/// Seconds that the transposition takes to begin, and bytes that it moves in a second.
const LAUNCH: f64 = 3e-6;
const MOVED: f64 = 2.5e12;

/// Elements of a tile's side.
const TILE: usize = 64;
/// Threads of a block.
const THREADS: u32 = 256;
/// Elements of 16 bytes.
const PACK: usize = 4;
/// The most blocks in the second dimension of a grid.
const MOST_TILES: usize = 65_535;

/// An operand of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The left one, `m x k`.
    Left,
    /// The right one, `k x n`.
    Right,
}

/// Which operand of `m x k` times `k x n` is transposed first, if that saves time. The memory of both has a row for
/// each of the `k` terms.
pub(crate) fn side(plan: &Plan, compute: Compute, [m, n, k]: [usize; 3]) -> Option<Side> {
    let along_sums = plan.properties().architecture.as_deref() == Some("sm_90a");
    let narrow = m.min(n);
    // Rows of what was transposed start on 16 bytes.
    let fits = k.is_multiple_of(PACK) && narrow.div_ceil(TILE) <= MOST_TILES;
    if compute != Compute::Tf32 || !along_sums || !fits {
        return None;
    }
    let gained = 2.0 * m as f64 * n as f64 * k as f64 * LOST;
    let taken = LAUNCH + (2 * DType::F32.size() * narrow * k) as f64 / MOVED;
    (gained > taken).then_some(if m < n { Side::Left } else { Side::Right })
}

/// A contiguous copy in the workspace of a matrix `[columns, k]` of f32 whose strides are `[1, leading]`.
pub(crate) fn turned(plan: &mut Plan, matrix: &DeviceTensor) -> Result<DeviceTensor> {
    let [columns, k] = [matrix.shape()[0], matrix.shape()[1]];
    let leading = matrix.strides[1] as u64;
    let to = DeviceTensor {
        meta: matrix.meta.clone(),
        strides: contiguous_strides(matrix.shape()),
        address: plan.workspace(matrix.meta.bytes() as u64),
        alignment: 256,
    };
    let aligned = matrix.alignment.is_multiple_of(PACK * DType::F32.size())
        && leading.is_multiple_of(PACK as u64)
        && columns.is_multiple_of(PACK);
    plan.source(source_files!["turn.cu"]);
    plan.define("THREADS", THREADS);
    plan.define("TILE", TILE);
    plan.define("ALIGNED", u8::from(aligned));
    let grid = [k.div_ceil(TILE) as u32, columns.div_ceil(TILE) as u32, 1];
    let shape = LaunchShape { grid, block: [THREADS, 1, 1], ..LaunchShape::linear(1, THREADS) };
    plan.launch("turn", shape, binds![matrix, &to, k as u64, columns as u64, leading])?;
    Ok(to)
}

/// The same elements as the transpose of a matrix.
pub(crate) fn transposed(matrix: &DeviceTensor) -> DeviceTensor {
    let [rows, columns] = [matrix.shape()[0], matrix.shape()[1]];
    DeviceTensor {
        meta: matrix.meta.with_shape([columns, rows]),
        strides: vec![matrix.strides[1], matrix.strides[0]],
        ..matrix.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side_of(architecture: &str, compute: Compute, extents: [usize; 3]) -> Option<Side> {
        side(&Plan::of(&format!("cuda:{architecture}").parse().unwrap()).unwrap(), compute, extents)
    }

    #[test]
    fn large_products_have_their_smaller_operand_transposed() {
        let of = |extents| side_of("sm_90a", Compute::Tf32, extents);
        assert_eq!(of([2304, 768, 4096]), Some(Side::Right));
        assert_eq!(of([768, 3072, 4096]), Some(Side::Left));
        assert_eq!(of([50_304, 768, 256]), Some(Side::Right));
        assert_eq!(of([768, 768, 4096]), None, "the copy takes as long as is gained");
        assert_eq!(of([2304, 768, 256]), None);
        assert_eq!(of([2304, 768, 4097]), None, "rows that do not start on 16 bytes");
    }

    #[test]
    fn other_products_stay_as_they_are() {
        assert_eq!(side_of("sm_90a", Compute::F32, [2304, 768, 4096]), None);
        assert_eq!(side_of("sm_80", Compute::Tf32, [2304, 768, 4096]), None);
    }
}
