//! Places of numbers in sorted lines: a thread has a number.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::rules::{DeviceTensor, Plan, Result};
use fulgurite_runtime::{binds, source_files};

use super::cuda;
use super::support::{collapsed, dimensions, index_type, offset, one_thread_each, positions, type_of};

#[implementation(of = fulgurite_ops::prims::searchsorted, by = cuda, strided)]
mod searchsorted_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(
        plan: &mut Plan,
        sorted: &DeviceTensor,
        values: &DeviceTensor,
        right: bool,
        out: &DeviceTensor,
    ) -> Result<()> {
        super::search(plan, sorted, values, right, out)
    }
}

fn search(
    plan: &mut Plan,
    sorted: &DeviceTensor,
    values: &DeviceTensor,
    right: bool,
    out: &DeviceTensor,
) -> Result<()> {
    if out.meta.is_empty() {
        return Ok(());
    }
    // Numbers of one line share it; of one line for all, the strides are zero.
    let mut lines = vec![0; values.rank()];
    let (along, of) = (sorted.strides[sorted.rank() - 1], sorted.rank() - 1);
    if of > 0 {
        lines[..of].copy_from_slice(&sorted.strides[..of]);
    }
    let dims = collapsed(dimensions(values.shape(), [&values.strides, &lines, &out.strides]));
    let count = positions(&dims);
    plan.source(source_files!["search.cu"]);
    plan.define("ELEMENT", type_of(values.meta.dtype()));
    plan.define("INDEX", index_type(count));
    plan.define("VALUE(n)", offset(&dims, 0, "n"));
    plan.define("LINE(n)", offset(&dims, 1, "n"));
    plan.define("TO(n)", offset(&dims, 2, "n"));
    let length = sorted.shape()[of];
    let parameters = binds![sorted, values, out, count, length, along as i64, u32::from(right)];
    plan.launch("search", one_thread_each(count), parameters)
}
