use fulgurite_ops_macros::operator;

use crate::core::piece;
use crate::core::promotion::{broadcast, broadcast_shapes, cast, sum_to};
use crate::prims;
use crate::prims::checks::same_dtype;

/// Rotary position embedding of the last dimension, halves rotated: `x · cos + [-x₂, x₁] · sin`, where x₁ and x₂ are
/// the halves of x. `cos` and `sin` broadcast to `input`, e.g. [T, D] to [B, H, T, D]; computed in the wider of the
/// types. Su et al., "RoFormer", 2021, in the arrangement of GPT-NeoX and Llama.
#[operator]
pub mod apply_rope {
    fn apply_rope(input: Tensor<Floating>, cos: Tensor<Floating>, sin: Tensor<Floating>) -> Tensor;

    fn requires(input: &TensorMeta, cos: &TensorMeta, sin: &TensorMeta) -> Result<()> {
        let even = input.shape().last().is_some_and(|extent| extent.is_multiple_of(2));
        require!(even, EvenWidth, "input has shape {:?}, expected an even last extent", input.shape());
        for (name, table) in [("cos", cos), ("sin", sin)] {
            let fits = broadcast_shapes(&[input.shape(), table.shape()]).as_deref() == Some(input.shape());
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
        let shape = input.shape().to_vec();
        let rotated = rotated(input);
        let wide = crate::core::promotion::promote_types(input.dtype(), cos.dtype());
        let table = |table: Tensor| broadcast(cast(table, wide), &shape);
        let straight = prims::mul(cast(input, wide), table(cos));
        cast(prims::add(straight, prims::mul(cast(rotated, wide), table(sin))), input.dtype())
    }

    fn grad(input: Tensor, cos: Tensor, sin: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (apply_rope(input, cos, sin), move |d_out: Tensor| {
            let shape = input.shape().to_vec();
            let wide = crate::core::promotion::promote_types(input.dtype(), cos.dtype());
            let spread = |table: Tensor| broadcast(cast(table, wide), &shape);
            let (x, d) = (cast(input, wide), cast(d_out, wide));
            // The transpose of a quarter turn is its inverse, which is the turn negated.
            let back = rotated(prims::mul(d, spread(sin)));
            let table = |gradient: Tensor, table: Tensor| cast(sum_to(gradient, &table.shape()), table.dtype());
            Grads {
                input: cast(prims::sub(prims::mul(d, spread(cos)), back), input.dtype()),
                cos: table(prims::mul(d, x), cos),
                sin: table(prims::mul(d, rotated(x)), sin),
            }
        })
    }

    /// `[-b, a]` of the halves `[a, b]` of the last dimension.
    #[track_caller]
    fn rotated(x: Tensor) -> Tensor {
        let (dim, half) = (x.rank() - 1, x.size(-1) / 2);
        prims::cat([prims::neg(piece(x, dim, half, half)), piece(x, dim, 0, half)], dim)
    }

    fn reference(input: &ArrayD<f64>, cos: &ArrayD<f64>, sin: &ArrayD<f64>) -> ArrayD<f64> {
        let shape = input.shape().to_vec();
        let half = shape.last().map_or(0, |extent| extent / 2);
        let (cos, sin) = (crate::core::arrays::spread(cos, &shape), crate::core::arrays::spread(sin, &shape));
        ArrayD::from_shape_fn(IxDyn(&shape), |index| {
            let at = ndarray::Dimension::slice(&index);
            let mut partner = at.to_vec();
            let last = partner.len() - 1;
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
