//! Activations of several tensors, of halves of a tensor, and of rows.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::Scalar;

use super::softmax;
use crate::core::arrays::{along, remade, softmax_row, zip};
use crate::core::promotion::{broadcast, fills, in_floating, operand_number, position};
use crate::nn::logistic;
use crate::prims;

/// Each element, or `value` if it is not above `threshold`; NaN stays NaN. The gradient of what was replaced is zero.
/// For integers the fractions of both are cut off first; u8 takes negative integers down to -255, which wrap.
#[operator(torch = "nn.functional.threshold")]
pub mod threshold {
    fn threshold(input: Tensor<Number>, threshold: f64, value: f64) -> Tensor;

    fn meta(input: &TensorMeta, threshold: f64, value: f64) -> Result<TensorMeta> {
        if !input.dtype().is_floating() {
            fills("threshold", whole(threshold), input.dtype(), Code::Threshold.name())?;
            fills("value", whole(value), input.dtype(), Code::Value.name())?;
        }
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, threshold: f64, value: f64) -> Tensor {
        let [limit, value] = [threshold, value].map(|number| operand_number(number.into(), input.dtype()));
        prims::select(prims::le(input, limit), value, input)
    }

    fn reference(input: &ReferenceTensor, threshold: f64, value: f64) -> ReferenceTensor {
        let [limit, other] = [threshold, value].map(|number| input.dtype().nearest(number));
        let wrapped = |number: f64| input.dtype().wrapped(number as i64);
        remade(
            input,
            |a| a.mapv(|x| if x <= limit { other } else { x }),
            |a| a.mapv(|x| if x <= wrapped(threshold) { wrapped(value) } else { x }),
        )
    }

    fn samples(s: &mut Samples) {
        if !s.dtype().is_floating() {
            let value = if s.dtype().is_unsigned() { -2.0 } else { -2.5 };
            s.case(with(s.values([5], [0.0, 1.0, 2.0, 3.0, 100.0]), 2.75, value));
            s.case(with(s.values([5], [0.0, 1.0, 2.0, 3.0, 100.0]), -1.0, 4.0));
            return;
        }
        for (shape, value) in [(&[][..], 20.0), (&[0, 3], -1.0), (&[5, 7], 0.1), (&[5, 7], 1.25)] {
            s.case(with(s.normal(shape), value / 4.0, value));
        }
        s.case(with(s.values([4], [0.25, f64::NAN, -1.0, 0.5]), 0.25, 2.0)).forward_only("the threshold itself");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Threshold, with(e.of(DType::U8, [2]), 256.0, 1.0), "which u8 cannot hold");
        e.case(Value, with(e.of(DType::I64, [2]), 1.0, f64::NAN), "value is nan, which i64 cannot hold");
        e.case(Value, with(e.of(DType::U8, [2]), 1.0, -2.5), "value is -2.5, which u8 cannot hold");
    }
}

/// A number without a fraction as an integer, which wraps where a type has no sign: callers write -1 for it.
fn whole(number: f64) -> Scalar {
    match number.fract() == 0.0 && number.abs() < 9.0e15 {
        true => Scalar::Int(number as i64),
        false => Scalar::Float(number),
    }
}

/// `x` where it is positive, `weight · x` elsewhere, with a weight for each channel (dimension 1) or one for all.
#[operator(torch = "prelu")]
pub mod prelu {
    fn prelu(input: Tensor<Floating>, weight: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta, weight: &TensorMeta) -> Result<TensorMeta> {
        let channels = if input.rank() < 2 { 1 } else { input.shape()[1] };
        let one = weight.len() == 1 && weight.rank() <= 1;
        require!(
            one || weight.shape() == [channels],
            WeightShape,
            "weight has shape {:?}, expected [{channels}] or [1] for input {:?}",
            weight.shape(),
            input.shape()
        );
        prims::checks::same_dtype(("input", input), ("weight", weight), Code::SameDType)?;
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, weight: Tensor) -> Tensor {
        let shape = input.shape();
        let spread = match weight.shape().iter().product::<usize>() {
            1 => broadcast(prims::reshape(weight, []), &shape),
            _ => prims::broadcast_in_dim(weight, shape, [1]),
        };
        prims::select(prims::gt(input, 0.0), input, prims::mul(input, spread))
    }

    fn reference(input: &ArrayD<f64>, weight: &ArrayD<f64>) -> ArrayD<f64> {
        let mut shape = vec![1; input.ndim()];
        if weight.len() > 1 {
            shape[1] = weight.len();
        }
        let weight = crate::core::arrays::reshaped(weight, &shape);
        zip(input, &weight, |x, slope| if x > 0.0 { x } else { slope * x })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 5]), s.uniform(0.1, 0.5, [3])));
        s.case(with(s.normal([4]), s.uniform(0.1, 0.5, [1])));
        s.case(with(s.normal([]), s.uniform(0.1, 0.5, [])));
        s.case(with(s.normal([0, 3]), s.uniform(0.1, 0.5, [3])));
        s.case(with(s.values([4], [0.0, -1.0, f64::NAN, 2.0]), s.values([1], [0.5]))).forward_only("the kink at zero");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(WeightShape, with(e.normal([2, 3]), e.normal([2])), "weight has shape [2], expected [3] or [1]");
        e.case(WeightShape, with(e.normal([2]), e.normal([2])), "weight has shape [2], expected [1] or [1]");
        e.case(WeightShape, with(e.normal([2, 3]), e.normal([1, 1])), "weight has shape [1, 1]");
        e.case(SameDType, with(e.normal([2]), e.of(DType::F64, [1])), "expected equal dtypes");
    }
}

/// The gated linear unit: the first half of `input` along `dim` times the logistic function of the second, computed in
/// f32 for f16 and bf16. Dauphin et al., 2016.
#[operator(torch = "nn.functional.glu")]
pub mod glu {
    fn glu(input: Tensor<Floating>, #[default(-1)] dim: i64) -> Tensor;

    fn meta(input: &TensorMeta, dim: i64) -> Result<TensorMeta> {
        require!(input.rank() > 0, InputRank, "input is zero-dimensional, which has no halves");
        let dim = normalize_dim(dim, input.rank())?;
        let extent = input.shape()[dim];
        require!(
            extent.is_multiple_of(2),
            Halves,
            "input has extent {extent} in dimension {dim}, expected an even one"
        );
        let mut shape = input.shape().to_vec();
        shape[dim] /= 2;
        Ok(input.with_shape(shape))
    }

    fn decomposition(input: Tensor, dim: i64) -> Tensor {
        let half = input.shape()[position(dim, input.rank())] / 2;
        in_floating(input, |x| {
            let [value, gate] = [0, half].map(|start| crate::core::narrow(x, dim, start as i64, half));
            prims::mul(value, logistic(gate))
        })
    }

    fn reference(input: &ArrayD<f64>, dim: i64) -> ArrayD<f64> {
        let axis = ndarray::Axis(position(dim, input.ndim()));
        let (value, gate) = input.view().split_at(axis, input.shape()[axis.0] / 2);
        &value * &gate.mapv(|x| 1.0 / (1.0 + (-x).exp()))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 8])));
        s.case(with(s.normal([4, 5])).dim(0));
        s.case(with(s.normal([2, 0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(InputRank, with(e.normal([])), "input is zero-dimensional");
        e.case(Halves, with(e.normal([2, 3])), "input has extent 3 in dimension 1, expected an even one");
    }
}

/// The softmax of the negative elements along `dim`: see [`softmax`]. The smallest element has the largest share.
/// Integers have signs, and a `dtype` that the result has.
#[operator(torch = "nn.functional.softmin", autocast = full, dtypes(i8, i16, i32, i64, f16, bf16, f32, f64))]
pub mod softmin {
    fn softmin(input: Tensor, dim: i64, #[default(None)] dtype: Option<DType>) -> Tensor;

    fn requires(input: &TensorMeta, dim: i64, dtype: Option<DType>) -> Result<()> {
        normalize_dim(dim, input.rank())?;
        let dtype = dtype.unwrap_or(input.dtype());
        require!(
            dtype.is_floating(),
            ResultType,
            "the result would be {dtype}, expected a floating-point dtype: give `dtype` for an input of another type"
        );
        Ok(())
    }

    fn decomposition(input: Tensor, dim: i64, dtype: Option<DType>) -> Tensor {
        softmax::with(prims::neg(input), dim).dtype(dtype).call()
    }

    fn reference(input: &ArrayD<f64>, dim: i64) -> ArrayD<f64> {
        along(&-input, dim, softmax_row)
    }

    fn samples(s: &mut Samples) {
        if !s.dtype().is_floating() {
            s.case(with(s.uniform(-2.0, 2.0, [3, 4]), 1).dtype(DType::F32));
            return;
        }
        s.case(with(s.normal([4, 7]), -1));
        s.case(with(s.normal([3, 2, 5]), 1));
        s.case(with(s.normal([]), 0));
        s.case(with(s.normal([3, 4]), 0).dtype(DType::F64));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(ResultType, with(e.normal([2]), 0).dtype(DType::I64), "the result would be i64");
    }
}
