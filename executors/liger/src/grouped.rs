//! A mixture of experts that computes each token by its own experts alone: rows are sorted by their group, in an order
//! that the groups decide, and a kernel multiplies the tiles of each group by its matrix.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{Address, DeviceTensor, LaunchShape, Plan, Result};
use fulgurite_runtime::{DType, TensorMeta, binds, refuse_unless, source_files};

use super::liger;
use fulgurite_executor_cuda::elementwise::contiguous_copy;
use fulgurite_executor_cuda::support::{WIDEST, are_aligned, type_of};
use fulgurite_ops::nn::experts_by_group;

/// The most matrices: their addresses are arguments of the kernel.
const MOST_GROUPS: usize = 256;
/// The most rows, which are counted by an `int`.
const MOST_ROWS: usize = 1 << 24;
/// The longest row: a grid has at most 65,535 tiles along its second dimension.
const LONGEST: usize = 65_535 * WIDTH;
/// Elements that are read at once.
const AT_ONCE: usize = 8;
/// Threads of a block, and columns of its tile: as in the source.
const THREADS: u32 = 256;
const WIDTH: usize = 128;
/// Rows of a tile of a group's outer product.
const OUTER_HEIGHT: usize = 128;

/// Whether the kernels are written for rows of these extents, of `count` groups.
fn kernels_fit(rows: &TensorMeta, extents: [usize; 2], count: usize) -> Claim {
    let dtype = rows.dtype();
    refuse_unless!(matches!(dtype, DType::BF16 | DType::F16), "rows are {dtype}, takes bf16 and f16");
    for extent in extents {
        refuse_unless!(
            extent.is_multiple_of(AT_ONCE) && (1..=LONGEST).contains(&extent),
            "takes extents that are multiples of {AT_ONCE} up to {LONGEST}, which a grid has tiles for, not {extent}"
        );
    }
    refuse_unless!(rows.shape()[0] <= MOST_ROWS, "takes at most {MOST_ROWS} rows, not {}", rows.shape()[0]);
    refuse_unless!(count <= MOST_GROUPS, "takes at most {MOST_GROUPS} groups, not {count}");
    Ok(())
}

/// The tensor, or a copy whose rows can be read by [`AT_ONCE`] elements.
fn readable(plan: &mut Plan, tensor: &DeviceTensor) -> Result<DeviceTensor> {
    if are_aligned(WIDEST / tensor.dtype().size(), &[tensor]) {
        return Ok(tensor.clone());
    }
    contiguous_copy(plan, tensor)
}

/// The rows sorted by their group, and where each of `count` groups starts.
fn sorted(plan: &mut Plan, groups: &DeviceTensor, count: usize) -> Result<[Address; 2]> {
    let rows = groups.len();
    let order = plan.workspace((rows * size_of::<u32>()) as u64);
    let starts = plan.workspace(((count + 2) * size_of::<u32>()) as u64);
    plan.source(source_files!["sort_rows.cu"]);
    plan.define("INDEX", type_of(groups.dtype()));
    plan.define("GROUPS", count);
    let shape = LaunchShape::linear(count as u32 + 1, 1024);
    plan.launch("sort_rows", shape, binds![groups, order, starts, rows as u32])?;
    Ok([order, starts])
}

/// Takes the following kernel from the source beside this file.
fn products(plan: &mut Plan, dtype: DType, [inputs, outputs]: [usize; 2], count: usize, height: usize) {
    plan.source(source_files!["grouped.cu"]);
    plan.define("ELEMENT", type_of(dtype));
    plan.define("INPUTS", inputs);
    plan.define("OUTPUTS", outputs);
    plan.define("GROUPS", count);
    plan.define("HEIGHT", height);
}

/// The rows of a tile: as few as fill the tensor cores where groups have few, and time is that of reading weights.
fn height(rows: usize, count: usize) -> usize {
    match rows.div_ceil(count) {
        0..=16 => 16,
        17..=64 => 64,
        _ => 128,
    }
}

#[implementation(of = fulgurite_ops::nn::grouped_linear, by = liger)]
mod grouped_linear_by_liger {
    fn checker(input: &TensorMeta, weights: &[TensorMeta]) -> Claim {
        super::kernels_fit(input, [weights[0].shape()[0], weights[0].shape()[1]], weights.len())
    }

    fn plan(
        plan: &mut Plan,
        input: &DeviceTensor,
        weights: &[DeviceTensor],
        groups: &DeviceTensor,
        turned: bool,
        out: &DeviceTensor,
    ) -> Result<()> {
        let (rows, count) = (input.shape()[0], weights.len());
        if rows == 0 {
            return Ok(());
        }
        let [inputs, outputs] = [input.shape()[1], out.shape()[1]];
        let [order, starts] = super::sorted(plan, groups, count)?;
        let input = super::readable(plan, input)?;
        let mut matrices = Vec::with_capacity(count);
        for weight in weights {
            matrices.push(super::readable(plan, weight)?.address);
        }
        let height = super::height(rows, count);
        super::products(plan, input.dtype(), [inputs, outputs], count, height);
        plan.define("OUTER", 0);
        plan.define("WEIGHTS_TURNED", turned);
        plan.define("ALIGNED", u8::from(are_aligned(2, &[out])));
        // Of each group, and of the rows of none, the last tile may not be full.
        let tiles = rows / height + (count + 1).min(rows);
        let shape = LaunchShape::new([tiles as u32, outputs.div_ceil(WIDTH) as u32, 1], [THREADS, 1, 1]);
        plan.launch("grouped_linear", shape, binds![&input, matrices, out, order, starts])
    }
}

#[implementation(of = fulgurite_ops::nn::grouped_outer, by = liger)]
mod grouped_outer_by_liger {
    fn checker(left: &TensorMeta, right: &TensorMeta, count: usize) -> Claim {
        super::kernels_fit(left, [left.shape()[1], right.shape()[1]], count)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &[DeviceTensor]) -> Result<()> {
        let Args { left, right, groups, count } = args;
        if left.shape()[0] == 0 {
            out.iter().for_each(|matrix| plan.fill(matrix, 0));
            return Ok(());
        }
        let height = OUTER_HEIGHT;
        let [outputs, inputs] = [left.shape()[1], right.shape()[1]];
        let [order, starts] = super::sorted(plan, groups, count)?;
        let (left, right) = (super::readable(plan, left)?, super::readable(plan, right)?);
        super::products(plan, left.dtype(), [inputs, outputs], count, height);
        plan.define("OUTER", 1);
        plan.define("ALIGNED", u8::from(are_aligned(2, &out.iter().collect::<Vec<_>>())));
        let results: Vec<Address> = out.iter().map(|matrix| matrix.address).collect();
        let grid = [inputs.div_ceil(WIDTH) as u32, outputs.div_ceil(height) as u32, count as u32];
        let shape = LaunchShape::new(grid, [THREADS, 1, 1]);
        plan.launch("grouped_outer", shape, binds![&left, &right, results, order, starts])
    }
}

#[implementation(of = fulgurite_ops::nn::experts_mlp, by = liger)]
mod experts_mlp_by_liger {
    fn checker(input: &TensorMeta, gates: &[TensorMeta], experts: &TensorMeta) -> Claim {
        refuse_unless!(!experts.is_empty(), "experts is {experts}, takes a choice or more");
        let rows = input.with_shape([experts.len(), input.shape()[1]]);
        super::kernels_fit(&rows, [gates[0].shape()[0], gates[0].shape()[1]], gates.len())
    }

    fn execution(Args { input, gates, ups, downs, experts, shares }: Args<Tensor>) -> Tensor {
        experts_by_group(input, gates, ups, downs, experts, shares).0
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { input, gates, ups, downs, experts, shares } = args;
        let (out, back) = experts_by_group(input, gates, ups, downs, experts, shares);
        (out, move |d_out: Tensor| {
            let fulgurite_ops::nn::ExpertGradients { input, gates, ups, downs, shares } = back(d_out);
            Grads { input, gates, ups, downs, shares }
        })
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_runtime::Device;

    use super::*;

    #[test]
    fn extents_have_tiles_in_a_grid() {
        let fits = |extents: [usize; 2]| kernels_fit(&TensorMeta::new([4, 8], DType::BF16, Device::CPU), extents, 2);
        const { assert!(OUTER_HEIGHT == WIDTH) };
        for [inputs, outputs] in [[8, 65_535 * 128], [65_535 * 128, 8]] {
            assert!(fits([inputs, outputs]).is_ok());
        }
        for extents in [[8, 65_536 * 128], [65_535 * 128 + 8, 8]] {
            let refusal = format!("{:?}", fits(extents).unwrap_err());
            assert!(refusal.contains("which a grid has tiles for"), "{refusal}");
        }
    }
}
