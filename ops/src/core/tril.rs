//! Triangles of matrices.

use fulgurite_ops_macros::operators;
use fulgurite_runtime::Tensor;

use super::promotion::broadcast;
use crate::prims;
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor, #[default(0)] diagonal: i64) -> Tensor;

        fn requires(input: &TensorMeta) -> Result<()> {
            require!(
                input.rank() >= 2,
                Rank,
                "input has shape {:?}, expected at least two dimensions",
                input.shape()
            );
            Ok(())
        }

        fn decomposition(input: Tensor, diagonal: i64) -> Tensor {
            let offset = column_minus_row(&input.meta());
            let kept = broadcast(prims::$keeps(offset, diagonal), &input.shape());
            prims::select(kept, input, 0)
        }

        fn reference(input: &ReferenceTensor, diagonal: i64) -> ReferenceTensor {
            crate::core::arrays::rearranged(input, input.shape(), 0.0, |at| {
                let (row, column) = (at[at.len() - 2] as i64, at[at.len() - 1] as i64);
                ($reference).then(|| at.to_vec())
            })
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([4, 4])));
            s.case(with(s.normal([3, 5])).diagonal(1));
            s.case(with(s.normal([2, 5, 3])).diagonal(-2));
            s.case(with(s.normal([1, 1])).diagonal(9));
            s.case(with(s.normal([0, 3])));
            if s.dtype().is_floating() {
                s.case(with(s.values([2, 2], [f64::NAN, f64::INFINITY, 1.0, -1.0]))).forward_only("special values");
            }
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Rank, with(e.normal([3])), "at least two dimensions");
        }
    }

    table($name, $torch, $keeps, $reference) {
        /// The elements on and below the given diagonal of the last two dimensions; the others are zero.
        tril, "tril", le, column - row <= diagonal;
        /// The elements on and above the given diagonal of the last two dimensions; the others are zero.
        triu, "triu", ge, column - row >= diagonal;
    }
}

/// For each place of the last two dimensions its column less its row, as i64.
#[track_caller]
pub(crate) fn column_minus_row(meta: &fulgurite_runtime::TensorMeta) -> Tensor {
    let (rows, columns) = match meta.shape() {
        [.., rows, columns] => (*rows, *columns),
        _ => (1, 1),
    };
    let count = |length: usize| prims::iota(length, 0i64, 1i64, fulgurite_runtime::DType::I64, meta.device());
    let row = prims::broadcast_in_dim(count(rows), [rows, columns], [0]);
    let column = prims::broadcast_in_dim(count(columns), [rows, columns], [1]);
    prims::sub(column, row)
}
