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
        let wide = crate::core::promotion::promote_types(input.dtype(), cos.dtype());
        let table = |table: Tensor| super::table_halves(cast(table, wide), &shape);
        let ([cos_a, cos_b], [sin_a, sin_b]) = (table(cos), table(sin));
        let [a, b] = super::halves(super::first_columns(input, &shape)).map(|half| cast(half, wide));
        let turned = [
            prims::sub(prims::mul(a, cos_a), prims::mul(b, sin_a)),
            prims::add(prims::mul(b, cos_b), prims::mul(a, sin_b)),
        ];
        super::beside(turned, input)
    }

    fn grad(input: Tensor, cos: Tensor, sin: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (apply_rope(input, cos, sin), move |d_out: Tensor| {
            let shape = super::rotated_shape(&input.shape(), &cos.shape());
            let wide = crate::core::promotion::promote_types(input.dtype(), cos.dtype());
            let table = |table: Tensor| super::table_halves(cast(table, wide), &shape);
            let ([cos_a, cos_b], [sin_a, sin_b]) = (table(cos), table(sin));
            let [d_a, d_b] = super::halves(super::first_columns(d_out, &shape)).map(|half| cast(half, wide));
            // The transpose of the turn: each half of the input goes into both of the result.
            let turned = [
                prims::add(prims::mul(d_a, cos_a), prims::mul(d_b, sin_b)),
                prims::sub(prims::mul(d_b, cos_b), prims::mul(d_a, sin_a)),
            ];
            let [d_cos, d_sin] = super::rope_table_gradients(d_out, input, cos, sin);
            Grads { input: super::beside(turned, d_out), cos: d_cos, sin: d_sin }
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

/// The two halves of the last dimension.
#[track_caller]
fn halves(x: Tensor) -> [Tensor; 2] {
    let (dim, half) = (x.rank() - 1, x.size(-1) / 2);
    [0, half].map(|start| piece(x, dim, start, half))
}

/// The halves of a table, each in the shape of half of what is turned: a column of numbers serves both.
#[track_caller]
fn table_halves(table: Tensor, shape: &[usize]) -> [Tensor; 2] {
    let mut half = shape.to_vec();
    if let Some(last) = half.last_mut() {
        *last /= 2;
    }
    let one = table.shape().last().is_none_or(|columns| *columns == 1);
    let halves = if one { [table; 2] } else { halves(table) };
    halves.map(|part| broadcast(part, &half))
}

/// Both halves in the type of `whole`, and its columns behind them. They are computed half by half and put beside each
/// other at the end: a fused kernel writes each where it belongs, and reads nothing but what it turns.
#[track_caller]
fn beside(turned: [Tensor; 2], whole: Tensor) -> Tensor {
    let [a, b] = turned.map(|half| cast(half, whole.dtype()));
    let (dim, count, width) = (whole.rank() - 1, 2 * a.size(-1), whole.size(-1));
    if count == width {
        prims::cat([a, b], dim)
    } else {
        prims::cat([a, b, piece(whole, dim, count, width - count)], dim)
    }
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
