//! Quantiles of distributions, by which uniform random numbers become others. Their argument is a probability minus ½:
//! so both tails keep their digits. They are computed by sums, products, quotients, roots and comparisons alone, which
//! every device rounds alike: what is drawn has the same bits everywhere. Functions such as `prims::log` differ between
//! devices in the last place.

use fulgurite_ops_macros::operators;
use fulgurite_runtime::kernels::scalar::Expr;

/// Coefficients of the quotients of polynomials that approximate normal quantiles, highest power first, numerator and
/// denominator: around the median, in the tails, and far out. Wichura, "The Percentage Points of the Normal
/// Distribution", algorithm AS 241 (PPND16), 1988.
const AROUND: [[f64; 8]; 2] = [
    [
        2.509_080_928_730_122_7e3,
        3.343_057_558_358_813e4,
        6.726_577_092_700_87e4,
        4.592_195_393_154_987e4,
        1.373_169_376_550_946e4,
        1.971_590_950_306_551_3e3,
        1.331_416_678_917_843_8e2,
        3.387_132_872_796_366_5,
    ],
    [
        5.226_495_278_852_545e3,
        2.872_908_573_572_194_3e4,
        3.930_789_580_009_271e4,
        2.121_379_430_158_659_7e4,
        5.394_196_021_424_751e3,
        6.871_870_074_920_579e2,
        4.231_333_070_160_091e1,
        1.0,
    ],
];
const TAIL: [[f64; 8]; 2] = [
    [
        7.745_450_142_783_414e-4,
        2.272_384_498_926_918_4e-2,
        2.417_807_251_774_506e-1,
        1.270_458_252_452_368_4,
        3.647_848_324_763_204_5,
        5.769_497_221_460_691,
        4.630_337_846_156_546,
        1.423_437_110_749_683_5,
    ],
    [
        1.050_750_071_644_416_9e-9,
        5.475_938_084_995_345e-4,
        1.519_866_656_361_645_7e-2,
        1.481_039_764_274_800_8e-1,
        6.897_673_349_851e-1,
        1.676_384_830_183_803_8,
        2.053_191_626_637_759,
        1.0,
    ],
];
const FAR: [[f64; 8]; 2] = [
    [
        2.010_334_399_292_288_1e-7,
        2.711_555_568_743_487_6e-5,
        1.242_660_947_388_078_4e-3,
        2.653_218_952_657_612_4e-2,
        2.965_605_718_285_048_7e-1,
        1.784_826_539_917_291_3,
        5.463_784_911_164_114,
        6.657_904_643_501_103,
    ],
    [
        2.044_263_103_389_939_7e-15,
        1.421_511_758_316_446e-7,
        1.846_318_317_510_054_8e-5,
        7.868_691_311_456_133e-4,
        1.487_536_129_085_061_5e-2,
        1.369_298_809_227_358e-1,
        5.998_322_065_558_88e-1,
        1.0,
    ],
];

/// The value of a polynomial, its highest coefficient first.
fn polynomial(coefficients: &[f64], x: Expr) -> Expr {
    let (first, rest) = (coefficients[0], &coefficients[1..]);
    rest.iter().fold(Expr::constant(first), |sum, coefficient| sum * x + *coefficient)
}

fn quotient([above, below]: &[[f64; 8]; 2], x: Expr) -> Expr {
    polynomial(above, x) / polynomial(below, x)
}

/// `-log(½ - q)` of numbers from -½ up to, not including, ½: `½ - q` is a power of 2 times a number near 1, the
/// logarithm of which is a series of the inverse hyperbolic tangent. Subtractions here are exact where `q` is a
/// multiple of half a place of ½, which drawn numbers are.
fn minus_log(q: Expr) -> Expr {
    use std::f64::consts::{FRAC_1_SQRT_2, LN_2};
    let (mut rest, mut halvings) = (0.5 - q, Expr::constant(0.0));
    for shift in [32, 16, 8, 4, 2, 1] {
        let factor = f64::from(shift).exp2();
        let small = rest.lt(1.0 / factor);
        rest = small.select(rest * factor, rest);
        halvings = small.select(halvings + f64::from(shift), halvings);
    }
    let small = rest.lt(FRAC_1_SQRT_2);
    let above = small.select(rest * 2.0, rest) - 1.0;
    let halvings = small.select(halvings + 1.0, halvings);
    // ½ - q itself would be rounded where it is above ½.
    let (near, half) = (q.lt(0.5 - FRAC_1_SQRT_2), q.le(0.0));
    let above = near.select(-(q + 0.5), half.select(q * -2.0, above));
    let halvings = near.select(0.0, half.select(1.0, halvings));
    let s = above / (above + 2.0);
    let odd: Vec<f64> = (0..12).rev().map(|n| 1.0 / f64::from(2 * n + 1)).collect();
    halvings * LN_2 - s * 2.0 * polynomial(&odd, s * s)
}

/// The normal quantile of `q + ½`.
fn normal_scalar(q: Expr) -> Expr {
    let magnitude = q.abs();
    let around = q * quotient(&AROUND, 0.180625 - q * q);
    let root = minus_log(magnitude).sqrt();
    let tail = root.le(5.0).select(quotient(&TAIL, root - 1.6), quotient(&FAR, root - 5.0));
    magnitude.le(0.425).select(around, q.lt(0.0).select(-tail, tail))
}

/// `value` between -½ and ½, where the quantile is; `at_end` at ½, and NaN beyond.
fn inside(q: Expr, value: Expr, at_start: f64) -> Expr {
    let ends = q.eq(0.5).select(f64::INFINITY, q.eq(-0.5).select(at_start, f64::NAN));
    q.abs().lt(0.5).select(value, ends)
}

operators! {
    #[operator(prim, no_grad = "random numbers do not depend on anything differentiable")]
    pub mod $name {
        fn $name(input: Tensor<Floating>) -> Tensor;

        fn scalar(input: Expr) -> Expr {
            inside(input, $scalar(input), $at_start)
        }

        fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
            elementwise(input, |q| match q {
                _ if q.abs() < 0.5 => super::$reference(q),
                0.5 => f64::INFINITY,
                -0.5 => $at_start,
                _ => f64::NAN,
            })
        }

        fn samples(s: &mut Samples) {
            for shape in [&[][..], &[0, 3], &[4, 8], &[67, 65]] {
                s.case(with(s.uniform(-0.5, 0.5, shape)));
            }
            s.case(with(s.values([7], [0.0, -0.0, 0.5, -0.5, 0.75, f64::NAN, f64::INFINITY])));
            // The ends of each formula, and as far out as random numbers are.
            let least = if s.dtype() == DType::F64 { -54f64 } else { -25f64 }.exp2();
            let far = [0.5 - least, -0.5 + least, 0.425, 0.4375, -0.4375, -0.21875, -0.203125, least, 0.5 - 1e-3];
            s.case(with(s.values([9], far)));
            // Between two powers of two at every distance from the end.
            let between: Vec<f64> = (2..48).map(|k| 0.5 - 1.5 * f64::from(-k).exp2()).collect();
            s.case(with(s.values([46], between)));
        }
    }

    table($name, $scalar, $at_start, $reference) {
        /// The number below which a standard normal variable is with probability `input + ½`, elementwise: infinite at
        /// -½ and ½, NaN beyond. By AS 241 (Wichura, 1988), with a relative error of 2e-15 in f64 and 5e-7 in f32.
        normal_quantile, normal_scalar, f64::NEG_INFINITY, normal_by_halving;
        /// The number below which an exponential variable of rate 1 is with probability `input + ½`, elementwise:
        /// `-log(½ - input)`. It is 0 at -½, infinite at ½, NaN beyond.
        exponential_quantile, minus_log, 0.0, exponential_by_logarithm;
    }
}

/// For references: the normal quantile of `q + ½`, by halving an interval in which the error function grows, and its
/// complement falls where the function is near 1.
pub(crate) fn normal_by_halving(q: f64) -> f64 {
    use crate::core::arrays::{erf, erfc};
    let magnitude = q.abs();
    let (mut low, mut high) = (0.0, 10.0);
    for _ in 0..120 {
        let middle = 0.5 * (low + high);
        let at = middle * std::f64::consts::FRAC_1_SQRT_2;
        let below = if magnitude < 0.25 { erf(at) < 2.0 * magnitude } else { erfc(at) > 2.0 * (0.5 - magnitude) };
        if below { low = middle } else { high = middle }
    }
    if magnitude == 0.0 { q } else { low.copysign(q) }
}

/// For references: `-log(½ - q)`.
pub(crate) fn exponential_by_logarithm(q: f64) -> f64 {
    if q < 0.0 { -(-(0.5 + q)).ln_1p() } else { -(0.5 - q).ln() }
}
