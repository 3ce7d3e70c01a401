use fulgurite_ops_macros::operator;

use super::matrices::{extents, matrices, solution, solved, stacked, transposed, work};
use super::support::another;
use crate::prims;

/// The solution `X` of `A · X = B` for each square matrix `A` of `a` and matrix `B` of `b`, by elimination with the
/// largest pivots. A pivot of zero is an error when the program runs. `b` has the leading extents of `a`, and as many
/// rows. The gradient by `B` is the solution with the transpose of `A`, and that by `A` the negative product of it and
/// of `Xᵀ`.
#[operator(prim, dtypes(f32, f64))]
pub mod solve {
    fn solve(a: Tensor<Floating>, b: Tensor<Floating>) -> Tensor;

    fn meta(a: &TensorMeta, b: &TensorMeta) -> Result<TensorMeta> {
        solution(a, b, [Code::Square, Code::Rows, Code::SameDType])
    }

    fn flops(a: &TensorMeta, b: &TensorMeta) -> u64 {
        let (n, columns) = (extents(a.shape()).1, extents(b.shape()).2);
        work(a, 2, &[n, n, n.saturating_add(columns)])
    }

    fn grad(a: Tensor, b: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = solve(a, b);
        (out, move |d_out: Tensor| {
            let d_b = solve(transposed(a), d_out);
            Grads { a: prims::neg(prims::matmul(d_b, transposed(out))), b: d_b }
        })
    }

    fn reference(a: &ArrayD<f64>, b: &ArrayD<f64>) -> Result<ArrayD<f64>> {
        let (mut found, (_, rows, columns)) = (Vec::new(), extents(b.shape()));
        for (number, (a, b)) in matrices(a).into_iter().zip(matrices(b)).enumerate() {
            found.push(super::solved(&a, &b).map_err(|place| prims::singular_matrix(number, place))?);
        }
        Ok(stacked(b.shape(), &[rows, columns], &found))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3]), s.normal([3, 2])));
        s.case(with(s.normal([2, 2, 4, 4]), s.normal([2, 2, 4, 1])));
        s.case(with(s.values([2, 2], [0.0, 1.0, 2.0, 3.0]), s.normal([2, 2])));
        s.case(with(s.normal([1, 1]), s.normal([1, 3])));
        s.case(with(s.normal([0, 0]), s.normal([0, 3])));
        s.case(with(s.normal([2, 2]), s.normal([2, 0])));
        s.case(with(s.normal([0, 2, 2]), s.normal([0, 2, 3])));
        s.case(with(s.normal([24, 24]), s.normal([24, 30]))).forward_only("large");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3]), e.normal([2, 3])), "a has shape [2, 3], expected square matrices");
        e.case(Rows, with(e.normal([2, 2]), e.normal([3, 2])), "expected equal leading extents and 2 rows");
        e.case(Rows, with(e.normal([2, 2]), e.normal([2])), "b [2]");
        e.case(Rows, with(e.normal([3, 2, 2]), e.normal([2, 2])), "a has shape [3, 2, 2]");
        let other = e.of(another(e.dtype()), [2, 2]);
        e.case(SameDType, with(e.normal([2, 2]), other), "expected equal dtypes");
        let second = e.values([2, 2, 2], [1.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 4.0]);
        e.when_run("Singular", with(second, e.normal([2, 2, 1])), "matrix 1 of the batch is singular: its pivot 2 is");
    }
}
