//! Matrix products where no library takes them: integers, and what has strides that libraries refuse.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::rules::{DeviceTensor, Failure, LaunchShape, Plan, Result};
use fulgurite_runtime::{binds, source_files};

use super::cuda;
use super::support::{collapsed, dimensions, offset, type_of};

/// Rows and columns of the result that a block has: as in the source.
const TILE: usize = 64;

#[implementation(of = fulgurite_ops::prims::matmul, by = cuda, strided)]
mod matmul_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, other: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::matmul(plan, input, other, out)
    }
}

fn matmul(plan: &mut Plan, input: &DeviceTensor, other: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
    if out.meta.is_empty() {
        return Ok(());
    }
    let rank = out.rank();
    let (outer, matrix) = out.shape().split_at(rank - 2);
    let (rows, columns, inner) = (matrix[0], matrix[1], input.shape()[rank - 1]);
    let batches: usize = outer.iter().product();
    let dims = collapsed(dimensions(outer, [&input.strides, &other.strides]));
    let [left_row, left_inner] = [rank - 2, rank - 1].map(|dim| input.strides[dim] as i64);
    let [right_inner, right_column] = [rank - 2, rank - 1].map(|dim| other.strides[dim] as i64);
    let across = columns.div_ceil(TILE);
    let tiles = rows.div_ceil(TILE).saturating_mul(across);
    if tiles > i32::MAX as usize {
        return Err(Failure::new("TooManyTiles", format!("a product of {rows} x {columns} does not fit a launch")));
    }
    plan.source(source_files!["matmul.cu"]);
    plan.define("ELEMENT", type_of(input.meta.dtype()));
    plan.define("RESULT", type_of(out.meta.dtype()));
    plan.define("LEFT(b)", offset(&dims, 0, "b"));
    plan.define("RIGHT(b)", offset(&dims, 1, "b"));
    plan.define("LEFT_ROWS", left_row.abs() < left_inner.abs());
    plan.define("RIGHT_ROWS", right_inner.abs() < right_column.abs());
    let shape = LaunchShape::new([tiles as u32, batches.min(65_535) as u32, 1], [256, 1, 1]);
    let parameters = binds![
        input,
        other,
        out,
        batches,
        rows,
        columns,
        inner,
        left_row,
        left_inner,
        right_inner,
        right_column,
        across
    ];
    plan.launch("matmul", shape, parameters)
}
