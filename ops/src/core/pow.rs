use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;
use fulgurite_runtime::argument::Operand;

use super::complex_functions::{self, apply};
use super::complex_references::{self, as_array, both};
use super::parts::{self, Complex};
use super::promotion::{constant_like, elementwise_meta, fills, operands_meet, promoted, result_type};
use crate::prims;

/// `input` to the power `exponent`, elementwise, with broadcasting and type promotion. Small whole exponents and roots
/// are written with products and square roots. A complex zero has the powers that C and PyTorch have: zero of an
/// exponent whose real part is above zero, infinity and NaN of one below, NaN otherwise; to the number 0 it is one.
#[operator(torch = "pow", autocast = full, complex)]
pub mod pow {
    fn pow(input: Operand, exponent: Operand) -> Tensor;

    fn meta(input: Operand<&TensorMeta>, exponent: Operand<&TensorMeta>) -> Result<TensorMeta> {
        let operands = [input, exponent];
        operands_meet(&operands, "exponent", [Code::NoTensor.name(), Code::Broadcast.name()])?;
        let dtype = result_type(&operands);
        // Of true and false as numbers: the tensor itself, and true.
        let number = matches!(exponent, Operand::Scalar(_));
        require!(dtype != DType::Bool || number, PowerOfBool, "booleans have no powers");
        if let (false, Operand::Scalar(exponent)) = (dtype.is_differentiable(), exponent) {
            require!(exponent.to_i64() >= 0, NegativeExponent, "integers have no powers of negative exponents");
            fills("exponent", exponent, dtype, Code::Exponent.name())?;
        }
        Ok(elementwise_meta(&operands, dtype))
    }

    fn decomposition(input: Operand<Tensor>, exponent: Operand<Tensor>) -> Tensor {
        let known = match exponent {
            Operand::Scalar(scalar) => Some(scalar.to_f64()),
            Operand::Tensor(_) => None,
        };
        let (base, power) = match promoted([input, exponent]) {
            [base, power] if parts::any_complex(&[base, power]) => return super::of_complex(base, power),
            [Operand::Tensor(base), power] => (base, power),
            [base, power] => return prims::pow(base, power),
        };
        match known {
            Some(0.5) if base.dtype().is_floating() => prims::sqrt(base),
            Some(-0.5) if base.dtype().is_floating() => prims::rsqrt(base),
            Some(-1.0) if base.dtype().is_floating() => prims::reciprocal(base),
            Some(0.0) => constant_like(base, 1.0),
            Some(1.0) => base,
            Some(2.0) => prims::mul(base, base),
            Some(3.0) => prims::mul(prims::mul(base, base), base),
            _ => prims::pow(base, power),
        }
    }

    fn reference(input: &Operand<ReferenceTensor>, exponent: &Operand<ReferenceTensor>) -> ReferenceTensor {
        let zeroth = matches!(exponent, Operand::Scalar(number) if number.to_f64() == 0.0);
        let power = |a, b| if zeroth { 1.0.into() } else { complex_references::power(a, b) };
        both(&as_array(input), &as_array(exponent), f64::powf, power)
    }

    fn samples(s: &mut Samples) {
        if s.dtype() == DType::Bool {
            for exponent in [Scalar::Int(3), Scalar::Bool(true), Scalar::Bool(false)] {
                s.case(with(s.normal([3]), exponent));
            }
            return;
        }
        for exponent in [0.0, 0.5, -0.5, -1.0, 1.0, 2.0, 3.0, 2.5] {
            s.case(with(s.uniform(0.5, 3.0, [2, 3]), exponent));
        }
        s.case(with(s.normal([5]), 2));
        s.case(with(s.normal([5]), 3));
        s.case(with(1.5, s.uniform(0.5, 3.0, [4])));
        s.case(with(s.uniform(1.0, 3.0, [3, 1]), s.uniform(0.5, 2.5, [2])));
        s.case(with(s.uniform(1.0, 3.0, []), s.uniform(0.5, 2.5, [0])));
        s.case(with(s.uniform(1.0, 3.0, [4]), s.of(DType::F32, [])));
        s.case(with(s.uniform(1.0, 3.0, [4]), 0));
        if s.dtype().is_complex() {
            s.case(with(s.normal([3, 4]), -2));
            s.case(with(s.normal([4]), s.uniform(-2.0, 2.0, [3, 1])));
            s.case(with(s.normal([3]), s.uniform(-2.0, 2.0, [3])));
            s.case(with(-2.0, s.normal([3])));
            s.case(with(s.uniform(0.5, 2.0, [3]), s.of(DType::F32, [3])));
            s.case(with(s.of(DType::F32, [3]), s.normal([3])));
            let (zeros, exponents) = ([0.0; 10], [2.0, 0.0, 0.5, 3.0, 0.0, 0.0, -1.0, 0.0, 0.0, 1.0]);
            s.case(with(s.values([5], zeros), s.values([5], exponents))).forward_only("powers of zero");
            s.case(with(s.values([2], [0.0, 0.0, -0.0, 0.0]), 0.5)).forward_only("powers of zero");
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensor, with(1, 2.0), "expected at least one tensor");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        e.case(PowerOfBool, with(e.booleans([2]), e.booleans([2])), "booleans have no powers");
        e.case(Exponent, with(e.of(DType::I32, [2]), 1i64 << 31), "exponent is 2147483648, which i32 cannot hold");
        e.case(NegativeExponent, with(e.of(DType::I64, [2]), -1), "negative exponents");
    }
}

/// Powers of complex numbers; one of both is a complex tensor.
#[track_caller]
fn of_complex(base: Operand<Tensor>, power: Operand<Tensor>) -> Tensor {
    let (Operand::Tensor(tensor), Operand::Scalar(number)) = (base, power) else {
        let [base, power] = parts::pair([base, power]);
        return complex_functions::power(base, power).tensor();
    };
    let of = |function: fn(Complex) -> Complex| apply(tensor, function, |real| real);
    let square = || parts::mul(base, base);
    match number.to_f64() {
        0.5 => of(complex_functions::root),
        -0.5 => of(complex_functions::reciprocal_root),
        -1.0 => of(complex_functions::reciprocal),
        0.0 => constant_like(tensor, 1.0),
        1.0 => tensor,
        2.0 => square(),
        3.0 => parts::mul(square().into(), base),
        _ => {
            let [base, power] = parts::pair([base, power]);
            complex_functions::power(base, power).tensor()
        }
    }
}
