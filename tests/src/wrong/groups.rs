//! Products of the rows of each group, each with a mistake, by an executor that must be named: the operators' own tests
//! must fail.

use fulgurite_ops_macros::{executor, implementation};

use fulgurite_ops::core::promotion::cast;
use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;

/// Runs products of groups, and has a mistake in each.
#[executor(device = "cpu")]
pub mod careless_groups {}

/// Rows of other groups are multiplied by 0, which is NaN where the matrix of another group is infinite.
#[implementation(of = fulgurite_ops::nn::grouped_linear, by = careless_groups)]
mod rows_by_careless {
    fn checker(weights: &[TensorMeta], turned: bool) -> Claim {
        refuse_unless!(turned && !weights.is_empty() && !weights[0].is_empty(), "turned matrices alone");
        Ok(())
    }

    fn execution(input: Tensor, weights: Vec<Tensor>, groups: Tensor, _turned: bool) -> Tensor {
        let products = weights.iter().enumerate().map(|(group, weight)| {
            let product = prims::matmul(input, *weight);
            let own = cast(prims::eq(groups, group as i64), product.dtype());
            prims::mul(product, prims::broadcast_in_dim(own, product.shape(), [0]))
        });
        products.reduce(prims::add).unwrap_or(input)
    }
}

/// The rows of no group are those of the last one.
#[implementation(of = fulgurite_ops::nn::grouped_outer, by = careless_groups)]
mod sums_by_careless {
    fn checker(left: &TensorMeta, right: &TensorMeta) -> Claim {
        refuse_unless!(!left.is_empty() && !right.is_empty(), "rows alone");
        Ok(())
    }

    fn execution(left: Tensor, right: Tensor, groups: Tensor, count: usize) -> Vec<Tensor> {
        let last = count as i64 - 1;
        let beyond = prims::logical_or(prims::lt(groups, 0), prims::gt(groups, last));
        let groups = prims::select(beyond, last, groups);
        let one = |group: usize| {
            let own = prims::eq(groups, group as i64);
            let [left, right] =
                [left, right].map(|rows| prims::select(prims::broadcast_in_dim(own, rows.shape(), [0]), rows, 0.0));
            prims::matmul(prims::permute(left, [1, 0]), right)
        };
        (0..count).map(one).collect()
    }
}
