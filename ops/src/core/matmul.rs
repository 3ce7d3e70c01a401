use fulgurite_ops_macros::operator;
use fulgurite_runtime::rules::ArrayD;

use super::arrays::{product, reshaped, spread};
use super::complex_references::bilinear;
use super::parts;
use super::promotion::{broadcast, broadcast_shapes};
use crate::prims;
use crate::prims::checks::same_dtype;

/// Matrix product with PyTorch's rules: vectors are rows on the left and columns on the right, leading dimensions
/// broadcast. The leading dimensions of `input` become rows if `other` is one matrix. bf16 and f16 are accumulated in
/// f32, and rounded once, to the type of the result: `out_dtype`, f32 or the operands' own (which `None` means).
#[operator(torch = "matmul", autocast = low, complex)]
pub mod matmul {
    fn matmul(input: Tensor<Number>, other: Tensor<Number>, #[default(None)] out_dtype: Option<DType>) -> Tensor;

    fn meta(input: &TensorMeta, other: &TensorMeta, out_dtype: Option<DType>) -> Result<TensorMeta> {
        require!(
            input.rank() > 0 && other.rank() > 0,
            Rank,
            "input has shape {:?}, other {:?}, expected at least one dimension of each",
            input.shape(),
            other.shape()
        );
        same_dtype(("input", input), ("other", other), Code::SameDType)?;
        let (left, right) = super::as_matrices(input.shape(), other.shape());
        let (columns, rows) = (left[left.len() - 1], right[right.len() - 2]);
        require!(
            columns == rows,
            InnerExtent,
            "input has shape {:?}, other {:?}: {columns} columns do not meet {rows} rows",
            input.shape(),
            other.shape()
        );
        let batch = broadcast_shapes(&[&left[..left.len() - 2], &right[..right.len() - 2]]);
        require!(
            batch.is_some(),
            Broadcast,
            "input has shape {:?}, other {:?}: their leading dimensions do not broadcast",
            input.shape(),
            other.shape()
        );
        let own = input.dtype();
        let dtype = out_dtype.unwrap_or(own);
        require!(
            dtype == own || (own.is_floating() && dtype == own.accumulator()),
            ResultDType,
            "out_dtype is {dtype}, expected the type of the operands, {own}, or of their sums"
        );
        Ok(input.with_shape(super::result_shape(input.shape(), other.shape())).with_dtype(dtype))
    }

    fn decomposition(input: Tensor, other: Tensor, out_dtype: Option<DType>) -> Tensor {
        let (a, b) = (input.shape(), other.shape());
        let shape = super::result_shape(&a, &b);
        let (left, right) = super::as_matrices(&a, &b);
        let reshape =
            |tensor: Tensor, to: &[usize]| if *tensor.shape() == *to { tensor } else { parts::reshape(tensor, to) };
        let multiply = |a: Tensor, b: Tensor| {
            parts::bilinear(a, b, |a, b| prims::matmul::with(a, b).out_dtype(out_dtype.map(DType::part)).call())
        };
        let (rows, inner, columns) = (left[left.len() - 2], left[left.len() - 1], right[right.len() - 1]);
        let product = if right.len() == 2 {
            let all: usize = left[..left.len() - 1].iter().product();
            multiply(reshape(input, &[all, inner]), reshape(other, &right))
        } else {
            let batch = broadcast_shapes(&[&left[..left.len() - 2], &right[..right.len() - 2]]).unwrap_or_default();
            let spread = |tensor: Tensor, matrix: [usize; 2]| broadcast(tensor, &[&batch[..], &matrix].concat());
            let (input, other) = (reshape(input, &left), reshape(other, &right));
            let (input, other) = (spread(input, [rows, inner]), spread(other, [inner, columns]));
            multiply(input, other)
        };
        reshape(product, &shape)
    }

    fn reference(input: &ReferenceTensor, other: &ReferenceTensor) -> ReferenceTensor {
        bilinear(input, other, super::product_of)
    }

    fn samples(s: &mut Samples) {
        for (a, b) in [
            (&[4, 8][..], &[8, 3][..]),
            (&[5], &[5]),
            (&[5], &[5, 3]),
            (&[4, 5], &[5]),
            (&[2, 3, 4], &[4, 5]),
            (&[2, 3, 4], &[4]),
            (&[4], &[2, 4, 3]),
            (&[3, 4], &[2, 4, 5]),
            (&[2, 1, 3, 4], &[5, 4, 2]),
            (&[0, 4], &[4, 3]),
            (&[2, 0], &[0, 3]),
            (&[1, 1], &[1, 1]),
            (&[17, 33], &[33, 9]),
        ] {
            s.case(with(s.normal(a), s.normal(b)));
        }
        let sums = if s.dtype().is_floating() { s.dtype().accumulator() } else { s.dtype() };
        s.case(with(s.normal([2, 3, 4]), s.normal([4, 5])).out_dtype(sums));
        s.case(with(s.normal([2, 1, 3, 4]), s.normal([5, 4, 2])).out_dtype(sums));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([]), e.normal([2])), "at least one dimension of each");
        e.case(Rank, with(e.normal([2]), e.normal([])), "at least one dimension of each");
        e.case(SameDType, with(e.normal([2, 2]), e.of(DType::I32, [2, 2])), "other is i32");
        let other = if e.dtype() == DType::I64 { DType::I32 } else { DType::I64 };
        e.case(ResultDType, with(e.normal([2, 2]), e.normal([2, 2])).out_dtype(other), "out_dtype is i");
        e.case(InnerExtent, with(e.normal([2, 3]), e.normal([4, 2])), "3 columns do not meet 4 rows");
        e.case(Broadcast, with(e.normal([2, 2, 3]), e.normal([3, 3, 2])), "leading dimensions do not broadcast");
    }
}

/// For the reference: the product of real matrices.
fn product_of(input: &ArrayD<f64>, other: &ArrayD<f64>) -> ArrayD<f64> {
    let (left, right) = as_matrices(input.shape(), other.shape());
    let (split, cut) = (left.len() - 2, right.len() - 2);
    let batch = broadcast_shapes(&[&left[..split], &right[..cut]]).unwrap_or_default();
    let a = spread(&reshaped(input, &left), &[&batch, &left[split..]].concat());
    let b = spread(&reshaped(other, &right), &[&batch, &right[cut..]].concat());
    let mut shape = product(&a, &b).shape().to_vec();
    let out = product(&a, &b);
    if input.ndim() == 1 {
        shape.remove(shape.len() - 2);
    }
    if other.ndim() == 1 {
        shape.pop();
    }
    reshaped(&out, &shape)
}

/// The shapes with a one where a vector lacks a dimension.
fn as_matrices(input: &[usize], other: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let left = if input.len() == 1 { vec![1, input[0]] } else { input.to_vec() };
    let right = if other.len() == 1 { vec![other[0], 1] } else { other.to_vec() };
    (left, right)
}

/// The shape of the product, whose operands were checked.
fn result_shape(input: &[usize], other: &[usize]) -> Vec<usize> {
    let (left, right) = as_matrices(input, other);
    let mut shape = broadcast_shapes(&[&left[..left.len() - 2], &right[..right.len() - 2]]).unwrap_or_default();
    if input.len() > 1 {
        shape.push(left[left.len() - 2]);
    }
    if other.len() > 1 {
        shape.push(right[right.len() - 1]);
    }
    shape
}
