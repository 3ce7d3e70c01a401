//! Special functions, elementwise. Integers and booleans become f32. Functions that follow from others are computed in
//! f32 for f16 and bf16.

use std::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::Tensor;
use fulgurite_runtime::argument::Operand;

use super::arrays::{erfc, zip};
use super::promotion::{
    cast, constant_like, cotangent_of, cotangents_of, elementwise_meta, floating, in_floating, operands_meet,
    pair_in_floating, result_type,
};
use crate::prims::{self, add, div, eq, exp, floor, le, log, log1p, logical_and, lt, mul, neg, select, sub};
use crate::prims::{bessel_reference, error_reference, gamma_reference, hurwitz_reference, trigamma};

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

        fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            $grad
        }

        fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
            elementwise(input, $reference)
        }

        fn samples(s: &mut Samples) {
            s.composed_unary($domain);
        }
    }

    table($name, $torch, $autocast, $domain, $grad, $reference) {
        /// Natural logarithm of the magnitude of the gamma function, elementwise; infinite at 0, -1, -2, ...
        lgamma, "lgamma", _, Domain::POSITIVE,
            (lgamma(input), move |d_out: Tensor| Grads {
                input: cotangent_of(d_out, input, |d, x| mul(d, digamma(x))),
            }),
            gamma_reference::lanczos_log_gamma;
        /// The derivative of [`mod@lgamma`], elementwise: `Γ'(x) / Γ(x)`; infinite at 0, with the other sign, and NaN
        /// at -1, -2, ...
        digamma, "digamma", _, Domain::POSITIVE,
            (digamma(input), move |d_out: Tensor| Grads {
                input: cotangent_of(d_out, input, |d, x| mul(d, polygamma(1, x))),
            }),
            gamma_reference::lanczos_digamma;
        /// The number whose error function each element is; infinite at -1 and 1, NaN beyond.
        erfinv, "erfinv", full, Domain::UNIT, _, error_reference::newton_erfinv;
        /// The quantile of the normal distribution, elementwise: the number below which a draw is with the probability
        /// `input`; infinite at 0 and 1, NaN beyond.
        ndtri, "special.ndtri", _, Domain::range(0.02, 0.98), _, error_reference::newton_ndtri;
        /// The complement of the error function times `e^(x²)`, elementwise, which is finite where both are not.
        erfcx, "special.erfcx", _, Domain::range(-2.0, 6.0), _, error_reference::fraction_erfcx;
        /// The modified Bessel function of the first kind of order 0 times `e^(-|x|)`, elementwise.
        i0e, "special.i0e", _, Domain::ALL, _, scaled_bessel_0;
        /// The modified Bessel function of the first kind of order 1 times `e^(-|x|)`, elementwise.
        i1e, "special.i1e", _, Domain::ALL, _, scaled_bessel_1;
    }
}

/// For references: of the order 0.
fn scaled_bessel_0(x: f64) -> f64 {
    bessel_reference(x, 0)
}

/// For references: of the order 1.
fn scaled_bessel_1(x: f64) -> f64 {
    bessel_reference(x, 1)
}

// Declares functions that follow from others.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.with_dtype(floating(input.dtype())))
        }

        fn decomposition(input: Tensor) -> Tensor {
            in_floating(input, |x| $value)
        }

        fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            ($name(input), move |d_out: Tensor| Grads { input: cotangent_of(d_out, input, |d, x| $d_input) })
        }

        fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
            elementwise(input, $reference)
        }

        fn samples(s: &mut Samples) {
            s.composed_unary($domain);
            let special = [0.0, -0.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
            s.case(with(s.values([6], special))).forward_only("special values");
            let slope: f64 = $at_zero;
            s.case(with(s.values([2], [0.0]))).forward_only("the slope at zero").gradients([&[slope, 2.0 * slope]]);
        }
    }

    table($name, $torch, $domain, $at_zero, $value, $reference, $d_input) {
        /// The modified Bessel function of the first kind of order 0, elementwise; infinite where `e^|x|` is.
        i0, "i0", Domain::ALL, 0.0,
            mul(exp(prims::abs(x)), prims::i0e(x)),
            |x| x.abs().exp() * scaled_bessel_0(x),
            mul(d, bessel_1(x));
        /// The modified Bessel function of the first kind of order 1, elementwise; infinite where `e^|x|` is.
        i1, "special.i1", Domain::ALL, 0.5,
            bessel_1(x),
            |x| x.abs().exp() * scaled_bessel_1(x),
            {
                let scaled = sub(prims::i0e(x), select(eq(x, 0.0), 0.5, div(prims::i1e(x), x)));
                mul(d, mul(exp(prims::abs(x)), scaled))
            };
        /// The distribution function of the normal distribution, elementwise: the probability of a draw below.
        ndtr, "special.ndtr", Domain::ALL, (2.0 * PI).sqrt().recip(),
            mul(prims::erfc(mul(x, -FRAC_1_SQRT_2)), 0.5),
            |x| erfc(-x / SQRT_2) / 2.0,
            mul(mul(d, 1.0 / (2.0 * PI).sqrt()), exp(mul(mul(x, x), -0.5)));
        /// The logarithm of [`mod@ndtr`], also where that is zero.
        log_ndtr, "special.log_ndtr", Domain::ALL, (2.0 / PI).sqrt(), {
            let far = sub(log(mul(prims::erfcx(mul(x, -FRAC_1_SQRT_2)), 0.5)), mul(mul(x, x), 0.5));
            let near = log1p(mul(prims::erfc(mul(x, FRAC_1_SQRT_2)), -0.5));
            select(lt(x, -1.0), far, near)
        },
            |x| if x < -1.0 {
                (error_reference::fraction_erfcx(-x / SQRT_2) / 2.0).ln() - x * x / 2.0
            } else {
                (-erfc(x / SQRT_2) / 2.0).ln_1p()
            },
            div(mul(d, (2.0 / PI).sqrt()), prims::erfcx(mul(x, -FRAC_1_SQRT_2)));
        /// The entropy of a probability, elementwise: `-x log x`, 0 at 0 and `-inf` below.
        entr, "special.entr", Domain::POSITIVE, f64::INFINITY,
            select(lt(x, 0.0), f64::NEG_INFINITY, select(eq(x, 0.0), 0.0, neg(mul(x, log(x))))),
            |x| if x < 0.0 { f64::NEG_INFINITY } else if x == 0.0 { 0.0 } else { -x * x.ln() },
            neg(mul(d, add(log(x), 1.0)));
    }
}

/// The modified Bessel function of the first kind of order 1.
#[track_caller]
fn bessel_1(x: Tensor) -> Tensor {
    mul(exp(prims::abs(x)), prims::i1e(x))
}

/// `input · log(1 + other)`, and 0 where `input` is 0, unless `other` is NaN. Either may be a number.
#[operator(torch = "special.xlog1py")]
pub mod xlog1py {
    fn xlog1py(input: Operand, other: Operand) -> Tensor;

    fn meta(input: Operand<&TensorMeta>, other: Operand<&TensorMeta>) -> Result<TensorMeta> {
        let operands = [input, other];
        operands_meet(&operands, "other", [Code::NoTensor.name(), Code::Broadcast.name()])?;
        Ok(elementwise_meta(&operands, floating(result_type(&operands))))
    }

    fn decomposition(input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
        pair_in_floating([input, other], |a, b| {
            let nothing = logical_and(eq(a, 0.0), eq(b, b));
            select(nothing, 0.0, mul(a, log1p(b)))
        })
    }

    fn grad(input: Operand<Tensor>, other: Operand<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (xlog1py(input, other), move |d_out: Tensor| {
            let [d_input, d_other] = cotangents_of(d_out, [input, other], |d, a, b| {
                let nothing = logical_and(eq(a, 0.0), le(b, -1.0));
                [select(nothing, 0.0, mul(d, log1p(b))), div(mul(d, a), add(b, 1.0))]
            });
            Grads { input: d_input, other: d_other }
        })
    }

    fn reference(input: ArrayD<f64>, other: ArrayD<f64>) -> ArrayD<f64> {
        zip(&input, &other, |a, b| if a == 0.0 && !b.is_nan() { 0.0 } else { a * b.ln_1p() })
    }

    fn samples(s: &mut Samples) {
        s.composed_binary(Domain::ALL, Domain::POSITIVE);
        s.case(with(2.5, s.uniform(0.5, 3.0, [3])));
        if s.dtype().is_floating() {
            let (factors, numbers) = (s.values([4], [0.0, 0.0, 0.0, 1.0]), s.values([4], [-1.0, -2.0, 1.0, -0.5]));
            let ln2 = 2f64.ln();
            s.case(with(factors, numbers))
                .forward_only("no logarithm")
                .gradients([&[0.0, 0.0, 3.0 * ln2, -4.0 * ln2], &[f64::NAN, -0.0, 0.0, 8.0]]);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensor, with(1, 2.0), "expected at least one tensor");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
    }
}

/// The zeta function of Hurwitz, `Σ (other + k)^(-input)` of all k from 0: infinite where `input` is 1, or `other` an
/// integer that is not positive, and NaN where `input` is below 1, or `other` negative and `input` no integer.
#[operator(torch = "special.zeta", no_grad = "PyTorch has none by the exponent")]
pub mod zeta {
    fn zeta(input: Operand, other: Operand) -> Tensor;

    fn meta(input: Operand<&TensorMeta>, other: Operand<&TensorMeta>) -> Result<TensorMeta> {
        let operands = [input, other];
        operands_meet(&operands, "other", [Code::NoTensor.name(), Code::Broadcast.name()])?;
        Ok(elementwise_meta(&operands, floating(result_type(&operands))))
    }

    fn decomposition(input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
        pair_in_floating([input, other], |s, q| {
            // The sign of an integer power of a negative number.
            let odd = prims::remainder(s, 2.0);
            let sign = select(eq(s, floor(s)), sub(1.0, mul(odd, 2.0)), f64::NAN);
            super::hurwitz(s.into(), sign.into(), q)
        })
    }

    fn reference(input: ArrayD<f64>, other: ArrayD<f64>) -> ArrayD<f64> {
        zip(&input, &other, super::zeta_reference)
    }

    fn samples(s: &mut Samples) {
        s.composed_binary(Domain::range(1.2, 9.0), Domain::range(0.1, 12.0));
        let (exponents, starts) = ([2.0, 3.0, 2.5, 2.0, 1.0, 0.5], [-1.25, -2.5, -0.5, -3.0, 2.0, 2.0]);
        s.case(with(s.values([6], exponents), s.values([6], starts)));
        let exponents = [1.0, 501.0, 501.0, 500.0, 1.0, 5.0, 500.5, 6e4, 129.0];
        let starts = [-0.25, -3.25, -2.75, -2.75, -1.0, -0.001, -2.75, -2.75, -2.5];
        s.case(with(s.values([9], exponents), s.values([9], starts)));
        s.case(with(3, s.uniform(0.5, 3.0, [3])));
        s.case(with(s.uniform(1.5, 3.0, [3]), 2.0));
        s.case(with(s.values([2], [2.5, 2.0]), s.values([2], [-3.0, 0.0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensor, with(1, 2.0), "expected at least one tensor");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
    }
}

/// The zeta function for any start. Below zero the sum has finitely many powers of negative numbers, with the `sign` of
/// such powers: with f the fraction of q, `ζ(s, f) + sign · (ζ(s, 1 - f) - ζ(s, 1 - q))`.
#[track_caller]
fn hurwitz(s: Operand<Tensor>, sign: Operand<Tensor>, q: Tensor) -> Tensor {
    let below = lt(q, 0.0);
    // Of an integer, also of one that is infinite, it is zero.
    let fraction = select(eq(q, floor(q)), 0.0, sub(q, floor(q)));
    // 1 - f, exactly: just below an integer f has lost the digits of it.
    let rest = select(eq(fraction, 0.0), 1.0, sub(neg(floor(neg(q))), q));
    let above = prims::zeta(s, select(below, fraction, q));
    let beyond = prims::zeta(s, sub(1.0, select(below, q, 0.0)));
    let powers = sub(prims::zeta(s, rest), beyond);
    let has_powers = logical_and(below, prims::gt(fraction, 0.0));
    // Where both are beyond the type, the power of the number next to zero has the sign of the sum.
    let both_infinite = logical_and(eq(above, f64::INFINITY), eq(powers, f64::INFINITY));
    let powers_of_sign = mul(powers, sign);
    let of_nearest = select(prims::le(fraction, 0.5), prims::abs(powers_of_sign), powers_of_sign);
    let all = select(both_infinite, of_nearest, add(above, powers_of_sign));
    // Halfway between integers the powers of both signs are the same, and odd ones cancel.
    let is_odd = lt(mul(constant_like(q, 1.0), sign), 0.0);
    let all = select(logical_and(eq(fraction, 0.5), is_odd), beyond, all);
    let all = select(has_powers, all, above);
    match s {
        Operand::Tensor(s) => select(eq(s, 1.0), f64::INFINITY, all),
        Operand::Scalar(_) => all,
    }
}

/// For references: the zeta function for any start: the powers of negative numbers, one by one, and the rest.
fn zeta_reference(s: f64, q: f64) -> f64 {
    if q < 0.0 && q != q.floor() && s > 1.0 {
        if s != s.floor() {
            return f64::NAN;
        }
        let count = q.floor().abs();
        // Odd powers of halves cancel in pairs.
        if q - q.floor() == 0.5 && s % 2.0 == 1.0 {
            return hurwitz_reference(s, 1.0 - q);
        }
        let negative: f64 = (0..count as i32).map(|k| (q + f64::from(k)).powf(-s)).sum();
        return negative + hurwitz_reference(s, q + count);
    }
    hurwitz_reference(s, if q < 0.0 { 0.0 } else { q })
}

/// The derivative of order `n` of [`mod@digamma`], elementwise: `(-1)^(n+1) n! ζ(n + 1, x)` from order 1 on; infinite
/// at 0, -1, -2, ... (PyTorch's of order 1 is finite at negative integers, by a rounded sine.)
#[operator(
    torch = "polygamma",
    skip(
        decomposition,
        reason = "its lines have no gradient from order 2 on: PyTorch has none of zeta by the exponent"
    )
)]
pub mod polygamma {
    fn polygamma(n: i64, input: Tensor) -> Tensor;

    fn meta(n: i64, input: &TensorMeta) -> Result<TensorMeta> {
        require!(n >= 0, Order, "n is {n}, expected an order that is not negative");
        Ok(input.with_dtype(floating(input.dtype())))
    }

    fn decomposition(n: i64, input: Tensor) -> Tensor {
        in_floating(input, |x| match n {
            0 => prims::digamma(x),
            1 => trigamma(x),
            n => {
                let sign = if n % 2 == 0 { -1.0 } else { 1.0 };
                mul(super::hurwitz((n as f64 + 1.0).into(), sign.into(), x), sign * super::factorial(n))
            }
        })
    }

    fn grad(n: i64, input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let slope = move |d: Tensor, x: Tensor| mul(d, polygamma(n.saturating_add(1), x));
        (polygamma(n, input), move |d_out: Tensor| Grads { input: cotangent_of(d_out, input, slope) })
    }

    fn reference(n: i64, input: &ArrayD<f64>) -> ArrayD<f64> {
        let sign = if n % 2 == 0 { -1.0 } else { 1.0 };
        let of = |x: f64| match n {
            0 => gamma_reference::lanczos_digamma(x),
            n => sign * super::factorial(n) * super::zeta_reference(n as f64 + 1.0, x),
        };
        input.mapv(of)
    }

    fn samples(s: &mut Samples) {
        for n in [0, 1, 2, 5] {
            s.case(with(n, s.uniform(0.8, 4.0, [2, 5])));
            s.case(with(n, s.values([4], [-0.25, -1.75, -2.5, 20.0]))).forward_only("between poles");
        }
        s.case(with(3, s.uniform(0.5, 3.0, [])));
        s.case(with(1, s.uniform(0.5, 3.0, [0, 3])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Order, with(-1, e.normal([2])), "n is -1");
    }
}

/// `n!`, infinite from 171 on.
fn factorial(n: i64) -> f64 {
    (1..=n.min(171)).map(|k| k as f64).product()
}

/// The logarithm of the gamma function of `p` dimensions, elementwise: `p (p - 1) / 4 log π + Σ lgamma(x - j / 2)` of j
/// from 0 to `p - 1`. An element up to `(p - 1) / 2` is outside of the domain, and the sum of the same terms.
#[operator(torch = "mvlgamma")]
pub mod mvlgamma {
    fn mvlgamma(input: Tensor, p: i64) -> Tensor;

    fn meta(input: &TensorMeta, p: i64) -> Result<TensorMeta> {
        require!((1..=1 << 12).contains(&p), Order, "p is {p}, expected a number of dimensions from 1 to {}", 1 << 12);
        Ok(input.with_dtype(floating(input.dtype())))
    }

    fn decomposition(input: Tensor, p: i64) -> Tensor {
        let constant = (p * (p - 1)) as f64 / 4.0 * PI.ln();
        in_floating(input, |x| {
            let (shape, count) = (x.shape().to_vec(), p as usize);
            let spread: Vec<usize> = shape.iter().copied().chain([count]).collect();
            let dims: Vec<usize> = (0..shape.len()).collect();
            let shifts = prims::iota(count, 0.0, -0.5, x.dtype(), x.device());
            let shifts = prims::broadcast_in_dim(shifts, spread.clone(), [shape.len()]);
            let terms = lgamma(add(prims::broadcast_in_dim(x, spread, dims), shifts));
            add(prims::sum(terms, [shape.len()]), constant)
        })
    }

    fn reference(input: &ArrayD<f64>, p: i64) -> ArrayD<f64> {
        let constant = (p * (p - 1)) as f64 / 4.0 * PI.ln();
        let term = |x: f64, j: i64| gamma_reference::lanczos_log_gamma(x - j as f64 / 2.0);
        input.mapv(|x| constant + (0..p).map(|j| term(x, j)).sum::<f64>())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.uniform(0.5, 6.0, [2, 3]), 1));
        s.case(with(s.uniform(2.6, 6.0, [2, 3]), 4));
        s.case(with(s.uniform(2.0, 6.0, []), 3));
        s.case(with(s.uniform(2.0, 6.0, [0, 3]), 2));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Order, with(e.normal([2]), 0), "p is 0");
        e.case(Order, with(e.normal([2]), 4097), "p is 4097");
    }
}
