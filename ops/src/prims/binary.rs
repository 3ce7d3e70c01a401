//! Elementwise arithmetic of two tensors of one shape and one element type. A number may replace either.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::Tensor;

use super::support::{constant, floor_quotient, no_integer_zero, zip};
use crate::prims::*;

// Declares elementwise functions of two tensors: whether they commute, which numbers are as precise as the accumulator
// (where PyTorch's are: a dividend is rounded to the type of the divisor), their arithmetic, their reference in f64 and
// in i64, the cotangents of both inputs, and the domains of their samples.
operators! {
    #[operator(prim, torch = $torch, $commutes, $numbers)]
    pub mod $name {
        fn $name(input: Operand<$class>, other: Operand<$class>) -> Tensor;

        fn scalar(input: Expr, other: Expr) -> Expr {
            $scalar
        }

        fn grad(input: Operand<Tensor>, other: Operand<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            let out = $name(input, other);
            (out, move |d_out: Tensor| Grads {
                input: input.cotangent(|| $d_input),
                other: other.cotangent(|| $d_other),
            })
        }

        fn reference(input: &Operand<ReferenceTensor>, other: &Operand<ReferenceTensor>) -> ReferenceTensor {
            let [input, other] = filled([input, other]);
            zip(&input, &other, $floats, $integers)
        }

        fn samples(s: &mut Samples) {
            s.elementwise_binary($left, $right);
            s.case(with(s.uniform(0.5, 3.0, [67, 65]), s.uniform(1.0, 3.0, [67, 65])));
            // Equal elements: a difference to both sides is half of each slope, as the gradient has it.
            s.case(with(s.values([4], [1.0, 2.0, 3.0]), s.values([4], [1.0, 2.0, 1.0])));
        }
    }

    table($name, $class, $torch, $commutes, $numbers, $left, $right, $scalar, $floats, $integers, $d_input, $d_other) {
        /// Sum, elementwise. Integers wrap.
        add, Number, "add", commutes, _, Domain::ALL,
            Domain::ALL,
            input + other,
            |a, b| a + b,
            |a, b| a.wrapping_add(b),
            d_out,
            d_out;
        /// Difference, elementwise. Integers wrap.
        sub, Number, "sub", _, _, Domain::ALL,
            Domain::ALL,
            input - other,
            |a, b| a - b,
            |a, b| a.wrapping_sub(b),
            d_out,
            neg(d_out);
        /// Product, elementwise. Integers wrap.
        mul, Number, "mul", commutes, accumulates(input, other), Domain::ALL,
            Domain::ALL,
            input * other,
            |a, b| a * b,
            |a, b| a.wrapping_mul(b),
            mul(d_out, other),
            mul(d_out, input);
        /// Quotient, elementwise, of floating-point numbers.
        div, Floating, "div", _, accumulates(other), Domain::ALL,
            Domain::POSITIVE,
            input / other,
            |a, b| a / b,
            |a, _b| a,
            div(d_out, other),
            neg(mul(d_out, div(out, other)));
        /// The larger of two elements; NaN if either is. Where they are equal each gets half of the gradient.
        maximum, Number, "maximum", commutes, _, Domain::ALL,
            Domain::ALL,
            input.maximum(other),
            |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) },
            |a, b| a.max(b),
            share(d_out, eq(input, other), lt(input, other)),
            share(d_out, eq(input, other), gt(input, other));
        /// The smaller of two elements; NaN if either is. Where they are equal each gets half of the gradient.
        minimum, Number, "minimum", commutes, _, Domain::ALL,
            Domain::ALL,
            input.minimum(other),
            |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) },
            |a, b| a.min(b),
            share(d_out, eq(input, other), gt(input, other)),
            share(d_out, eq(input, other), lt(input, other));
    }
}

/// The part of a cotangent that goes to one of two: half of it where they are `tied`, nothing where it has `lost`.
fn share(d_out: Tensor, tied: Tensor, lost: Tensor) -> Tensor {
    select(tied, mul(d_out, 0.5), select(lost, 0.0, d_out))
}

/// `input` to the power `other`, elementwise. Integer powers wrap; a negative integer exponent gives 0 unless the base
/// is 1 or -1. The gradient of the exponent is 0 where the base is 0 and the exponent is not negative; that of the base
/// is 0 where the exponent is 0.
#[operator(prim, torch = "pow", autocast = full)]
pub mod pow {
    fn pow(input: Operand<Number>, other: Operand<Number>) -> Tensor;

    fn scalar(input: Expr, other: Expr) -> Expr {
        input.pow(other)
    }

    fn grad(input: Operand<Tensor>, other: Operand<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = pow(input, other);
        (out, move |d_out: Tensor| Grads {
            input: input.tensor().map(|base| d_base(d_out, *base, other)),
            other: other.tensor().map(|exponent| d_exponent(d_out, input, *exponent, out)),
        })
    }

    /// `d_out · other · base^(other - 1)`; 0 where `other` is.
    fn d_base(d_out: Tensor, base: Tensor, other: Operand<Tensor>) -> Tensor {
        let slope = |less: Operand<Tensor>| mul(d_out, mul(other, pow(base, less)));
        match other {
            Operand::Tensor(exponent) => select(eq(exponent, 0.0), 0.0, slope(sub(exponent, 1.0).into())),
            Operand::Scalar(exponent) => match d_out.dtype().nearest(exponent.to_f64()) {
                0.0 => constant(d_out, 0.0),
                exponent => slope((exponent - 1.0).into()),
            },
        }
    }

    /// `d_out · out · ln base`; 0 where the base is 0 and the exponent is not negative.
    fn d_exponent(d_out: Tensor, base: Operand<Tensor>, exponent: Tensor, out: Tensor) -> Tensor {
        let rate = |logarithm: Operand<Tensor>| mul(d_out, mul(out, logarithm));
        match base {
            Operand::Tensor(base) => {
                let settled = logical_and(eq(base, 0.0), ge(exponent, 0.0));
                select(settled, 0.0, rate(log(base).into()))
            }
            Operand::Scalar(base) => match d_out.dtype().nearest(base.to_f64()) {
                0.0 => select(ge(exponent, 0.0), 0.0, rate(f64::NEG_INFINITY.into())),
                base => rate(base.ln().into()),
            },
        }
    }

    fn reference(input: &Operand<ReferenceTensor>, other: &Operand<ReferenceTensor>) -> ReferenceTensor {
        let [input, other] = filled([input, other]);
        zip(&input, &other, f64::powf, |base, exponent| match (base, u32::try_from(exponent)) {
            (base, Ok(exponent)) => base.wrapping_pow(exponent),
            (1, _) => 1,
            (-1, _) => 1 - 2 * (exponent & 1),
            _ => 0,
        })
    }

    fn samples(s: &mut Samples) {
        s.elementwise_binary(Domain::range(0.1, 3.0), Domain::range(-2.5, 2.5));
        s.case(with(s.uniform(0.5, 3.0, [67, 65]), s.uniform(1.0, 3.0, [67, 65])));
        if s.dtype().is_floating() {
            let bases = [0.0, 0.0, -2.0, -2.0, 1.0, f64::INFINITY, f64::NAN, 2.0, 0.0];
            let exponents = [0.0, 2.0, 3.0, 0.5, f64::NAN, -1.0, 0.0, f64::NEG_INFINITY, -1.0];
            s.case(with(s.values([9], bases), s.values([9], exponents))).forward_only("special values");
            let bases = s.values([5], [0.0, 0.0, 2.0, 4.0, 1.0]);
            let exponents = s.values([5], [0.0, 2.0, 3.0, 0.5, 0.0]);
            let (ln2, ln4) = (2f64.ln(), 4f64.ln());
            s.case(with(bases, exponents))
                .forward_only("powers of zero")
                .gradients([&[0.0, 0.0, 36.0, 1.0, 0.0], &[0.0, 0.0, 24.0 * ln2, 8.0 * ln4, 0.0]]);
            // The bound at which powers of zero are settled.
            let exponents = s.values([4], [0.0, 0.125, 2.0, -1.0]);
            s.case(with(0.0, exponents)).forward_only("powers of zero").gradients([&[
                0.0,
                0.0,
                0.0,
                f64::NEG_INFINITY,
            ]]);
        }
    }
}

/// The remainder of the division, with the divisor's sign, elementwise: `a - b ⌊a/b⌋`. On the CPU an integer's
/// remainder by zero is an error when the program runs; on a GPU it is 0.
#[operator(prim, torch = "remainder")]
pub mod remainder {
    fn remainder(input: Operand<Number>, other: Operand<Number>) -> Tensor;

    fn scalar(input: Expr, other: Expr) -> Expr {
        input.remainder(other)
    }

    fn grad(input: Operand<Tensor>, other: Operand<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (remainder(input, other), move |d_out: Tensor| Grads {
            input: input.cotangent(|| d_out),
            other: other.tensor().map(|other| neg(mul(d_out, floor_quotient(input, *other)))),
        })
    }

    fn reference(input: &Operand<ReferenceTensor>, other: &Operand<ReferenceTensor>) -> Result<ReferenceTensor> {
        let [input, other] = filled([input, other]);
        no_integer_zero(&other)?;
        let floats = |a: f64, b: f64| {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        };
        Ok(zip(&input, &other, floats, |a, b| {
            let rest = a.wrapping_rem(b);
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }))
    }

    fn samples(s: &mut Samples) {
        s.elementwise_binary(Domain::range(-9.0, 9.0), Domain::range(1.3, 4.0));
        s.elementwise_binary(Domain::range(-9.0, 9.0), Domain::range(-4.0, -1.3));
        s.case(with(s.uniform(-9.0, 9.0, [67, 65]), s.uniform(1.0, 3.0, [67, 65])))
            .forward_only("quotients come arbitrarily near to integers");
    }

    fn errors(e: &mut ErrorSamples) {
        let divisor = e.values([2], [1.0, 0.0]).cast(DType::I64);
        e.when_run("DivisionByZero", with(e.integers(1, 9, [2]), divisor), "an integer is divided by zero");
        e.when_run("DivisionByZero", with(e.integers(1, 9, [2]), 0), "an integer is divided by zero");
    }
}

/// The quotient of integers, rounded towards negative infinity, elementwise. On the CPU a division by zero is an error
/// when the program runs; on a GPU it gives 0.
#[operator(prim, no_grad = "integers have no gradient")]
pub mod floor_divide {
    fn floor_divide(input: Operand<Integer>, other: Operand<Integer>) -> Tensor;

    fn scalar(input: Expr, other: Expr) -> Expr {
        // Towards zero, as processors divide, and one less where that was upwards.
        let (quotient, rest) = (input / other, input.remainder(other));
        let upwards = rest.ne(0.0) & input.lt(0.0).ne(other.lt(0.0));
        upwards.select(quotient - 1.0, quotient)
    }

    fn reference(input: &Operand<ReferenceTensor>, other: &Operand<ReferenceTensor>) -> Result<ReferenceTensor> {
        let [input, other] = filled([input, other]);
        no_integer_zero(&other)?;
        Ok(zip(
            &input,
            &other,
            |a, _b| a,
            |a, b| {
                let down = a.wrapping_rem(b) != 0 && (a < 0) != (b < 0);
                a.wrapping_div(b) - i64::from(down)
            },
        ))
    }

    fn samples(s: &mut Samples) {
        let signed = !s.dtype().is_unsigned();
        for size in [0, 1, 7, 4096] {
            let divisors = s.integers(1, 9, [size]).cast(s.dtype());
            s.case(with(s.of(s.dtype(), [size]), divisors));
        }
        if signed {
            s.case(with(s.integers(-40, 40, [67, 65]).cast(s.dtype()), s.integers(-9, 0, [67, 65]).cast(s.dtype())));
            s.case(with(
                s.values([6], [7.0, -7.0, 6.0, -6.0, 0.0, -1.0]),
                s.values([6], [2.0, 2.0, -3.0, -4.0, -2.0, 5.0]),
            ));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        for dtype in [DType::I32, DType::I64] {
            let (input, other) = (e.integers(1, 9, [2]).cast(dtype), e.values([2], [1.0, 0.0]).cast(dtype));
            e.when_run("DivisionByZero", with(input, other), "an integer is divided by zero");
        }
        e.when_run("DivisionByZero", with(e.integers(1, 9, [2]), 0), "an integer is divided by zero");
    }
}
