//! Logarithms and powers beside the natural ones, and the error function's family, elementwise. Integers and booleans
//! become f32.

use fulgurite_ops_macros::{operator, operators};

use super::promotion::{cast, cotangent_of, floating, in_floating};
use crate::prims::{self, div, ge, le, log, logical_and, lt, minimum, mul, select, sub};

// Declares functions that are the prim of the same name after promotion.
operators! {
    #[operator(torch = $torch, autocast = $autocast)]
    pub mod $name {
        fn $name(input: Tensor) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.with_dtype(floating(input.dtype())))
        }

        fn decomposition(input: Tensor) -> Tensor {
            prims::$name(cast(input, floating(input.dtype())))
        }

        fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
            elementwise(input, $reference)
        }

        fn samples(s: &mut Samples) {
            s.composed_unary($domain);
            if s.dtype().is_floating() {
                s.case(with(s.values([4], $values))).forward_only("exact values and small ones");
            }
        }
    }

    table($name, $torch, $autocast, $domain, $values, $reference) {
        /// `eˣ - 1`, elementwise, also where it is small.
        expm1, "expm1", full, Domain::ALL, [1e-3, -1e-3, 9.5, -20.0], |x| x.exp_m1();
        /// Natural logarithm of `1 + x`, elementwise, also where x is small; NaN below -1.
        log1p, "log1p", full, Domain::POSITIVE, [1e-3, -1e-3, -0.5, 1e4], |x| x.ln_1p();
        /// Logarithm to base 2, elementwise, exact at powers of 2; NaN below zero.
        log2, "log2", full, Domain::POSITIVE, [8.0, 1024.0, 0.125, 3.0], |x| x.log2();
        /// Logarithm to base 10, elementwise, exact at powers of 10; NaN below zero.
        log10, "log10", full, Domain::POSITIVE, [10.0, 1000.0, 10_000.0, 3.0], |x| x.log10();
        /// Complement of the error function, elementwise: `1 - erf x`, also where it is small.
        erfc, "special.erfc", _, Domain::ALL, [2.5, 3.5, -2.5, 0.25], crate::core::arrays::erfc;
    }
}

/// 2 to the power of each element.
#[operator(torch = "exp2", autocast = full)]
pub mod exp2 {
    fn exp2(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.with_dtype(floating(input.dtype())))
    }

    fn decomposition(input: Tensor) -> Tensor {
        in_floating(input, |x| prims::pow(2.0, x))
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, f64::exp2)
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
    }
}

/// The logarithm of the odds of each element, a probability: `log(x / (1 - x))`. With `eps` it is brought to at least
/// `eps` and at most `1 - eps` first, and has no gradient beyond these.
#[operator(torch = "logit", autocast = full)]
pub mod logit {
    fn logit(input: Tensor, #[default(None)] eps: Option<f64>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.with_dtype(floating(input.dtype())))
    }

    fn decomposition(input: Tensor, eps: Option<f64>) -> Tensor {
        in_floating(input, |x| {
            let p = eps.map_or(x, |eps| select(lt(x, eps), eps, minimum(x, 1.0 - eps)));
            log(div(p, sub(1.0, p)))
        })
    }

    fn grad(input: Tensor, eps: Option<f64>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (with(input).eps(eps).call(), move |d_out: Tensor| {
            let of = |d, x| {
                let (low, high) = eps.map_or((0.0, 1.0), |eps| (eps, 1.0 - eps));
                let inside = logical_and(ge(x, low), le(x, high));
                let outside = if eps.is_some() { 0.0 } else { f64::NAN };
                select(inside, div(d, mul(x, sub(1.0, x))), outside)
            };
            Grads { input: cotangent_of(d_out, input, of) }
        })
    }

    fn reference(input: &ArrayD<f64>, eps: Option<f64>) -> ArrayD<f64> {
        let inside = |x: f64| {
            eps.map_or(x, |eps| {
                if x < eps {
                    eps
                } else if x > 1.0 - eps {
                    1.0 - eps
                } else {
                    x
                }
            })
        };
        elementwise(input, |x| inside(x).ln() - (-inside(x)).ln_1p())
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::range(0.05, 0.95));
        s.case(with(s.uniform(0.2, 0.8, [3])).eps(0.1));
        s.case(with(s.values([4], [-1.0, 0.0, 1.0, 0.5])).eps(0.25)).forward_only("the bounds are kinks");
        s.case(with(s.values([3], [0.1, 0.5, 0.9])).eps(0.6)).forward_only("the lower bound is above the upper one");
    }
}
