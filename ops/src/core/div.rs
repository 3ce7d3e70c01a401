use fulgurite_ops_macros::operator;

use super::arrays::zip;
use super::complex_references::{as_array, both, quotient};
use super::parts;
use super::promotion::{
    as_tensor, cast, constant_like, elementwise_meta, floating, operands_in, operands_meet, result_type,
};
use crate::prims::{
    self,
    checks::{same_dtype, same_shape},
    support::{another, floor_quotient, in_accumulator},
};

fulgurite_runtime::attribute_enum! {
    /// How a quotient becomes an integer.
    pub enum RoundingMode {
        /// Towards negative infinity.
        Floor = "floor",
        /// Towards zero.
        Trunc = "trunc",
    }
}

/// `input / other`, elementwise, with broadcasting and type promotion. Without `rounding_mode` the quotient of integers
/// is f32; with it the type is kept, and gradients are zero. Integers that are divided by zero with rounding are an
/// error on the CPU when the program runs, and give no defined value on a GPU.
#[operator(
    torch = "div",
    overload = Div,
    complex,
    accumulates(other),
    skip(
        consistency,
        dtype = f16,
        sample = 16,
        reason = "in f32, as PyTorch divides, 1 / 0.1 is 10, which f64 of the same divisor cuts off to 9"
    )
)]
pub mod div {
    fn div(input: Operand, other: Operand, #[default(None)] rounding_mode: Option<RoundingMode>) -> Tensor;

    fn meta(Args { input, other, rounding_mode }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let operands = [input, other];
        operands_meet(&operands, "other", [Code::NoTensor.name(), Code::Broadcast.name()])?;
        let dtype = result_type(&operands);
        require!(
            rounding_mode.is_none() || dtype != DType::Bool,
            RoundedBool,
            "booleans cannot be divided with a rounding mode"
        );
        require!(
            rounding_mode.is_none() || !dtype.is_complex(),
            RoundedComplex,
            "complex numbers cannot be divided with a rounding mode"
        );
        Ok(elementwise_meta(&operands, if rounding_mode.is_some() { dtype } else { floating(dtype) }))
    }

    fn decomposition(input: Operand<Tensor>, other: Operand<Tensor>, rounding_mode: Option<RoundingMode>) -> Tensor {
        let dtype = result_type(&[input, other]);
        let Some(rounding_mode) = rounding_mode else {
            let [input, other] = operands_in([input, other], floating(dtype));
            return parts::div(input, other);
        };
        let meta = elementwise_meta(&[input, other], dtype);
        let [input, other] = operands_in([input, other], dtype);
        if dtype.is_integer() {
            let quotient = prims::floor_divide(input, other);
            return match rounding_mode {
                RoundingMode::Floor => quotient,
                // One more where a negative quotient is not whole.
                RoundingMode::Trunc => {
                    let negative = prims::lt(quotient, 0.0);
                    let whole = prims::eq(prims::mul(quotient, other), input);
                    let up = prims::logical_and(negative, prims::logical_not(whole));
                    prims::select(up, prims::add(quotient, 1.0), quotient)
                }
            };
        }
        // A number that divides f16 or bf16 is f32, as without rounding.
        let wide = if let Operand::Scalar(_) = other { dtype.accumulator() } else { dtype };
        let meta = meta.with_dtype(wide);
        let [input, other] = [input, other].map(|operand| cast(as_tensor(operand, &meta), wide));
        cast(super::rounded_quotient(input, other, rounding_mode), dtype)
    }

    fn reference(
        input: &Operand<ReferenceTensor>,
        other: &Operand<ReferenceTensor>,
        rounding_mode: Option<RoundingMode>,
    ) -> ReferenceTensor {
        let real = |a: f64, b: f64| rounding_mode.map_or(a / b, |mode| super::rounded(a, b, mode));
        both(&as_array(input), &as_array(other), real, quotient)
    }

    fn samples(s: &mut Samples) {
        if s.dtype().is_floating() {
            s.elementwise_binary(Domain::ALL, Domain::POSITIVE);
        }
        s.case(with(s.normal([4, 1, 3]), s.uniform(1.0, 4.0, [5, 1])));
        s.case(with(s.normal([0, 3]), s.uniform(1.0, 4.0, [1])));
        s.case(with(s.of(DType::I32, [2, 3]), s.uniform(1.0, 4.0, [3])));
        s.case(with(s.normal([3]), 2));
        s.case(with(2.5, s.uniform(1.0, 4.0, [2, 2])));
        if s.dtype().is_floating() {
            // Numbers that f16 does not hold, and quotients, which it does.
            s.case(with(s.values([3], [6e4, -3e4, 1024.0]), 65_536.0));
            s.case(with(s.values([3], [1e-4, -2e-4, 3e-4]), 1e-8)).forward_only("gradients are beyond f16");
        }
        if s.dtype().accumulator() != s.dtype() {
            for mode in [RoundingMode::Floor, RoundingMode::Trunc] {
                // Of 16 bits the divisor would be below a tenth, and the first quotient 10.
                let input = s.values([5], [1.0, -1.0, 0.3, 2.0, 0.0]);
                s.case(with(input, 0.1).rounding_mode(mode)).forward_only("the quotient jumps");
            }
        }
        if s.dtype() != DType::Bool && !s.dtype().is_complex() {
            for mode in [RoundingMode::Floor, RoundingMode::Trunc] {
                let why = "the quotient jumps";
                let (a, b) = (s.values([6], [7.0, -7.0, 6.0, -6.0, 1.0, 0.0]), s.values([6], [2.0, 2.0, 3.0, 4.0]));
                s.case(with(a, b).rounding_mode(mode)).forward_only(why);
                s.case(with(s.normal([5]), 3).rounding_mode(mode)).forward_only(why);
                if s.dtype().is_floating() {
                    // An odd number of as many bits as the type has: with a half it would be rounded to the next.
                    let edge = 1.0 / s.dtype().epsilon() + 1.0;
                    let edges = s.values([2], [edge, -edge]);
                    s.case(with(edges, 1.0).rounding_mode(mode)).forward_only(why);
                    let small = s.values([4], [3.0, -3.0, 0.0, -1e-3]);
                    let large = s.values([4], [f64::INFINITY, f64::INFINITY, f64::INFINITY, 3.0]);
                    s.case(with(small, large).rounding_mode(mode)).forward_only(why);
                }
            }
        }
        if s.dtype().is_floating() {
            for mode in [RoundingMode::Floor, RoundingMode::Trunc] {
                let (inf, nan) = (f64::INFINITY, f64::NAN);
                let input = s.values([12], [inf, -inf, inf, inf, 0.0, -0.0, 1.0, -1.0, nan, 1.0, inf, -0.5]);
                let other = s.values([12], [2.0, 2.0, inf, -3.0, 3.0, 3.0, 0.0, 0.0, 1.0, nan, 0.0, 2.0]);
                s.case(with(input, other).rounding_mode(mode)).forward_only("infinities and zeros");
            }
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensor, with(1, 2.0), "expected at least one tensor");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        let (a, b) = (e.of(DType::C64, [2]), e.of(DType::C64, [2]));
        e.case(RoundedComplex, with(a, b).rounding_mode(RoundingMode::Floor), "complex numbers cannot be divided");
        e.case(
            RoundedBool,
            with(e.booleans([2]), e.booleans([2])).rounding_mode(RoundingMode::Floor),
            "booleans cannot be divided",
        );
    }
}

/// The quotient of floating-point numbers of one shape and type, rounded to an integer. It is constant between its
/// jumps: both gradients are zero, also where `other` is zero and a quotient has no derivative, as in PyTorch.
#[operator(waive(d_out = "the function is constant between its jumps"))]
pub mod rounded_quotient {
    fn rounded_quotient(input: Tensor<Floating>, other: Tensor<Floating>, rounding_mode: RoundingMode) -> Tensor;

    fn meta(input: &TensorMeta, other: &TensorMeta) -> Result<TensorMeta> {
        same_shape(("input", input), ("other", other), Code::SameShape)?;
        same_dtype(("input", input), ("other", other), Code::SameDType)?;
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, other: Tensor, rounding_mode: RoundingMode) -> Tensor {
        match rounding_mode {
            // In bf16 the quotient might be rounded up to an integer before it is cut off.
            RoundingMode::Trunc => in_accumulator([input, other], |input, other| {
                // Zero keeps its sign, as does what is rounded to it.
                let quotient = prims::div(input, other);
                let negative = prims::lt(quotient, 0.0);
                prims::select(negative, prims::neg(prims::floor(prims::neg(quotient))), prims::floor(quotient))
            }),
            RoundingMode::Floor => floor_quotient(input, other),
        }
    }

    fn grad(input: Tensor, other: Tensor, rounding_mode: RoundingMode) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (rounded_quotient(input, other, rounding_mode), move |_d_out: Tensor| Grads {
            input: constant_like(input, 0.0),
            other: constant_like(other, 0.0),
        })
    }

    fn reference(input: &ArrayD<f64>, other: &ArrayD<f64>, rounding_mode: RoundingMode) -> ArrayD<f64> {
        zip(input, other, |a, b| super::rounded(a, b, rounding_mode))
    }

    fn samples(s: &mut Samples) {
        for mode in [RoundingMode::Floor, RoundingMode::Trunc] {
            // Far from the jumps, so that differences see the zeros of the gradients.
            s.case(with(s.uniform(4.2, 4.8, [2, 3]), s.values([2, 3], [2.0, -2.0, 1.0, -1.0]), mode));
            s.case(with(s.uniform(0.2, 0.8, []), s.values([], [1.0]), mode));
            s.case(with(s.normal([0, 3]), s.normal([0, 3]), mode));
            s.case(with(s.normal([67, 65]), s.uniform(1.0, 4.0, [67, 65]), mode)).forward_only("the quotient jumps");
            let (input, other) =
                (s.values([6], [1.0, -1.0, 0.0, 7.0, -0.5, -0.0]), s.values([6], [0.0, 0.0, 0.0, 2.0]));
            s.case(with(input, other, mode))
                .forward_only("the quotient jumps where other is zero")
                .gradients([&[0.0; 6], &[0.0; 6]]);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let floor = RoundingMode::Floor;
        e.case(SameShape, with(e.normal([2, 3]), e.normal([3]), floor), "input has shape [2, 3], other has [3]");
        let other = e.of(another(e.dtype()), [2]);
        e.case(SameDType, with(e.normal([2]), other, floor), "expected equal dtypes");
    }
}

/// For references: `a / b` rounded.
fn rounded(a: f64, b: f64, mode: RoundingMode) -> f64 {
    match mode {
        RoundingMode::Trunc => (a / b).trunc(),
        // Infinity has no remainder, so that nothing can be taken from it to leave a multiple.
        RoundingMode::Floor if a.is_infinite() && b != 0.0 => f64::NAN,
        // Below zero, however little.
        RoundingMode::Floor if b.is_infinite() && a * b < 0.0 => -1.0,
        RoundingMode::Floor => (a / b).floor(),
    }
}
