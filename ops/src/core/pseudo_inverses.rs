//! What singular values tell of matrices. They are computed in f32 and f64.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::Operand;
use fulgurite_runtime::rules::{ArrayD, Failure, Precondition};
use fulgurite_runtime::{Tensor, TensorMeta};
use ndarray::Array2;

use super::arrays::{array, spread};
use super::promotion::{broadcast, broadcast_shapes, constant_like, operands_in, sum_to};
use super::{
    NormOrder, Triangle, eigvalsh, from_triangle, inv, matrix_norm, matrix_norms, order_text, slice_at, svdvals,
};
use crate::prims;
use crate::prims::checks::same_dtype;
use crate::prims::matrices::{are_matrices, are_square, as_rows, extents, matrices, solved, stacked, transposed};

/// The `rtol` that says that there is none.
pub(crate) const ABSENT: f64 = f64::NEG_INFINITY;

/// The pseudo-inverse of Moore and Penrose of each matrix, by its singular values above the larger of `atol` and of
/// `rtol` times the largest one; the others count as zero. `rtol` is the machine epsilon times the larger extent of the
/// matrices if it is absent, which negative infinity says, and `atol` is not above zero. Both are numbers, or tensors
/// that broadcast with the leading dimensions of `a`. If `hermitian`, the matrices are symmetric, their lower triangle
/// is read, and their eigenvalues are taken.
///
/// The gradient is that of Golub and Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares
/// problems whose variables separate", 1973, for matrices whose rank does not change. That of tolerances is zero.
#[operator(torch = "linalg.pinv", dtypes(f32, f64), autocast = keep)]
pub mod pinv {
    fn pinv(
        a: Tensor<Floating>,
        #[default(0.0)] atol: Operand<Floating>,
        #[default(f64::NEG_INFINITY)] rtol: Operand<Floating>,
        #[default(false)] hermitian: bool,
    ) -> Tensor;

    fn requires(Args { a, atol, rtol, hermitian }: Args<&TensorMeta>) -> Result<()> {
        super::of_kind(a, hermitian, [Code::Rank, Code::Square])?;
        super::tolerances_meet(a, [atol, rtol], [Code::SameDType, Code::Tolerance])
    }

    fn decomposition(Args { a, atol, rtol, hermitian }: Args<Tensor>) -> Tensor {
        let a = super::with_tolerances(a, [atol, rtol]);
        let shape = a.shape();
        let (batch, m, n) = extents(&shape);
        if m == 0 || n == 0 {
            return prims::full([batch, &[n, m]].concat(), 0.0, a.dtype(), a.device());
        }
        let (u, sizes, signed, vh) = if hermitian {
            let (values, vectors) = prims::eigh(from_triangle(a, Triangle::Lower));
            (vectors, prims::abs(values), values, transposed(vectors))
        } else {
            let (u, s, vh) = prims::svd(a, false);
            (u, s, s, vh)
        };
        let counts = super::above(sizes, [m, n], atol, rtol);
        let inverse = prims::select(counts, prims::reciprocal(prims::select(counts, signed, 1.0)), 0.0);
        prims::matmul(prims::mul(transposed(vh), as_rows(inverse, n)), transposed(u))
    }

    fn grad(Args { a, atol, rtol, hermitian }: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = with(a).atol(atol).rtol(rtol).hermitian(hermitian).call();
        (out, move |d_out: Tensor| {
            let product = prims::matmul;
            let shape = a.shape();
            let a = super::with_tolerances(a, [atol, rtol]);
            let a = if hermitian { from_triangle(a, Triangle::Lower) } else { a };
            let [inverse, cotangent] = [out, d_out].map(transposed);
            let within = product(product(inverse, d_out), inverse);
            // The parts of the cotangent that are orthogonal to the columns and to the rows of the matrix.
            let beyond_columns = prims::sub(cotangent, product(a, product(out, cotangent)));
            let beyond_rows = prims::sub(cotangent, product(product(cotangent, out), a));
            let by_columns = product(product(beyond_columns, out), inverse);
            let by_rows = product(inverse, product(out, beyond_rows));
            let d_a = prims::sub(prims::add(by_columns, by_rows), within);
            // As that of the eigenvalues and eigenvectors.
            let symmetric = |d_a: Tensor| prims::mul(prims::add(d_a, transposed(d_a)), 0.5);
            let zero = |tolerance: Operand<Tensor>| tolerance.tensor().map(|given| constant_like(*given, 0.0));
            let d_a = sum_to(if hermitian { symmetric(d_a) } else { d_a }, &shape);
            Grads { a: d_a, atol: zero(atol), rtol: zero(rtol) }
        })
    }

    fn reference(a: &ReferenceTensor, atol: ArrayD<f64>, rtol: ArrayD<f64>, hermitian: bool) -> ArrayD<f64> {
        let (epsilon, [a, atol, rtol]) = (a.dtype().epsilon(), super::meeting([a.floats(), &atol, &rtol]));
        let (_, m, n) = extents(a.shape());
        let one = |((matrix, atol), rtol): ((Array2<f64>, &f64), &f64)| {
            let (values, left, right) = super::spectrum(&matrix, hermitian);
            let kept = super::kept(&values, [m, n], epsilon, *atol, *rtol);
            let mut out = Array2::zeros((n, m));
            for (i, value) in values.iter().enumerate().filter(|(i, _)| kept[*i]) {
                let column = right.column(i).to_owned().insert_axis(ndarray::Axis(1));
                out = out + column.dot(&left.column(i).insert_axis(ndarray::Axis(0))) / *value;
            }
            out
        };
        let found: Vec<_> = matrices(&a).into_iter().zip(&atol).zip(&rtol).map(one).collect();
        stacked(a.shape(), &[n, m], &found)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 4, 2])));
        s.case(with(s.normal([2, 3])));
        s.case(with(s.values([2, 2], [1.0, 2.0, 2.0, 4.0]))).forward_only("the rank changes");
        s.case(with(s.values([2, 2], [4.0, 0.0, 0.0, 1.0])).rtol(0.5)).forward_only("the rank changes");
        s.case(with(s.values([2, 2], [4.0, 0.0, 0.0, 1.0])).atol(2.0)).forward_only("the rank changes");
        s.case(with(s.values([2, 2], [-2.0, 9.0, 1.0, 3.0])).hermitian(true)).forward_only("of symmetric matrices");
        s.case(with(s.normal([2, 0, 3])));
        s.case(with(s.normal([0, 2, 2])));
        // As many tolerances as rows: that of a matrix is not that of a row.
        s.case(with(s.normal([2, 2, 2])).atol(s.values([2], [0.0, 0.001])).rtol(s.values([2], [0.0, 0.001])));
        s.case(with(s.normal([3, 2])).rtol(s.values([2, 1], [0.0001, 0.001])));
        let diagonal = s.values([2, 2], [4.0, 0.0, 0.0, 1.0]);
        s.case(with(diagonal.clone()).atol(s.values([3], [0.0, 2.0, 5.0]))).forward_only("the rank changes");
        s.case(with(diagonal).atol(0.5).rtol(s.values([2], [0.5, 0.0]))).forward_only("the rank changes");
        s.case(with(s.normal([0, 3])).atol(s.values([], [1.0])));
        s.case(with(s.normal([1, 2])));
        s.case(with(s.normal([2, 1])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "a has shape [3], expected at least two dimensions");
        e.case(Square, with(e.normal([2, 3])).hermitian(true), "a has shape [2, 3], expected square matrices");
        let other = if e.dtype() == DType::F64 { DType::F32 } else { DType::F64 };
        e.case(SameDType, with(e.normal([2, 3])).rtol(e.of(other, [])), "rtol is f");
        let apart = with(e.normal([3, 2, 2])).atol(e.normal([2]));
        e.case(Tolerance, apart, "atol has shape [2], expected one that broadcasts with [3]");
    }
}

/// The number of singular values of each matrix that count; see [`mod@pinv`].
#[operator(torch = "linalg.matrix_rank", dtypes(f32, f64), no_grad = "a number of singular values")]
pub mod matrix_rank {
    fn matrix_rank(
        a: Tensor<Floating>,
        #[default(0.0)] atol: Operand<Floating>,
        #[default(f64::NEG_INFINITY)] rtol: Operand<Floating>,
        #[default(false)] hermitian: bool,
    ) -> Tensor;

    fn requires(Args { a, atol, rtol, hermitian }: Args<&TensorMeta>) -> Result<()> {
        super::of_kind(a, hermitian, [Code::Rank, Code::Square])?;
        super::tolerances_meet(a, [atol, rtol], [Code::SameDType, Code::Tolerance])
    }

    fn decomposition(Args { a, atol, rtol, hermitian }: Args<Tensor>) -> Tensor {
        let a = super::with_tolerances(a, [atol, rtol]);
        let shape = a.shape();
        let (batch, m, n) = extents(&shape);
        if m == 0 || n == 0 {
            return prims::full(batch, 0, DType::I64, a.device());
        }
        let sizes = if hermitian { prims::abs(eigvalsh(a)) } else { svdvals(a) };
        let counts = super::above(sizes, [m, n], atol, rtol);
        prims::sum(prims::convert_element_type(counts, DType::I64), [batch.len()])
    }

    fn reference(a: &ReferenceTensor, atol: ArrayD<f64>, rtol: ArrayD<f64>, hermitian: bool) -> ArrayD<i64> {
        let (epsilon, [a, atol, rtol]) = (a.dtype().epsilon(), super::meeting([a.floats(), &atol, &rtol]));
        let (batch, m, n) = extents(a.shape());
        let one = |((matrix, atol), rtol): ((Array2<f64>, &f64), &f64)| {
            let (values, ..) = super::spectrum(&matrix, hermitian);
            super::kept(&values, [m, n], epsilon, *atol, *rtol).into_iter().filter(|kept| *kept).count() as i64
        };
        array(batch, matrices(&a).into_iter().zip(&atol).zip(&rtol).map(one).collect())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.values([2, 2, 2], [1.0, 2.0, 2.0, 4.0, 0.0, 0.0, 0.0, 0.0])));
        s.case(with(s.values([2, 2], [4.0, 0.0, 0.0, 1.0])).rtol(0.5));
        s.case(with(s.values([2, 2], [4.0, 0.0, 0.0, 1.0])).atol(2.0));
        s.case(with(s.values([2, 2], [1.0, 5.0, 1.0, 1.0])).hermitian(true));
        s.case(with(s.normal([2, 0, 3])));
        let diagonal = s.values([2, 2], [4.0, 0.0, 0.0, 1.0]);
        s.case(with(diagonal.clone()).atol(s.values([3], [0.0, 2.0, 5.0])));
        s.case(with(diagonal.clone()).atol(0.5).rtol(s.values([2, 1], [0.5, 0.0])));
        s.case(with(diagonal).rtol(s.values([], [0.25])));
        s.case(with(s.normal([0, 3])).atol(s.values([], [1.0])));
        // A value between the tolerance for as many numbers as rows and that for as many as columns.
        let small = 5.0 * s.dtype().epsilon();
        let wide = s.values([2, 8], [[1.0, 0.0], [0.0; 2], [0.0; 2], [0.0; 2], [0.0, small]].concat());
        s.case(with(wide.clone()));
        s.case(with(wide.clone()).atol(small / 2.0));
        s.case(with(s.normal([1, 2])));
        s.case(with(s.normal([2, 1])));
        s.case(with(wide).atol(s.values([2], [0.0, small / 2.0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "a has shape [3], expected at least two dimensions");
        e.case(Square, with(e.normal([2, 3])).hermitian(true), "a has shape [2, 3], expected square matrices");
        let other = if e.dtype() == DType::F64 { DType::F32 } else { DType::F64 };
        e.case(SameDType, with(e.normal([2, 3])).rtol(e.of(other, [])), "rtol is f");
        let apart = with(e.normal([3, 2, 2])).atol(e.normal([2]));
        e.case(Tolerance, apart, "atol has shape [2], expected one that broadcasts with [3]");
    }
}

/// The condition number of each matrix: the norm of order `p` times that of the inverse. Of order 2, which is meant if
/// `p` is absent, it is the quotient of the largest and the smallest singular value, of -2 its reciprocal; for other
/// orders the matrices are square, and a singular one is an error when the program runs, where PyTorch has infinity.
#[operator(
    torch = "linalg.cond",
    dtypes(f32, f64),
    skip(layout, sample = 4, reason = "repeated elements are a singular matrix, whose inverse is made of roundings")
)]
pub mod cond {
    fn cond(a: Tensor<Floating>, #[default(None)] p: Option<NormOrder>) -> Tensor;

    fn requires(a: &TensorMeta, p: Option<NormOrder>) -> Result<()> {
        are_matrices(("a", a), Code::Rank)?;
        let (_, m, n) = extents(a.shape());
        require!(m > 0 && n > 0, Empty, "a has shape {:?}, expected matrices that are not empty", a.shape());
        let of_values = p.is_none_or(|p| matches!(p, NormOrder::Number(2.0 | -2.0)));
        let known = !matches!(p, Some(NormOrder::Number(p)) if !matches!(p.abs(), 1.0 | 2.0 | f64::INFINITY));
        let text = p.map_or_else(|| "None".into(), order_text);
        require!(known, Order, "p is {text}, expected 1, -1, 2, -2, inf, -inf, fro or nuc");
        if of_values { Ok(()) } else { are_square(("a", a), Code::Square) }
    }

    fn decomposition(a: Tensor, p: Option<NormOrder>) -> Tensor {
        let p = p.unwrap_or(NormOrder::Number(2.0));
        if let NormOrder::Number(2.0 | -2.0) = p {
            let values = svdvals(a);
            let (last, count) = (values.rank() - 1, values.shape()[values.rank() - 1]);
            let [largest, smallest] = [0, count - 1].map(|at| slice_at(values, last, at));
            return match p == NormOrder::Number(2.0) {
                true => prims::div(largest, smallest),
                false => prims::div(smallest, largest),
            };
        }
        prims::mul(matrix_norm::with(a).ord(p).call(), matrix_norm::with(inv(a)).ord(p).call())
    }

    fn reference(a: &ArrayD<f64>, p: Option<NormOrder>) -> Result<ArrayD<f64>> {
        let mut found = Vec::new();
        for (number, matrix) in matrices(a).into_iter().enumerate() {
            let values = prims::singular_vectors(&matrix).1;
            let (largest, smallest) = (values[0], values[values.len() - 1]);
            found.push(match p {
                None | Some(NormOrder::Number(2.0)) => largest / smallest,
                Some(NormOrder::Number(-2.0)) => smallest / largest,
                Some(p) => {
                    let inverse = solved(&matrix, &Array2::eye(matrix.nrows()))
                        .map_err(|place| prims::singular_matrix(number, place))?;
                    let norm = |matrix: Array2<f64>| matrix_norms(&matrix.into_dyn(), p, &[0, 1], false)[[]];
                    norm(matrix) * norm(inverse)
                }
            });
        }
        Ok(array(extents(a.shape()).0, found))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 2, 4])).p(NormOrder::Number(-2.0)));
        s.case(with(s.normal([2, 2])).p(NormOrder::Number(1.0)));
        s.case(with(s.normal([2, 2])).p(NormOrder::Frobenius));
        s.case(with(s.normal([2, 2])).p(NormOrder::Nuclear));
        s.case(with(s.normal([1, 2])));
        s.case(with(s.normal([2, 1]))).forward_only("it is 1 for each column, and its gradient is rounding");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "a has shape [3], expected at least two dimensions");
        e.case(Empty, with(e.normal([2, 0])), "expected matrices that are not empty");
        e.case(Empty, with(e.normal([0, 2])), "expected matrices that are not empty");
        e.case(Order, with(e.normal([2, 2])).p(NormOrder::Number(3.0)), "expected 1, -1, 2, -2");
        e.case(Square, with(e.normal([2, 3])).p(NormOrder::Frobenius), "expected square matrices");
        let singular = with(e.values([2, 2], [1.0, 2.0, 2.0, 4.0])).p(NormOrder::Number(1.0));
        e.when_run("Singular", singular, "matrix 0 of the batch is singular: its pivot 2 is zero");
    }
}

/// Fails unless there are matrices, and square ones if they are symmetric.
fn of_kind(a: &TensorMeta, hermitian: bool, [rank, square]: [Precondition; 2]) -> Result<(), Failure> {
    are_matrices(("a", a), rank)?;
    if hermitian { are_square(("a", a), square) } else { Ok(()) }
}

/// Fails unless tolerances are of the type of `a` and broadcast with its leading dimensions.
fn tolerances_meet(
    a: &TensorMeta,
    tolerances: [Operand<&TensorMeta>; 2],
    [types, shapes]: [Precondition; 2],
) -> Result<(), Failure> {
    let mut batch = extents(a.shape()).0.to_vec();
    for (name, tolerance) in ["atol", "rtol"].into_iter().zip(tolerances) {
        let Operand::Tensor(tolerance) = tolerance else { continue };
        same_dtype(("a", a), (name, tolerance), types)?;
        let (shape, own) = (broadcast_shapes(&[&batch, tolerance.shape()]), tolerance.shape());
        let text = format_args!("{name} has shape {own:?}, expected one that broadcasts with {batch:?}");
        batch = shape.ok_or_else(|| shapes.unmet(text))?;
    }
    Ok(())
}

/// The matrices repeated as often as there are tolerances for them.
#[track_caller]
fn with_tolerances(a: Tensor, tolerances: [Operand<Tensor>; 2]) -> Tensor {
    let shape = a.shape();
    let (batch, m, n) = extents(&shape);
    let shapes = tolerances.map(|tolerance| tolerance.tensor().map_or_else(Vec::new, |given| given.shape().to_vec()));
    let batch = broadcast_shapes(&[batch, &shapes[0], &shapes[1]]).unwrap_or_default();
    broadcast(a, &[&batch[..], &[m, n]].concat())
}

/// Which of the singular values `[..., k]`, which are not negative, are above both tolerances.
#[track_caller]
fn above(sizes: Tensor, [m, n]: [usize; 2], atol: Operand<Tensor>, rtol: Operand<Tensor>) -> Tensor {
    let (last, count) = (sizes.rank() - 1, sizes.shape()[sizes.rank() - 1]);
    let usual = sizes.dtype().epsilon() * m.max(n) as f64;
    let part = match (rtol, atol) {
        (Operand::Scalar(number), Operand::Scalar(atol)) if number.to_f64() == ABSENT => {
            if atol.to_f64() > 0.0 {
                0.0.into()
            } else {
                usual.into()
            }
        }
        (Operand::Scalar(number), Operand::Tensor(atol)) if number.to_f64() == ABSENT => {
            Operand::Tensor(prims::select(prims::gt(atol, 0.0), 0.0, constant_like(atol, usual)))
        }
        _ => rtol,
    };
    let largest = Operand::Tensor(prims::amax(sizes, [last]));
    let [largest, part, atol] = operands_in([largest, part, atol], sizes.dtype());
    let least = prims::maximum(prims::mul(largest, part), atol);
    prims::gt(sizes, crate::prims::matrices::as_columns(least, count))
}

/// For references: matrices and both of their tolerances, repeated so that there are as many of each.
fn meeting([a, atol, rtol]: [&ArrayD<f64>; 3]) -> [ArrayD<f64>; 3] {
    let (batch, m, n) = extents(a.shape());
    let batch = broadcast_shapes(&[batch, atol.shape(), rtol.shape()]).unwrap_or_default();
    [spread(a, &[&batch[..], &[m, n]].concat()), spread(atol, &batch), spread(rtol, &batch)]
}

/// For references: which values count.
fn kept(values: &[f64], [m, n]: [usize; 2], epsilon: f64, atol: f64, rtol: f64) -> Vec<bool> {
    let largest = values.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    let usual = if atol > 0.0 { 0.0 } else { epsilon * m.max(n) as f64 };
    let least = (largest * if rtol == ABSENT { usual } else { rtol }).max(atol);
    values.iter().map(|value| value.abs() > least).collect()
}

/// For references: singular values, left and right vectors as columns; of symmetric matrices eigenvalues and their
/// vectors twice.
fn spectrum(matrix: &Array2<f64>, hermitian: bool) -> (Vec<f64>, Array2<f64>, Array2<f64>) {
    if hermitian {
        let lower = Array2::from_shape_fn(matrix.dim(), |(i, j)| matrix[[i.max(j), i.min(j)]]);
        let (values, vectors) = prims::eigenvectors(&lower);
        return (values.to_vec(), vectors.clone(), vectors);
    }
    let (left, values, right) = prims::singular_vectors(matrix);
    (values.to_vec(), left, right)
}
