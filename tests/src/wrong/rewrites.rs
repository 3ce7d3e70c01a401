//! Wrong rewrites.

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

/// Fuses the norm of one `eps` and says so of all.
#[rewrite(name = "wrong::fixed_eps")]
mod fixed_eps {
    use fulgurite_ops::nn::{fused_add_rms_norm, rms_norm};
    use fulgurite_ops::prims;

    fn pattern(x: Tensor, y: Tensor, weight: Tensor, eps: f64) -> Tensor {
        rms_norm::with(prims::add(x, y), weight.shape()).weight(weight).eps(eps).call()
    }

    fn replacement(x: Tensor, y: Tensor, weight: Tensor, _eps: f64) -> Tensor {
        fused_add_rms_norm::with(x, y, weight.shape()).weight(weight).eps(1e-5).call().0
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 6]), s.normal([4, 6]), s.normal([6]), 1e-5));
    }
}

/// Its pattern has the attribute in no argument as it is.
#[rewrite(name = "wrong::unbound_scale")]
mod unbound_scale {
    use fulgurite_ops::prims;

    fn pattern(x: Tensor, scale: f64) -> Tensor {
        prims::mul(prims::neg(x), 2.0 * scale)
    }

    fn replacement(x: Tensor, scale: f64) -> Tensor {
        prims::mul(x, -2.0 * scale)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([6]), 3.0));
    }
}

/// Writes what it looks for.
#[rewrite(name = "wrong::endless")]
mod endless {
    use fulgurite_ops::prims;

    fn pattern(x: Tensor, y: Tensor) -> Tensor {
        prims::sub(x, y)
    }

    fn replacement(x: Tensor, y: Tensor) -> Tensor {
        prims::neg(prims::sub(y, x))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([6]), s.normal([6])));
    }
}
