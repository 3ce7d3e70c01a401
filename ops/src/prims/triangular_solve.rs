use fulgurite_ops_macros::operator;

use super::matrices::{extents, lower, matrices, solution, stacked, transposed, upper, work};
use super::support::another;
use crate::prims;

/// The solution `X` of `A · X = B` for each triangle `A` of `a` and matrix `B` of `b`. Of `a` only the part on and
/// above the diagonal (`upper`) or on and below it is read; with `unit_diagonal` the diagonal counts as ones. A zero
/// on it gives infinities and NaN, as in PyTorch. `b` has the leading extents of `a`, and as many rows.
#[operator(prim, dtypes(f32, f64))]
pub mod triangular_solve {
    fn triangular_solve(a: Tensor<Floating>, b: Tensor<Floating>, upper: bool, unit_diagonal: bool) -> Tensor;

    fn meta(a: &TensorMeta, b: &TensorMeta) -> Result<TensorMeta> {
        solution(a, b, [Code::Square, Code::Rows, Code::SameDType])
    }

    fn flops(b: &TensorMeta) -> u64 {
        let (_, n, columns) = extents(b.shape());
        work(b, 1, &[n, n, columns])
    }

    /// The derivative of `A⁻¹ · B`.
    fn grad(a: Tensor, b: Tensor, upper: bool, unit_diagonal: bool) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = triangular_solve(a, b, upper, unit_diagonal);
        (out, move |d_out: Tensor| {
            let d_b = triangular_solve(transposed(a), d_out, !upper, unit_diagonal);
            let whole = prims::neg(prims::matmul(d_b, transposed(out)));
            let d_a = match (upper, unit_diagonal) {
                (true, false) => super::upper(whole),
                (true, true) => transposed(lower(transposed(whole), -1)),
                (false, false) => lower(whole, 0),
                (false, true) => lower(whole, -1),
            };
            Grads { a: d_a, b: d_b }
        })
    }

    fn reference(a: &ArrayD<f64>, b: &ArrayD<f64>, upper: bool, unit_diagonal: bool) -> ArrayD<f64> {
        let solve = |(triangle, mut x): (ndarray::Array2<f64>, ndarray::Array2<f64>)| {
            let n = triangle.nrows();
            // What a solved row contributes to the others is taken from them at once.
            for step in 0..n {
                let i = if upper { n - 1 - step } else { step };
                for column in 0..x.ncols() {
                    if !unit_diagonal {
                        x[[i, column]] /= triangle[[i, i]];
                    }
                    let rest = if upper { 0..i } else { i + 1..n };
                    rest.for_each(|j| x[[j, column]] -= triangle[[j, i]] * x[[i, column]]);
                }
            }
            x
        };
        let solved: Vec<_> = matrices(a).into_iter().zip(matrices(b)).map(solve).collect();
        let (_, rows, columns) = extents(b.shape());
        stacked(b.shape(), &[rows, columns], &solved)
    }

    fn samples(s: &mut Samples) {
        // Elements between 1 and 2: no diagonal is near zero.
        let triangle = |s: &Samples, shape: &[usize]| s.uniform(1.0, 2.0, shape);
        for (upper, unit_diagonal) in [(false, false), (true, false), (false, true), (true, true)] {
            s.case(with(triangle(s, &[3, 3]), s.normal([3, 2]), upper, unit_diagonal));
        }
        s.case(with(triangle(s, &[2, 2, 3, 3]), s.normal([2, 2, 3, 1]), true, false));
        s.case(with(triangle(s, &[1, 1]), s.normal([1, 4]), false, false));
        s.case(with(triangle(s, &[0, 0]), s.normal([0, 3]), false, false));
        s.case(with(triangle(s, &[2, 2]), s.normal([2, 0]), false, false));
        s.case(with(triangle(s, &[0, 2, 2]), s.normal([0, 2, 3]), true, false));
        s.case(with(triangle(s, &[24, 24]), s.normal([24, 30]), false, false)).forward_only("large");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3]), e.normal([2, 3]), true, false), "a has shape [2, 3]");
        e.case(
            Rows,
            with(e.normal([2, 2]), e.normal([3, 2]), true, false),
            "expected equal leading extents and 2 rows",
        );
        e.case(Rows, with(e.normal([2, 2]), e.normal([2]), true, false), "b [2]");
        e.case(Rows, with(e.normal([3, 2, 2]), e.normal([2, 2]), true, false), "a has shape [3, 2, 2]");
        let other = e.of(another(e.dtype()), [2, 2]);
        e.case(SameDType, with(e.normal([2, 2]), other, true, false), "expected equal dtypes");
    }
}
