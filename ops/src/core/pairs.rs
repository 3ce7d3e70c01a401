//! Elementwise functions of two floating-point numbers, with broadcasting and type promotion, computed in f32 for f16
//! and bf16. Integers and booleans become f32.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::{DType, Tensor};

use super::arrays::zip;
use super::parts::hypotenuse;
use super::promotion::{
    common_shape, cotangents_of, describe_shapes, elementwise_meta, floating, operands_meet, pair_in_floating,
    result_type, with_sign,
};
use crate::prims::{self, add, div, eq, exp, gt, le, log, logical_and, logical_or, maximum, mul, neg, select, sub};

operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor<$class>, other: Tensor<$class>) -> Tensor;

        fn meta(input: &TensorMeta, other: &TensorMeta) -> Result<TensorMeta> {
            let operands = [Operand::Tensor(input), Operand::Tensor(other)];
            let shapes = describe_shapes(&operands);
            require!(common_shape(&operands).is_some(), Broadcast, "shapes {shapes} do not broadcast");
            Ok(elementwise_meta(&operands, floating(result_type(&operands))))
        }

        fn decomposition(input: Tensor, other: Tensor) -> Tensor {
            pair_in_floating([input.into(), other.into()], |a, b| $value)
        }

        fn grad(input: Tensor, other: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            ($name(input, other), move |d_out: Tensor| {
                let pair = [input.into(), other.into()];
                let [d_input, d_other] = cotangents_of(d_out, pair, |d, a, b| $cotangents);
                Grads { input: d_input.unwrap_or(d_out), other: d_other.unwrap_or(d_out) }
            })
        }

        fn reference(input: &ArrayD<f64>, other: &ArrayD<f64>) -> ArrayD<f64> {
            zip(input, other, $reference)
        }

        fn samples(s: &mut Samples) {
            s.composed_binary(Domain::ALL, Domain::ALL);
            if s.dtype().is_floating() {
                let equal = with(s.values([2], [0.0, 1.0]), s.values([2], [0.0, 1.0]));
                s.case(equal).forward_only("equal elements, of which two are zero").gradients($of_equal);
            }
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        }
    }

    table($name, $class, $torch, $of_equal, $value, $reference, $cotangents) {
        /// The angle of the point (`other`, `input`) with the axis of `other`, in radians from -π to π. Signs of zeros
        /// say on which side of an axis a point is.
        atan2, Any, "atan2", [&[0.0, 1.0], &[-0.0, -1.0]], prims::atan2(a, b), f64::atan2, {
            let square = add(mul(a, a), mul(b, b));
            let slope = select(eq(square, 0.0), 0.0, div(d, square));
            [mul(slope, b), neg(mul(slope, a))]
        };
        /// The length of the hypotenuse, `√(input² + other²)`, whose squares may be beyond the element type.
        hypot, Floating, "hypot", [&[f64::NAN, 2f64.sqrt()]; 2], hypotenuse(a, b), f64::hypot, {
            let length = hypotenuse(a, b);
            [mul(d, div(a, length)), mul(d, div(b, length))]
        };
        /// `log(e^input + e^other)`, whose exponentials may be beyond the element type.
        logaddexp, Floating, "logaddexp", [&[0.5, 1.0]; 2], {
            let (most, apart) = (maximum(a, b), prims::abs(sub(a, b)));
            select(eq(a, b), add(a, std::f64::consts::LN_2), add(most, prims::log1p(exp(neg(apart)))))
        }, |a: f64, b: f64| if a == b { a + 2f64.ln() } else { larger(a, b) + (-(a - b).abs()).exp().ln_1p() },
            shares(d, sub(b, a), sub(a, b));
        /// `log₂(2^input + 2^other)`, whose powers may be beyond the element type.
        logaddexp2, Floating, "logaddexp2", [&[0.5, 1.0]; 2], {
            let (most, apart) = (maximum(a, b), prims::abs(sub(a, b)));
            let smaller = prims::log1p(prims::pow(2.0, neg(apart)));
            select(eq(a, b), add(a, 1.0), add(most, mul(smaller, std::f64::consts::LOG2_E)))
        }, |a: f64, b: f64| if a == b { a + 1.0 } else { larger(a, b) + (-(a - b).abs()).exp2().ln_1p() / 2f64.ln() },
            shares(d, mul(sub(b, a), std::f64::consts::LN_2), mul(sub(a, b), std::f64::consts::LN_2));
    }
}

/// For references: the larger of two; NaN if either is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// The shares of a cotangent by the logistic function of two exponents: `1 / (1 + eˣ)`.
#[track_caller]
fn shares(d: Tensor, first: Tensor, second: Tensor) -> [Tensor; 2] {
    [first, second].map(|exponent| div(d, add(exp(exponent), 1.0)))
}

/// The magnitudes of `input` with the signs of `other`, a tensor or a number. At zero `input` has no gradient.
#[operator(torch = "copysign")]
pub mod copysign {
    fn copysign(input: Tensor, other: Operand) -> Tensor;

    fn meta(input: &TensorMeta, other: Operand<&TensorMeta>) -> Result<TensorMeta> {
        let operands = [Operand::Tensor(input), other];
        operands_meet(&operands, "other", [Code::Broadcast.name(); 2])?;
        Ok(elementwise_meta(&operands, floating(result_type(&operands))))
    }

    fn decomposition(input: Tensor, other: Operand<Tensor>) -> Tensor {
        pair_in_floating([input.into(), other], |a, b| with_sign(prims::abs(a), b))
    }

    fn grad(input: Tensor, other: Operand<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (copysign(input, other), move |d_out: Tensor| {
            let [d_input, d_other] = cotangents_of(d_out, [input.into(), other], |d, a, b| {
                [select(prims::signbit(b), neg(mul(d, prims::sign(a))), mul(d, prims::sign(a))), mul(d, 0.0)]
            });
            Grads { input: d_input.unwrap_or(d_out), other: d_other }
        })
    }

    fn reference(input: &ArrayD<f64>, other: ArrayD<f64>) -> ArrayD<f64> {
        zip(input, &other, f64::copysign)
    }

    fn samples(s: &mut Samples) {
        s.composed_binary(Domain::range(0.5, 3.0), Domain::range(-3.0, -0.5));
        s.case(with(
            s.values([6], [1.0, -2.0, 3.0, -0.0, 0.0, f64::NAN]),
            s.values([6], [-0.0, 0.0, -1.0, 1.0, -1.0, 2.0]),
        ))
        .forward_only("zeros");
        s.case(with(s.uniform(0.5, 3.0, [3]), -1.0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
    }
}

/// `input · log other`, and 0 where `input` is 0, unless `other` is NaN. Either may be a number.
#[operator(torch = "xlogy")]
pub mod xlogy {
    fn xlogy(input: Operand, other: Operand) -> Tensor;

    fn meta(input: Operand<&TensorMeta>, other: Operand<&TensorMeta>) -> Result<TensorMeta> {
        let operands = [input, other];
        operands_meet(&operands, "other", [Code::NoTensor.name(), Code::Broadcast.name()])?;
        Ok(elementwise_meta(&operands, floating(result_type(&operands))))
    }

    fn decomposition(input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
        pair_in_floating([input, other], |a, b| {
            let nothing = logical_and(eq(a, 0.0), eq(b, b));
            select(nothing, 0.0, mul(a, log(b)))
        })
    }

    fn grad(input: Operand<Tensor>, other: Operand<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (xlogy(input, other), move |d_out: Tensor| {
            let [d_input, d_other] = cotangents_of(d_out, [input, other], |d, a, b| {
                let nothing = logical_and(eq(a, 0.0), le(b, 0.0));
                [select(nothing, 0.0, mul(d, log(b))), div(mul(d, a), b)]
            });
            Grads { input: d_input, other: d_other }
        })
    }

    fn reference(input: ArrayD<f64>, other: ArrayD<f64>) -> ArrayD<f64> {
        zip(&input, &other, |a, b| if a == 0.0 && !b.is_nan() { 0.0 } else { a * b.ln() })
    }

    fn samples(s: &mut Samples) {
        s.composed_binary(Domain::ALL, Domain::POSITIVE);
        s.case(with(2.5, s.uniform(0.5, 3.0, [3])));
        if s.dtype().is_floating() {
            let (factors, numbers) = (s.values([4], [0.0, 0.0, 0.0, 1.0]), s.values([4], [0.0, -2.0, 2.0, 0.5]));
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

/// The step function: 0 where `input` is negative, 1 where it is positive, `values` where it is 0, with broadcasting.
/// Of booleans whether either holds. It has no gradient, as in PyTorch.
#[operator(torch = "heaviside", no_grad = "PyTorch refuses to differentiate it")]
pub mod heaviside {
    fn heaviside(input: Tensor, values: Tensor) -> Tensor;

    fn meta(input: &TensorMeta, values: &TensorMeta) -> Result<TensorMeta> {
        prims::checks::same_dtype(("input", input), ("values", values), Code::SameDType)?;
        let operands = [Operand::Tensor(input), Operand::Tensor(values)];
        let shapes = describe_shapes(&operands);
        require!(common_shape(&operands).is_some(), Broadcast, "shapes {shapes} do not broadcast");
        Ok(elementwise_meta(&operands, input.dtype()))
    }

    fn decomposition(input: Tensor, values: Tensor) -> Tensor {
        let [x, values] = crate::core::promotion::promoted([Operand::Tensor(input), Operand::Tensor(values)]);
        let meta = elementwise_meta(&[Operand::Tensor(input), values], input.dtype());
        let [x, values] = [x, values].map(|operand| crate::core::promotion::as_tensor(operand, &meta));
        if input.dtype() == DType::Bool {
            return logical_or(x, values);
        }
        let step = crate::core::promotion::cast(gt(x, 0), input.dtype());
        select(eq(x, 0), values, step)
    }

    fn reference(input: &ArrayD<f64>, values: &ArrayD<f64>) -> ArrayD<f64> {
        zip(input, values, |x, value| if x == 0.0 { value } else { f64::from(u8::from(x > 0.0)) })
    }

    fn samples(s: &mut Samples) {
        s.composed_binary(Domain::ALL, Domain::ALL);
        s.case(with(s.values([4], [0.0, 1.0, -2.0, 0.0]), s.values([4], [0.5, 2.0, 3.0, 7.0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        e.case(SameDType, with(e.normal([2]), e.of(DType::I64, [2])), "expected equal dtypes");
    }
}
