//! Equations of matrices, and inverses. They are computed in f32 and f64; f16 and bf16 are refused, as in PyTorch.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;
use fulgurite_runtime::rules::{ArrayD, Failure, Precondition};
use ndarray::Array2;

use super::arrays::{reshaped, spread};
use super::promotion::{broadcast, broadcast_shapes};
use super::read_as;
use crate::prims;
use crate::prims::checks::{Named, same_dtype};
use crate::prims::matrices::{are_matrices, are_square, extents, matrices, solved, stacked, transposed, unit};

/// The solution `X` of `A · X = B` (of `X · A = B` unless `left`) for each triangle `A` of `a` and matrix `B` of `b`,
/// whose leading dimensions broadcast. Of `a` only the part on and above the diagonal (`upper`) or on and below it is
/// read; if `unitriangular`, its diagonal counts as ones. A zero on it gives infinities and NaN.
#[operator(torch = "linalg.solve_triangular", dtypes(f32, f64))]
pub mod solve_triangular {
    fn solve_triangular(
        a: Tensor<Floating>,
        b: Tensor<Floating>,
        upper: bool,
        #[default(true)] left: bool,
        #[default(false)] unitriangular: bool,
    ) -> Tensor;

    fn requires(Args { a, b, left, .. }: Args<&TensorMeta>) -> Result<()> {
        are_square(("a", a), Code::Square)?;
        are_matrices(("b", b), Code::Rank)?;
        super::meet(("a", a), ("b", b), left, [Code::SameDType, Code::Extents])
    }

    fn decomposition(Args { a, b, upper, left, unitriangular }: Args<Tensor>) -> Tensor {
        super::solve_triangles(a, b, upper, left, unitriangular)
    }

    fn reference(Args { a, b, upper, left, unitriangular }: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        super::solutions(&super::triangle(a, upper, unitriangular), b, left)
    }

    fn samples(s: &mut Samples) {
        let triangle = |s: &Samples, shape: &[usize]| s.uniform(1.0, 2.0, shape);
        s.case(with(triangle(s, &[3, 3]), s.normal([3, 2]), true));
        s.case(with(triangle(s, &[3, 3]), s.normal([2, 3]), false).left(false));
        s.case(with(triangle(s, &[2, 1, 3, 3]), s.normal([3, 3, 1]), false).unitriangular(true));
        s.case(with(triangle(s, &[2, 2]), s.normal([2, 2, 2]), true).left(false).unitriangular(true));
        s.case(with(triangle(s, &[0, 0]), s.normal([0, 2]), true));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3]), e.normal([2, 3]), true), "a has shape [2, 3], expected square matrices");
        e.case(Rank, with(e.normal([2, 2]), e.normal([2]), true), "b has shape [2], expected at least two dimensions");
        e.case(Extents, with(e.normal([2, 2]), e.normal([3, 2]), true), "b has shape [3, 2], expected 2 rows");
        e.case(Extents, with(e.normal([2, 2]), e.normal([2, 3]), true).left(false), "expected 2 columns");
        e.case(Extents, with(e.normal([2, 2, 2]), e.normal([3, 2, 2]), true), "that broadcast");
        e.case(SameDType, with(e.of(DType::F32, [2, 2]), e.of(DType::F64, [2, 2]), true), "b is f64");
    }
}

/// The solution `X` of `A · X = B` (of `Aᵀ · X = B` if `transpose`) for each triangle `A` of `a`, and `a` itself, with
/// the leading dimensions that it meets `b` in. See [`mod@solve_triangular`], which PyTorch has in its place.
#[operator(torch = "triangular_solve", dtypes(f32, f64))]
pub mod triangular_solve {
    #[results(solution, cloned_coefficient)]
    fn triangular_solve(
        b: Tensor<Floating>,
        a: Tensor<Floating>,
        #[default(true)] upper: bool,
        #[default(false)] transpose: bool,
        #[default(false)] unitriangular: bool,
    ) -> (Tensor, Tensor);

    fn requires(b: &TensorMeta, a: &TensorMeta) -> Result<()> {
        are_square(("a", a), Code::Square)?;
        are_matrices(("b", b), Code::Rank)?;
        super::meet(("a", a), ("b", b), true, [Code::SameDType, Code::Extents])
    }

    fn decomposition(Args { b, a, upper, transpose, unitriangular }: Args<Tensor>) -> (Tensor, Tensor) {
        let turned = if transpose { transposed(a) } else { a };
        let solution = super::solve_triangles(turned, b, upper != transpose, true, unitriangular);
        (solution, super::batched(a, &solution.shape()))
    }

    fn reference(
        Args { b, a, upper, transpose, unitriangular }: Args<&ReferenceTensor>,
    ) -> Result<(ArrayD<f64>, ArrayD<f64>)> {
        let mut triangle = super::triangle(a, upper, unitriangular);
        if transpose {
            triangle.swap_axes(a.ndim() - 1, a.ndim() - 2);
        }
        let solution = super::solutions(&triangle, b, true)?;
        let shape = [extents(solution.shape()).0, &a.shape()[a.ndim() - 2..]].concat();
        Ok((solution, spread(a, &shape)))
    }

    fn samples(s: &mut Samples) {
        let triangle = |s: &Samples, shape: &[usize]| s.uniform(1.0, 2.0, shape);
        s.case(with(s.normal([3, 2]), triangle(s, &[3, 3])));
        s.case(with(s.normal([2, 3, 2]), triangle(s, &[3, 3])).upper(false).transpose(true));
        s.case(with(s.normal([2, 2]), triangle(s, &[2, 2])).unitriangular(true));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3]), e.normal([2, 3])), "a has shape [2, 3], expected square matrices");
        e.case(Rank, with(e.normal([2]), e.normal([2, 2])), "b has shape [2], expected at least two dimensions");
        e.case(Extents, with(e.normal([3, 2]), e.normal([2, 2])), "b has shape [3, 2], expected 2 rows");
        e.case(SameDType, with(e.of(DType::F64, [2, 2]), e.of(DType::F32, [2, 2])), "b is f64");
    }
}

/// The solution `X` of `A · X = B` (of `X · A = B` unless `left`) for each square matrix `A` of `a` and matrix of `b`,
/// whose leading dimensions broadcast. `b` is vectors if it has one dimension, or the shape of `a` without the last
/// extent. A singular matrix is an error when the program runs.
#[operator(torch = "linalg.solve", dtypes(f32, f64))]
pub mod solve {
    fn solve(a: Tensor<Floating>, b: Tensor<Floating>, #[default(true)] left: bool) -> Tensor;

    fn requires(a: &TensorMeta, b: &TensorMeta, left: bool) -> Result<()> {
        are_square(("a", a), Code::Square)?;
        require!(b.rank() > 0, Rank, "b has no dimensions, expected vectors or matrices");
        if super::are_vectors(a.shape(), b.shape()) {
            require!(left, Left, "left is false and b has shape {:?}: vectors, expected matrices", b.shape());
            let columns = b.with_shape([b.shape(), &[1]].concat());
            return super::meet(("a", a), ("b, as columns,", &columns), true, [Code::SameDType, Code::Extents]);
        }
        super::meet(("a", a), ("b", b), left, [Code::SameDType, Code::Extents])
    }

    fn decomposition(a: Tensor, b: Tensor, left: bool) -> Tensor {
        if super::are_vectors(&a.shape(), &b.shape()) {
            let columns = super::solve_matrices(a, read_as(b, &[&*b.shape(), &[1]].concat()));
            let shape = columns.shape().to_vec();
            return read_as(columns, &shape[..shape.len() - 1]);
        }
        match left {
            true => super::solve_matrices(a, b),
            false => transposed(super::solve_matrices(transposed(a), transposed(b))),
        }
    }

    fn reference(a: &ArrayD<f64>, b: &ArrayD<f64>, left: bool) -> Result<ArrayD<f64>> {
        if super::are_vectors(a.shape(), b.shape()) {
            let columns = super::solutions(a, &reshaped(b, &[b.shape(), &[1]].concat()), true)?;
            let shape = columns.shape().to_vec();
            return Ok(reshaped(&columns, &shape[..shape.len() - 1]));
        }
        super::solutions(a, b, left)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3]), s.normal([3, 2])));
        s.case(with(s.normal([3, 3]), s.normal([3])));
        s.case(with(s.normal([2, 3, 3]), s.normal([2, 3])));
        s.case(with(s.normal([2, 1, 2, 2]), s.normal([3, 2, 1])));
        s.case(with(s.normal([2, 2]), s.normal([3, 2, 2])).left(false));
        s.case(with(s.normal([0, 0]), s.normal([0, 2])));
        s.case(with(s.normal([0, 2, 2]), s.normal([2, 2])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3]), e.normal([2, 3])), "a has shape [2, 3], expected square matrices");
        e.case(Rank, with(e.normal([2, 2]), e.normal([])), "b has no dimensions");
        e.case(Left, with(e.normal([2, 2]), e.normal([2])).left(false), "left is false and b has shape [2]");
        e.case(Extents, with(e.normal([2, 2]), e.normal([3])), "b, as columns, has shape [3, 1], expected 2 rows");
        e.case(Extents, with(e.normal([2, 2]), e.normal([3, 2])), "expected 2 rows");
        e.case(Extents, with(e.normal([2, 2, 2]), e.normal([3, 2, 2])), "that broadcast");
        e.case(SameDType, with(e.of(DType::F32, [2, 2]), e.of(DType::F64, [2, 2])), "b is f64");
        let rows = e.values([2, 2], [1.0, 2.0, 2.0, 4.0]);
        e.when_run("Singular", with(rows, e.normal([2])), "matrix 0 of the batch is singular: its pivot 2 is zero");
    }
}

/// The inverse of each square matrix. A singular matrix is an error when the program runs.
#[operator(torch = "linalg.inv", dtypes(f32, f64))]
pub mod inv {
    fn inv(a: Tensor<Floating>) -> Tensor;

    fn requires(a: &TensorMeta) -> Result<()> {
        are_square(("a", a), Code::Square)
    }

    fn decomposition(a: Tensor) -> Tensor {
        prims::solve(a, unit(a))
    }

    fn reference(a: &ArrayD<f64>) -> Result<ArrayD<f64>> {
        super::inverses(a)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 2, 2, 2])));
        s.case(with(s.normal([1, 1])));
        s.case(with(s.normal([2, 0, 0])));
        s.case(with(s.normal([0, 2, 2])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "a has shape [2, 3], expected square matrices");
        let second = e.values([2, 1, 1], [1.0, 0.0]);
        e.when_run("Singular", with(second), "matrix 1 of the batch is singular: its pivot 1 is zero");
    }
}

/// The solution `X` of `A · X = B` for each matrix `B` of `input`, where the triangle of `input2` is a Cholesky factor
/// of `A`: `A = L · Lᵀ`, or `Uᵀ · U` if `upper`. The other triangle is not read, and its gradient is zero; PyTorch's
/// has numbers there.
#[operator(torch = "cholesky_solve", dtypes(f32, f64))]
pub mod cholesky_solve {
    fn cholesky_solve(input: Tensor<Floating>, input2: Tensor<Floating>, #[default(false)] upper: bool) -> Tensor;

    fn requires(input: &TensorMeta, input2: &TensorMeta) -> Result<()> {
        are_square(("input2", input2), Code::Square)?;
        are_matrices(("input", input), Code::Rank)?;
        super::meet(("input2", input2), ("input", input), true, [Code::SameDType, Code::Extents])
    }

    fn decomposition(input: Tensor, input2: Tensor, upper: bool) -> Tensor {
        super::by_factor(input2, input, upper)
    }

    fn reference(input: &ArrayD<f64>, input2: &ArrayD<f64>, upper: bool) -> Result<ArrayD<f64>> {
        super::solutions(&super::product_of(input2, upper), input, true)
    }

    fn samples(s: &mut Samples) {
        let triangle = |s: &Samples, shape: &[usize]| s.uniform(1.0, 2.0, shape);
        s.case(with(s.normal([3, 2]), triangle(s, &[3, 3])));
        s.case(with(s.normal([2, 2, 1]), triangle(s, &[2, 2])).upper(true));
        s.case(with(s.normal([0, 2]), triangle(s, &[0, 0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3]), e.normal([2, 3])), "input2 has shape [2, 3], expected square matrices");
        e.case(Rank, with(e.normal([2]), e.normal([2, 2])), "input has shape [2], expected at least two dimensions");
        e.case(Extents, with(e.normal([3, 2]), e.normal([2, 2])), "input has shape [3, 2], expected 2 rows");
        e.case(SameDType, with(e.of(DType::F64, [2, 2]), e.of(DType::F32, [2, 2])), "input is f64");
    }
}

/// The inverse of the matrix that the triangle of `input` is a Cholesky factor of; see [`mod@cholesky_solve`].
#[operator(torch = "cholesky_inverse", dtypes(f32, f64))]
pub mod cholesky_inverse {
    fn cholesky_inverse(input: Tensor<Floating>, #[default(false)] upper: bool) -> Tensor;

    fn requires(input: &TensorMeta) -> Result<()> {
        are_square(("input", input), Code::Square)
    }

    fn decomposition(input: Tensor, upper: bool) -> Tensor {
        super::by_factor(input, unit(input), upper)
    }

    fn reference(input: &ArrayD<f64>, upper: bool) -> Result<ArrayD<f64>> {
        let unit = Array2::eye(extents(input.shape()).1).into_dyn();
        super::solutions(&super::product_of(input, upper), &unit, true)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.uniform(1.0, 2.0, [3, 3])));
        s.case(with(s.uniform(1.0, 2.0, [2, 2, 2])).upper(true));
        s.case(with(s.normal([0, 0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "input has shape [2, 3], expected square matrices");
    }
}

/// Fails unless matrices of both have one element type, and extents for `A · X = B`, or `X · A = B` unless `left`.
pub(crate) fn meet(
    (first, a): Named<'_>,
    (second, b): Named<'_>,
    left: bool,
    [types, extents]: [Precondition; 2],
) -> Result<(), Failure> {
    same_dtype((first, a), (second, b), types)?;
    let ((batch, n, _), (other, rows, columns)) =
        (crate::prims::matrices::extents(a.shape()), crate::prims::matrices::extents(b.shape()));
    if (if left { rows } else { columns }) != n || b.rank() < 2 {
        let lines = if left { "rows" } else { "columns" };
        return Err(extents.unmet(format_args!("{second} has shape {:?}, expected {n} {lines}", b.shape())));
    }
    if broadcast_shapes(&[batch, other]).is_none() {
        let (a, b) = (a.shape(), b.shape());
        let message =
            format_args!("{first} has shape {a:?}, {second} {b:?}, expected leading dimensions that broadcast");
        return Err(extents.unmet(message));
    }
    Ok(())
}

/// Whether `b` counts as vectors beside matrices `a`.
pub(crate) fn are_vectors(a: &[usize], b: &[usize]) -> bool {
    b.len() == 1 || (b.len() + 1 == a.len() && b == &a[..b.len()])
}

/// Matrices with the leading dimensions of `like`.
#[track_caller]
fn batched(matrix: Tensor, like: &[usize]) -> Tensor {
    let shape = matrix.shape().to_vec();
    broadcast(matrix, &[extents(like).0, &shape[shape.len() - 2..]].concat())
}

/// Both with the leading dimensions that they meet in.
#[track_caller]
pub(crate) fn both_batched(a: Tensor, b: Tensor) -> [Tensor; 2] {
    let shapes = [a.shape(), b.shape()];
    let batch = broadcast_shapes(&[extents(&shapes[0]).0, extents(&shapes[1]).0]).unwrap_or_default();
    let like = [&batch[..], &[1, 1]].concat();
    [a, b].map(|matrix| batched(matrix, &like))
}

#[track_caller]
fn solve_matrices(a: Tensor, b: Tensor) -> Tensor {
    let [a, b] = both_batched(a, b);
    prims::solve(a, b)
}

#[track_caller]
fn solve_triangles(a: Tensor, b: Tensor, upper: bool, left: bool, unit_diagonal: bool) -> Tensor {
    let [a, b] = both_batched(a, b);
    match left {
        true => prims::triangular_solve(a, b, upper, unit_diagonal),
        false => transposed(prims::triangular_solve(transposed(a), transposed(b), !upper, unit_diagonal)),
    }
}

/// The solution for a matrix that `factor` is a Cholesky factor of.
#[track_caller]
fn by_factor(factor: Tensor, b: Tensor, upper: bool) -> Tensor {
    let lower = if upper { transposed(factor) } else { factor };
    let half = solve_triangles(lower, b, false, true, false);
    solve_triangles(transposed(lower), half, true, true, false)
}

/// For references: the triangles of matrices, zero elsewhere, with ones on the diagonal if asked for.
pub(crate) fn triangle(a: &ArrayD<f64>, upper: bool, unit_diagonal: bool) -> ArrayD<f64> {
    let rank = a.ndim();
    ArrayD::from_shape_fn(a.raw_dim(), |at| {
        let (row, column) = (at[rank - 2], at[rank - 1]);
        match row == column {
            true if unit_diagonal => 1.0,
            false if (column > row) != upper => 0.0,
            _ => a[at],
        }
    })
}

/// For references: the matrices that triangles are Cholesky factors of.
fn product_of(factor: &ArrayD<f64>, upper: bool) -> ArrayD<f64> {
    let products: Vec<Array2<f64>> = matrices(&triangle(factor, upper, false))
        .into_iter()
        .map(|factor| if upper { factor.t().dot(&factor) } else { factor.dot(&factor.t()) })
        .collect();
    stacked(factor.shape(), &factor.shape()[factor.ndim() - 2..], &products)
}

/// For references: the solutions of `A · X = B`, or `X · A = B` unless `left`.
pub(crate) fn solutions(a: &ArrayD<f64>, b: &ArrayD<f64>, left: bool) -> Result<ArrayD<f64>, Failure> {
    let batch = broadcast_shapes(&[extents(a.shape()).0, extents(b.shape()).0]).unwrap_or_default();
    let of = |matrix: &ArrayD<f64>| spread(matrix, &[&batch[..], &matrix.shape()[matrix.ndim() - 2..]].concat());
    let (a, b) = (of(a), of(b));
    let one = |(number, (a, b)): (usize, (Array2<f64>, Array2<f64>))| {
        let found = match left {
            true => solved(&a, &b),
            false => solved(&a.t().to_owned(), &b.t().to_owned()).map(|x| x.t().to_owned()),
        };
        found.map_err(|place| prims::singular_matrix(number, place))
    };
    let found = matrices(&a).into_iter().zip(matrices(&b)).enumerate().map(one).collect::<Result<Vec<_>, _>>()?;
    Ok(stacked(b.shape(), &b.shape()[b.ndim() - 2..], &found))
}

/// For references: the inverses of matrices.
pub(crate) fn inverses(a: &ArrayD<f64>) -> Result<ArrayD<f64>, Failure> {
    solutions(a, &Array2::eye(extents(a.shape()).1).into_dyn(), true)
}
