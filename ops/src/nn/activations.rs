//! Activations, elementwise, computed in f32 for f16 and bf16. Subgradients at kinks are PyTorch's.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::{DType, Tensor};

use super::logistic;
use crate::core::arrays::remade;
use crate::core::promotion::{cotangent_of, floating, in_floating, largest_number, nearest_number};
use crate::prims::{
    self, abs, add, div, exp, expm1, ge, gt, le, log1p, logical_and, logical_or, lt, maximum, minimum, mul, select,
    sub, tanh,
};

/// The scale of SELU, and that of its exponential: with them activations keep mean 0 and variance 1. Klambauer et al.,
/// "Self-Normalizing Neural Networks", 2017.
const SELU: [f64; 2] = [1.050_700_987_355_480_5, 1.673_263_242_354_377_2];

// Declares activations without parameters.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor<$class>) -> Tensor;

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
            s.composed_unary(Domain::ALL);
            s.case(with(s.values([3], $kinks))).forward_only("kinks").gradients([&$at_kinks]);
        }
    }

    table($name, $class, $torch, $kinks, $at_kinks, $value, $reference, $d_input) {
        /// A logistic function of three lines: `min(max(x + 3, 0), 6) / 6`.
        hardsigmoid, Floating, "nn.functional.hardsigmoid", [-3.0, 3.0, 6.0], [0.0; 3],
            div(minimum(maximum(add(x, 3.0), 0.0), 6.0), 6.0),
            |x| if x < -3.0 { 0.0 } else if x > 3.0 { 1.0 } else { x / 6.0 + 0.5 },
            select(logical_and(gt(x, -3.0), lt(x, 3.0)), div(d, 6.0), 0.0);
        /// `x · min(max(x + 3, 0), 6) / 6`.
        hardswish, Floating, "nn.functional.hardswish", [-3.0, 3.0, 6.0], [0.0, 2.0, 3.0],
            div(mul(x, minimum(maximum(add(x, 3.0), 0.0), 6.0)), 6.0),
            |x| if x < -3.0 { x * 0.0 } else if x > 3.0 { x } else { x * (x + 3.0) / 6.0 },
            select(le(x, -3.0), 0.0, select(lt(x, 3.0), mul(d, add(div(x, 3.0), 0.5)), d));
        /// `x tanh(log(1 + eˣ))`. Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019.
        mish, Floating, "nn.functional.mish", [0.0, 100.0, -1e4], [0.6, 2.0, 0.0],
            mul(x, tanh(soft_positive(x))),
            |x| x * (x.max(0.0) + (-x.abs()).exp().ln_1p()).tanh(),
            {
                let gate = tanh(soft_positive(x));
                mul(d, add(gate, mul(mul(x, logistic(x)), sub(1.0, mul(gate, gate)))))
            };
        /// `s x` where x is positive, `s a (eˣ - 1)` elsewhere, with the constants of [Klambauer et
        /// al.](https://arxiv.org/abs/1706.02515): s = 1.0507, a = 1.6733.
        selu, Floating, "selu", [0.0, 100.0, -1e4], [SELU[0] * SELU[1], 2.0 * SELU[0], 0.0],
            mul(select(gt(x, 0.0), x, mul(expm1(x), SELU[1])), SELU[0]),
            |x| SELU[0] * if x > 0.0 { x } else { SELU[1] * x.exp_m1() },
            mul(select(gt(x, 0.0), d, mul(mul(d, SELU[1]), exp(x))), SELU[0]);
        /// `x / (1 + |x|)`. Integers become f32.
        softsign, Number, "nn.functional.softsign", [0.0, 1.0, -1.0], [1.0, 0.5, 0.75],
            div(x, add(abs(x), 1.0)),
            |x| x / (1.0 + x.abs()),
            {
                let scale = add(abs(x), 1.0);
                div(d, mul(scale, scale))
            };
        /// `x - tanh x`. Integers become f32.
        tanhshrink, Number, "nn.functional.tanhshrink", [0.0, 100.0, -1e4], [0.0, 2.0, 3.0],
            sub(x, tanh(x)),
            |x| x - x.tanh(),
            mul(d, mul(tanh(x), tanh(x)));
    }
}

/// Each element, but at least 0 and at most 6: see [`hardtanh`].
#[operator(torch = "nn.functional.relu6")]
pub mod relu6 {
    fn relu6(input: Tensor<Number>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        hardtanh::with(input).min_val(0.0).max_val(6.0).call()
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x.clamp(0.0, 6.0))
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
        s.case(with(s.values([3], [0.0, 6.0, 7.0]))).forward_only("kinks").gradients([&[0.0; 3]]);
    }
}

/// Each element, but at least `min_val` and at most `max_val`. For integers the fractions of both are cut off first.
/// An element at a bound has no gradient.
#[operator(torch = "nn.functional.hardtanh")]
pub mod hardtanh {
    fn hardtanh(input: Tensor<Number>, #[default(-1.0)] min_val: f64, #[default(1.0)] max_val: f64) -> Tensor;

    fn meta(input: &TensorMeta, min_val: f64, max_val: f64) -> Result<TensorMeta> {
        let ordered = min_val.partial_cmp(&max_val) != Some(std::cmp::Ordering::Greater);
        require!(ordered, Order, "min_val is {min_val} and max_val {max_val}, expected one that is not below");
        let dtype = input.dtype();
        require!(
            dtype.is_floating() || (min_val.is_finite() && max_val.is_finite()),
            Finite,
            "min_val is {min_val} and max_val {max_val}, expected numbers of {dtype}"
        );
        require!(
            !dtype.is_unsigned() || max_val > -1.0,
            Negative,
            "max_val is {max_val}, expected a number that is not negative for {dtype}"
        );
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, min_val: f64, max_val: f64) -> Tensor {
        match input.dtype().is_floating() {
            true => in_floating(input, |x| minimum(maximum(x, min_val), max_val)),
            false => {
                let [low, high] = [min_val, max_val].map(|bound| nearest_number(bound.into(), input.dtype()));
                minimum(maximum(input, low), high)
            }
        }
    }

    fn grad(input: Tensor, min_val: f64, max_val: f64) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = with(input).min_val(min_val).max_val(max_val).call();
        let of = move |d, x| select(logical_or(le(x, min_val), ge(x, max_val)), 0.0, d);
        (out, move |d_out: Tensor| Grads { input: cotangent_of(d_out, input, of) })
    }

    fn reference(input: &ReferenceTensor, min_val: f64, max_val: f64) -> ReferenceTensor {
        let bounded = |x: f64| {
            if x < min_val {
                min_val
            } else if x > max_val {
                max_val
            } else {
                x
            }
        };
        remade(input, |a| a.mapv(bounded), |a| a.mapv(|x| x.clamp(min_val as i64, max_val as i64)))
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
        let kinks = with(s.values([4], [0.5, 1.5, -2.0, 3.0])).min_val(0.5).max_val(1.5);
        s.case(kinks).forward_only("kinks").gradients([&[0.0; 4]]);
        s.case(with(s.values([4], [0.0, 2.0, 7.0, 12.0])).min_val(1.75).max_val(9.25)).forward_only("fractions");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Order, with(e.normal([2])).min_val(0.5).max_val(-0.5), "min_val is 0.5 and max_val -0.5");
        e.case(Finite, with(e.of(DType::I64, [2])).max_val(f64::INFINITY), "expected numbers of i64");
        e.case(Negative, with(e.of(DType::U8, [2])).min_val(-2.0).max_val(-1.0), "not negative for u8");
    }
}

/// `log(1 + eˣ)`, also where the exponential is infinite.
#[track_caller]
pub(crate) fn soft_positive(x: Tensor) -> Tensor {
    add(maximum(x, 0.0), log1p(exp(prims::neg(abs(x)))))
}

// Declares activations with one parameter.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor<Floating>, #[default($default)] $parameter: f64) -> Tensor;

        fn requires(input: &TensorMeta, $parameter: f64) -> Result<()> {
            require!(
                $allowed(input.dtype(), $parameter),
                Parameter,
                "{} is {}, expected {}",
                stringify!($parameter),
                $parameter,
                $expected
            );
            Ok(())
        }

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.clone())
        }

        fn decomposition(input: Tensor, $parameter: f64) -> Tensor {
            in_floating(input, |x| $value)
        }

        fn grad(input: Tensor, $parameter: f64) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            let out = with(input).$parameter($parameter).call();
            (out, move |d_out: Tensor| Grads { input: cotangent_of(d_out, input, |d, x| $d_input) })
        }

        fn reference(input: &ArrayD<f64>, $parameter: f64) -> ArrayD<f64> {
            elementwise(input, $reference)
        }

        fn samples(s: &mut Samples) {
            s.composed_unary(Domain::ALL);
            s.case(with(s.uniform(-3.0, 3.0, [6])).$parameter(0.75));
            let kinks = with(s.values([4], [0.0, -0.75, 0.75, -2.0])).$parameter(0.75);
            s.case(kinks).forward_only("kinks").gradients([&$at_kinks]);
            s.case(with(s.uniform(-3.0, 3.0, [6])).$parameter(0.125));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Parameter, with(e.normal([2])).$parameter(-0.5), $expected);
        }
    }

    table($name, $torch, $parameter, $default, $allowed, $expected, $at_kinks, $value, $reference, $d_input) {
        /// `x` where it is positive, `alpha (eˣ - 1)` elsewhere. Clevert, Unterthiner & Hochreiter, 2015.
        elu, "nn.functional.elu", alpha, 1.0, _, _, [0.75, 1.5 * (-0.75f64).exp(), 3.0, 3.0 * (-2f64).exp()],
            select(gt(x, 0.0), x, mul(expm1(x), alpha)),
            |x| if x > 0.0 { x } else { alpha * x.exp_m1() },
            select(le(x, 0.0), mul(mul(d, alpha), exp(x)), d);
        /// `x` where it is positive, `alpha (e^(x/alpha) - 1)` elsewhere. Barron, 2017.
        celu, "celu", alpha, 1.0, _, _, [1.0, 2.0 * (-1f64).exp(), 3.0, 4.0 * (-2.0f64 / 0.75).exp()],
            select(gt(x, 0.0), x, mul(expm1(div(x, alpha)), alpha)),
            |x| if x > 0.0 { x } else { alpha * (x / alpha).exp_m1() },
            select(gt(x, 0.0), d, mul(d, exp(div(x, alpha))));
        /// Each element, or 0 if its magnitude is at most `lambd`.
        hardshrink, "nn.functional.hardshrink", lambd, 0.5, _, _, [0.0, 0.0, 0.0, 4.0],
            select(le(abs(x), lambd), 0.0, x),
            |x| if x.abs() <= lambd { 0.0 } else { x },
            select(le(abs(x), lambd), 0.0, d);
        /// Each element with a magnitude smaller by `lambd`, or 0 if it is at most that.
        softshrink, "nn.functional.softshrink", lambd, 0.5,
            bound_of_shrinking, "a number of the element type that is not negative",
            [0.0, 0.0, 0.0, 4.0],
            select(gt(x, lambd), sub(x, lambd), select(lt(x, -lambd), add(x, lambd), mul(x, 0.0))),
            |x| if x > lambd { x - lambd } else if x < -lambd { x + lambd } else { x * 0.0 },
            select(le(abs(x), lambd), 0.0, d);
        /// `x` where it is positive, `negative_slope · x` elsewhere.
        leaky_relu, "nn.functional.leaky_relu", negative_slope, 0.01, _, _, [0.75, 1.5, 3.0, 3.0],
            select(gt(x, 0.0), x, mul(x, negative_slope)),
            |x| if x > 0.0 { x } else { negative_slope * x },
            select(gt(x, 0.0), d, mul(d, negative_slope));
    }
}

// Declares activations with two parameters.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor<Floating>, #[default($low)] $first: f64, #[default($high)] $second: f64) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.clone())
        }

        fn decomposition(input: Tensor, $first: f64, $second: f64) -> Tensor {
            in_floating(input, |x| $value)
        }

        fn grad(input: Tensor, $first: f64, $second: f64) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            let out = with(input).$first($first).$second($second).call();
            (out, move |d_out: Tensor| Grads { input: cotangent_of(d_out, input, |d, x| $d_input) })
        }

        fn reference(input: &ArrayD<f64>, $first: f64, $second: f64) -> ArrayD<f64> {
            elementwise(input, $reference)
        }

        fn samples(s: &mut Samples) {
            s.composed_unary(Domain::ALL);
            let kinks = with(s.values([4], [0.5, 1.5, -2.0, 3.0])).$first(0.5).$second(1.5);
            s.case(kinks).forward_only("kinks").gradients([&$at_kinks]);
        }
    }

    table($name, $torch, $first, $low, $second, $high, $at_kinks, $value, $reference, $d_input) {
        /// `log(1 + e^(beta x)) / beta`, or `x` where `beta x` is above `threshold`.
        softplus, "nn.functional.softplus", beta, 1.0, threshold, 20.0,
            [slope(0.25), 2.0 * slope(0.75), 3.0 * slope(-1.0), 4.0 * slope(1.5)],
            select(gt(mul(x, beta), threshold), x, div(soft_positive(mul(x, beta)), beta)),
            |x| if x * beta > threshold { x } else { (x * beta).exp().ln_1p() / beta },
            select(gt(mul(x, beta), threshold), d, mul(d, logistic(mul(x, beta))));
    }
}

/// Whether elements of `dtype` can be made smaller by `lambd`.
fn bound_of_shrinking(dtype: DType, lambd: f64) -> bool {
    (0.0..=largest_number(dtype)).contains(&lambd)
}

/// For samples: the logistic function.
fn slope(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
