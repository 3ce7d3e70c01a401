use fulgurite_ops_macros::operator;

use super::arrays::{spread, zip};
use super::promotion::{broadcast, broadcast_shapes, cast, fills, operand_number};
use crate::prims;

/// `value`, a number or a tensor without dimensions, where `mask` holds; `input` elsewhere. The result has the element
/// type of `input`; for integers a fraction of `value` is cut off.
#[operator(torch = "masked_fill")]
pub mod masked_fill {
    fn masked_fill(input: Tensor, mask: Tensor<Boolean>, value: Operand) -> Tensor;

    fn meta(input: &TensorMeta, mask: &TensorMeta, value: Operand<&TensorMeta>) -> Result<TensorMeta> {
        let shape = broadcast_shapes(&[input.shape(), mask.shape()]);
        require!(
            shape.is_some(),
            Broadcast,
            "input has shape {:?}, mask {:?}: they do not broadcast",
            input.shape(),
            mask.shape()
        );
        match value {
            Operand::Scalar(value) => fills("value", value, input.dtype(), Code::Value.name())?,
            Operand::Tensor(value) => {
                require!(
                    value.rank() == 0,
                    ValueRank,
                    "value has shape {:?}, expected a number or a tensor without dimensions",
                    value.shape()
                );
            }
        }
        Ok(input.with_shape(shape.unwrap_or_default()))
    }

    fn decomposition(input: Tensor, mask: Tensor, value: Operand<Tensor>) -> Tensor {
        let shape = broadcast_shapes(&[&input.shape(), &mask.shape()]).unwrap_or_default();
        let fill = match value {
            Operand::Scalar(value) => Operand::Scalar(operand_number(value, input.dtype())),
            Operand::Tensor(value) => Operand::Tensor(broadcast(cast(value, input.dtype()), &shape)),
        };
        prims::select(broadcast(mask, &shape), fill, broadcast(input, &shape))
    }

    fn reference(input: &ArrayD<f64>, mask: &ArrayD<bool>, value: ArrayD<f64>) -> ArrayD<f64> {
        let shape = broadcast_shapes(&[input.shape(), mask.shape()]).unwrap_or_default();
        let mask = spread(mask, &shape).mapv(|holds| f64::from(u8::from(holds)));
        zip(input, &mask, |x, holds| if holds != 0.0 { value[[]] } else { x })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 3]), s.booleans([4, 3]), 2i64));
        s.case(with(s.normal([4, 3]), s.booleans([3]), 0.0));
        s.case(with(s.normal([3]), s.booleans([4, 1]), 1i64));
        s.case(with(s.normal([]), s.booleans([]), 1i64));
        s.case(with(s.normal([0, 3]), s.booleans([3]), 1i64));
        s.case(with(s.normal([4, 3]), s.booleans([4, 3]), s.normal([])));
        s.case(with(s.normal([3]), s.booleans([2, 1]), s.of(DType::I64, [])));
        if s.dtype().is_floating() {
            s.case(with(s.normal([4, 3]), s.booleans([4, 3]), f64::NEG_INFINITY));
            s.case(with(s.normal([4, 3]), s.booleans([4, 3]), 0.1));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Broadcast, with(e.normal([2, 3]), e.booleans([2]), 0.0), "they do not broadcast");
        e.case(ValueRank, with(e.normal([2]), e.booleans([2]), e.normal([1])), "value has shape [1]");
        e.case(Value, with(e.of(DType::I64, [2]), e.booleans([2]), f64::NAN), "value is nan, which i64 cannot hold");
        e.case(Value, with(e.of(DType::F16, [2]), e.booleans([2]), -1e9), "which f16 cannot hold");
    }
}
