//! Quotients and remainders beside those of `/` and `%`.

use fulgurite_ops_macros::{operator, operators};

use super::arrays::zip;
use super::promotion::{as_tensor, cotangents_of, elementwise_meta, operands_meet, promoted, result_type};
use crate::core::{RoundingMode, div, trunc};
use crate::prims;

operators! {
    #[operator(torch = $torch, accumulates(other), no_grad = $no_grad)]
    pub mod $name {
        fn $name(input: Operand, other: Operand) -> Tensor;

        fn decomposition(input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
            div::with(input, other).rounding_mode($mode).call()
        }

        fn reference(input: ArrayD<f64>, other: ArrayD<f64>) -> ArrayD<f64> {
            zip(&input, &other, $reference)
        }

        fn samples(s: &mut Samples) {
            if s.dtype() != DType::Bool {
                s.composed_binary(Domain::range(4.2, 4.8), Domain::range(1.05, 1.35));
            }
            s.case(with(s.normal([3]), 2)).forward_only("the quotient may jump");
        }
    }

    table($name, $torch, $no_grad, $mode, $reference) {
        /// `input / other`, elementwise: see [`div`]. The quotient of integers is f32.
        true_divide, "true_divide", _, None::<RoundingMode>, |a, b| a / b;
        /// `input / other` rounded to the largest integer not above, elementwise: see [`div`], which has a gradient of
        /// zeros with `rounding_mode`. This has none, as in PyTorch.
        floor_divide, "floor_divide",
            "PyTorch refuses to differentiate it; the gradient of `div` with a rounding mode is zero",
            RoundingMode::Floor, |a, b| (a / b).floor();
    }
}

/// The remainder of the division, with the sign of `input`, elementwise, with broadcasting and type promotion:
/// `a - b trunc(a/b)`. On the CPU an integer's remainder by zero is an error when the program runs; on a GPU it is 0.
#[operator(torch = "fmod")]
pub mod fmod {
    fn fmod(input: Operand, other: Operand) -> Tensor;

    fn meta(input: Operand<&TensorMeta>, other: Operand<&TensorMeta>) -> Result<TensorMeta> {
        let operands = [input, other];
        operands_meet(&operands, "other", [Code::NoTensor.name(), Code::Broadcast.name()])?;
        let dtype = result_type(&operands);
        require!(dtype != DType::Bool, Booleans, "input and other are booleans, expected a number");
        Ok(elementwise_meta(&operands, dtype))
    }

    fn decomposition(input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
        let meta = elementwise_meta(&[input, other], result_type(&[input, other]));
        let [a, b] = promoted([input, other]).map(|operand| as_tensor(operand, &meta));
        if meta.dtype().is_floating() {
            let rest = prims::remainder(prims::abs(a), prims::abs(b));
            return prims::select(prims::signbit(a), prims::neg(rest), rest);
        }
        let rest = prims::remainder(a, b);
        if meta.dtype().is_unsigned() {
            return rest;
        }
        // The least integer has no magnitude: of another sign than `a` the remainder is that of the next multiple.
        let turned = prims::logical_and(prims::ne(rest, 0), prims::ne(prims::lt(a, 0), prims::lt(rest, 0)));
        prims::select(turned, prims::sub(rest, b), rest)
    }

    // The lines have magnitudes, which have no gradient at zero, where the remainder has one.
    fn grad(input: Operand<Tensor>, other: Operand<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (fmod(input, other), move |d_out: Tensor| {
            let of = |d, a, b| [d, prims::neg(prims::mul(d, trunc(prims::div(a, b))))];
            let [d_input, d_other] = cotangents_of(d_out, [input, other], of);
            Grads { input: d_input, other: d_other }
        })
    }

    fn reference(input: ArrayD<f64>, other: ArrayD<f64>) -> ArrayD<f64> {
        zip(&input, &other, |a, b| a % b)
    }

    fn samples(s: &mut Samples) {
        if s.dtype() == DType::Bool {
            s.case(with(s.normal([3]), 2));
            return;
        }
        s.composed_binary(Domain::range(-9.0, 9.0), Domain::range(1.3, 4.0));
        s.case(with(s.of(DType::I32, [2, 3]), s.uniform(1.3, 4.0, [3])));
        s.case(with(s.uniform(-6.0, 6.0, [4]), 2));
        if let Some((least @ ..0, _)) = s.dtype().limits() {
            s.case(with(s.values([4], [least as f64; 4]), s.values([4], [7.0, -7.0, 1.0, -3.0])));
        }
        if s.dtype().is_floating() {
            let (a, b) = ([3.0, -3.0, -0.0, -3.0, 3.0, 1.0], [f64::INFINITY, f64::INFINITY, 2.0, 2.0, -2.0, 0.0]);
            s.case(with(s.values([6], a), s.values([6], b))).forward_only("quotients at integers");
            let zeros = with(s.values([2], [0.0, -0.0]), s.values([2], [2.0, 3.0]));
            s.case(zeros).forward_only("quotients at integers").gradients([&[1.0, 2.0], &[-0.0, 0.0]]);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensor, with(1, 2.0), "expected at least one tensor");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        e.case(Booleans, with(e.booleans([2]), e.booleans([2])), "expected a number");
    }
}

// Declares the extremes that pass over NaN.
operators! {
    #[operator(torch = $torch, commutes)]
    pub mod $name {
        fn $name(input: Tensor, other: Tensor) -> Tensor;

        fn meta(input: &TensorMeta, other: &TensorMeta) -> Result<TensorMeta> {
            let operands = [Operand::Tensor(input), Operand::Tensor(other)];
            operands_meet(&operands, "other", [Code::Broadcast.name(); 2])?;
            Ok(elementwise_meta(&operands, result_type(&operands)))
        }

        fn decomposition(input: Tensor, other: Tensor) -> Tensor {
            let operands = [input, other].map(Operand::Tensor);
            let meta = elementwise_meta(&operands, result_type(&operands));
            let [a, b] = promoted(operands).map(|operand| as_tensor(operand, &meta));
            match meta.dtype() {
                DType::Bool => prims::$connective(a, b),
                // Of two NaN the first is taken, and has the gradient.
                dtype if dtype.is_floating() => {
                    let known = prims::select(prims::ne(a, a), b, prims::$extreme(a, b));
                    prims::select(prims::ne(b, b), a, known)
                }
                _ => prims::$extreme(a, b),
            }
        }

        fn reference(input: &ArrayD<f64>, other: &ArrayD<f64>) -> ArrayD<f64> {
            zip(input, other, $reference)
        }

        fn samples(s: &mut Samples) {
            s.composed_binary(Domain::ALL, Domain::ALL);
            s.case(with(s.values([2], [1.0, 3.0]), s.values([2], [1.0, 3.0])))
                .forward_only("ties")
                .gradients([&[0.5, 1.0], &[0.5, 1.0]]);
            if s.dtype().is_floating() {
                let (a, b) = ([f64::NAN, f64::NAN, 1.0], [f64::NAN, 1.0, f64::NAN]);
                s.case(with(s.values([3], a), s.values([3], b)))
                    .forward_only("special values")
                    .gradients([&[1.0, 0.0, 3.0], &[0.0, 2.0, 0.0]]);
            }
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        }
    }

    table($name, $torch, $connective, $extreme, $reference) {
        /// The larger of two elements; the other one if one is NaN. Of equal ones each gets half of the gradient, of
        /// two NaN the first all of it.
        fmax, "fmax", logical_or, maximum, f64::max;
        /// The smaller of two elements; the other one if one is NaN. Of equal ones each gets half of the gradient, of
        /// two NaN the first all of it.
        fmin, "fmin", logical_and, minimum, f64::min;
    }
}
