//! Hyperbolic functions and their inverses, elementwise, computed in f32 for f16 and bf16. Integers and booleans become
//! f32. Functions that are odd are computed of magnitudes and get their sign back: small numbers keep their digits.

use std::f64::consts::LN_2;

use fulgurite_ops_macros::operators;
use fulgurite_runtime::Tensor;

use super::promotion::{cotangent_of, floating, in_floating, with_sign};
use super::{complex_functions, complex_references as references};
use crate::prims::{self, abs, add, div, exp, gt, log, mul, reciprocal, rsqrt, select, sqrt, sub};

operators! {
    #[operator(torch = $torch, autocast = $autocast, complex)]
    pub mod $name {
        fn $name(input: Tensor) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.with_dtype(floating(input.dtype())))
        }

        fn decomposition(input: Tensor) -> Tensor {
            complex_functions::apply(input, $parts, |input| in_floating(input, |x| $value))
        }

        fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            ($name(input), move |d_out: Tensor| Grads { input: cotangent_of(d_out, input, |d, x| $d_input) })
        }

        fn reference(input: &ReferenceTensor) -> ReferenceTensor {
            references::each(input, $reference, $of_complex)
        }

        fn samples(s: &mut Samples) {
            s.composed_unary($domain);
            if s.dtype().is_complex() {
                s.case(with(s.normal([5, 7])));
                // `1 - z` and `1 + z` on the imaginary axis, where magnitudes of real parts have no slope.
                s.case(with(s.values([4], [1.0, 1.0, -1.0, -1.0, 0.5, 0.5, 1.0, -5.0])));
            }
            if s.dtype().is_floating() {
                let far = [1e-3, -1e-3, 88.9, -88.9, 1e4, 2.5];
                s.case(with(s.values([6], far))).forward_only("small and large numbers");
            }
        }
    }

    table($name, $torch, $autocast, $domain, $parts, $of_complex, $value, $reference, $d_input) {
        /// Hyperbolic sine, elementwise.
        sinh, "sinh", full, Domain::ALL, complex_functions::hyperbolic_sine, references::sinh,
            hyperbolic_sine(x), |x| x.sinh(), mul(d, hyperbolic_cosine(x));
        /// Hyperbolic cosine, elementwise.
        cosh, "cosh", full, Domain::ALL, complex_functions::hyperbolic_cosine, references::cosh,
            hyperbolic_cosine(x), |x| x.cosh(), mul(d, hyperbolic_sine(x));
        /// The number whose hyperbolic sine each element is.
        asinh, "asinh", _, Domain::ALL, complex_functions::area_sine, references::asinh,
            {
            let a = abs(x);
            let root = add(sqrt(add(mul(a, a), 1.0)), 1.0);
            with_sign(of_large(a, prims::log1p(add(a, div(mul(a, a), root)))), x)
        }, |x| x.abs().asinh().copysign(x), mul(d, rsqrt(add(mul(x, x), 1.0)));
        /// The number, not negative, whose hyperbolic cosine each element is; NaN below 1.
        acosh, "acosh", _, Domain::range(1.1, 9.0), complex_functions::area_cosine, references::acosh,
            {
            let above = sub(x, 1.0);
            of_large(x, prims::log1p(add(above, mul(sqrt(above), sqrt(add(x, 1.0))))))
        }, |x| x.acosh(), {
            // At -1 the product is -0, whose root would have the other sign.
            let square = add(mul(sub(x, 1.0), add(x, 1.0)), 0.0);
            mul(d, rsqrt(square))
        };
        /// The number whose hyperbolic tangent each element is; NaN outside of [-1, 1].
        atanh, "atanh", _, Domain::UNIT, complex_functions::area_tangent, references::atanh,
            {
            let a = abs(x);
            with_sign(mul(prims::log1p(div(mul(a, 2.0), sub(1.0, a))), 0.5), x)
        }, |x| x.atanh(), div(d, mul(sub(1.0, x), add(1.0, x)));
    }
}

/// `(eˣ - e⁻ˣ) / 2` of the magnitude, from `e^(x/2)`, which is finite as far as the result is.
#[track_caller]
fn hyperbolic_sine(x: Tensor) -> Tensor {
    let less = prims::expm1(mul(abs(x), 0.5));
    let root = add(less, 1.0);
    let shrunk = add(reciprocal(mul(root, root)), 1.0);
    with_sign(mul(mul(less, 0.5), mul(add(root, 1.0), shrunk)), x)
}

/// `(eˣ + e⁻ˣ) / 2`, from `e^(x/2)`, which is finite as far as the result is.
#[track_caller]
fn hyperbolic_cosine(x: Tensor) -> Tensor {
    let root = exp(mul(abs(x), 0.5));
    add(mul(mul(root, 0.5), root), div(div(0.5, root), root))
}

/// `log 2x` where `x` is so large that its square may not be finite, and one is nothing beside it.
#[track_caller]
fn of_large(x: Tensor, otherwise: Tensor) -> Tensor {
    select(gt(x, 1e10), add(log(x), LN_2), otherwise)
}
