//! Norms of vectors. Gradients are zero where a norm is zero, and so are those of elements that are zero in norms of an
//! order below one, as in PyTorch.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::Operand;
use fulgurite_runtime::rules::{ArrayD, Failure, Precondition};
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::arrays::{array, reduce, values, zip};
use super::promotion::{
    accumulating, broadcast, broadcast_shapes, cast, checked_dims, keep_dims, operands_in, position, reduced_dims,
    result_type,
};
use crate::prims;

/// The norm of order `ord` of the elements along `dim` (all dimensions if absent), in `dtype` if it is given; f16 and
/// bf16 are computed in f32.
#[operator(torch = "linalg.vector_norm", autocast = full)]
pub mod vector_norm {
    fn vector_norm(
        x: Tensor<Floating>,
        #[default(2.0)] ord: f64,
        #[default(None)] dim: Option<Vec<i64>>,
        #[default(false)] keepdim: bool,
        #[default(None)] dtype: Option<DType>,
    ) -> Tensor;

    fn requires(Args { x, ord, dim, dtype, .. }: Args<&TensorMeta>) -> Result<()> {
        let dims = checked_dims("dim", dim.as_deref(), x, Code::Dims)?;
        super::norm_of_some(x, &dims, ord, Code::EmptyReduction)?;
        super::norm_type(x.dtype(), dtype, Code::NormType)
    }

    fn decomposition(Args { x, ord, dim, keepdim, dtype }: Args<Tensor>) -> Tensor {
        let dims = reduced_dims(dim.as_deref(), x.rank()).unwrap_or_default();
        super::norm_over(x, ord, &dims, keepdim, dtype)
    }

    fn reference(Args { x, ord, dim, keepdim, .. }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        reduce(x, dim.as_deref(), keepdim, |row| super::norm_of_row(row, ord))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
        s.case(with(s.normal([])).ord(2.75));
        for ord in [1.0, f64::INFINITY, f64::NEG_INFINITY, 1.5, -2.0, 0.25] {
            s.case(with(s.uniform(0.5, 2.0, [2, 5])).ord(ord).dim(vec![-1]));
        }
        s.case(with(s.normal([3, 4, 2])).ord(2.0).dim(vec![2, 0]).keepdim(true));
        s.case(with(s.values([2, 3], [1.0, 0.0, -2.0, 0.0, 0.0, 0.0])).ord(0.0).dim(vec![1]))
            .forward_only("a number of elements");
        s.case(with(s.normal([0, 3])).dim(vec![0]));
        s.case(with(s.normal([3])).dtype(DType::F64));
        // Kinks, at which the gradient is zero.
        s.case(with(s.values([2], [0.0, 0.0]))).forward_only("a kink at zero").gradients([&[0.0, 0.0]]);
        let root = with(s.values([2], [4.0, 0.0])).ord(0.5);
        s.case(root).forward_only("a kink at zero").gradients([&[1.0, 0.0]]);
        s.case(with(s.values([2], [1.0, 0.0])).ord(0.125)).forward_only("a kink at zero");
        s.case(with(s.normal([0])).ord(0.0)).forward_only("a number of elements");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([2, 3])).dim(vec![2]), "distinct dimensions of a tensor of rank 2");
        e.case(EmptyReduction, with(e.normal([0])).ord(f64::INFINITY), "has no norm of order inf");
        e.case(EmptyReduction, with(e.normal([0])).ord(-1.0), "has no norm of order -1");
        e.case(NormType, with(e.normal([2])).dtype(DType::I64), "dtype is i64");
        e.case(NormType, with(e.of(DType::F64, [2])).dtype(DType::F32), "dtype is f32");
    }
}

/// The norm of order `p` of the difference of two tensors, with broadcasting, in the type they meet in.
#[operator(torch = "dist", autocast = full)]
pub mod dist {
    fn dist(input: Tensor<Floating>, other: Tensor<Floating>, #[default(2.0)] p: f64) -> Tensor;

    fn requires(input: &TensorMeta, other: &TensorMeta, p: f64) -> Result<()> {
        let shape = broadcast_shapes(&[input.shape(), other.shape()]);
        require!(shape.is_some(), Broadcast, "shapes {:?} and {:?} do not broadcast", input.shape(), other.shape());
        let meta = input.with_shape(shape.unwrap_or_default());
        super::norm_of_some(&meta, &(0..meta.rank()).collect::<Vec<_>>(), p, Code::EmptyReduction)
    }

    fn decomposition(input: Tensor, other: Tensor, p: f64) -> Tensor {
        let dtype = result_type(&[Operand::Tensor(input), Operand::Tensor(other)]);
        let [input, other] = operands_in([Operand::Tensor(input), Operand::Tensor(other)], dtype);
        let wide = |operand: Operand<Tensor>| match operand {
            Operand::Tensor(tensor) => Operand::Tensor(accumulating(tensor)),
            number => number,
        };
        let difference = prims::sub(wide(input), wide(other));
        cast(super::norm_over(difference, p, &(0..difference.rank()).collect::<Vec<_>>(), false, None), dtype)
    }

    fn reference(input: &ArrayD<f64>, other: &ArrayD<f64>, p: f64) -> ArrayD<f64> {
        let difference = zip(input, other, |a, b| a - b);
        array(&[], vec![super::norm_of_row(&values(&difference), p)])
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), s.normal([4])));
        s.case(with(s.normal([3]), s.of(DType::F32, [2, 1])).p(1.0));
        s.case(with(s.normal([4]), s.normal([4])).p(f64::INFINITY));
        s.case(with(s.normal([]), s.normal([])).p(3.0));
        s.case(with(s.values([2], [1.0, 2.0]), s.values([2], [1.0, 2.0])))
            .forward_only("a kink at zero")
            .gradients([&[0.0, 0.0], &[-0.0, -0.0]]);
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        let none = with(e.normal([0]), e.normal([0])).p(f64::INFINITY);
        e.case(EmptyReduction, none, "has no norm of order inf");
    }
}

/// Each slice of `input` at a position of `dim` whose norm of order `p` is above `maxnorm`, scaled by
/// `maxnorm / (norm + 1e-7)`; the others as they are. The factor is computed in f32 for f16 and bf16.
#[operator(torch = "renorm", autocast = full)]
pub mod renorm {
    fn renorm(input: Tensor<Floating>, p: f64, dim: i64, maxnorm: f64) -> Tensor;

    fn requires(input: &TensorMeta, p: f64, dim: i64, maxnorm: f64) -> Result<()> {
        require!(input.rank() >= 2, Rank, "input has shape {:?}, expected at least two dimensions", input.shape());
        normalize_dim(dim, input.rank())?;
        require!(p > 0.0, Order, "p is {p}, expected a positive number");
        require!(maxnorm >= 0.0, Largest, "maxnorm is {maxnorm}, expected a number that is not negative");
        Ok(())
    }

    fn decomposition(input: Tensor, p: f64, dim: i64, maxnorm: f64) -> Tensor {
        let place = position(dim, input.rank());
        let dims: Vec<usize> = (0..input.rank()).filter(|dim| *dim != place).collect();
        let shape = input.shape().to_vec();
        if shape.contains(&0) {
            return input;
        }
        let wide = accumulating(input);
        let norm = super::norm_over(wide, p, &dims, true, None);
        let large = prims::gt(norm, maxnorm);
        let factor = prims::select(large, prims::div(maxnorm, prims::add(norm, 1e-7)), 1.0);
        cast(prims::mul(wide, broadcast(factor, &shape)), input.dtype())
    }

    fn reference(input: &ArrayD<f64>, p: f64, dim: i64, maxnorm: f64) -> ArrayD<f64> {
        let rank = input.ndim() as i64;
        let others: Vec<i64> = (0..rank).filter(|other| *other != dim.rem_euclid(rank)).collect();
        let factor = reduce(input, Some(&others), true, |row| match super::norm_of_row(row, p) {
            norm if norm > maxnorm => maxnorm / (norm + 1e-7),
            _ => 1.0,
        });
        zip(input, &factor, |x, factor| x * factor)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 3]), 2.0, 0, 1.0));
        s.case(with(s.normal([2, 3, 2]), 1.0, -2, 3.5));
        s.case(with(s.normal([3, 3]), f64::INFINITY, 1, 0.5));
        s.case(with(s.normal([2, 0]), 2.0, 0, 1.0));
        s.case(with(s.normal([3, 2]), 0.25, 0, 0.0));
        // So small that the number beside the norm counts.
        let (half, bound) = (2f64.powi(-20), 2f64.powi(-19));
        s.case(with(s.values([2, 2], [half, half, half, 0.0]), 1.0, 0, bound)).forward_only("a norm at the bound");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3]), 2.0, 0, 1.0), "at least two dimensions");
        e.case(Order, with(e.normal([2, 3]), 0.0, 0, 1.0), "p is 0");
        e.case(Largest, with(e.normal([2, 3]), 2.0, 0, -1.0), "maxnorm is -1");
    }
}

/// Fails with `code` if a norm of this order over these dimensions has no value of no elements.
pub(crate) fn norm_of_some(x: &TensorMeta, dims: &[usize], order: f64, code: Precondition) -> Result<(), Failure> {
    let empty = dims.iter().any(|dim| x.shape()[*dim] == 0);
    if !empty || (order >= 0.0 && order.is_finite()) {
        return Ok(());
    }
    Err(code
        .unmet(format_args!("a tensor of shape {:?} has no norm of order {order} over dimensions {dims:?}", x.shape())))
}

/// Fails with `code` unless a norm of tensors of `own` type may be computed in `asked`: a wider floating-point type.
pub(crate) fn norm_type(own: DType, asked: Option<DType>, code: Precondition) -> Result<(), Failure> {
    match asked {
        Some(asked) if !asked.is_floating() || super::promotion::promote_types(own, asked) != asked => {
            Err(code
                .unmet(format_args!("dtype is {asked}, expected a floating-point type that holds numbers of {own}")))
        }
        _ => Ok(()),
    }
}

/// The norm of order `order` over `dims`, in the type of `x` unless another is asked for.
#[track_caller]
pub(crate) fn norm_over(x: Tensor, order: f64, dims: &[usize], keepdim: bool, dtype: Option<DType>) -> Tensor {
    let dtype = dtype.unwrap_or(x.dtype());
    let wide = accumulating(cast(x, dtype));
    let total = |terms: Tensor| if dims.is_empty() { terms } else { prims::sum(terms, dims) };
    let size = prims::abs(wide);
    let norm = if order == 0.0 {
        total(cast(prims::ne(wide, 0.0), wide.dtype()))
    } else if order == 1.0 {
        total(size)
    } else if order == 2.0 {
        root(total(prims::mul(wide, wide)), prims::sqrt)
    } else if order.is_infinite() {
        match dims.is_empty() {
            true => size,
            false if order > 0.0 => prims::amax(size, dims),
            false => prims::amin(size, dims),
        }
    } else {
        // A power of zero has no derivative below order one; the norm's is zero there.
        let zero = prims::eq(size, 0.0);
        let powers = prims::pow(prims::select(zero, 1.0, size), order);
        let of_zero = if order < 0.0 { f64::INFINITY } else { 0.0 };
        let sum = total(prims::select(zero, of_zero, powers));
        let of_sum = |sum: Tensor| prims::pow(sum, 1.0 / order);
        if order < 0.0 { of_sum(sum) } else { root(sum, of_sum) }
    };
    keep_dims(cast(norm, dtype), &x.shape(), dims, keepdim)
}

/// A root of sums that are not negative. Where a sum is zero the root is, and has no gradient.
#[track_caller]
fn root(sum: Tensor, of: impl FnOnce(Tensor) -> Tensor) -> Tensor {
    let zero = prims::eq(sum, 0.0);
    prims::select(zero, 0.0, of(prims::select(zero, 1.0, sum)))
}

/// For references: the norm of one row.
pub(crate) fn norm_of_row(row: &[f64], order: f64) -> f64 {
    let sizes = || row.iter().map(|x| x.abs());
    if order == 0.0 {
        sizes().filter(|x| *x != 0.0).count() as f64
    } else if order == f64::INFINITY {
        sizes().fold(0.0, f64::max)
    } else if order == f64::NEG_INFINITY {
        sizes().fold(f64::INFINITY, f64::min)
    } else {
        sizes().map(|x| x.powf(order)).sum::<f64>().powf(1.0 / order)
    }
}
