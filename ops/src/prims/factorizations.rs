//! Matrices as products of triangles.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::Failure;
use ndarray::Array2;

use super::matrices::{
    are_matrices, are_square, behind_inverse_transpose, block, extents, lower, matrices, on_diagonal, rows_at, stacked,
    transposed, undone, upper, with_matrix, work,
};
use crate::prims;
use crate::prims::{matmul, triangular_solve};

/// The lower triangle `L` with `L · Lᵀ = (A + Aᵀ) / 2` for each matrix `A` of the last two dimensions of `input`. A
/// matrix that is not positive-definite is an error when the program runs. The gradient is that of Murray,
/// "Differentiation of the Cholesky decomposition", 2016, made symmetric.
#[operator(prim, dtypes(f32, f64))]
pub mod cholesky {
    fn cholesky(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        are_square(("input", input), Code::Square)?;
        Ok(input.clone())
    }

    fn flops(input: &TensorMeta) -> u64 {
        let (_, n, _) = extents(input.shape());
        work(input, 1, &[n, n, n]) / 3
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = cholesky(input);
        (out, move |d_out: Tensor| {
            let turned = transposed(out);
            let product = matmul(turned, d_out);
            // The mean of the product's lower triangle and its transpose, with half of the diagonal in each.
            let half = prims::mul(prims::add(lower(product, 0), lower(product, -1)), 0.25);
            let symmetric = prims::add(half, transposed(half));
            let left = triangular_solve(turned, symmetric, true, false);
            Grads { input: triangular_solve(turned, transposed(left), true, false) }
        })
    }

    fn reference(input: &ArrayD<f64>) -> Result<ArrayD<f64>> {
        let factor = |(number, matrix): (usize, Array2<f64>)| {
            let mean = (&matrix + &matrix.t()) / 2.0;
            super::factor_of(mean).map_err(|place| super::not_positive_definite(number, place))
        };
        let factors = matrices(input).into_iter().enumerate().map(factor).collect::<Result<Vec<_>>>()?;
        let (_, n, _) = extents(input.shape());
        Ok(stacked(input.shape(), &[n, n], &factors))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.values([3, 3], super::positive_definite(1, 3))));
        s.case(with(s.values([2, 2, 4, 4], super::positive_definite(4, 4))));
        s.case(with(s.values([1, 1], [4.0])));
        // The mean of a matrix and its transpose is factored.
        s.case(with(s.values([2, 2], [2.0, 0.5, -1.5, 3.0])));
        s.case(with(s.normal([2, 0, 0])));
        s.case(with(s.normal([0, 3, 3])));
        s.case(with(s.values([20, 20], super::positive_definite(1, 20)))).forward_only("large");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "input has shape [2, 3], expected square matrices");
        e.case(Square, with(e.normal([3])), "expected square matrices");
        let second = e.values([2, 2, 2], [1.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 1.0]);
        e.when_run("NotPositiveDefinite", with(second), "matrix 1 of the batch is not positive-definite");
        for element in [0.0, f64::NAN] {
            e.when_run("NotPositiveDefinite", with(e.values([1, 1], [element])), "its leading minor of order 1");
        }
    }
}

/// The failure of a matrix that has no Cholesky factor; `place` is the first row and column that has none.
pub fn not_positive_definite(matrix: usize, place: usize) -> Failure {
    let order = place + 1;
    Failure::new(
        "NotPositiveDefinite",
        format!(
            "matrix {matrix} of the batch is not positive-definite: its leading minor of order {order} is not positive"
        ),
    )
}

/// For references: the Cholesky factor of a symmetric matrix; the first place that is not positive.
pub fn factor_of(mut rest: Array2<f64>) -> Result<Array2<f64>, usize> {
    let n = rest.nrows();
    let mut factor = Array2::zeros((n, n));
    for k in 0..n {
        if rest[[k, k]].is_nan() || rest[[k, k]] <= 0.0 {
            return Err(k);
        }
        // What a column explains is taken from all that is left.
        let column = rest.column(k).mapv(|x| x / rest[[k, k]].sqrt());
        for i in k..n {
            factor[[i, k]] = column[i];
            (k..n).for_each(|j| rest[[i, j]] -= column[i] * column[j]);
        }
    }
    Ok(factor)
}

/// For samples: positive-definite matrices.
pub fn positive_definite(count: usize, n: usize) -> Vec<f64> {
    let element = |matrix: usize, i: usize, j: usize| {
        let off = (0.75 + 0.125 * matrix as f64) / (1.0 + i.abs_diff(j) as f64);
        if i == j { off + 1.0 + 0.25 * i as f64 } else { off }
    };
    (0..count * n * n).map(|at| element(at / (n * n), at / n % n, at % n)).collect()
}

/// The factors of each matrix `A` of `m` rows and `n` columns with rows exchanged, `P · A = L · U`: both in one matrix,
/// `L` below the diagonal, its own being ones, and `U` from the diagonal on. `pivots` are the rows that were exchanged
/// one after the other, row `i` with row `pivots[i]`, counted from 1, as LAPACK and PyTorch have them. Row `i` of the
/// product is row `permutation[i]` of `A`. A pivot is the largest magnitude of the rest of its column, the first of
/// equal ones; if it is zero, its column stays. With `refuse_singular` that is an error when the program runs.
///
/// The gradient is that of de Hoog, Anderssen, Lukas, "Differentiation of matrix functionals using triangular
/// factorization", 2011. In it a pivot of zero counts as the machine epsilon: so the gradient of a determinant that is
/// zero is exact, whose pivots but one are its cofactor.
#[operator(
    prim,
    dtypes(f32, f64),
    waive(
        refuse_singular = "it decides about an error alone",
        d_pivots = "positions have no gradient",
        d_permutation = "positions have no gradient"
    )
)]
pub mod lu {
    #[results(factors, pivots, permutation)]
    fn lu(input: Tensor<Floating>, refuse_singular: bool) -> (Tensor, Tensor, Tensor);

    fn meta(input: &TensorMeta) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        are_matrices(("input", input), Code::Rank)?;
        let (_, m, n) = extents(input.shape());
        let pivots = with_matrix(input, &[m.min(n)]).with_dtype(DType::I32);
        Ok((input.clone(), pivots, with_matrix(input, &[m]).with_dtype(DType::I64)))
    }

    fn flops(input: &TensorMeta) -> u64 {
        let (_, m, n) = extents(input.shape());
        work(input, 1, &[m, n, m.min(n)])
    }

    #[allow(clippy::type_complexity)]
    fn grad(
        input: Tensor,
        refuse_singular: bool,
    ) -> ((Tensor, Tensor, Tensor), impl FnOnce((Tensor, Option<Tensor>, Option<Tensor>)) -> Grads) {
        let (factors, pivots, permutation) = lu(input, refuse_singular);
        (
            (factors, pivots, permutation),
            move |(d_factors, _d_pivots, _d_permutation): (Tensor, Option<Tensor>, Option<Tensor>)| Grads {
                input: rows_at(of_permuted(factors, d_factors), undone(permutation)),
            },
        )
    }

    /// The gradient by the matrix whose rows are exchanged already.
    fn of_permuted(factors: Tensor, d_factors: Tensor) -> Tensor {
        let shape = factors.shape();
        let (_, m, n) = extents(&shape);
        let k = m.min(n);
        let square = block(factors, [0, k], [0, k]);
        let is_zero = prims::logical_and(on_diagonal(square), prims::eq(square, 0.0));
        let square = prims::select(is_zero, factors.dtype().epsilon(), square);
        let triangle = upper(square);
        let below = lower(square, -1);
        let unit = prims::select(on_diagonal(square), 1.0, below);
        let d_square = block(d_factors, [0, k], [0, k]);
        let mut d_lower = matmul(transposed(unit), lower(d_square, -1));
        let mut d_upper = matmul(upper(d_square), transposed(triangle));
        if n > k {
            let (beside, d_beside) = (block(factors, [0, m], [k, n]), block(d_factors, [0, m], [k, n]));
            d_lower = prims::sub(d_lower, matmul(d_beside, transposed(beside)));
        }
        if m > k {
            let (under, d_under) = (block(factors, [k, m], [0, n]), block(d_factors, [k, m], [0, n]));
            d_upper = prims::sub(d_upper, matmul(transposed(under), d_under));
        }
        let within = prims::add(lower(d_lower, -1), upper(d_upper));
        let turned = transposed(square);
        let d_square = behind_inverse_transpose(triangular_solve(turned, within, true, true), triangle);
        let rank = shape.len();
        if n > k {
            let d_beside = triangular_solve(turned, block(d_factors, [0, m], [k, n]), true, true);
            return prims::cat([d_square, d_beside], rank - 1);
        }
        if m > k {
            let d_under = behind_inverse_transpose(block(d_factors, [k, m], [0, n]), triangle);
            return prims::cat([d_square, d_under], rank - 2);
        }
        d_square
    }

    fn reference(
        input: &ArrayD<f64>,
        refuse_singular: bool,
    ) -> Result<(ReferenceTensor, ReferenceTensor, ReferenceTensor)> {
        let (batch, m, n) = extents(input.shape());
        let (mut factors, mut pivots, mut orders) = (Vec::new(), Vec::new(), Vec::new());
        for (number, matrix) in matrices(input).into_iter().enumerate() {
            let (matrix, exchanged, order) = super::by_columns(matrix);
            let zero = (0..m.min(n)).find(|k| matrix[[*k, *k]] == 0.0);
            if let Some(place) = zero.filter(|_| refuse_singular) {
                return Err(super::singular_matrix(number, place));
            }
            factors.push(matrix);
            pivots.extend(exchanged);
            orders.extend(order);
        }
        let whole = |dtype: DType, extent: usize, values: Vec<i64>| {
            let shape = IxDyn(&[batch, &[extent]].concat());
            ReferenceTensor::from_integers(dtype, ArrayD::from_shape_vec(shape, values).unwrap_or_default())
        };
        let factors = stacked(input.shape(), &[m, n], &factors);
        Ok((factors.into(), whole(DType::I32, m.min(n), pivots), whole(DType::I64, m, orders)))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3]), true));
        s.case(with(s.normal([2, 3, 4, 4]), false));
        s.case(with(s.normal([2, 3, 5]), true));
        s.case(with(s.normal([5, 3]), false));
        s.case(with(s.normal([1, 1]), true));
        s.case(with(s.normal([2, 0, 3]), true));
        s.case(with(s.normal([0, 2, 2]), true));
        s.case(with(s.values([3, 3], [1.0, 2.0, 3.0, 2.0, 4.0, 6.0, 1.0, 2.0, 5.0]), false))
            .forward_only("a pivot of zero");
        // The machine epsilon in the place of the pivot cancels in this gradient.
        let last = with(s.values([2, 2], [1.0, 2.0, 2.0, 4.0]), false);
        s.case(last).forward_only("a pivot of zero").gradients([&[-6.5, 4.0, 4.25, 0.0]]);
        s.case(with(s.normal([30, 30]), true)).forward_only("large");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3]), true), "input has shape [3], expected at least two dimensions");
        let second = e.values([2, 2, 2], [1.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 4.0]);
        e.when_run("Singular", with(second, true), "matrix 1 of the batch is singular: its pivot 2 is zero");
    }
}

/// The failure of a matrix that has no inverse; `place` is the first column without a pivot.
pub fn singular_matrix(matrix: usize, place: usize) -> Failure {
    let number = place + 1;
    Failure::new("Singular", format!("matrix {matrix} of the batch is singular: its pivot {number} is zero"))
}

/// For references: the factors, the exchanged rows and the order of a matrix, one column after the other.
pub fn by_columns(mut matrix: Array2<f64>) -> (Array2<f64>, Vec<i64>, Vec<i64>) {
    let (m, n) = matrix.dim();
    let mut order: Vec<i64> = (0..m as i64).collect();
    let mut exchanged = Vec::new();
    for j in 0..n {
        for i in 1..m {
            let known: f64 = (0..i.min(j)).map(|k| matrix[[i, k]] * matrix[[k, j]]).sum();
            matrix[[i, j]] -= known;
        }
        if j >= m {
            continue;
        }
        let best = (j..m).fold(j, |best, i| if matrix[[i, j]].abs() > matrix[[best, j]].abs() { i } else { best });
        (0..n).for_each(|column| matrix.swap([j, column], [best, column]));
        order.swap(j, best);
        exchanged.push(best as i64 + 1);
        if matrix[[j, j]] != 0.0 {
            (j + 1..m).for_each(|i| matrix[[i, j]] /= matrix[[j, j]]);
        }
    }
    (matrix, exchanged, order)
}
