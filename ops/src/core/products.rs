//! Products of tensors of fixed ranks, which decompose into [`mod@matmul`](super::matmul); of two vectors, into a sum.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::Tensor;

use super::arrays::{product, remade, reshaped};
use super::complex_references::{bilinear, both};
use super::parts::{self, Complex, is_complex};
use super::promotion::{accumulating, cast};
use super::{matmul, mul};
use crate::prims::checks::same_dtype;

// Declares products of `$rows` by `$columns` dimensions.
operators! {
    #[operator(torch = $torch, autocast = $autocast, complex)]
    pub mod $name {
        fn $name(input: Tensor<Number>, $other: Tensor<Number>) -> Tensor;

        fn requires(input: &TensorMeta, $other: &TensorMeta) -> Result<()> {
            let ($other, name) = ($other, stringify!($other));
            require!(
                input.rank() == $rows && $other.rank() == $columns,
                Rank,
                "input has shape {:?} and {name} {:?}, expected {} and {} dimensions",
                input.shape(),
                $other.shape(),
                $rows,
                $columns
            );
            same_dtype(("input", input), (name, $other), Code::SameDType)?;
            require!(
                meet(input.shape(), $other.shape()),
                Extents,
                "input has shape {:?} and {name} {:?}, which do not meet",
                input.shape(),
                $other.shape()
            );
            Ok(())
        }

        fn decomposition(input: Tensor, $other: Tensor) -> Tensor {
            let conjugates: bool = $conjugates;
            let input = if conjugates && is_complex(input) { Complex::of(input).conjugate().tensor() } else { input };
            if input.rank() + $other.rank() == 2 { of_vectors(input, $other) } else { matmul(input, $other) }
        }

        fn reference(input: &ReferenceTensor, $other: &ReferenceTensor) -> ReferenceTensor {
            let of_conjugate = || ReferenceTensor::from_complex(&input.complex().mapv(|z| z.conj()));
            let conjugates: bool = $conjugates;
            let input = if conjugates && input.imaginary().is_some() { of_conjugate() } else { input.clone() };
            bilinear(&input, $other, of_real)
        }

        fn of_real(input: &ArrayD<f64>, $other: &ArrayD<f64>) -> ArrayD<f64> {
            // Vectors are a row and a column.
            let (rows, columns): (usize, usize) = ($rows, $columns);
            let (mut left, mut right) = (input.shape().to_vec(), $other.shape().to_vec());
            if rows == 1 {
                left.insert(0, 1);
            }
            if columns == 1 {
                right.push(1);
            }
            let out = product(&reshaped(input, &left), &reshaped($other, &right));
            let mut shape = out.shape().to_vec();
            if columns == 1 {
                shape.pop();
            }
            if rows == 1 {
                shape.remove(0);
            }
            reshaped(&out, &shape)
        }

        fn samples(s: &mut Samples) {
            for (left, right) in $shapes {
                s.case(with(s.normal(left), s.normal(right)));
            }
        }

        fn errors(e: &mut ErrorSamples) {
            let (left, right) = $shapes[0];
            e.case(Rank, with(e.normal([]), e.normal(right)), "input has shape []");
            e.case(SameDType, with(e.of(DType::F32, left), e.of(DType::F64, right)), "is f64");
            let mut longer = right.to_vec();
            longer[0] += 1;
            e.case(Extents, with(e.normal(left), e.normal(longer)), "which do not meet");
        }
    }

    table($name, $torch, $autocast, $other, $conjugates, $rows, $columns, $shapes) {
        /// The product of two matrices.
        mm, "mm", low, mat2, false, 2, 2, [([3, 4], [4, 5]), ([1, 33], [33, 2]), ([2, 0], [0, 3]), ([0, 2], [2, 3])];
        /// The products of two lists of matrices.
        bmm, "bmm", low, mat2, false, 3, 3, [([2, 3, 4], [2, 4, 5]), ([0, 3, 4], [0, 4, 5]), ([2, 3, 0], [2, 0, 1])];
        /// The product of a matrix and a vector.
        mv, "mv", low, vec, false, 2, 1, [(&[3, 4][..], &[4][..]), (&[1, 65], &[65]), (&[2, 0], &[0])];
        /// The sum of the products of the elements of two vectors.
        dot, "dot", _, tensor, false, 1, 1, [([5], [5]), ([0], [0]), ([1030], [1030])];
        /// The sum of the products of the elements of two vectors, of complex ones the conjugates of the first; of real
        /// numbers the same as [`mod@dot`].
        vdot, "vdot", _, other, true, 1, 1, [([5], [5]), ([1], [1])];
    }
}

/// The sum of the products of two vectors, in the accumulator of their type: by blocks, as all sums. In a product of a
/// row and a column it may be one running sum, which errs by more where it is long.
#[track_caller]
fn of_vectors(left: Tensor, right: Tensor) -> Tensor {
    let terms = parts::mul(accumulating(left).into(), accumulating(right).into());
    cast(parts::sum(terms, [0]), left.dtype())
}

/// Whether the columns of the left shape are as many as the rows of the right one, and lists of matrices as long.
fn meet(left: &[usize], right: &[usize]) -> bool {
    let inner = right.len().saturating_sub(2);
    let lists = left.len() < 3 || left[..left.len() - 2] == right[..inner];
    lists && left.last() == right.get(inner)
}

/// The product of each element of a vector with each of another: `out[i][j] = input[i] · vec2[j]`, in the type they
/// meet in.
#[operator(torch = "outer", complex)]
pub mod outer {
    fn outer(input: Tensor, vec2: Tensor) -> Tensor;

    fn requires(input: &TensorMeta, vec2: &TensorMeta) -> Result<()> {
        require!(
            input.rank() == 1 && vec2.rank() == 1,
            Rank,
            "input has shape {:?} and vec2 {:?}, expected one dimension of each",
            input.shape(),
            vec2.shape()
        );
        Ok(())
    }

    fn decomposition(input: Tensor, vec2: Tensor) -> Tensor {
        let column = parts::reshape(input, [input.shape()[0], 1]);
        mul(column, vec2)
    }

    fn reference(input: &ReferenceTensor, vec2: &ReferenceTensor) -> ReferenceTensor {
        let column = remade(input, |a| reshaped(a, &[a.len(), 1]), |a| reshaped(a, &[a.len(), 1]));
        both(&column, vec2, |a, b| a * b, |a, b| a * b)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3]), s.normal([4])));
        s.case(with(s.normal([3]), s.of(DType::F32, [1])));
        s.case(with(s.normal([0]), s.normal([2])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([2]), e.normal([])), "vec2 []");
        e.case(Rank, with(e.normal([2, 1]), e.normal([2])), "input has shape [2, 1]");
    }
}
