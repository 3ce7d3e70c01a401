//! Special functions of one tensor whose values are approximated by polynomials and series, written once as `scalar`
//! rules: the host and the devices compute the same formula, in f32 for f16 and bf16. In f32 and f64 their error is a
//! few units in the last place, at most ten; where a function crosses zero between the poles on the negative axis, it
//! is that of the terms that cancel. A polynomial has its coefficients in ascending order.

use std::f64::consts::{FRAC_1_PI, FRAC_1_SQRT_2, PI};

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::Tensor;
use fulgurite_runtime::rules::Expr;

use super::support::zip;
use crate::prims::*;

// Declares functions of a floating-point tensor: their arithmetic, their f64 reference, the cotangent of the input from
// the input, the output and the output's cotangent, the domain of their samples and further values.
operators! {
    #[operator(prim, torch = $torch, autocast = $autocast)]
    pub mod $name {
        fn $name(input: Tensor<Floating>) -> Tensor;

        fn scalar(input: Expr) -> Expr {
            $scalar
        }

        fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            let out = $name(input);
            (out, move |d_out: Tensor| Grads { input: $d_input })
        }

        fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
            elementwise(input, $reference)
        }

        fn samples(s: &mut Samples) {
            s.elementwise_unary($domain);
            s.case(with(s.values([8], $values))).forward_only("other ranges of the approximation, and bounds");
            // Behind the bounds of the ranges, and in the last part of the tail of a distribution.
            let behind = [9.5, 0.1, 10.5, 1e-13, 1.0 - 1e-13, -9.5, 24.0, -0.3];
            s.case(with(s.values([8], behind))).forward_only("other ranges of the approximation");
            let special = [0.0, -0.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
            s.case(with(s.values([6], special))).forward_only("special values");
        }
    }

    table($name, $torch, $autocast, $domain, $values, $scalar, $reference, $d_input) {
        /// Natural logarithm of the magnitude of the gamma function, elementwise; infinite at 0, -1, -2, ...
        lgamma, "lgamma", _, Domain::POSITIVE, [0.5, 1.5, 2.0, 8.0, 700.0, -0.5, -2.75, -40.5],
            log_gamma(input),
            gamma_reference::lanczos_log_gamma,
            mul(d_out, digamma(input));
        /// The derivative of [`mod@lgamma`], elementwise: `Γ'(x) / Γ(x)`; infinite at 0, with the other sign, and NaN
        /// at -1, -2, ...
        digamma, "digamma", _, Domain::POSITIVE, [0.5, 1.5, 2.0, 8.0, 700.0, -0.5, -2.75, -40.5],
            log_gamma_slope(input),
            gamma_reference::lanczos_digamma,
            mul(d_out, trigamma(input));
        /// The number whose error function each element is; infinite at -1 and 1, NaN beyond.
        erfinv, "erfinv", full, Domain::UNIT, [0.84, 0.86, -0.95, 0.999, 1.0, -1.0, 1.5, -2.0],
            quantile(input * 0.5, (1.0 - input.abs()) * 0.5) * FRAC_1_SQRT_2,
            error_reference::newton_erfinv,
            mul(mul(d_out, 1.0 / std::f64::consts::FRAC_2_SQRT_PI), exp(mul(out, out)));
        /// The quantile of the normal distribution, elementwise: the number below which a draw is with the probability
        /// `input`; infinite at 0 and 1, NaN beyond.
        ndtri, "special.ndtri", _, Domain::range(0.02, 0.98), [0.07, 0.08, 0.93, 1e-3, 0.0, 1.0, -0.5, 2.0],
            quantile(input - 0.5, input.minimum(1.0 - input)),
            error_reference::newton_ndtri,
            mul(mul(d_out, (2.0 * PI).sqrt()), exp(mul(mul(out, out), 0.5)));
        /// The complement of the error function times `e^(x²)`, elementwise, which is finite where both are not.
        erfcx, "special.erfcx", _, Domain::range(-2.0, 6.0), [0.0, -0.0, 30.0, 2e4, -1.5, -5.0, -100.0, 1e-3],
            scaled_erfc(input),
            error_reference::fraction_erfcx,
            mul(d_out, sub(mul(mul(input, out), 2.0), std::f64::consts::FRAC_2_SQRT_PI));
        /// The modified Bessel function of the first kind of order 0 times `e^(-|x|)`, elementwise.
        i0e, "special.i0e", _, Domain::ALL, [19.9, 20.1, -20.1, 500.0, 6e4, 1e-3, -12.0, -300.0],
            scaled_bessel(input, 0),
            |x| bessel_reference(x, 0),
            mul(d_out, sub(i1e(input), mul(sign(input), out)));
        /// The modified Bessel function of the first kind of order 1 times `e^(-|x|)`, elementwise.
        i1e, "special.i1e", _, Domain::ALL, [19.9, 20.1, -20.1, 500.0, 6e4, 1e-3, -12.0, -300.0],
            scaled_bessel(input, 1),
            |x| bessel_reference(x, 1),
            {
                // At zero the quotient is a half.
                let quotient = select(eq(input, 0.0), 0.5, div(out, input));
                mul(d_out, sub(sub(i0e(input), mul(sign(input), out)), quotient))
            };
    }
}

/// A polynomial of `x`, by Horner's rule.
fn polynomial(coefficients: &[f64], x: Expr) -> Expr {
    let (last, others) = coefficients.split_last().unwrap_or((&0.0, &[]));
    others.iter().rev().fold(Expr::constant(*last), |sum, coefficient| sum * x + *coefficient)
}

/// The quotient of two polynomials of `x`.
fn rational([numerator, denominator]: [&[f64]; 2], x: Expr) -> Expr {
    polynomial(numerator, x) / polynomial(denominator, x)
}

/// The Bernoulli numbers of the indices 2, 4, 6, ...
const BERNOULLI: [f64; 12] = [
    1.0 / 6.0,
    -1.0 / 30.0,
    1.0 / 42.0,
    -1.0 / 30.0,
    5.0 / 66.0,
    -691.0 / 2730.0,
    7.0 / 6.0,
    -3617.0 / 510.0,
    43867.0 / 798.0,
    -174_611.0 / 330.0,
    854_513.0 / 138.0,
    -236_364_091.0 / 2730.0,
];

/// `lgamma(1 + u) / (u (u - 1))` from 0 to 1, within 6e-17: the rational function of these degrees that agrees with it
/// at Chebyshev's nodes.
const LOG_GAMMA: [&[f64]; 2] = [
    &[
        0.577_215_664_901_532_9,
        1.416_844_038_273_038_7,
        1.256_904_785_558_402,
        0.488_111_097_965_239_1,
        0.079_193_199_030_261_66,
        0.004_057_824_720_597_832,
        1.554_153_767_893_377_5e-5,
    ],
    &[
        1.0,
        2.879_505_023_619_109_3,
        3.131_711_728_082_927_4,
        1.600_338_546_605_783,
        0.388_466_837_381_734_8,
        0.039_679_549_489_978_19,
        0.001_177_634_761_499_210_6,
    ],
];

/// The logarithm of the magnitude of the gamma function. It is computed of `y = 1 + u` not below 1, from 8 on by
/// Stirling's series, else of `1 + r` with r from 0 to 1 and of the product of the numbers between it and y; what is
/// below 1 follows by the recurrence, what is negative by the reflection `Γ(x) Γ(1 - x) = π / sin πx`. Products with
/// `y - 1` and `y - 2` keep the digits near these zeros.
fn log_gamma(x: Expr) -> Expr {
    let below_one = x.lt(1.0);
    let u = below_one.select(x.abs(), x - 1.0);
    let y = u + 1.0;
    let (mut rest, mut product) = (u, Expr::constant(1.0));
    for step in 1..7 {
        let step = f64::from(step);
        let above = u.ge(step);
        product = above.select(product * (y - step), product);
        rest = above.select(u - step, rest);
    }
    let is_large = y.ge(8.0);
    let logarithm = is_large.select(y, product).log();
    let near = rest * (rest - 1.0) * rational(LOG_GAMMA, rest) + logarithm;
    let terms: Vec<f64> = (1..=8).map(|k| BERNOULLI[k - 1] / (2 * k * (2 * k - 1)) as f64).collect();
    let inverse = y.reciprocal();
    let series = inverse * polynomial(&terms, inverse * inverse);
    let far = (y - 0.5) * (logarithm - 1.0) + (series + ((2.0 * PI).ln() - 1.0) / 2.0);
    let above = is_large.select(far, near);
    let sine = ((x - x.round()) * PI).sin().abs() * FRAC_1_PI;
    let shift = x.lt(0.0).select(sine, x).log();
    let below = x.lt(0.0).select(-shift - above, above - shift);
    // An infinite number has no sine.
    x.eq(f64::NEG_INFINITY).select(f64::INFINITY, below_one.select(below, above))
}

/// The root of the digamma function above 0, as a sum of numbers that f32 has and of what is left.
const DIGAMMA_ROOT: [f64; 3] = [1.461_632_132_530_212_4, 1.243_815_006_546_356e-8, -1.265_446_506_253_743_2e-16];

/// `digamma(1 + v) / (1 + v - root)` from 0 to 2, within 3e-16: the rational function of these degrees that agrees with
/// it at Chebyshev's nodes.
const DIGAMMA: [&[f64]; 2] = [
    &[
        1.250_380_137_503_405,
        1.830_680_669_678_151_5,
        0.922_685_000_135_545_8,
        0.196_099_240_407_784_87,
        0.016_887_397_936_669_13,
        0.000_444_187_513_202_920_5,
        7.067_106_391_699_533e-7,
    ],
    &[
        1.0,
        2.147_646_103_561_495,
        1.604_148_637_140_718_5,
        0.532_365_773_167_711_3,
        0.080_809_829_200_303_69,
        0.005_036_402_527_057_303,
        8.985_042_099_256_068e-5,
    ],
];

/// The digamma function. It is computed of `y = 1 + v` not below 1, from 8 on by its asymptotic series, else of `1 + w`
/// with w from 0 to 2 and of the reciprocals of the numbers between it and y; what is below 1 follows by the
/// recurrence, what is negative by the reflection `ψ(1 - x) - ψ(x) = π / tan πx`.
fn log_gamma_slope(x: Expr) -> Expr {
    let below_one = x.lt(1.0);
    let v = below_one.select(x.abs(), x - 1.0);
    let y = v + 1.0;
    let (mut rest, mut reciprocals) = (v, Expr::constant(0.0));
    for step in 1..6 {
        let step = f64::from(step);
        let above = v.ge(step + 1.0);
        reciprocals = above.select(reciprocals + (y - step).reciprocal(), reciprocals);
        rest = above.select(v - step, rest);
    }
    let [high, middle, low] = DIGAMMA_ROOT;
    let near = (rest + 1.0 - high - middle - low) * rational(DIGAMMA, rest) + reciprocals;
    let terms: Vec<f64> = (1..=9).map(|k| BERNOULLI[k - 1] / (2 * k) as f64).collect();
    let inverse = y.reciprocal();
    let square = inverse * inverse;
    let far = y.log() - inverse * 0.5 - square * polynomial(&terms, square);
    let above = y.ge(8.0).select(far, near);
    let fraction = x - x.round();
    let angle = fraction * PI;
    let reflected = above - angle.cos() / angle.sin() * PI;
    let negative = fraction.eq(0.0).select(f64::NAN, reflected);
    below_one.select(x.lt(0.0).select(negative, above - x.reciprocal()), above)
}

/// The second derivative of [`mod@lgamma`], by the zeta function; below a half by the reflection.
#[track_caller]
pub(crate) fn trigamma(x: Tensor) -> Tensor {
    let is_small = lt(x, 0.5);
    let series = zeta(2.0, select(is_small, sub(1.0, x), x));
    let sine = sin(mul(sub(x, round(x)), PI));
    let reflected = sub(div(PI * PI, mul(sine, sine)), series);
    select(eq(x, f64::INFINITY), 0.0, select(is_small, reflected, series))
}

/// Three rational functions for the quantile of the normal distribution: Wichura, "Algorithm AS 241: The Percentage
/// Points of the Normal Distribution", Applied Statistics 37, 1988 (PPND16). They are of `0.180625 - q²` near the
/// median, and of `√(-log p) - 1.6` and `√(-log p) - 5` in the tails.
const QUANTILE: [[&[f64]; 2]; 3] = [
    [
        &[
            3.387_132_872_796_366_5,
            133.141_667_891_784_38,
            1_971.590_950_306_551_3,
            13_731.693_765_509_46,
            45_921.953_931_549_87,
            67_265.770_927_008_7,
            33_430.575_583_588_13,
            2_509.080_928_730_122_7,
        ],
        &[
            1.0,
            42.313_330_701_600_91,
            687.187_007_492_057_9,
            5_394.196_021_424_751,
            21_213.794_301_586_597,
            39_307.895_800_092_71,
            28_729.085_735_721_943,
            5_226.495_278_852_854,
        ],
    ],
    [
        &[
            1.423_437_110_749_683_5,
            4.630_337_846_156_546,
            5.769_497_221_460_691,
            3.647_848_324_763_204_5,
            1.270_458_252_452_368_4,
            0.241_780_725_177_450_6,
            0.022_723_844_989_269_184,
            0.000_774_545_014_278_341_4,
        ],
        &[
            1.0,
            2.053_191_626_637_759,
            1.676_384_830_183_803_8,
            0.689_767_334_985_1,
            0.148_103_976_427_480_08,
            0.015_198_666_563_616_457,
            0.000_547_593_808_499_534_5,
            1.050_750_071_644_416_9e-9,
        ],
    ],
    [
        &[
            6.657_904_643_501_103,
            5.463_784_911_164_114,
            1.784_826_539_917_291_3,
            0.296_560_571_828_504_87,
            0.026_532_189_526_576_124,
            0.001_242_660_947_388_078_4,
            2.711_555_568_743_487_6e-5,
            2.010_334_399_292_288_1e-7,
        ],
        &[
            1.0,
            0.599_832_206_555_888,
            0.136_929_880_922_735_8,
            0.014_875_361_290_850_615,
            0.000_786_869_131_145_613_3,
            1.846_318_317_510_054_8e-5,
            1.421_511_758_316_446e-7,
            2.044_263_103_389_939_7e-15,
        ],
    ],
];

/// The quantile of the normal distribution for a probability, given its distance `q` from a half and the probability
/// `p` of the nearer tail: both keep the digits that the probability itself does not have.
fn quantile(q: Expr, p: Expr) -> Expr {
    let central = q * rational(QUANTILE[0], 0.180625 - q * q);
    let depth = (-p.log()).sqrt();
    let far = rational(QUANTILE[2], depth - 5.0);
    let tail = depth.le(5.0).select(rational(QUANTILE[1], depth - 1.6), far);
    let tail = p.eq(0.0).select(f64::INFINITY, tail);
    q.abs().le(0.425).select(central, q.lt(0.0).select(-tail, tail))
}

/// `erfcx(x) / t` of `t = 2 / (2 + x)` from 0 to 1, within 3e-16: the rational function of these degrees that agrees
/// with it at Chebyshev's nodes.
const SCALED_ERFC: [&[f64]; 2] = [
    &[
        0.282_094_791_773_878_1,
        0.077_570_366_496_420_05,
        1.341_861_416_631_822_3,
        0.693_186_608_371_575_5,
        2.352_345_948_059_186,
        1.576_674_266_714_854,
        2.076_957_894_767_321,
        1.376_791_308_683_352,
        0.946_765_604_414_260_2,
        0.434_919_557_057_053_76,
        0.124_439_934_909_665_32,
    ],
    &[
        1.0,
        -0.725_020_210_374_691_2,
        4.606_795_080_978_178,
        -2.140_119_851_339_875_4,
        6.604_286_091_784_131_5,
        -1.790_898_645_702_513,
        3.534_555_296_393_236_7,
        -0.463_721_338_126_578_84,
        0.655_477_199_730_284_7,
        -0.026_424_573_071_674_38,
        0.028_678_647_608_890_318,
    ],
];

/// `e^(x²) erfc x`; of negative numbers by `erfc -x = 2 - erfc x`.
fn scaled_erfc(x: Expr) -> Expr {
    let t = 2.0 / (x.abs() + 2.0);
    let positive = t * rational(SCALED_ERFC, t);
    x.lt(0.0).select((x * x).exp() * 2.0 - positive, positive)
}

/// `e^(-|x|) I(x)` of the order 0 or 1: up to 20 by the power series `Σ (x²/4)ᵏ / (k! (k + order)!)`, whose terms are
/// positive, beyond by Hankel's asymptotic series, whose least term there is below the precision of f64.
fn scaled_bessel(x: Expr, order: i32) -> Expr {
    let magnitude = x.abs();
    // Of x/16: a power of two loses no digit, and no coefficient is too small for f32.
    let mut powers = vec![1.0];
    for k in 1..42 {
        powers.push(powers[k - 1] * 64.0 / (k * (k + order as usize)) as f64);
    }
    let part = magnitude * 0.0625;
    let near = polynomial(&powers, part * part) * (-magnitude).exp();
    let mut terms = vec![1.0 / (2.0 * PI).sqrt()];
    for k in 1..26 {
        let odd = f64::from(2 * k - 1);
        terms.push(terms[k as usize - 1] * (odd * odd - f64::from(4 * order * order)) / (8.0 * 20.0 * f64::from(k)));
    }
    let far = polynomial(&terms, 20.0 / magnitude) / magnitude.sqrt();
    let is_near = magnitude.le(20.0);
    match order {
        0 => is_near.select(near, far),
        _ => is_near.select(near * (x * 0.5), x.lt(0.0).select(-far, far)),
    }
}

/// The zeta function of Hurwitz, elementwise: `Σ (other + k)^(-input)` of all k from 0, for `other` that is not
/// negative; infinite where `input` is 1 and NaN below.
#[operator(prim, torch = "special.zeta", no_grad = "PyTorch has none by the exponent")]
pub mod zeta {
    fn zeta(input: Operand<Floating>, other: Operand<Floating>) -> Tensor;

    fn scalar(input: Expr, other: Expr) -> Expr {
        super::hurwitz_zeta(input, other)
    }

    fn reference(input: &Operand<ReferenceTensor>, other: &Operand<ReferenceTensor>) -> ReferenceTensor {
        let [input, other] = filled([input, other]);
        super::zip(&input, &other, super::hurwitz_reference, |a, _b| a)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_binary(Domain::range(1.2, 9.0), Domain::range(0.1, 12.0));
        let exponents = [1.0, 0.5, 2.0, 3.0, 60.0, f64::NAN, 2.0, 30.0];
        let starts = [2.0, 2.0, 0.0, 100.0, 1.5, 1.0, f64::NAN, 2.0];
        s.case(with(s.values([8], exponents), s.values([8], starts)));
        s.case(with(s.values([1], [1.0]), s.values([1], [f64::INFINITY])));
    }
}

/// The zeta function by Euler's and Maclaurin's formula after ten terms: with w the last of the numbers,
/// `Σ (q + k)^(-s) + w^(1-s)/(s-1) - w^(-s)/2 + Σ B₂ₖ/(2k)! s (s+1) ... (s+2k-2) w^(-s-2k+1)`.
fn hurwitz_zeta(s: Expr, q: Expr) -> Expr {
    let (mut w, mut term) = (q, q.pow(-s));
    let mut sum = term;
    for _ in 0..9 {
        w = w + 1.0;
        term = w.pow(-s);
        sum = sum + term;
    }
    let square = w * w;
    let mut rest = term * w / (s - 1.0) - term * 0.5;
    let (mut product, mut factorial) = (term / w * s, 1.0);
    for (k, bernoulli) in BERNOULLI.iter().enumerate() {
        let k = 2.0 * k as f64;
        factorial *= (k + 1.0) * (k + 2.0);
        rest = rest + product * (bernoulli / factorial);
        product = product * ((s + (k + 1.0)) * (s + (k + 2.0)) / square);
    }
    // Beyond large exponents the rest is nothing, and its products may be beyond the type.
    let total = term.lt(sum * 1e-17).select(sum, s.gt(1e6).select(sum, sum + rest));
    s.gt(1.0).select(total, s.eq(1.0).select(f64::INFINITY, f64::NAN))
}

/// For references: the zeta function by 120 terms and three of the corrections.
pub(crate) fn hurwitz_reference(s: f64, q: f64) -> f64 {
    if s == 1.0 {
        return f64::INFINITY;
    }
    if s < 1.0 || s.is_nan() || q.is_nan() {
        return f64::NAN;
    }
    let sum: f64 = (0..120).rev().map(|k| (q + f64::from(k)).powf(-s)).sum();
    let w = q + 120.0;
    let last = w.powf(-s);
    if last == 0.0 {
        return sum;
    }
    let curvature = s * (s + 1.0) * (s + 2.0) / (720.0 * w * w);
    sum + last * (w / (s - 1.0) + 0.5 + (s / 12.0 - curvature) / w)
}

/// For references: the modified Bessel functions as integrals over an angle, by the trapezoidal rule, which converges
/// exponentially: `1/π ∫ e^(|x| (cos θ - 1)) dθ`, and for the order 1 `x/π ∫ e^(|x| (cos θ - 1)) sin² θ dθ`.
pub(crate) fn bessel_reference(x: f64, order: i32) -> f64 {
    if x.is_infinite() {
        return if order == 0 { 0.0 } else { 0.0 * x.signum() };
    }
    if x.is_nan() {
        return x;
    }
    // Beyond it the first terms of the asymptotic series have all digits.
    if x.abs() > 1e6 {
        let [first, second] = if order == 0 { [0.125, 9.0 / 128.0] } else { [-0.375, -15.0 / 128.0] };
        let size = (1.0 + (first + second / x.abs()) / x.abs()) / (2.0 * PI * x.abs()).sqrt();
        return if order == 0 { size } else { size.copysign(x) };
    }
    let steps = 40 + (10.0 * x.abs().sqrt()) as i32;
    let mut sum = 0.0;
    for step in 0..=steps {
        let angle = PI * f64::from(step) / f64::from(steps);
        // cos θ - 1, without cancellation.
        let exponent = -2.0 * x.abs() * (angle / 2.0).sin().powi(2);
        let weight = if step == 0 || step == steps { 0.5 } else { 1.0 };
        let factor = if order == 0 { 1.0 } else { angle.sin().powi(2) };
        sum += weight * factor * exponent.exp();
    }
    let mean = sum / f64::from(steps);
    if order == 0 { mean } else { x * mean }
}

/// For references: the gamma function's logarithm and its slope by Lanczos's sum, of other coefficients than a
/// polynomial's: Godfrey, "A note on the computation of the convergent Lanczos complex Gamma approximation", 2001.
pub(crate) mod gamma_reference {
    use std::f64::consts::PI;

    const G: f64 = 607.0 / 128.0;
    const LANCZOS: [f64; 15] = [
        0.999_999_999_999_997_1,
        57.156_235_665_862_92,
        -59.597_960_355_475_49,
        14.136_097_974_741_746,
        -0.491_913_816_097_620_2,
        3.399_464_998_481_189e-5,
        4.652_362_892_704_858e-5,
        -9.837_447_530_487_956e-5,
        0.000_158_088_703_224_912_5,
        -0.000_210_264_441_724_104_9,
        0.000_217_439_618_115_212_65,
        -0.000_164_318_106_536_763_9,
        8.441_822_398_385_275e-5,
        -2.619_083_840_158_140_8e-5,
        3.689_918_265_953_162_5e-6,
    ];

    /// For references: the sum and its derivative, for `Γ(1 + z)`.
    fn lanczos(z: f64) -> (f64, f64) {
        let (mut sum, mut slope) = (LANCZOS[0], 0.0);
        for (k, coefficient) in LANCZOS.iter().enumerate().skip(1) {
            let part = z + k as f64;
            sum += coefficient / part;
            slope -= coefficient / (part * part);
        }
        (sum, slope)
    }

    /// For references: `log |Γ(x)|`.
    pub(crate) fn lanczos_log_gamma(x: f64) -> f64 {
        if x.is_infinite() || (x <= 0.0 && x == x.floor()) {
            return f64::INFINITY;
        }
        // The zeros, which a sum of rounded terms misses.
        if x == 1.0 || x == 2.0 {
            return 0.0;
        }
        if x < 0.5 {
            return (PI / (PI * (x - x.round())).sin().abs()).ln() - lanczos_log_gamma(1.0 - x);
        }
        let z = x - 1.0;
        let t = z + G + 0.5;
        (2.0 * PI).sqrt().ln() + (z + 0.5) * t.ln() - t + lanczos(z).0.ln()
    }

    /// For references: `Γ'(x) / Γ(x)`.
    pub(crate) fn lanczos_digamma(x: f64) -> f64 {
        if x == 0.0 {
            return f64::INFINITY.copysign(-x);
        }
        if x == f64::INFINITY {
            return x;
        }
        if x < 0.0 && x == x.floor() {
            return f64::NAN;
        }
        if x < 0.5 {
            return lanczos_digamma(1.0 - x) - PI / (PI * (x - x.round())).tan();
        }
        let z = x - 1.0;
        let t = z + G + 0.5;
        let (sum, slope) = lanczos(z);
        t.ln() + (z + 0.5) / t - 1.0 + slope / sum
    }
}

/// For references: inverses of the error function and its scaled complement, from [`erf`](crate::core::arrays::erf) and
/// a continued fraction.
pub(crate) mod error_reference {
    use std::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

    use crate::core::arrays::{erf, erfc};

    /// For references: the number, not negative, whose error function is `y` and its complement `p`: by bisection, then
    /// by Newton's method.
    fn inverse(y: f64, p: f64) -> f64 {
        let beyond = |t: f64| if y < 0.5 { erf(t) - y } else { p - erfc(t) };
        let (mut low, mut high) = (0.0, 30.0);
        for _ in 0..30 {
            let middle = (low + high) / 2.0;
            if beyond(middle) < 0.0 { low = middle } else { high = middle }
        }
        (0..4).fold((low + high) / 2.0, |t, _| t - beyond(t) / (FRAC_2_SQRT_PI * (-t * t).exp()))
    }

    /// For references: the number whose error function is `x`.
    pub(crate) fn newton_erfinv(x: f64) -> f64 {
        match x.abs() {
            y if y > 1.0 || y.is_nan() => f64::NAN,
            1.0 => f64::INFINITY.copysign(x),
            0.0 => x,
            y => inverse(y, 1.0 - y).copysign(x),
        }
    }

    /// For references: the quantile of the normal distribution.
    pub(crate) fn newton_ndtri(p: f64) -> f64 {
        match p {
            p if !(0.0..=1.0).contains(&p) => f64::NAN,
            0.0 => f64::NEG_INFINITY,
            1.0 => f64::INFINITY,
            p if p < 0.5 => -SQRT_2 * inverse(1.0 - 2.0 * p, 2.0 * p),
            p => SQRT_2 * inverse(2.0 * p - 1.0, 2.0 * (1.0 - p)),
        }
    }

    /// For references: `e^(x²) erfc x`.
    pub(crate) fn fraction_erfcx(x: f64) -> f64 {
        if x < 1.0 || x.is_nan() {
            return (x * x).exp() * (1.0 - erf(x));
        }
        let fraction = (1..200).rev().fold(x, |rest, n| x + f64::from(n) / 2.0 / rest);
        1.0 / (fraction * PI.sqrt())
    }
}
