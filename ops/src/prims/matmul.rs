use fulgurite_ops_macros::operator;

use super::checks::same_dtype;
use super::support::another;
use crate::prims::{convert_element_type, permute};

/// Matrix product of the last two dimensions: `[..., m, k] × [..., k, n] -> [..., m, n]`, with equal leading extents.
/// bf16 and f16 are accumulated in f32, and rounded once, to the type of the result: `out_dtype`, f32 or the operands'
/// own (which `None` means). Integers wrap.
#[operator(
    prim,
    torch = "matmul",
    overload = Matmul,
    autocast = low,
)]
pub mod matmul {
    fn matmul(input: Tensor<Number>, other: Tensor<Number>, #[default(None)] out_dtype: Option<DType>) -> Tensor;

    fn meta(input: &TensorMeta, other: &TensorMeta, out_dtype: Option<DType>) -> Result<TensorMeta> {
        require!(
            input.rank() >= 2 && input.rank() == other.rank(),
            Rank,
            "input has {} dimensions, other {}, expected equally many, at least two",
            input.rank(),
            other.rank()
        );
        let (batch, [m, k]) = split(input);
        let (other_batch, [inner, n]) = split(other);
        require!(
            batch == other_batch,
            BatchShape,
            "input has leading extents {batch:?}, other {other_batch:?}, expected equal ones"
        );
        require!(
            k == inner,
            InnerExtent,
            "input has shape {:?}, other {:?}: {k} columns do not meet {inner} rows",
            input.shape(),
            other.shape()
        );
        same_dtype(("input", input), ("other", other), Code::SameDType)?;
        let own = input.dtype();
        let dtype = out_dtype.unwrap_or(own);
        require!(
            dtype == own || (own.is_floating() && dtype == own.accumulator()),
            ResultDType,
            "out_dtype is {dtype}, expected {}, the type of the operands or of their sums",
            if own.is_floating() && own != own.accumulator() {
                format!("{own} or {}", own.accumulator())
            } else {
                own.to_string()
            }
        );
        Ok(input.with_shape([batch, &[m, n]].concat()).with_dtype(dtype))
    }

    /// A multiplication and an addition for each term.
    fn flops(input: &TensorMeta, other: &TensorMeta) -> u64 {
        let (_, [_, n]) = split(other);
        2u64.saturating_mul(input.len() as u64).saturating_mul(n as u64)
    }

    fn split(meta: &TensorMeta) -> (&[usize], [usize; 2]) {
        match meta.shape() {
            [batch @ .., rows, columns] => (batch, [*rows, *columns]),
            _ => (&[], [1, 1]),
        }
    }

    fn grad(input: Tensor, other: Tensor, out_dtype: Option<DType>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (with(input, other).out_dtype(out_dtype).call(), move |d_out: Tensor| {
            let own = d_out.dtype() == input.dtype();
            let d_out = if own { d_out } else { convert_element_type(d_out, input.dtype()) };
            Grads { input: matmul(d_out, transposed(other)), other: matmul(transposed(input), d_out) }
        })
    }

    fn transposed(matrix: Tensor) -> Tensor {
        let mut dims: Vec<usize> = (0..matrix.rank()).collect();
        if let [.., rows, columns] = dims.as_mut_slice() {
            std::mem::swap(rows, columns);
        }
        permute(matrix, dims)
    }

    fn reference(input: &ReferenceTensor, other: &ReferenceTensor) -> ReferenceTensor {
        let rank = input.shape().len();
        let (m, inner, n) = (input.shape()[rank - 2], input.shape()[rank - 1], other.shape()[rank - 1]);
        let shape = super::super::support::with_extent(input.shape(), rank - 1, n);
        let count = shape.iter().product();
        // The positions, in row-major order, of the factors of the i-th term of the element at `at`. (An index of
        // `rank` dimensions for every term is an allocation and a check of bounds in each of them; products are what
        // references spend their time in.)
        let factors = |at: usize, i: usize| {
            let (row, column) = (at / n, at % n);
            (row * inner + i, (row / m * inner + i) * n + column)
        };
        if input.dtype().is_floating() {
            let (a, b) = (row_major(input.floats()), row_major(other.floats()));
            // From +0.0 on: the sum of no floats is -0.0.
            let element =
                |at| (0..inner).map(|i| factors(at, i)).fold(0.0, |sum, (left, right)| sum + a[left] * b[right]);
            ArrayD::from_shape_vec(shape, (0..count).map(element).collect()).expect("one for each").into()
        } else {
            let (a, b) = (row_major(input.integers()), row_major(other.integers()));
            let element = |at| {
                let terms = (0..inner).map(|i| factors(at, i)).map(|(left, right)| a[left].wrapping_mul(b[right]));
                terms.fold(0i64, i64::wrapping_add)
            };
            ArrayD::from_shape_vec(shape, (0..count).map(element).collect()).expect("one for each").into()
        }
    }

    fn row_major<T: Copy>(array: &ArrayD<T>) -> Vec<T> {
        array.iter().copied().collect()
    }

    fn samples(s: &mut Samples) {
        for (left, right) in [
            (&[2, 3][..], &[3, 4][..]),
            (&[1, 1], &[1, 1]),
            (&[7, 5], &[5, 9]),
            (&[1, 33], &[33, 1]),
            (&[2, 4, 3], &[2, 3, 5]),
            (&[2, 3, 4, 3], &[2, 3, 3, 5]),
            (&[0, 3], &[3, 4]),
            (&[2, 0], &[0, 4]),
            (&[0, 2, 3], &[0, 3, 4]),
            (&[67, 31], &[31, 65]),
        ] {
            s.case(with(s.normal(left), s.normal(right)));
        }
        // The type of the sums, of an operand that is turned as keys are, and in several parts.
        let sums = if s.dtype().is_floating() { s.dtype().accumulator() } else { s.dtype() };
        for (left, right) in [(&[2, 3, 5, 8][..], &[2, 3, 8, 7][..]), (&[65, 40], &[40, 67]), (&[2, 0], &[0, 4])] {
            s.case(with(s.normal(left), s.normal(right)).out_dtype(sums));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3]), e.normal([3])), "input has 1 dimensions");
        e.case(Rank, with(e.normal([2, 3]), e.normal([2, 3, 3])), "expected equally many");
        e.case(BatchShape, with(e.normal([2, 3, 3]), e.normal([1, 3, 3])), "leading extents [2], other [1]");
        e.case(InnerExtent, with(e.normal([2, 3]), e.normal([4, 2])), "3 columns do not meet 4 rows");
        let other = if e.dtype() == DType::I64 { DType::I32 } else { DType::I64 };
        e.case(ResultDType, with(e.normal([2, 2]), e.normal([2, 2])).out_dtype(other), "out_dtype is i");
        e.case(SameDType, with(e.normal([2, 2]), e.of(another(e.dtype()), [2, 2])), "expected equal dtypes");
    }
}
