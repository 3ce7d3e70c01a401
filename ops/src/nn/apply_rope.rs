use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use crate::core::piece;
use crate::core::promotion::{broadcast, broadcast_shapes, cast, sum_to};
use crate::prims;
use crate::prims::checks::same_dtype;

/// Rotary position embedding of the last dimension, halves rotated: `x · cos + [-x₂, x₁] · sin`, where x₁ and x₂ are
/// the halves of x. `cos` and `sin` broadcast to `input`, e.g. [T, D] to [B, H, T, D]; computed in the wider of the
/// types. Where they are narrower, with an even number of columns, that many first columns are rotated. Su et al.,
/// "RoFormer", 2021, in the arrangement of GPT-NeoX and Llama.
#[operator]
pub mod apply_rope {
    fn apply_rope(input: Tensor<Floating>, cos: Tensor<Floating>, sin: Tensor<Floating>) -> Tensor;

    fn requires(input: &TensorMeta, cos: &TensorMeta, sin: &TensorMeta) -> Result<()> {
        let rotated = super::rotated_shape(input.shape(), cos.shape());
        let even = rotated.last().is_some_and(|extent| extent.is_multiple_of(2));
        require!(even, EvenWidth, "input has shape {:?}, expected an even last extent", input.shape());
        for (name, table) in [("cos", cos), ("sin", sin)] {
            let fits = broadcast_shapes(&[&rotated, table.shape()]).as_deref() == Some(&rotated[..]);
            require!(
                fits,
                TableShape,
                "{name} has shape {:?}, which does not broadcast to input's {:?}",
                table.shape(),
                input.shape()
            );
            same_dtype((name, table), ("cos", cos), Code::TableDType)?;
        }
        Ok(())
    }

    fn decomposition(input: Tensor, cos: Tensor, sin: Tensor) -> Tensor {
        let shape = super::rotated_shape(&input.shape(), &cos.shape());
        let (whole, input) = (input, super::first_columns(input, &shape));
        let rotated = super::rotated(input);
        let wide = crate::core::promotion::promote_types(input.dtype(), cos.dtype());
        let table = |table: Tensor| broadcast(cast(table, wide), &shape);
        let straight = prims::mul(cast(input, wide), table(cos));
        let turned = cast(prims::add(straight, prims::mul(cast(rotated, wide), table(sin))), input.dtype());
        super::with_other_columns(turned, whole)
    }

    fn grad(input: Tensor, cos: Tensor, sin: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (apply_rope(input, cos, sin), move |d_out: Tensor| {
            let shape = super::rotated_shape(&input.shape(), &cos.shape());
            let wide = crate::core::promotion::promote_types(input.dtype(), cos.dtype());
            let spread = |table: Tensor| broadcast(cast(table, wide), &shape);
            let d = cast(super::first_columns(d_out, &shape), wide);
            // The transpose of a quarter turn is its inverse, which is the turn negated.
            let back = super::rotated(prims::mul(d, spread(sin)));
            let [d_cos, d_sin] = super::rope_table_gradients(d_out, input, cos, sin);
            let turned = cast(prims::sub(prims::mul(d, spread(cos)), back), input.dtype());
            Grads { input: super::with_other_columns(turned, d_out), cos: d_cos, sin: d_sin }
        })
    }

    fn reference(input: &ArrayD<f64>, cos: &ArrayD<f64>, sin: &ArrayD<f64>) -> ArrayD<f64> {
        let width = input.shape()[input.ndim() - 1];
        let count = cos.shape().last().copied().filter(|count| *count != 1).unwrap_or(width);
        let mut shape = input.shape().to_vec();
        shape[input.ndim() - 1] = count;
        let half = count / 2;
        let (cos, sin) = (crate::core::arrays::spread(cos, &shape), crate::core::arrays::spread(sin, &shape));
        ArrayD::from_shape_fn(input.raw_dim(), |index| {
            let at = ndarray::Dimension::slice(&index);
            let mut partner = at.to_vec();
            let last = partner.len() - 1;
            if at[last] >= count {
                return input[at];
            }
            let sign = if at[last] < half { -1.0 } else { 1.0 };
            partner[last] = (at[last] + half) % (2 * half);
            input[at] * cos[at] + sign * input[partner.as_slice()] * sin[at]
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 4, 6]), s.uniform(-1.0, 1.0, [4, 6]), s.uniform(-1.0, 1.0, [4, 6])));
        s.case(with(s.normal([5, 2]), s.uniform(-1.0, 1.0, [5, 2]), s.uniform(-1.0, 1.0, [2])));
        s.case(with(s.normal([2]), s.uniform(-1.0, 1.0, [2]), s.uniform(-1.0, 1.0, [2])));
        s.case(with(s.normal([0, 4]), s.uniform(-1.0, 1.0, [4]), s.uniform(-1.0, 1.0, [4])));
        let table = || s.uniform(-1.0, 1.0, [7, 8]).cast(DType::F32);
        s.case(with(s.normal([3, 7, 8]), table(), table()));
        // A part of each row is rotated.
        s.case(with(s.normal([2, 4, 10]), s.uniform(-1.0, 1.0, [4, 6]), s.uniform(-1.0, 1.0, [4, 6])));
        // One row for all positions.
        s.case(with(s.normal([3, 4, 6]), s.uniform(-1.0, 1.0, [1, 6]), s.uniform(-1.0, 1.0, [4, 6])));
    }

    fn errors(e: &mut ErrorSamples) {
        let table = |shape: &[usize]| e.normal(shape);
        e.case(EvenWidth, with(e.normal([4, 3]), table(&[3]), table(&[3])), "expected an even last extent");
        e.case(TableShape, with(e.normal([4, 2]), table(&[2]), table(&[3, 2])), "sin has shape [3, 2]");
        e.case(TableDType, with(e.normal([2]), table(&[2]), e.of(DType::F64, [2])), "expected equal dtypes");
    }
}

/// `[-b, a]` of the halves `[a, b]` of the last dimension.
#[track_caller]
fn rotated(x: Tensor) -> Tensor {
    let (dim, half) = (x.rank() - 1, x.size(-1) / 2);
    prims::cat([prims::neg(piece(x, dim, half, half)), piece(x, dim, 0, half)], dim)
}

/// The shape of what is rotated of a tensor: the first columns, as many as the tables have, or all if these broadcast
/// over columns.
pub(crate) fn rotated_shape(input: &[usize], table: &[usize]) -> Vec<usize> {
    let mut shape = input.to_vec();
    if let (Some(last), Some(count)) = (shape.last_mut(), table.last().filter(|count| **count != 1)) {
        *last = (*count).min(*last);
    }
    shape
}

/// The part of `x` that has this shape.
#[track_caller]
fn first_columns(x: Tensor, shape: &[usize]) -> Tensor {
    let (dim, count) = (shape.len() - 1, shape[shape.len() - 1]);
    if x.size(-1) == count { x } else { piece(x, dim, 0, count) }
}

/// `turned`, and the columns of `whole` behind it.
#[track_caller]
fn with_other_columns(turned: Tensor, whole: Tensor) -> Tensor {
    let (dim, count, width) = (whole.rank() - 1, turned.size(-1), whole.size(-1));
    if count == width { turned } else { prims::cat([turned, piece(whole, dim, count, width - count)], dim) }
}

/// The gradients of `cos` and `sin` of [`apply_rope`], in their shapes and types, where `d_out` is that of its result.
#[track_caller]
pub fn rope_table_gradients(d_out: Tensor, input: Tensor, cos: Tensor, sin: Tensor) -> [Tensor; 2] {
    let wide = crate::core::promotion::promote_types(input.dtype(), cos.dtype());
    let shape = rotated_shape(&input.shape(), &cos.shape());
    let [x, d] = [input, d_out].map(|x| cast(first_columns(x, &shape), wide));
    let summed = |gradient, table: Tensor| cast(sum_to(gradient, &table.shape()), table.dtype());
    [summed(prims::mul(d, x), cos), summed(prims::mul(d, rotated(x)), sin)]
}
