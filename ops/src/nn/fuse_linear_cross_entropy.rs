use fulgurite_ops_macros::rewrite;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::{DType, TensorMeta, refuse_unless};

use super::{cross_entropy, fused_linear_cross_entropy, linear, regularized_cross_entropy};
use crate::core::promotion::cast;
use crate::core::reshape;

/// Whether the layer is a matrix of `rank`-dimensional hidden states, and the loss one of classes.
fn takes(input: &TensorMeta, weight: &TensorMeta, target: &TensorMeta, rank: usize) -> Claim {
    refuse_unless!(input.rank() == rank && weight.rank() == 2, "input is {input}, weight {weight}");
    refuse_unless!(input.dtype().is_floating(), "input is {input}, takes a floating-point type");
    refuse_unless!(target.dtype().is_integer(), "target is {target}, takes classes");
    refuse_unless!(weight.shape()[0] > 0, "weight is {weight}, there is no class");
    Ok(())
}

/// Declares the rewrites of a loss with the defaults of its options, of rows and of sequences; `$loss_type` is the type
/// of a loss of logits of a type.
macro_rules! fused {
    ($($loss:ident, $loss_type:expr => $(#[$docs:meta])* $rows:ident, $(#[$more:meta])* $sequences:ident;)*) => {$(
        $(#[$docs])*
        #[rewrite]
        pub mod $rows {
            fn pattern(input: Tensor, weight: Tensor, target: Tensor) -> Tensor {
                $loss(linear(input, weight), target)
            }

            fn replacement(input: Tensor, weight: Tensor, target: Tensor) -> Tensor {
                cast(fused_linear_cross_entropy(input, weight, target), $loss_type(input.dtype()))
            }

            fn condition(input: &TensorMeta, weight: &TensorMeta, target: &TensorMeta) -> Claim {
                super::takes(input, weight, target, 2)
            }

            fn samples(s: &mut Samples) {
                s.case(with(s.normal([7, 4]), s.normal([5, 4]), s.integers(0, 5, [7])));
                s.case(with(s.normal([3, 6]), s.normal([2, 6]), s.integers(0, 2, [3])));
            }
        }

        $(#[$more])*
        #[rewrite]
        pub mod $sequences {
            fn pattern(input: Tensor, weight: Tensor, target: Tensor) -> Tensor {
                let logits = linear(input, weight);
                $loss(reshape(logits, [target.size(0) as i64, weight.size(0) as i64]), target)
            }

            fn replacement(input: Tensor, weight: Tensor, target: Tensor) -> Tensor {
                let rows = reshape(input, [target.size(0) as i64, weight.size(1) as i64]);
                cast(fused_linear_cross_entropy(rows, weight, target), $loss_type(input.dtype()))
            }

            fn condition(input: &TensorMeta, weight: &TensorMeta, target: &TensorMeta) -> Claim {
                super::takes(input, weight, target, 3)
            }

            fn samples(s: &mut Samples) {
                s.case(with(s.normal([2, 3, 4]), s.normal([5, 4]), s.integers(0, 5, [6])));
            }
        }
    )*};
}

fused! {
    cross_entropy, |dtype| dtype =>
        /// A linear layer without bias and its mean `cross_entropy` become one `fused_linear_cross_entropy`, which
        /// never has all logits. It must be named: where the logits are kept or read elsewhere, nothing is gained.
        fuse_linear_cross_entropy,
        /// As [`fuse_linear_cross_entropy`], of hidden states `[B, T, H]` whose logits become rows.
        fuse_linear_cross_entropy_of_sequences;
    regularized_cross_entropy, DType::accumulator =>
        /// As [`fuse_linear_cross_entropy`], of `regularized_cross_entropy`.
        fuse_linear_regularized_cross_entropy,
        /// As [`fuse_linear_cross_entropy_of_sequences`], of `regularized_cross_entropy`.
        fuse_linear_regularized_cross_entropy_of_sequences;
}
