//! Norms of matrices, and those that may be of vectors or matrices. The order of a norm is a number or a name.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::{Attribute, AttributeType};
use fulgurite_runtime::rules::{ArrayD, Failure, Precondition};
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::arrays::{array, permuted, reduce, values};
use super::promotion::{accumulating, cast, checked_dims, keep_dims, position, reduced_dims, reduced_shape};
use super::{norm_of_row, norm_of_some, norm_over, norm_type};
use crate::prims;

/// The order of a norm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NormOrder {
    /// Of a vector `(Σ |x|^p)^(1/p)`; the number of elements that are not zero if it is 0, the largest magnitude if it
    /// is infinite, the smallest if it is negative and infinite.
    Number(f64),
    /// Of a matrix the square root of the sum of the squares of all elements.
    Frobenius,
    /// Of a matrix the sum of the singular values.
    Nuclear,
}

impl From<f64> for NormOrder {
    fn from(order: f64) -> NormOrder {
        NormOrder::Number(order)
    }
}

impl AttributeType for NormOrder {
    fn type_name() -> String {
        "order".into()
    }
    fn to_attribute(&self) -> Attribute {
        match self {
            NormOrder::Number(order) => order.to_attribute(),
            NormOrder::Frobenius => Attribute::Text("fro".into()),
            NormOrder::Nuclear => Attribute::Text("nuc".into()),
        }
    }
    fn from_attribute(attribute: &Attribute) -> Option<Self> {
        match attribute {
            Attribute::Scalar(number) => Some(NormOrder::Number(number.to_f64())),
            Attribute::Text(name) if **name == *"fro" => Some(NormOrder::Frobenius),
            Attribute::Text(name) if **name == *"nuc" => Some(NormOrder::Nuclear),
            _ => None,
        }
    }
}

/// The norm of order `ord` of the matrices in the two dimensions `dim`: the largest sum of magnitudes of a column (1)
/// or of a row (inf), the smallest (-1, -inf), the square root of the sum of squares ("fro"), the largest singular
/// value (2), the smallest (-2), or the sum of all ("nuc"). Singular values are computed in f32 and f64 alone.
#[operator(torch = "linalg.matrix_norm", autocast = full)]
pub mod matrix_norm {
    fn matrix_norm(
        a: Tensor<Floating>,
        #[default(NormOrder::Frobenius)] ord: NormOrder,
        #[default(vec![-2, -1])] dim: Vec<i64>,
        #[default(false)] keepdim: bool,
        #[default(None)] dtype: Option<DType>,
    ) -> Tensor;

    fn requires(Args { a, ord, dim, dtype, .. }: Args<&TensorMeta>) -> Result<()> {
        let dims = checked_dims("dim", Some(&dim), a, Code::Dims)?;
        require!(
            dims.len() == 2 && dim.len() == 2,
            Dims,
            "dim is {dim:?}, expected two dimensions of a tensor of rank {}",
            a.rank()
        );
        super::of_matrices(&super::in_type(a, dtype), ord, &dim, Code::Order)?;
        super::norm_type(a.dtype(), dtype, Code::NormType)
    }

    fn decomposition(Args { a, ord, dim, keepdim, dtype }: Args<Tensor>) -> Tensor {
        super::matrix_norm_over(a, ord, &dim, keepdim, dtype)
    }

    fn reference(Args { a, ord, dim, keepdim, .. }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        super::matrix_norms(a, ord, &dim, keepdim)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4])));
        for ord in [1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY] {
            s.case(with(s.normal([2, 3, 4])).ord(NormOrder::Number(ord)).dim([0, -1]));
        }
        s.case(with(s.normal([3, 2, 4])).dim([2, 0]).keepdim(true).ord(NormOrder::Number(1.0)));
        s.case(with(s.normal([2, 2])).dtype(DType::F64));
        s.case(with(s.normal([0, 2])));
        if matches!(s.dtype(), DType::F32 | DType::F64) {
            for ord in [NormOrder::Number(2.0), NormOrder::Number(-2.0), NormOrder::Nuclear] {
                s.case(with(s.normal([2, 3, 4])).ord(ord).dim([0, -1]));
            }
            s.case(with(s.normal([3, 2, 2])).ord(NormOrder::Nuclear).dim([2, 0]).keepdim(true));
        }
        s.case(with(s.normal([0, 2])).ord(NormOrder::Number(1.0)));
        s.case(with(s.normal([2, 0])).ord(NormOrder::Number(f64::INFINITY)));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([2])), "dim is [-2, -1]");
        e.case(Dims, with(e.normal([2, 3])).dim([0]), "expected two dimensions");
        e.case(Dims, with(e.normal([2, 3])).dim([]), "dim is []");
        e.case(Order, with(e.normal([2, 3])).ord(NormOrder::Number(3.0)), "ord is 3");
        e.case(Order, with(e.of(DType::BF16, [2, 3])).ord(NormOrder::Nuclear), "a is bf16: singular values are");
        e.case(Order, with(e.normal([2, 0])).ord(NormOrder::Number(1.0)), "an empty dimension");
        e.case(Order, with(e.normal([0, 2])).ord(NormOrder::Number(f64::INFINITY)), "an empty dimension");
        e.case(NormType, with(e.normal([2, 2])).dtype(DType::I64), "dtype is i64");
    }
}

/// A norm: without `ord` that of order 2 of the elements along `dim`, of all if it is absent; with `ord` that of
/// vectors along one dimension, or of matrices in two. Without `dim` a vector or a matrix is meant. See
/// [`mod@vector_norm`] and [`mod@matrix_norm`].
#[operator(torch = "linalg.norm", autocast = full)]
pub mod linalg_norm {
    fn linalg_norm(
        a: Tensor<Floating>,
        #[default(None)] ord: Option<NormOrder>,
        #[default(None)] dim: Option<Vec<i64>>,
        #[default(false)] keepdim: bool,
        #[default(None)] dtype: Option<DType>,
    ) -> Tensor;

    fn requires(Args { a, ord, dim, dtype, .. }: Args<&TensorMeta>) -> Result<()> {
        let dims = checked_dims("dim", dim.as_deref(), a, Code::Dims)?;
        if let Some(ord) = ord {
            let given = dim.as_ref().map_or(a.rank(), Vec::len);
            require!(
                given == 2 || (given == 1 && matches!(ord, NormOrder::Number(_))),
                Dims,
                "dim is {dim:?}, ord {} and the shape {:?}, expected two dimensions for a norm of matrices, or one and \
                 a number",
                super::order_text(ord),
                a.shape()
            );
            if given == 2 {
                let matrices = super::in_type(a, dtype);
                super::of_matrices(&matrices, ord, &super::dims_of_matrices(dim.as_deref()), Code::Order)?;
            } else if let NormOrder::Number(ord) = ord {
                super::norm_of_some(a, &dims, ord, Code::Order)?;
            }
        }
        super::norm_type(a.dtype(), dtype, Code::NormType)
    }

    fn decomposition(Args { a, ord, dim, keepdim, dtype }: Args<Tensor>) -> Tensor {
        let dims = reduced_dims(dim.as_deref(), a.rank()).unwrap_or_default();
        let given = dim.as_ref().map_or(a.rank(), Vec::len);
        match ord {
            None => super::norm_over(a, 2.0, &dims, keepdim, dtype),
            Some(NormOrder::Number(ord)) if given == 1 => super::norm_over(a, ord, &dims, keepdim, dtype),
            Some(ord) => super::matrix_norm_over(a, ord, &super::dims_of_matrices(dim.as_deref()), keepdim, dtype),
        }
    }

    fn reference(Args { a, ord, dim, keepdim, .. }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let named = dim.as_ref().map_or(a.ndim(), Vec::len);
        match (ord, named) {
            (None, _) => reduce(a, dim.as_deref(), keepdim, |row| super::norm_of_row(row, 2.0)),
            (Some(NormOrder::Number(ord)), 1) => reduce(a, dim.as_deref(), keepdim, |row| super::norm_of_row(row, ord)),
            (Some(ord), _) => super::matrix_norms(a, ord, dim.as_deref().unwrap_or(&[0, 1]), keepdim),
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 4])));
        s.case(with(s.normal([2, 3, 4])).dim(vec![0, 2]).keepdim(true));
        s.case(with(s.normal([3, 4])).ord(NormOrder::Number(1.0)));
        s.case(with(s.normal([3, 4])).ord(NormOrder::Number(1.0)).dim(vec![1]));
        s.case(with(s.normal([3, 4])).ord(NormOrder::Frobenius));
        if matches!(s.dtype(), DType::F32 | DType::F64) {
            s.case(with(s.normal([3, 2])).ord(NormOrder::Number(2.0)));
        }
        s.case(with(s.normal([5])).ord(NormOrder::Number(3.0)).dtype(DType::F64));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([2, 3])).dim(vec![2]), "distinct dimensions of a tensor of rank 2");
        e.case(Dims, with(e.normal([2, 2, 2])).ord(NormOrder::Number(1.0)), "expected two dimensions");
        e.case(Dims, with(e.normal([2])).ord(NormOrder::Frobenius), "expected two dimensions");
        e.case(Order, with(e.normal([2, 2])).ord(NormOrder::Number(4.0)), "ord is 4");
        e.case(Order, with(e.normal([0])).ord(NormOrder::Number(-1.0)), "has no norm of order -1");
        e.case(NormType, with(e.normal([2])).dtype(DType::I32), "dtype is i32");
    }
}

/// The norm of order `p` of the elements along `dim` (all dimensions if absent), in `dtype` if it is given. "fro" is 2;
/// "nuc" is the sum of the singular values of the matrices in two dimensions, in f32 and f64 alone.
#[operator(torch = "norm", autocast = full)]
pub mod norm {
    fn norm(
        input: Tensor<Floating>,
        #[default(NormOrder::Frobenius)] p: NormOrder,
        #[default(None)] dim: Option<Vec<i64>>,
        #[default(false)] keepdim: bool,
        #[default(None)] dtype: Option<DType>,
    ) -> Tensor;

    fn requires(Args { input, p, dim, dtype, .. }: Args<&TensorMeta>) -> Result<()> {
        let dims = checked_dims("dim", dim.as_deref(), input, Code::Dims)?;
        if p == NormOrder::Nuclear {
            let given = dim.as_ref().map_or(input.rank(), Vec::len);
            require!(
                given == 2,
                Dims,
                "dim is {dim:?} and input has {} dimensions, expected two for nuc",
                input.rank()
            );
            super::of_matrices(
                &super::in_type(input, dtype),
                p,
                &super::dims_of_matrices(dim.as_deref()),
                Code::Order,
            )?;
        }
        super::norm_of_some(input, &dims, super::number_of(p), Code::EmptyReduction)?;
        super::norm_type(input.dtype(), dtype, Code::NormType)
    }

    fn decomposition(Args { input, p, dim, keepdim, dtype }: Args<Tensor>) -> Tensor {
        if p == NormOrder::Nuclear {
            return super::matrix_norm_over(input, p, &super::dims_of_matrices(dim.as_deref()), keepdim, dtype);
        }
        let dims = reduced_dims(dim.as_deref(), input.rank()).unwrap_or_default();
        super::norm_over(input, super::number_of(p), &dims, keepdim, dtype)
    }

    fn reference(Args { input, p, dim, keepdim, .. }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        if p == NormOrder::Nuclear {
            return super::matrix_norms(input, p, dim.as_deref().unwrap_or(&[0, 1]), keepdim);
        }
        let order = if let NormOrder::Number(order) = p { order } else { 2.0 };
        reduce(input, dim.as_deref(), keepdim, |row| super::norm_of_row(row, order))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
        s.case(with(s.normal([2, 3, 4])).p(NormOrder::Number(1.0)).dim(vec![-1, 0]).keepdim(true));
        s.case(with(s.normal([2, 3])).p(NormOrder::Number(3.0)).dim(vec![1]).dtype(DType::F64));
        s.case(with(s.normal([])).p(NormOrder::Number(f64::INFINITY)));
        if matches!(s.dtype(), DType::F32 | DType::F64) {
            s.case(with(s.normal([2, 3])).p(NormOrder::Nuclear));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([2, 3])).dim(vec![2]), "distinct dimensions of a tensor of rank 2");
        e.case(Dims, with(e.normal([3])).p(NormOrder::Nuclear), "input has 1 dimensions, expected two for nuc");
        e.case(Order, with(e.of(DType::F16, [2, 3])).p(NormOrder::Nuclear), "a is f16: singular values are");
        let none = with(e.normal([0])).p(NormOrder::Number(f64::INFINITY));
        e.case(EmptyReduction, none, "has no norm of order inf");
        e.case(NormType, with(e.normal([2])).dtype(DType::I64), "dtype is i64");
    }
}

/// Fails with `code` if there is no such norm of the matrices in `dim`, or none that is computed here.
fn of_matrices(a: &TensorMeta, order: NormOrder, dim: &[i64], code: Precondition) -> Result<(), Failure> {
    let text = order_text(order);
    if matches!(order, NormOrder::Number(order) if !matches!(order.abs(), 1.0 | 2.0 | f64::INFINITY)) {
        return Err(code.unmet(format_args!("ord is {text}, expected 1, -1, 2, -2, inf, -inf, fro or nuc")));
    }
    if of_singular_values(order) && a.dtype() != a.dtype().accumulator() {
        let message = "singular values are computed in f32 and f64";
        return Err(code.unmet(format_args!("ord is {text} and a is {}: {message}", a.dtype())));
    }
    // The largest or smallest is taken of sums or singular values, of which there may be none.
    let chosen: &[i64] = match order {
        NormOrder::Number(order) if order.abs() == 1.0 => &dim[1..],
        NormOrder::Number(order) if order.is_infinite() => &dim[..1],
        NormOrder::Number(_) => dim,
        NormOrder::Frobenius | NormOrder::Nuclear => &[],
    };
    if chosen.iter().any(|dim| a.shape()[position(*dim, a.rank())] == 0) {
        return Err(code.unmet(format_args!("ord is {text} and a has shape {:?}: an empty dimension", a.shape())));
    }
    Ok(())
}

/// Whether a norm of matrices is one of their singular values.
fn of_singular_values(order: NormOrder) -> bool {
    matches!(order, NormOrder::Nuclear | NormOrder::Number(2.0 | -2.0))
}

/// `meta` in `dtype`, if it is given.
fn in_type(meta: &TensorMeta, dtype: Option<DType>) -> TensorMeta {
    meta.with_dtype(dtype.unwrap_or(meta.dtype()))
}

pub(crate) fn order_text(order: NormOrder) -> String {
    match order {
        NormOrder::Number(order) => order.to_string(),
        NormOrder::Frobenius => "fro".into(),
        NormOrder::Nuclear => "nuc".into(),
    }
}

/// The order of a norm of vectors; "fro" is 2.
fn number_of(order: NormOrder) -> f64 {
    if let NormOrder::Number(order) = order { order } else { 2.0 }
}

/// The dimensions of matrices: those that are named, or all two.
fn dims_of_matrices(dim: Option<&[i64]>) -> Vec<i64> {
    dim.map_or_else(|| vec![0, 1], <[i64]>::to_vec)
}

/// The norm of matrices in two dimensions.
#[track_caller]
fn matrix_norm_over(a: Tensor, order: NormOrder, dim: &[i64], keepdim: bool, dtype: Option<DType>) -> Tensor {
    let rank = a.rank();
    let [rows, columns] = [dim[0], dim[1]].map(|dim| position(dim, rank));
    let mut both = vec![rows, columns];
    both.sort_unstable();
    if of_singular_values(order) {
        let moved = super::movedim(cast(a, dtype.unwrap_or(a.dtype())), [dim[0], dim[1]], [-2, -1]);
        let values = super::svdvals(moved);
        let last = values.rank() - 1;
        // They are in order; an extremum shares the gradient of equal ones, as PyTorch does.
        let norm = match order {
            NormOrder::Nuclear => prims::sum(values, [last]),
            NormOrder::Number(order) if order > 0.0 => prims::amax(values, [last]),
            NormOrder::Number(_) => prims::amin(values, [last]),
            NormOrder::Frobenius => values,
        };
        return keep_dims(norm, &a.shape(), &both, keepdim);
    }
    let NormOrder::Number(order) = order else { return norm_over(a, 2.0, &both, keepdim, dtype) };
    let dtype = dtype.unwrap_or(a.dtype());
    let wide = prims::abs(accumulating(cast(a, dtype)));
    // The norm of order 1 has sums of columns, that of infinite order sums of rows.
    let summed = if order.abs() == 1.0 { rows } else { columns };
    let other = rows + columns - summed;
    let sums = prims::sum(wide, [summed]);
    let chosen = [other - usize::from(other > summed)];
    let norm = if order > 0.0 { prims::amax(sums, chosen) } else { prims::amin(sums, chosen) };
    keep_dims(cast(norm, dtype), &a.shape(), &both, keepdim)
}

/// For references: the norms of the matrices in two dimensions.
pub(crate) fn matrix_norms(a: &ArrayD<f64>, order: NormOrder, dim: &[i64], keepdim: bool) -> ArrayD<f64> {
    let rank = a.ndim();
    let [rows, columns] = [dim[0], dim[1]].map(|dim| dim.rem_euclid(rank as i64) as usize);
    let others: Vec<usize> = (0..rank).filter(|dim| *dim != rows && *dim != columns).collect();
    let moved = permuted(a, &[&others[..], &[rows, columns]].concat());
    let (m, n) = (a.shape()[rows], a.shape()[columns]);
    let singular = |matrix: &[f64]| {
        let matrix = ndarray::Array2::from_shape_fn((m, n), |(i, j)| matrix[i * n + j]);
        prims::singular_vectors(&matrix).1.to_vec()
    };
    let of_one = |matrix: &[f64]| match order {
        NormOrder::Nuclear => singular(matrix).iter().sum(),
        NormOrder::Number(2.0) => singular(matrix).first().copied().unwrap_or(f64::NAN),
        NormOrder::Number(-2.0) => singular(matrix).last().copied().unwrap_or(f64::NAN),
        NormOrder::Number(order) => {
            let sum_of_column = |j: usize| (0..m).map(|i| matrix[i * n + j].abs()).sum::<f64>();
            let sum_of_row = |i: usize| (0..n).map(|j| matrix[i * n + j].abs()).sum::<f64>();
            let sums: Vec<f64> = match order.abs() == 1.0 {
                true => (0..n).map(sum_of_column).collect(),
                false => (0..m).map(sum_of_row).collect(),
            };
            sums.into_iter().reduce(if order > 0.0 { f64::max } else { f64::min }).unwrap_or(f64::NAN)
        }
        _ => matrix.iter().map(|x| x * x).sum::<f64>().sqrt(),
    };
    let all = values(&moved);
    let count: usize = others.iter().map(|dim| a.shape()[*dim]).product();
    let norms = (0..count).map(|i| of_one(&all[i * m * n..(i + 1) * m * n])).collect();
    array(&reduced_shape(a.shape(), &[rows, columns], keepdim), norms)
}
