use fulgurite_ops_macros::operator;

use super::support::{another, constant, same_dtype};

/// `input` where `condition` holds, `other` elsewhere, elementwise. The three have one shape, `input` and `other` one
/// element type. What is not selected has no gradient, not even where it is infinite or NaN. (`where` in PyTorch, a keyword
/// of Rust.)
#[operator(prim, name = "prims::where", torch = "where")]
pub mod select {
    fn select(condition: Tensor<Boolean>, input: Tensor, other: Tensor) -> Tensor;

    fn meta(condition: &TensorMeta, input: &TensorMeta, other: &TensorMeta) -> Result<TensorMeta> {
        require!(
            condition.shape() == input.shape() && input.shape() == other.shape(),
            SameShape,
            "condition has shape {:?}, input {:?}, other {:?}, expected equal shapes",
            condition.shape(),
            input.shape(),
            other.shape()
        );
        same_dtype(input, other, Code::SameDType.name())?;
        Ok(input.clone())
    }

    fn scalar(condition: Expr, input: Expr, other: Expr) -> Expr {
        condition.select(input, other)
    }

    fn grad(condition: Tensor, input: Tensor, other: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (select(condition, input, other), move |d_out: Tensor| {
            let zero = constant(d_out, 0.0);
            Grads { input: select(condition, d_out, zero), other: select(condition, zero, d_out) }
        })
    }

    fn reference(condition: &ArrayD<bool>, input: &ReferenceTensor, other: &ReferenceTensor) -> ReferenceTensor {
        if input.dtype().is_floating() {
            let (a, b) = (input.floats(), other.floats());
            let values = ndarray::Zip::from(condition).and(a).and(b).map_collect(|c, a, b| if *c { *a } else { *b });
            ReferenceTensor::from_floats(input.dtype(), values)
        } else {
            let (a, b) = (input.integers(), other.integers());
            let values = ndarray::Zip::from(condition).and(a).and(b).map_collect(|c, a, b| if *c { *a } else { *b });
            ReferenceTensor::from_integers(input.dtype(), values)
        }
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[7], &[4, 8], &[3, 1, 5], &[0, 3], &[67, 65]] {
            s.case(with(s.booleans(shape), s.normal(shape), s.normal(shape)));
        }
        if s.dtype().is_floating() {
            let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0];
            s.case(with(s.booleans([4, 4]), s.values([4, 4], special), s.normal([4, 4])))
                .forward_only("special values");
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(SameShape, with(e.booleans([3]), e.normal([2, 3]), e.normal([2, 3])), "condition has shape [3]");
        e.case(SameShape, with(e.booleans([3]), e.normal([3]), e.normal([2, 3])), "other [2, 3]");
        e.case(SameDType, with(e.booleans([3]), e.normal([3]), e.of(another(e.dtype()), [3])), "expected equal dtypes");
    }
}
