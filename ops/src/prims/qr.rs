//! Matrices as products of one with orthonormal columns and a triangle.

use fulgurite_ops_macros::operator;
use ndarray::Array2;

use super::matrices::{
    are_matrices, behind_inverse_transpose, block, extents, matrices, stacked, transposed, upper, with_matrix, work,
};
use crate::prims;
use crate::prims::matmul;

/// `Q` with orthonormal columns and the upper triangle `R` with `Q · R = A`, for each matrix `A` of `m` rows and `n`
/// columns of `input`: `Q` has `min(m, n)` columns. By Householder's reflections, with LAPACK's signs: an element of
/// the diagonal of `R` has the other sign than what the reflections before it left there, unless all below it is zero.
///
/// The gradient is that of Roberts and Roberts, "QR and LQ decomposition matrix backpropagation algorithms for square,
/// wide, and deep matrices", 2020; it needs the first `min(m, n)` columns to be independent.
#[operator(prim, dtypes(f32, f64))]
pub mod qr {
    #[results(q, r)]
    fn qr(input: Tensor<Floating>) -> (Tensor, Tensor);

    fn meta(input: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        are_matrices(("input", input), Code::Rank)?;
        let (_, m, n) = extents(input.shape());
        Ok((with_matrix(input, &[m, m.min(n)]), with_matrix(input, &[m.min(n), n])))
    }

    fn flops(input: &TensorMeta) -> u64 {
        let (_, m, n) = extents(input.shape());
        work(input, 4, &[m, n, m.min(n)])
    }

    fn grad(input: Tensor) -> ((Tensor, Tensor), impl FnOnce((Tensor, Tensor)) -> Grads) {
        let (q, r) = qr(input);
        ((q, r), move |(d_q, d_r): (Tensor, Tensor)| {
            let shape = r.shape();
            let (_, k, n) = extents(&shape);
            if n == k {
                return Grads { input: of_square(q, r, d_q, d_r) };
            }
            // The columns behind the square ones are Q times those of R.
            let [square, d_square] = [r, d_r].map(|r| block(r, [0, k], [0, k]));
            let [beside, d_beside] = [r, d_r].map(|r| block(r, [0, k], [k, n]));
            let d_q = prims::add(d_q, matmul(q, matmul(beside, transposed(d_beside))));
            let d_columns = [of_square(q, square, d_q, d_square), matmul(q, d_beside)];
            Grads { input: prims::cat(d_columns, shape.len() - 1) }
        })
    }

    /// The gradient of matrices whose triangle is square.
    fn of_square(q: Tensor, r: Tensor, d_q: Tensor, d_r: Tensor) -> Tensor {
        let within = prims::sub(matmul(d_r, transposed(r)), matmul(transposed(q), d_q));
        let above = upper(within);
        // The diagonal once.
        let symmetric = prims::add(above, transposed(super::strictly_above(above)));
        behind_inverse_transpose(prims::add(d_q, matmul(q, symmetric)), r)
    }

    fn reference(input: &ArrayD<f64>) -> (ArrayD<f64>, ArrayD<f64>) {
        let (_, m, n) = extents(input.shape());
        super::reflected(input, m.min(n))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 2, 4, 3])));
        s.case(with(s.normal([2, 5])));
        s.case(with(s.normal([1, 1])));
        s.case(with(s.normal([4, 1])));
        s.case(with(s.normal([2, 0, 3])));
        s.case(with(s.normal([3, 0])));
        s.case(with(s.normal([0, 2, 2])));
        s.case(with(s.values([3, 2], [2.0, 1.0, 0.0, -3.0, 0.0, 0.0])))
            .forward_only("a sign jumps where what is below is zero");
        s.case(with(s.normal([30, 20]))).forward_only("large");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "input has shape [3], expected at least two dimensions");
    }
}

/// As [`mod@qr`] with all `m` columns of `Q`, of which the last `m - n` are orthogonal to all columns of `A`, and `m`
/// rows of `R`.
#[operator(
    prim,
    dtypes(f32, f64),
    no_grad = "the columns of Q that complete the basis are no differentiable function: take the reduced form"
)]
pub mod complete_qr {
    #[results(q, r)]
    fn complete_qr(input: Tensor<Floating>) -> (Tensor, Tensor);

    fn meta(input: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        are_matrices(("input", input), Code::Rank)?;
        let (_, m, n) = extents(input.shape());
        Ok((with_matrix(input, &[m, m]), with_matrix(input, &[m, n])))
    }

    fn flops(input: &TensorMeta) -> u64 {
        let (_, m, n) = extents(input.shape());
        work(input, 4, &[m, m, m.min(n)])
    }

    fn reference(input: &ArrayD<f64>) -> (ArrayD<f64>, ArrayD<f64>) {
        let (_, m, _) = extents(input.shape());
        super::reflected(input, m)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 2])));
        s.case(with(s.normal([2, 3, 3])));
        s.case(with(s.normal([2, 4])));
        s.case(with(s.normal([3, 0])));
        s.case(with(s.normal([0, 3])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([])), "input has shape [], expected at least two dimensions");
    }
}

/// The part above the main diagonal of an upper triangle.
#[track_caller]
fn strictly_above(matrix: fulgurite_runtime::Tensor) -> fulgurite_runtime::Tensor {
    prims::select(super::matrices::on_diagonal(matrix), 0.0, matrix)
}

/// For references: the first `k` columns of the product of the reflections as whole matrices, and the rows of what they
/// make of each matrix.
pub fn reflected(
    input: &fulgurite_runtime::rules::ArrayD<f64>,
    k: usize,
) -> (fulgurite_runtime::rules::ArrayD<f64>, fulgurite_runtime::rules::ArrayD<f64>) {
    let (_, m, n) = extents(input.shape());
    let one = |mut r: Array2<f64>| {
        let mut q = Array2::<f64>::eye(m);
        for step in 0..m.min(n) {
            let mut normal = r.column(step).to_owned();
            normal.slice_mut(ndarray::s![..step]).fill(0.0);
            let length = normal.dot(&normal).sqrt();
            let first = normal[step];
            if normal.iter().skip(step + 1).all(|x| *x == 0.0) {
                continue;
            }
            normal[step] += if first < 0.0 { -length } else { length };
            let column = normal.clone().insert_axis(ndarray::Axis(1));
            let mirror = Array2::<f64>::eye(m) - column.dot(&column.t()) * (2.0 / normal.dot(&normal));
            r = mirror.dot(&r);
            q = q.dot(&mirror);
        }
        let rows = Array2::from_shape_fn((k, n), |(i, j)| if i <= j { r[[i, j]] } else { 0.0 });
        (q.slice(ndarray::s![.., ..k]).to_owned(), rows)
    };
    let (q, r): (Vec<_>, Vec<_>) = matrices(input).into_iter().map(one).unzip();
    (stacked(input.shape(), &[m, k], &q), stacked(input.shape(), &[k, n], &r))
}
