//! Equations by factors that are there already, by least squares, and of matrices with several dimensions on each side.
//! They are computed in f32 and f64; f16 and bf16 are refused, as in PyTorch.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::rules::{ArrayD, Failure, Precondition};
use fulgurite_runtime::{DType, Tensor, TensorMeta, attribute_enum};
use ndarray::Array2;

use super::arrays::{array, permuted, product, reshaped};
use super::promotion::{broadcast, named_dims, position};
use super::{
    ABSENT, both_batched, detach, inv, inverses, matrix_rank, meet, movedim, pinv, read_as, solutions, solve, svdvals,
    triangle,
};
use crate::prims;
use crate::prims::matrices::{
    are_matrices, are_square, as_columns, block, extents, lower, matrices, on_diagonal, rows_at, stacked, transposed,
    undone, upper,
};

/// The most rows that exchanges of two are followed for, one after the other.
const MOST_EXCHANGED: usize = 1 << 10;

/// The order that the exchanges `pivots`, `[..., k]`, leave `rows` rows in: the first row with the one that `pivots`
/// numbers from 1, then the second, and so on. A number beyond the rows is an error when the program runs.
#[track_caller]
fn order_of(pivots: Tensor, rows: usize) -> Tensor {
    let shape = pivots.shape().to_vec();
    let (last, count) = (shape.len() - 1, shape[shape.len() - 1]);
    let whole = [&shape[..last], &[rows]].concat();
    let one = [&shape[..last], &[1]].concat();
    let place = prims::iota(rows, 0i64, 1i64, DType::I64, pivots.device());
    let others = prims::sub(prims::convert_element_type(pivots, DType::I64), 1);
    let mut order = broadcast(place, &whole);
    for i in 0..count {
        let (mut from, mut to) = (vec![0; last + 1], one.clone());
        (from[last], to[last]) = (i, i + 1);
        let steps = vec![1; last + 1];
        let other = prims::slice(others, from.clone(), to.clone(), steps.clone());
        let here = broadcast(prims::slice(order, from, to, steps), &whole);
        let there = broadcast(prims::gather(order, last, other), &whole);
        let is_other = prims::eq(broadcast(place, &whole), broadcast(other, &whole));
        let is_here = prims::eq(broadcast(place, &whole), i as i64);
        order = prims::select(is_other, here, prims::select(is_here, there, order));
    }
    order
}

/// The matrices `P` with `P · X` for matrices `X` whose rows are in this order.
#[track_caller]
fn permutations(order: Tensor, dtype: DType) -> Tensor {
    let shape = order.shape().to_vec();
    let (batch, m) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
    let square = [batch, &[m, m]].concat();
    let rows = as_columns(prims::iota(m, 0i64, 1i64, DType::I64, order.device()), m);
    let dims: Vec<usize> = (0..batch.len()).chain([batch.len() + 1]).collect();
    let from = prims::broadcast_in_dim(order, &*square, dims);
    prims::convert_element_type(prims::eq(broadcast(rows, &square), from), dtype)
}

/// For metas: fails unless `pivots` are as many i32 for each matrix as its factors have rows or columns.
fn are_pivots(factors: &TensorMeta, pivots: &TensorMeta, name: &str, code: Precondition) -> Result<(), Failure> {
    let (batch, m, n) = extents(factors.shape());
    let expected = [batch, &[m.min(n)]].concat();
    if pivots.shape() == expected && pivots.dtype() == DType::I32 && m <= MOST_EXCHANGED {
        return Ok(());
    }
    Err(code.unmet(format_args!(
        "{name} is {pivots}, expected i32{expected:?} for factors of shape {:?}, at most {MOST_EXCHANGED} rows",
        factors.shape()
    )))
}

/// `A · X = B` of the factors of `A`; `Aᵀ · X = B` if `adjoint`; `X · A = B` and `X · Aᵀ = B` unless `left`.
#[track_caller]
fn by_factors(factors: Tensor, pivots: Tensor, b: Tensor, left: bool, adjoint: bool) -> Tensor {
    if !left {
        return transposed(by_factors(factors, pivots, transposed(b), true, !adjoint));
    }
    let (n, of_factors) = (factors.shape()[factors.rank() - 1], factors.shape());
    let order = order_of(pivots, n);
    let [factors, b] = both_batched(factors, b);
    // A line for each matrix, with the leading dimensions that both meet in.
    let line = prims::reshape(order, [extents(&of_factors).0, &[1, n]].concat());
    let order = broadcast(line, &[extents(&factors.shape()).0, &[1, n]].concat());
    let order = prims::reshape(order, [extents(&factors.shape()).0, &[n]].concat());
    if adjoint {
        let turned = transposed(factors);
        let half = prims::triangular_solve(turned, b, false, false);
        return rows_at(prims::triangular_solve(turned, half, true, true), undone(order));
    }
    let half = prims::triangular_solve(factors, rows_at(b, order), false, true);
    prims::triangular_solve(factors, half, true, false)
}

/// For references: the matrices of which these are factors.
fn of_factors(factors: &ArrayD<f64>, pivots: &ArrayD<i64>) -> Result<ArrayD<f64>, Failure> {
    let (_, n, _) = extents(factors.shape());
    let exchanges: Vec<i64> = pivots.iter().copied().collect();
    let parts = matrices(&product(&triangle(factors, false, true), &triangle(factors, true, false)));
    let mut whole = Vec::new();
    for (number, mut matrix) in parts.into_iter().enumerate() {
        for i in (0..n).rev() {
            let other = usize::try_from(exchanges[number * n + i] - 1).ok().filter(|other| *other < n);
            let Some(other) = other else {
                return Err(Failure::new("IndexOutOfRange", "a pivot is beyond the rows".to_owned()));
            };
            for column in 0..n {
                matrix.swap([i, column], [other, column]);
            }
        }
        whole.push(matrix);
    }
    Ok(stacked(factors.shape(), &[n, n], &whole))
}

/// The solution `X` of `A · X = B` for each matrix `B` of `b`, by the factors `lu` and the exchanged rows `pivots` that
/// [`mod@lu_factor`](super::lu_factor) has of `A`; of `Aᵀ · X = B` if `adjoint`. Unless `left`, the unknown is on the
/// left of `A`. Leading dimensions broadcast. A pivot of zero gives infinities and NaN. The exchanges are followed one
/// after the other, so there are lines for each row in the trace; `solve` has two.
#[operator(torch = "linalg.lu_solve", dtypes(f32, f64))]
pub mod lu_solve {
    fn lu_solve(
        lu: Tensor<Floating>,
        pivots: Tensor<Integer>,
        b: Tensor<Floating>,
        #[default(true)] left: bool,
        #[default(false)] adjoint: bool,
    ) -> Tensor;

    fn requires(Args { lu, pivots, b, left, .. }: Args<&TensorMeta>) -> Result<()> {
        are_square(("lu", lu), Code::Square)?;
        are_matrices(("b", b), Code::Rank)?;
        super::are_pivots(lu, pivots, "pivots", Code::Pivots)?;
        meet(("lu", lu), ("b", b), left, [Code::SameDType, Code::Extents])
    }

    fn decomposition(Args { lu, pivots, b, left, adjoint }: Args<Tensor>) -> Tensor {
        super::by_factors(lu, pivots, b, left, adjoint)
    }

    fn reference(Args { lu, pivots, b, left, adjoint }: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let mut a = super::of_factors(lu, pivots)?;
        if adjoint {
            a.swap_axes(lu.ndim() - 1, lu.ndim() - 2);
        }
        solutions(&a, b, left)
    }

    fn samples(s: &mut Samples) {
        let pivots = |s: &Samples, shape: &[usize], exchanged: &[f64]| s.values(shape, exchanged).cast(DType::I32);
        let factors = |s: &Samples, shape: &[usize]| s.uniform(1.0, 2.0, shape);
        s.case(with(factors(s, &[3, 3]), pivots(s, &[3], &[2.0, 3.0, 3.0]), s.normal([3, 2])));
        let turned = with(factors(s, &[3, 3]), pivots(s, &[3], &[3.0, 3.0, 3.0]), s.normal([3, 1])).adjoint(true);
        s.case(turned);
        let right = with(factors(s, &[2, 2, 2]), pivots(s, &[2, 2], &[2.0, 2.0, 1.0, 2.0]), s.normal([3, 2]));
        s.case(right.left(false));
        let both = with(factors(s, &[2, 2]), pivots(s, &[2], &[2.0, 2.0]), s.normal([2, 1, 2]));
        s.case(both.left(false).adjoint(true));
        s.case(with(factors(s, &[0, 0]), pivots(s, &[0], &[]), s.normal([0, 2])));
    }

    fn errors(e: &mut ErrorSamples) {
        let pivots = |e: &ErrorSamples, shape: &[usize]| e.values(shape, [1.0, 2.0]).cast(DType::I32);
        let (a, b, c, d) = (pivots(e, &[2]), pivots(e, &[2]), pivots(e, &[2]), pivots(e, &[2]));
        e.case(Square, with(e.normal([2, 3]), a, e.normal([2, 3])), "lu has shape [2, 3], expected square matrices");
        e.case(Rank, with(e.normal([2, 2]), b, e.normal([2])), "b has shape [2], expected at least two dimensions");
        e.case(Extents, with(e.normal([2, 2]), c, e.normal([3, 2])), "b has shape [3, 2], expected 2 rows");
        e.case(SameDType, with(e.of(DType::F32, [2, 2]), d, e.of(DType::F64, [2, 2])), "b is f64");
        let wide = e.integers(1, 2, [2]);
        e.case(Pivots, with(e.normal([2, 2]), wide, e.normal([2, 2])), "pivots is i64[2], expected i32[2]");
        let beyond = e.values([2], [3.0, 2.0]).cast(DType::I32);
        e.when_run("IndexOutOfRange", with(e.normal([2, 2]), beyond, e.normal([2, 1])), "");
    }
}

/// [`mod@lu_solve`] with PyTorch's older order of arguments: the solution of `A · X = B` by factors of `A`.
#[operator(torch = "lu_solve", dtypes(f32, f64))]
pub mod lu_solve_of_data {
    fn lu_solve_of_data(b: Tensor<Floating>, lu_data: Tensor<Floating>, lu_pivots: Tensor<Integer>) -> Tensor;

    fn requires(Args { b, lu_data, lu_pivots }: Args<&TensorMeta>) -> Result<()> {
        are_square(("lu_data", lu_data), Code::Square)?;
        are_matrices(("b", b), Code::Rank)?;
        super::are_pivots(lu_data, lu_pivots, "lu_pivots", Code::Pivots)?;
        meet(("lu_data", lu_data), ("b", b), true, [Code::SameDType, Code::Extents])
    }

    fn decomposition(b: Tensor, lu_data: Tensor, lu_pivots: Tensor) -> Tensor {
        super::by_factors(lu_data, lu_pivots, b, true, false)
    }

    fn reference(b: &ArrayD<f64>, lu_data: &ArrayD<f64>, lu_pivots: &ArrayD<i64>) -> Result<ArrayD<f64>> {
        solutions(&super::of_factors(lu_data, lu_pivots)?, b, true)
    }

    fn samples(s: &mut Samples) {
        let pivots = s.values([3], [3.0, 2.0, 3.0]).cast(DType::I32);
        s.case(with(s.normal([2, 3, 2]), s.uniform(1.0, 2.0, [3, 3]), pivots));
    }

    fn errors(e: &mut ErrorSamples) {
        let pivots = |e: &ErrorSamples| e.values([2], [1.0, 2.0]).cast(DType::I32);
        let (a, b, c, d) = (pivots(e), pivots(e), pivots(e), pivots(e));
        e.case(Square, with(e.normal([2, 3]), e.normal([2, 3]), a), "expected square matrices");
        e.case(Rank, with(e.normal([2]), e.normal([2, 2]), b), "b has shape [2], expected at least two dimensions");
        e.case(Extents, with(e.normal([3, 2]), e.normal([2, 2]), c), "b has shape [3, 2], expected 2 rows");
        e.case(SameDType, with(e.of(DType::F64, [2, 2]), e.of(DType::F32, [2, 2]), d), "b is f64");
        let few = e.values([1], [1.0]).cast(DType::I32);
        e.case(Pivots, with(e.normal([2, 2]), e.normal([2, 2]), few), "lu_pivots is i32[1], expected i32[2]");
    }
}

/// `P`, `L` and `U` of the factors and the exchanged rows that [`mod@lu_factor`](super::lu_factor) has. Without
/// `unpack_data` the triangles are empty, without `unpack_pivots` the permutation is.
#[operator(torch = "lu_unpack", dtypes(f32, f64))]
pub mod lu_unpack {
    #[results(p, l, u)]
    fn lu_unpack(
        lu_data: Tensor<Floating>,
        lu_pivots: Tensor<Integer>,
        #[default(true)] unpack_data: bool,
        #[default(true)] unpack_pivots: bool,
    ) -> (Tensor, Tensor, Tensor);

    fn requires(lu_data: &TensorMeta, lu_pivots: &TensorMeta) -> Result<()> {
        are_matrices(("lu_data", lu_data), Code::Rank)?;
        super::are_pivots(lu_data, lu_pivots, "lu_pivots", Code::Pivots)
    }

    fn decomposition(
        lu_data: Tensor,
        lu_pivots: Tensor,
        unpack_data: bool,
        unpack_pivots: bool,
    ) -> (Tensor, Tensor, Tensor) {
        let shape = lu_data.shape();
        let (_, m, n) = extents(&shape);
        let k = m.min(n);
        let none = || prims::full([0], 0.0, lu_data.dtype(), lu_data.device());
        let p = match unpack_pivots {
            true => super::permutations(super::order_of(lu_pivots, m), lu_data.dtype()),
            false => none(),
        };
        if !unpack_data {
            return (p, none(), none());
        }
        let l = block(lu_data, [0, m], [0, k]);
        let l = prims::select(on_diagonal(l), 1.0, lower(l, -1));
        (p, l, upper(block(lu_data, [0, k], [0, n])))
    }

    fn reference(
        lu_data: &ArrayD<f64>,
        lu_pivots: &ArrayD<i64>,
        unpack_data: bool,
        unpack_pivots: bool,
    ) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let (_, m, n) = extents(lu_data.shape());
        let k = m.min(n);
        let none = || ArrayD::zeros(IxDyn(&[0]));
        let exchanges: Vec<i64> = lu_pivots.iter().copied().collect();
        let permutation = |number: usize| {
            let mut p = Array2::<f64>::eye(m);
            // The exchanges of rows of `A` are exchanges of columns of the permutation.
            for i in 0..k {
                for row in 0..m {
                    let other = (exchanges[number * k + i] - 1).clamp(0, m as i64 - 1);
                    p.swap([row, i], [row, other as usize]);
                }
            }
            p
        };
        let all = matrices(lu_data);
        let p: Vec<Array2<f64>> = (0..all.len()).map(permutation).collect();
        let p = if unpack_pivots { stacked(lu_data.shape(), &[m, m], &p) } else { none() };
        if !unpack_data {
            return (p, none(), none());
        }
        let one = |i: usize, j: usize, value: f64| {
            if i == j {
                1.0
            } else if i > j {
                value
            } else {
                0.0
            }
        };
        let l: Vec<_> = all.iter().map(|a| Array2::from_shape_fn((m, k), |(i, j)| one(i, j, a[[i, j]]))).collect();
        let u: Vec<_> =
            all.iter().map(|a| Array2::from_shape_fn((k, n), |(i, j)| if i > j { 0.0 } else { a[[i, j]] })).collect();
        (p, stacked(lu_data.shape(), &[m, k], &l), stacked(lu_data.shape(), &[k, n], &u))
    }

    fn samples(s: &mut Samples) {
        let pivots = |s: &Samples, shape: &[usize], exchanged: &[f64]| s.values(shape, exchanged).cast(DType::I32);
        s.case(with(s.normal([3, 3]), pivots(s, &[3], &[2.0, 3.0, 3.0])));
        s.case(with(s.normal([2, 3, 2]), pivots(s, &[2, 2], &[3.0, 2.0, 1.0, 3.0])));
        s.case(with(s.normal([2, 3]), pivots(s, &[2], &[2.0, 2.0])).unpack_data(false));
        s.case(with(s.normal([2, 2]), pivots(s, &[2], &[2.0, 2.0])).unpack_pivots(false));
        // As many rows as are exchanged.
        s.case(with(s.normal([1024, 0]), pivots(s, &[0], &[])).unpack_pivots(false));
    }

    fn errors(e: &mut ErrorSamples) {
        let pivots = e.values([2], [1.0, 2.0]).cast(DType::I32);
        e.case(Rank, with(e.normal([2]), pivots), "lu_data has shape [2], expected at least two dimensions");
        e.case(Pivots, with(e.normal([2, 2]), e.integers(1, 2, [2])), "lu_pivots is i64[2], expected i32[2]");
        let none = e.values([0], []).cast(DType::I32);
        e.case(Pivots, with(e.normal([1025, 0]), none), "at most 1024 rows");
    }
}

/// The inverse of `input` as a matrix from its dimensions behind the first `ind` to those.
#[operator(
    torch = "linalg.tensorinv",
    dtypes(f32, f64),
    skip(layout, sample = 0, reason = "repeated elements are a singular matrix, whose pivots are made of roundings"),
    skip(layout, sample = 1, reason = "repeated elements are a singular matrix, whose pivots are made of roundings")
)]
pub mod tensorinv {
    fn tensorinv(a: Tensor<Floating>, #[default(2)] ind: i64) -> Tensor;

    fn requires(a: &TensorMeta, ind: i64) -> Result<()> {
        let place = usize::try_from(ind).ok().filter(|ind| (1..=a.rank()).contains(ind));
        require!(place.is_some(), Dims, "ind is {ind}, expected a number of dimensions of {:?} from 1", a.shape());
        let (rows, columns) = super::sides(a.shape(), ind as usize);
        require!(
            rows == columns,
            Square,
            "a has shape {:?}, expected as many elements in its first {ind} dimensions as in the others",
            a.shape()
        );
        Ok(())
    }

    fn decomposition(a: Tensor, ind: i64) -> Tensor {
        let shape = a.shape().to_vec();
        let (rows, columns) = super::sides(&shape, ind as usize);
        let turned = [&shape[ind as usize..], &shape[..ind as usize]].concat();
        read_as(inv(read_as(a, &[rows, columns])), &turned)
    }

    fn reference(a: &ArrayD<f64>, ind: i64) -> Result<ArrayD<f64>> {
        let shape = a.shape();
        let (rows, columns) = super::sides(shape, ind as usize);
        let whole = inverses(&reshaped(a, &[rows, columns]))?;
        Ok(reshaped(&whole, &[&shape[ind as usize..], &shape[..ind as usize]].concat()))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 6])));
        s.case(with(s.normal([4, 2, 2])).ind(1));
        s.case(with(s.normal([0, 2, 0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([2, 2])).ind(0), "ind is 0");
        e.case(Dims, with(e.normal([2, 2])).ind(3), "ind is 3");
        e.case(Square, with(e.normal([2, 3, 4])), "expected as many elements in its first 2 dimensions");
    }
}

/// The products of the first extents and of the others.
fn sides(shape: &[usize], ind: usize) -> (usize, usize) {
    (shape[..ind].iter().product(), shape[ind..].iter().product())
}

/// The tensor `X` for which [`tensordot`](super::tensordot) of `a` and all dimensions of `X` is `b`: `a` has the
/// dimensions of `b` before those of `X`, after the dimensions `dims`, if there are any, were moved to the end.
#[operator(
    torch = "linalg.tensorsolve",
    dtypes(f32, f64),
    skip(layout, sample = 0, reason = "repeated elements are a singular matrix, whose pivots are made of roundings"),
    skip(layout, sample = 1, reason = "repeated elements are a singular matrix, whose pivots are made of roundings"),
    skip(layout, sample = 2, reason = "repeated elements are a singular matrix, whose pivots are made of roundings")
)]
pub mod tensorsolve {
    fn tensorsolve(a: Tensor<Floating>, b: Tensor<Floating>, #[default(None)] dims: Option<Vec<i64>>) -> Tensor;

    fn requires(a: &TensorMeta, b: &TensorMeta, dims: Option<&[i64]>) -> Result<()> {
        let order = super::moved_last(a.rank(), dims.unwrap_or_default());
        let Some(order) = order else {
            let shape = a.shape();
            let text = format!("dims is {dims:?}, expected distinct dimensions of a tensor of shape {shape:?}");
            return Err(Code::Dims.unmet(format_args!("{text}")));
        };
        let shape: Vec<usize> = order.iter().map(|dim| a.shape()[*dim]).collect();
        let (rows, columns) = super::sides(&shape, b.rank().min(shape.len()));
        require!(
            rows == columns && rows == b.shape().iter().product::<usize>(),
            Square,
            "a has shape {shape:?} and b {:?}, expected as many elements in the dimensions of b as in the others",
            b.shape()
        );
        crate::prims::checks::same_dtype(("a", a), ("b", b), Code::SameDType)
    }

    fn decomposition(a: Tensor, b: Tensor, dims: Option<&[i64]>) -> Tensor {
        let dims = dims.unwrap_or_default();
        let to: Vec<i64> = (0..dims.len() as i64).map(|i| i - dims.len() as i64).collect();
        let moved = if dims.is_empty() { a } else { movedim(a, dims, to) };
        let shape = moved.shape().to_vec();
        let (rows, columns) = super::sides(&shape, b.rank());
        let line = read_as(b, &[rows]);
        read_as(solve(read_as(moved, &[rows, columns]), line), &shape[b.rank()..])
    }

    fn reference(a: &ArrayD<f64>, b: &ArrayD<f64>, dims: Option<&[i64]>) -> Result<ArrayD<f64>> {
        let order = super::moved_last(a.ndim(), dims.unwrap_or_default()).unwrap_or_default();
        let moved = permuted(a, &order);
        let n: usize = b.shape().iter().product();
        let out = solutions(&reshaped(&moved, &[n, n]), &reshaped(b, &[n, 1]), true)?;
        Ok(reshaped(&out, &moved.shape()[b.ndim()..]))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 6]), s.normal([2, 3])));
        s.case(with(s.normal([6, 2, 3]), s.normal([2, 3])).dims(vec![0]));
        s.case(with(s.normal([2, 3, 2, 3]), s.normal([3, 2])).dims(vec![-1, 0]));
        s.case(with(s.normal([0, 2, 0]), s.normal([0, 2])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([2, 2]), e.normal([2])).dims(vec![2]), "dims is Some([2])");
        e.case(Dims, with(e.normal([2, 2]), e.normal([2])).dims(vec![0, 0]), "expected distinct dimensions");
        e.case(Square, with(e.normal([2, 3]), e.normal([2])), "expected as many elements in the dimensions of b");
        e.case(SameDType, with(e.of(DType::F32, [2, 2]), e.of(DType::F64, [2])), "b is f64");
    }
}

/// The dimensions of a tensor of `rank` with `dims` at the end; `None` if one is out of range or named twice.
fn moved_last(rank: usize, dims: &[i64]) -> Option<Vec<usize>> {
    named_dims(dims, rank)?;
    let at = |dim: &i64| position(*dim, rank);
    let last: Vec<usize> = dims.iter().map(at).filter(|dim| *dim < rank).collect();
    Some((0..rank).filter(|dim| !last.contains(dim)).chain(last.iter().copied()).collect())
}

attribute_enum! {
    /// The routine of LAPACK that PyTorch calls for least squares, which here says what is told beside the solution.
    pub enum Driver {
        /// Matrices of full rank, by reflections.
        Gels = "gels",
        /// Any matrices; the rank is told.
        Gelsy = "gelsy",
        /// Any matrices; the rank and the singular values are told.
        Gelsd = "gelsd",
        /// As `Gelsd`.
        Gelss = "gelss",
    }
}

/// The matrix `X` of least norm that makes `A · X - B` least, for each matrix of `a` and of `b`; vectors of `b` have
/// the shape of `a` without its last extent. Beside it the sums of the squared rests, the rank of each matrix and its
/// singular values, of which `driver` says which there are; others are empty. Singular values up to `rcond` times the
/// largest one count as zero; `rcond` is the machine epsilon times the larger extent if it is absent. For `gelsy`
/// PyTorch cuts off by a QR decomposition with pivots instead. Unlike PyTorch's, rests are told of matrices with more
/// rows than columns whatever their rank is, which no shape can depend on. As in PyTorch singular values have no
/// gradient here; see [`mod@svdvals`].
#[operator(torch = "linalg.lstsq", dtypes(f32, f64), autocast = keep)]
pub mod lstsq {
    #[results(solution, residuals, rank, singular_values)]
    fn lstsq(
        a: Tensor<Floating>,
        b: Tensor<Floating>,
        #[default(None)] rcond: Option<f64>,
        #[default(None)] driver: Option<Driver>,
    ) -> (Tensor, Tensor, Tensor, Tensor);

    fn requires(a: &TensorMeta, b: &TensorMeta) -> Result<()> {
        are_matrices(("a", a), Code::Rank)?;
        crate::prims::checks::same_dtype(("a", a), ("b", b), Code::SameDType)?;
        let (batch, m, _) = extents(a.shape());
        let vectors = b.shape() == [batch, &[m]].concat();
        let columns = b.rank() == a.rank() && b.shape()[..b.rank() - 1] == [batch, &[m]].concat()[..];
        require!(
            vectors || columns,
            Extents,
            "a has shape {:?} and b {:?}, expected as many rows and equal leading dimensions",
            a.shape(),
            b.shape()
        );
        Ok(())
    }

    fn decomposition(
        a: Tensor,
        b: Tensor,
        rcond: Option<f64>,
        driver: Option<Driver>,
    ) -> (Tensor, Tensor, Tensor, Tensor) {
        let (shape, of_b) = (a.shape(), b.shape());
        let (_, m, n) = extents(&shape);
        let (driver, part) = (driver.unwrap_or(Driver::Gelsy), rcond.unwrap_or(ABSENT));
        let columns = if of_b.len() < shape.len() { prims::reshape(b, [&*of_b, &[1]].concat()) } else { b };
        let least = match driver {
            Driver::Gels if m >= n => {
                let (q, r) = prims::qr(a);
                prims::triangular_solve(r, prims::matmul(transposed(q), columns), true, false)
            }
            Driver::Gels => {
                let (q, r) = prims::qr(transposed(a));
                prims::matmul(q, prims::triangular_solve(transposed(r), columns, false, false))
            }
            _ => prims::matmul(pinv::with(a).rtol(part).call(), columns),
        };
        let none = || prims::full([0], 0.0, a.dtype(), a.device());
        let residuals = match m > n && driver != Driver::Gelsy {
            true => {
                let rest = prims::sub(prims::matmul(a, least), columns);
                prims::sum(prims::mul(rest, rest), [shape.len() - 2])
            }
            false => none(),
        };
        let rank = match driver {
            Driver::Gels => prims::full([0], 0i64, DType::I64, a.device()),
            _ => matrix_rank::with(a).rtol(part).call(),
        };
        let values = match driver {
            Driver::Gelsd | Driver::Gelss => detach(svdvals(a)),
            _ => none(),
        };
        let own = if of_b.len() < shape.len() { [extents(&shape).0, &[n]].concat() } else { least.shape().to_vec() };
        (read_as(least, &own), residuals, rank, values)
    }

    fn reference(
        a: &ReferenceTensor,
        b: &ReferenceTensor,
        rcond: Option<f64>,
        driver: Option<Driver>,
    ) -> (ArrayD<f64>, ArrayD<f64>, ReferenceTensor, ArrayD<f64>) {
        let (batch, m, n) = extents(a.shape());
        let vectors = b.shape().len() < a.shape().len();
        let wide = if vectors { reshaped(b.floats(), &[b.shape(), &[1]].concat()) } else { b.floats().clone() };
        let k = *wide.shape().last().unwrap_or(&1);
        let (mut least, mut rests, mut ranks, mut values) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        // `gels` takes matrices of full rank, and no limit.
        let limit = match driver {
            Some(Driver::Gels) => 0.0,
            _ => rcond.unwrap_or(a.dtype().epsilon() * m.max(n) as f64),
        };
        for (matrix, columns) in matrices(a.floats()).iter().zip(matrices(&wide)) {
            let (left, sizes, right) = prims::singular_vectors(matrix);
            let largest = sizes.iter().copied().fold(0.0, f64::max);
            let kept = |i: usize| sizes[i] > limit * largest;
            let mut x = Array2::<f64>::zeros((n, k));
            for i in (0..sizes.len()).filter(|i| kept(*i)) {
                let along = left.column(i).dot(&columns) / sizes[i];
                for (row, part) in right.column(i).iter().enumerate() {
                    x.row_mut(row).scaled_add(*part, &along);
                }
            }
            let rest = matrix.dot(&x) - &columns;
            rests.push(rest.mapv(|x| x * x).sum_axis(ndarray::Axis(0)));
            ranks.push((0..sizes.len()).filter(|i| kept(*i)).count() as i64);
            least.push(x);
            values.push(sizes);
        }
        let none = || ArrayD::zeros(IxDyn(&[0]));
        let driver = driver.unwrap_or(Driver::Gelsy);
        let shape = if vectors { [batch, &[n]].concat() } else { [batch, &[n, k]].concat() };
        let solution = reshaped(&stacked(a.shape(), &[n, k], &least), &shape);
        let residuals = if m > n && driver != Driver::Gelsy { stacked(a.shape(), &[k], &rests) } else { none() };
        let ranks = match driver {
            Driver::Gels => array(&[0], Vec::new()),
            _ => array(batch, ranks),
        };
        let values = match driver {
            Driver::Gelsd | Driver::Gelss => stacked(a.shape(), &[m.min(n)], &values),
            _ => none(),
        };
        (solution, residuals, ReferenceTensor::from_integers(DType::I64, ranks), values)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 2]), s.normal([4, 3])));
        let of_values = "singular values have no gradient";
        s.case(with(s.normal([2, 3, 2]), s.normal([2, 3])).driver(Driver::Gelsd)).forward_only(of_values);
        s.case(with(s.normal([4, 2]), s.normal([4, 1])).driver(Driver::Gels));
        s.case(with(s.normal([2, 3]), s.normal([2, 2])).driver(Driver::Gels));
        s.case(with(s.normal([2, 4]), s.normal([2])).driver(Driver::Gelss)).forward_only(of_values);
        let dependent = s.values([3, 2], [1.0, 2.0, 2.0, 4.0, 3.0, 6.5]);
        // PyTorch's gradients of the solution and of its rest alone.
        let (a, b) = (s.values([3, 2], [3.0, 1.0, 1.0, 2.0, 0.5, -1.0]), s.values([3, 1], [1.0, 2.0, 3.0]));
        s.case(with(a, b).driver(Driver::Gelsd)).forward_only(of_values).gradients([
            &[224.0 / 165.0, -124.0 / 165.0, -512.0 / 165.0, 84.0 / 55.0, -112.0 / 33.0, 62.0 / 33.0],
            &[-292.0 / 165.0, 676.0 / 165.0, 146.0 / 33.0],
        ]);
        s.case(with(dependent, s.normal([3, 1])).rcond(0.25).driver(Driver::Gelsy)).forward_only("its rank changes");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3]), e.normal([3])), "a has shape [3], expected at least two dimensions");
        e.case(Extents, with(e.normal([3, 2]), e.normal([2, 2])), "expected as many rows and equal leading dimensions");
        e.case(SameDType, with(e.of(DType::F32, [2, 2]), e.of(DType::F64, [2])), "b is f64");
    }
}
