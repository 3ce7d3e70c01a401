//! `fusion`: regions of elementwise arithmetic, broadcasts and row reductions on an NVIDIA GPU, each one generated
//! kernel, and lists of lines that do the same to many inputs of a program.

use fulgurite_ops_macros::executor;

/// Regions of symbols that `cuda` claimed, each one generated kernel.
#[executor(device = "cuda", priority = 20, strided, strided_results = 0)]
pub mod fusion {
    use fulgurite_runtime::fuel::Fuel;
    use fulgurite_runtime::trace::Block;

    use crate::column_sums::launch_with_sums;
    use crate::elementwise::launch;
    use fulgurite_executor_regions::again::compute_again;
    use fulgurite_executor_regions::grouping::{ColumnSums, Limits, fuse as gather, iteration_shape};
    use fulgurite_executor_regions::lists;
    use fulgurite_executor_regions::program::{program_of, seen_in, stored_in, sums_of};
    use fulgurite_executor_regions::widening::gather_before;

    /// More operands than this do not fit a kernel's registers well.
    const LIMITS: Limits = Limits {
        executor: "fusion",
        members: "cuda",
        symbols: 48,
        scattered_rows: true,
        column_sums: Some(COLUMN_SUMS),
    };

    /// Rows enough for every multiprocessor, and widths at which threads keep the sums of their columns in registers.
    const COLUMN_SUMS: ColumnSums = ColumnSums { rows: 1024, widths: [256, 8192], shortest_alone: 64, most: 4 };

    fn fuse(block: &Block, fuel: &mut Fuel) -> Block {
        let regions = gather(&gather_before(block, LIMITS.members, fuel), LIMITS, fuel);
        lists::gather(&compute_again(&regions, LIMITS, fuel), LIMITS, fuel)
    }

    fn admits_region(body: &Block) -> Claim {
        if lists::is_list(body, LIMITS.executor) {
            return Ok(());
        }
        fulgurite_executor_regions::rules::admits(body, LIMITS)
    }

    fn plan_region(plan: &mut Plan, body: &Block, operands: &[DeviceTensor], results: &[DeviceTensor]) -> Result<()> {
        if lists::is_list(body, LIMITS.executor) {
            return crate::many::plan(plan, body, LIMITS, operands, results);
        }
        let iteration =
            iteration_shape(body).ok_or_else(|| Failure::new("Region", "a region of the fusion executor is empty"))?;
        let program = program_of(body, LIMITS)?;
        let strided = |tensor: &DeviceTensor| Strided { meta: tensor.meta.clone(), strides: tensor.strides.clone() };
        let seen: Vec<Vec<isize>> = operands.iter().map(|operand| seen_in(&strided(operand), &iteration)).collect();
        let sums = sums_of(body, LIMITS.executor);
        let stored: Vec<(Vec<usize>, Vec<isize>)> = (results.iter().zip(&sums))
            .map(|(result, summed)| match summed {
                true => (result.shape().to_vec(), result.strides.clone()),
                false => stored_in(&strided(result), &iteration),
            })
            .collect();
        let inputs: Vec<(&DeviceTensor, &[isize])> = operands.iter().zip(&seen).map(|(t, s)| (t, &s[..])).collect();
        let outputs: Vec<(&DeviceTensor, &[usize], &[isize])> =
            results.iter().zip(&stored).map(|(t, (shape, strides))| (t, &shape[..], &strides[..])).collect();
        if sums.contains(&true) {
            return launch_with_sums(plan, "region", &program, &iteration, &inputs, &outputs, &sums);
        }
        launch(plan, "region", &program, &iteration, &inputs, &outputs)
    }
}
