//! Products that are added to a tensor, `beta · input + alpha · product`, and products of other forms: over named
//! dimensions, of blocks, of chains of matrices, of vectors of three elements.

use fulgurite_ops_macros::operators;
use fulgurite_runtime::argument::Scalar;
use fulgurite_runtime::rules::ArrayD;
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::arrays::{product, reduce, reshaped, spread, zip};
use super::promotion::{accumulating, alpha_fits, broadcast, broadcast_shapes, cast, operand_number};
use super::{matmul, mul};
use crate::prims;
use crate::prims::checks::same_dtype;

// Declares a product added to `input`, which is broadcast to its shape. `$of` is the shape of the product of two
// shapes, if they meet, `$product` the product in the type that sums of it are added up in.
operators! {
    #[operator(torch = $torch, autocast = low)]
    pub mod $name {
        fn $name(
            input: Tensor<Number>,
            $first: Tensor<Number>,
            $second: Tensor<Number>,
            #[default(1i64)] beta: Scalar,
            #[default(1i64)] alpha: Scalar,
        ) -> Tensor;

        fn requires(Args { input, $first, $second, beta, alpha }: Args<&TensorMeta>) -> Result<()> {
            let names = [stringify!($first), stringify!($second)];
            require!(
                $first.rank() == $rows && $second.rank() == $columns,
                Shapes,
                "{} has shape {:?} and {} {:?}, expected {} and {} dimensions",
                names[0],
                $first.shape(),
                names[1],
                $second.shape(),
                $rows,
                $columns
            );
            same_dtype(("input", input), (names[0], $first), Code::SameDType)?;
            same_dtype(("input", input), (names[1], $second), Code::SameDType)?;
            let shape = super::$of($first.shape(), $second.shape());
            require!(
                shape.is_some(),
                Shapes,
                "{} has shape {:?} and {} {:?}, which do not meet",
                names[0],
                $first.shape(),
                names[1],
                $second.shape()
            );
            let shape = shape.unwrap_or_default();
            require!(
                broadcast_shapes(&[input.shape(), &shape]).as_deref() == Some(&shape[..]),
                Broadcast,
                "input has shape {:?}, expected one that broadcasts to {shape:?}, that of the product",
                input.shape()
            );
            for (name, factor) in [("beta", beta), ("alpha", alpha)] {
                let fits = alpha_fits(factor, input.dtype(), Code::Factor.name());
                let text = format_args!("{name} is a floating-point number, the result is {}", input.dtype());
                fits.map_err(|_| Code::Factor.unmet(text))?;
            }
            Ok(())
        }

        fn decomposition(Args { input, $first, $second, beta, alpha }: Args<Tensor>) -> Tensor {
            super::added(input, super::$product($first, $second), beta, alpha)
        }

        fn reference(Args { input, $first, $second, beta, alpha }: Args<&ReferenceTensor>) -> ArrayD<f64> {
            let terms = super::$reference($first.floats(), $second.floats());
            let own = spread(input.floats(), terms.shape());
            let (beta, alpha) = (beta.to_f64(), alpha.to_f64());
            zip(&own, &terms, |x, term| if beta == 0.0 { alpha * term } else { beta * x + alpha * term })
        }

        fn samples(s: &mut Samples) {
            let shapes: [[&[usize]; 3]; 3] = $shapes;
            for [own, left, right] in shapes {
                s.case(with(s.normal(own), s.normal(left), s.normal(right)));
            }
            let [own, left, right] = shapes[0];
            let of = || with(s.normal(own), s.normal(left), s.normal(right));
            let scaled = match s.dtype().is_floating() {
                true => of().beta(0.25).alpha(1.5),
                false => of().beta(3i64).alpha(2i64),
            };
            s.case(scaled);
            if s.dtype().is_floating() {
                let nothing = with(s.values(own, [f64::NAN]), s.normal(left), s.normal(right)).beta(0i64);
                s.case(nothing).forward_only("NaN that is not read");
            }
        }

        fn errors(e: &mut ErrorSamples) {
            let shapes: [[&[usize]; 3]; 3] = $shapes;
            let [own, left, right] = shapes[0];
            let mut longer = own.to_vec();
            longer[0] += 1;
            let of = |own: &[usize], left: &[usize], right: &[usize]| {
                with(e.normal(own), e.normal(left), e.normal(right))
            };
            e.case(Shapes, of(own, &[], right), "has shape []");
            e.case(Shapes, of(own, left, &[]), "expected");
            let other = if e.dtype() == DType::F32 { DType::F64 } else { DType::F32 };
            e.case(SameDType, with(e.normal(own), e.of(other, left), e.normal(right)), "expected equal dtypes");
            e.case(SameDType, with(e.normal(own), e.normal(left), e.of(other, right)), "expected equal dtypes");
            let mismatch: Option<&[usize]> = $mismatch;
            if let Some(other) = mismatch {
                e.case(Shapes, of(own, left, other), "which do not meet");
            }
            e.case(Broadcast, of(&longer, left, right), "that of the product");
            let whole = |of: DType| with(e.of(of, own), e.of(of, left), e.of(of, right));
            e.case(Factor, whole(DType::I64).beta(0.5), "beta is a floating-point number");
            e.case(Factor, whole(DType::I64).alpha(0.5), "alpha is a floating-point number");
        }
    }

    table($name, $torch, $first, $second, $rows, $columns, $of, $product, $reference, $shapes, $mismatch) {
        /// `beta · input + alpha · mat1 · mat2`, matrices. With a `beta` of zero `input` is not read.
        addmm, "addmm", mat1, mat2, 2, 2, of_matrices, wide_product, plain,
            [[&[3, 5], &[3, 4], &[4, 5]], [&[2], &[1, 33], &[33, 2]], [&[], &[2, 0], &[0, 3]]], Some(&[3, 5]);
        /// `beta · input + alpha · mat · vec`, a matrix and a vector. With a `beta` of zero `input` is not read.
        addmv, "addmv", mat, vec, 2, 1, of_column, wide_product, of_column_reference,
            [[&[3], &[3, 4], &[4]], [&[1], &[2, 33], &[33]], [&[], &[2, 0], &[0]]], Some(&[3]);
        /// `beta · input + alpha · vec1 ⊗ vec2`: the product of each element of one vector with each of the other. With
        /// a `beta` of zero `input` is not read.
        addr, "addr", vec1, vec2, 1, 1, of_vectors_outer, wide_outer, outer_reference,
            [[&[3, 4], &[3], &[4]], [&[2], &[1], &[2]], [&[], &[0], &[3]]], None;
        /// `beta · input + alpha · Σ batch1[i] · batch2[i]`, over lists of matrices. With a `beta` of zero `input` is
        /// not read.
        addbmm, "addbmm", batch1, batch2, 3, 3, of_lists_summed, wide_summed, summed_reference,
            [[&[3, 5], &[2, 3, 4], &[2, 4, 5]], [&[5], &[1, 3, 4], &[1, 4, 5]], [&[], &[0, 2, 3], &[0, 3, 2]]],
            Some(&[2, 3, 5]);
        /// `beta · input[i] + alpha · batch1[i] · batch2[i]`, lists of matrices. With a `beta` of zero `input` is not
        /// read.
        baddbmm, "baddbmm", batch1, batch2, 3, 3, of_lists, wide_product, plain,
            [[&[2, 3, 5], &[2, 3, 4], &[2, 4, 5]], [&[3, 1], &[2, 3, 4], &[2, 4, 2]], [&[], &[2, 3, 0], &[2, 0, 1]]],
            Some(&[2, 3, 5]);
    }
}

fn of_matrices(left: &[usize], right: &[usize]) -> Option<Vec<usize>> {
    (left[1] == right[0]).then(|| vec![left[0], right[1]])
}

fn of_column(left: &[usize], right: &[usize]) -> Option<Vec<usize>> {
    (left[1] == right[0]).then(|| vec![left[0]])
}

fn of_vectors_outer(left: &[usize], right: &[usize]) -> Option<Vec<usize>> {
    Some(vec![left[0], right[0]])
}

fn of_lists(left: &[usize], right: &[usize]) -> Option<Vec<usize>> {
    (left[0] == right[0] && left[2] == right[1]).then(|| vec![left[0], left[1], right[2]])
}

fn of_lists_summed(left: &[usize], right: &[usize]) -> Option<Vec<usize>> {
    of_lists(left, right).map(|shape| shape[1..].to_vec())
}

/// The product in the type that its sums are added up in.
#[track_caller]
pub(crate) fn wide_product(left: Tensor, right: Tensor) -> Tensor {
    let dtype = left.dtype();
    matmul::with(left, right).out_dtype(dtype.is_floating().then(|| dtype.accumulator())).call()
}

#[track_caller]
fn wide_outer(left: Tensor, right: Tensor) -> Tensor {
    let column = prims::reshape(left, [left.meta().len(), 1]);
    mul(accumulating(column), accumulating(right))
}

/// The sum of the products of lists: one product, of the matrices of each list side by side.
#[track_caller]
fn wide_summed(left: Tensor, right: Tensor) -> Tensor {
    let [count, rows, inner] = [0, 1, 2].map(|dim| left.shape()[dim]);
    let left = prims::reshape(prims::permute(left, [1, 0, 2]), [rows, count * inner]);
    wide_product(left, prims::reshape(right, [count * inner, right.shape()[2]]))
}

/// `beta · input + alpha · product`, rounded once, to the type of `input`.
#[track_caller]
fn added(input: Tensor, product: Tensor, beta: Scalar, alpha: Scalar) -> Tensor {
    let (dtype, wide) = (input.dtype(), product.dtype());
    let scaled = |tensor: Tensor, factor: Scalar| match factor.to_f64() == 1.0 {
        true => tensor,
        false => prims::mul(tensor, operand_number(factor, wide)),
    };
    let product = scaled(product, alpha);
    if beta.to_f64() == 0.0 {
        return cast(product, dtype);
    }
    let own = broadcast(scaled(cast(input, wide), beta), &product.shape());
    cast(prims::add(own, product), dtype)
}

fn plain(left: &ArrayD<f64>, right: &ArrayD<f64>) -> ArrayD<f64> {
    product(left, right)
}

/// For references: the product of a matrix and a vector.
fn of_column_reference(left: &ArrayD<f64>, right: &ArrayD<f64>) -> ArrayD<f64> {
    reshaped(&product(left, &reshaped(right, &[right.len(), 1])), &[left.shape()[0]])
}

/// For references: the products of each element with each.
fn outer_reference(left: &ArrayD<f64>, right: &ArrayD<f64>) -> ArrayD<f64> {
    zip(&reshaped(left, &[left.len(), 1]), right, |a, b| a * b)
}

/// For references: the sum of the products of two lists of matrices.
fn summed_reference(left: &ArrayD<f64>, right: &ArrayD<f64>) -> ArrayD<f64> {
    reduce(&product(left, right), Some(&[0]), false, |row| row.iter().sum::<f64>())
}
