use fulgurite_ops_macros::operator;

/// `input` where `condition` holds, `other` elsewhere, elementwise. The three have one shape, `input` and `other` one
/// element type; a number may replace one of these two. What is not selected has no gradient, not even where it is
/// infinite or NaN. (`where` in PyTorch, a keyword of Rust.)
#[operator(prim, name = "prims::where", torch = "where", overload = Where)]
pub mod select {
    fn select(condition: Tensor<Boolean>, input: Operand, other: Operand) -> Tensor;

    fn scalar(condition: Expr, input: Expr, other: Expr) -> Expr {
        condition.select(input, other)
    }

    fn grad(Args { condition, input, other }: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (select(condition, input, other), move |d_out: Tensor| Grads {
            input: input.cotangent(|| select(condition, d_out, 0.0)),
            other: other.cotangent(|| select(condition, 0.0, d_out)),
        })
    }

    fn reference(
        condition: &ArrayD<bool>,
        input: &Operand<ReferenceTensor>,
        other: &Operand<ReferenceTensor>,
    ) -> ReferenceTensor {
        let [input, other] = filled([input, other]);
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
}
