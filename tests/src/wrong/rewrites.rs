//! A wrong rewrite.

use fulgurite_ops_macros::{operator, rewrite};

/// `x · cos + swapped(x) · sin`, where `swapped` exchanges the two halves of the last dimension.
#[operator(name = "wrong::rotate")]
pub mod rotate {
    use fulgurite_ops::prims;

    fn rotate(x: Tensor<Floating>, cos: Tensor<Floating>, sin: Tensor<Floating>) -> Tensor;

    fn decomposition(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor {
        prims::add(prims::mul(x, cos), prims::mul(prims::flip(x, [0]), sin))
    }

    fn reference(x: &ArrayD<f64>, cos: &ArrayD<f64>, sin: &ArrayD<f64>) -> ArrayD<f64> {
        let mut flipped = x.clone();
        flipped.invert_axis(ndarray::Axis(0));
        x * cos + flipped * sin
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([6]), s.normal([6]), s.normal([6])));
    }
}

/// Rotates two tensors at once. Right where both are rotated by the same angles.
#[rewrite(name = "wrong::merge_rotations")]
mod merge_rotations {
    use super::rotate;
    use fulgurite_ops::prims;

    fn pattern(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, other: Tensor) -> (Tensor, Tensor) {
        (rotate(q, cos, sin), rotate(k, other, sin))
    }

    fn replacement(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, _other: Tensor) -> (Tensor, Tensor) {
        (rotate(q, cos, sin), prims::add(prims::mul(k, cos), prims::mul(prims::flip(k, [0]), sin)))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([6]), s.normal([6]), s.normal([6]), s.normal([6]), s.normal([6])));
    }
}
