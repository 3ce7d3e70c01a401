//! Operations on bits, and the exclusive or, elementwise, with broadcasting and type promotion.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::DType;

use super::arrays::zip;
use super::promotion::{common_shape, describe_shapes, elementwise_meta, operands_meet, promoted, result_type};
use crate::prims;

operators! {
    #[operator(torch = $torch, dtypes(bool, u8, i8, u16, i16, u32, i32, i64), no_grad = "integers have no gradient")]
    pub mod $name {
        fn $name(input: Operand, other: Operand) -> Tensor;

        fn meta(input: Operand<&TensorMeta>, other: Operand<&TensorMeta>) -> Result<TensorMeta> {
            let operands = [input, other];
            operands_meet(&operands, "other", [Code::NoTensor.name(), Code::Broadcast.name()])?;
            let dtype = result_type(&operands);
            require!($accepts(dtype), Bits, "input and other meet in {dtype}, expected {}", $expected);
            Ok(elementwise_meta(&operands, dtype))
        }

        fn decomposition(input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
            let [left, right] = promoted([input, other]);
            match result_type(&[input, other]) {
                DType::Bool => prims::$of_booleans(left, right),
                _ => prims::$name(left, right),
            }
        }

        fn reference(input: ArrayD<f64>, other: ArrayD<f64>) -> ArrayD<f64> {
            let whole = |operand: ArrayD<f64>| operand.mapv(|x| x as i64);
            zip(&whole(input), &whole(other), $reference).mapv(|bits| bits as f64)
        }

        fn samples(s: &mut Samples) {
            let of = |shape: &[usize], most: i64| s.integers(0, most, shape).cast(s.dtype());
            if !$accepts(s.dtype()) {
                s.case(with(of(&[3], 2), 1));
                return;
            }
            let cases = [
                with(of(&[3, 1, 5], 120), of(&[7, 5], $most)),
                with(of(&[], 120), of(&[0], $most)),
                with(of(&[4], 120), of(&[4], $most).cast(DType::I64)),
                with(of(&[4], 120), 1),
                with(5, of(&[4], $most)),
            ];
            for case in cases {
                s.case(case);
            }
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(NoTensor, with(1, 2), "expected at least one tensor");
            let apart = with(e.integers(0, 2, [3]), e.integers(0, 2, [4]));
            e.case(Broadcast, apart, "shapes [3] and [4] do not broadcast");
            e.case(Bits, with(e.integers(0, 2, [2]), 0.5), "input and other meet in f32, expected integers");
        }
    }

    table($name, $torch, $of_booleans, $accepts, $expected, $most, $reference) {
        /// The bits that both elements have; of booleans whether both hold.
        bitwise_and, "bitwise_and", logical_and, exact, "integers or booleans", 120, |a, b| a & b;
        /// The bits that either element has; of booleans whether one holds.
        bitwise_or, "bitwise_or", logical_or, exact, "integers or booleans", 120, |a, b| a | b;
        /// The bits that one of two elements has; of booleans whether they differ.
        bitwise_xor, "bitwise_xor", ne, exact, "integers or booleans", 120, |a, b| a ^ b;
        /// The bits of `input` moved to the left, each 2 to the power `other` times as large. Those beyond the element
        /// type are lost; a shift by its bits and more, or by a negative number, leaves none.
        bitwise_left_shift, "bitwise_left_shift", ne, integer, "integers", 7, |a, b| a << b;
        /// The bits of `input` moved to the right, with copies of its sign: the quotient by 2 to the power `other`,
        /// rounded down. A shift by all bits and more, or by a negative number, leaves copies of the sign.
        bitwise_right_shift, "bitwise_right_shift", ne, integer, "integers", 7, |a, b| a >> b;
    }
}

fn exact(dtype: DType) -> bool {
    !dtype.is_floating()
}

fn integer(dtype: DType) -> bool {
    dtype.is_integer()
}

/// The bits of each element the other way round; of booleans whether each does not hold.
#[operator(torch = "bitwise_not", dtypes(bool, u8, i8, u16, i16, u32, i32, i64), no_grad = "integers have no gradient")]
pub mod bitwise_not {
    fn bitwise_not(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor) -> Tensor {
        match input.dtype().limits() {
            None => prims::logical_not(input),
            Some((0, largest)) => prims::bitwise_xor(input, largest),
            Some(_) => prims::bitwise_xor(input, -1),
        }
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        let dtype = input.dtype();
        let turned = |x: i64| if dtype == DType::Bool { 1 - x } else { dtype.wrapped(!x) };
        ReferenceTensor::from_integers(dtype, input.integers().mapv(turned))
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
    }
}

/// Whether one of two elements differs from zero and the other does not. NaN differs.
#[operator(torch = "logical_xor", commutes, no_grad = "a boolean has no gradient")]
pub mod logical_xor {
    fn logical_xor(input: Tensor, other: Tensor) -> Tensor;

    fn meta(input: &TensorMeta, other: &TensorMeta) -> Result<TensorMeta> {
        let operands = [Operand::Tensor(input), Operand::Tensor(other)];
        let shapes = describe_shapes(&operands);
        require!(common_shape(&operands).is_some(), Broadcast, "shapes {shapes} do not broadcast");
        Ok(elementwise_meta(&operands, DType::Bool))
    }

    fn decomposition(input: Tensor, other: Tensor) -> Tensor {
        let [input, other] = promoted([Operand::Tensor(input), Operand::Tensor(other)]);
        prims::ne(prims::ne(input, 0.0), prims::ne(other, 0.0))
    }

    fn reference(input: &ArrayD<bool>, other: &ArrayD<bool>) -> ArrayD<bool> {
        zip(input, other, |a, b| a != b)
    }

    fn samples(s: &mut Samples) {
        s.composed_binary(Domain::ALL, Domain::ALL);
        s.case(with(s.values([3, 4], [1.0, 0.0, 3.0]), s.values([4], [1.0, 3.0, 2.0, 0.0])));
        s.case(with(s.values([3], [1.0, 0.0, 3.0]), s.booleans([2, 3])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
    }
}
