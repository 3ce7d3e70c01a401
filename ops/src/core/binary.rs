//! Elementwise functions of two tensors, comparisons and connectives, with broadcasting and type promotion.

use fulgurite_ops_macros::{operator, operators};

use num_complex::Complex64;

use super::arrays::zip;
use super::complex_references::as_array;
use super::parts;
use super::promotion::{
    broadcast, cast, common_shape, constant, describe_shapes, elementwise_meta, operand_number, promoted, result_type,
};
use crate::prims;

// Declares functions of two tensors of the type they meet in. PyTorch takes no number here.
operators! {
    #[operator(torch = $torch, commutes)]
    pub mod $name {
        fn $name(input: Tensor<$class>, other: Tensor<$class>) -> Tensor;

        fn meta(input: &TensorMeta, other: &TensorMeta) -> Result<TensorMeta> {
            let operands = [Operand::Tensor(input), Operand::Tensor(other)];
            require!(
                common_shape(&operands).is_some(),
                Broadcast,
                "shapes {} do not broadcast",
                describe_shapes(&operands)
            );
            Ok(elementwise_meta(&operands, result_type(&operands)))
        }

        fn decomposition(input: Tensor, other: Tensor) -> Tensor {
            let operands = [Operand::Tensor(input), Operand::Tensor(other)];
            let [input, other] = promoted(operands);
            match result_type(&operands) {
                DType::Bool => prims::$connective(input, other),
                _ => prims::$name(input, other),
            }
        }

        fn reference(input: &ArrayD<f64>, other: &ArrayD<f64>) -> ArrayD<f64> {
            zip(input, other, $reference)
        }

        fn samples(s: &mut Samples) {
            s.elementwise_binary($left, $right);
            s.case(with(s.uniform(-6.0, 6.0, [4, 1, 3]), s.uniform(1.3, 4.0, [5, 1])));
            s.case(with(s.normal([0, 3]), s.uniform(1.0, 4.0, [1])));
            s.case(with(s.of(DType::I32, [2, 3]), s.uniform(1.3, 4.0, [3])));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        }
    }

    table($name, $class, $torch, $left, $right, $connective, $reference) {
        /// The larger of two elements; NaN if either is. Where they are equal each gets half of the gradient.
        maximum, Any, "maximum", Domain::ALL,
            Domain::ALL,
            logical_or,
            |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
        /// The smaller of two elements; NaN if either is. Where they are equal each gets half of the gradient.
        minimum, Any, "minimum", Domain::ALL,
            Domain::ALL,
            logical_and,
            |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) };
    }
}

// Declares functions whose result is boolean.
operators! {
    #[operator(torch = $torch, $commutes, $complex, no_grad = "a boolean has no gradient")]
    pub mod $name {
        fn $name(input: Tensor, other: Operand) -> Tensor;

        fn meta(input: &TensorMeta, other: Operand<&TensorMeta>) -> Result<TensorMeta> {
            let operands = [Operand::Tensor(input), other];
            require!(
                common_shape(&operands).is_some(),
                Broadcast,
                "shapes {} do not broadcast",
                describe_shapes(&operands)
            );
            Ok(elementwise_meta(&operands, DType::Bool))
        }

        fn decomposition(input: Tensor, other: Operand<Tensor>) -> Tensor {
            let [input, other] = promoted([Operand::Tensor(input), other]);
            $compare(input, other)
        }

        fn reference(input: &ReferenceTensor, other: &Operand<ReferenceTensor>) -> ArrayD<bool> {
            let compare: fn(f64, f64) -> bool = $reference;
            let whole: fn(bool, bool) -> bool = $parts;
            let both = |a: Complex64, b: Complex64| whole(compare(a.re, b.re), compare(a.im, b.im));
            match as_array(other) {
                other if input.imaginary().or(other.imaginary()).is_none() => {
                    zip(input.floats(), other.floats(), compare)
                }
                other => zip(&input.complex(), &other.complex(), both),
            }
        }

        fn samples(s: &mut Samples) {
            s.elementwise_binary(Domain::ALL, Domain::ALL);
            s.case(with(s.values([3, 4], [1.0, 0.0, 3.0]), s.values([4], [1.0, 3.0, 2.0, 0.0])));
            s.case(with(s.values([2, 3], [1.0, 0.0, 3.0]), 1));
            s.case(with(s.values([2, 3], [1.0, 0.5, 3.0]), 0.5));
            s.case(with(s.values([3], [1.0, 0.0, 3.0]), s.of(DType::I32, [2, 3])));
            s.case(with(s.normal([0, 3]), s.normal([1])));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        }
    }

    table($name, $torch, $commutes, $complex, $compare, $parts, $reference) {
        /// Whether elements are equal. NaN equals nothing.
        eq, "eq", commutes, complex, parts::eq, |re, im| re && im, |a, b| a == b;
        /// Whether elements differ. NaN differs from everything.
        ne, "ne", commutes, complex, parts::ne, |re, im| re || im, |a, b| a != b;
        /// Whether each element of `input` is below that of `other`; false for NaN.
        lt, "lt", _, _, prims::lt, |re, _| re, |a, b| a < b;
        /// Whether each element of `input` is not above that of `other`; false for NaN.
        le, "le", _, _, prims::le, |re, _| re, |a, b| a <= b;
        /// Whether each element of `input` is above that of `other`; false for NaN.
        gt, "gt", _, _, prims::gt, |re, _| re, |a, b| a > b;
        /// Whether each element of `input` is not below that of `other`; false for NaN.
        ge, "ge", _, _, prims::ge, |re, _| re, |a, b| a >= b;
    }
}

// Declares connectives: operands are booleans, or count as whether they differ from zero.
operators! {
    #[operator(torch = $torch, commutes, no_grad = "a boolean has no gradient")]
    pub mod $name {
        fn $name(input: Tensor, other: Tensor) -> Tensor;

        fn meta(input: &TensorMeta, other: &TensorMeta) -> Result<TensorMeta> {
            let operands = [Operand::Tensor(input), Operand::Tensor(other)];
            require!(
                common_shape(&operands).is_some(),
                Broadcast,
                "shapes {} do not broadcast",
                describe_shapes(&operands)
            );
            Ok(elementwise_meta(&operands, DType::Bool))
        }

        fn decomposition(input: Tensor, other: Tensor) -> Tensor {
            let [input, other] = promoted([Operand::Tensor(input), Operand::Tensor(other)]);
            prims::$name(input, other)
        }

        fn reference(input: &ArrayD<bool>, other: &ArrayD<bool>) -> ArrayD<bool> {
            zip(input, other, $reference)
        }

        fn samples(s: &mut Samples) {
            s.elementwise_binary(Domain::ALL, Domain::ALL);
            s.case(with(s.values([3, 4], [1.0, 0.0, 3.0]), s.values([4], [1.0, 3.0, 2.0, 0.0])));
            s.case(with(s.values([3], [1.0, 0.0, 3.0]), s.booleans([2, 3])));
            s.case(with(s.normal([0, 3]), s.normal([1])));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        }
    }

    table($name, $torch, $reference) {
        /// Whether both elements differ from zero. NaN does.
        logical_and, "logical_and", |a, b| a && b;
        /// Whether either element differs from zero. NaN does.
        logical_or, "logical_or", |a, b| a || b;
    }
}

/// `input` where `condition` holds, `other` elsewhere, elementwise, with broadcasting and type promotion. What is not
/// selected has no gradient, not even where it is infinite or NaN. (`where` is a keyword of Rust.)
#[operator(name = "where", torch = "where", complex)]
pub mod where_ {
    fn where_(condition: Tensor<Boolean>, input: Operand, other: Operand) -> Tensor;

    fn meta(condition: &TensorMeta, input: Operand<&TensorMeta>, other: Operand<&TensorMeta>) -> Result<TensorMeta> {
        let all = [Operand::Tensor(condition), input, other];
        require!(common_shape(&all).is_some(), Broadcast, "shapes {} do not broadcast", describe_shapes(&all));
        Ok(elementwise_meta(&all, result_type(&[input, other])))
    }

    fn decomposition(condition: Tensor, input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
        let all = [Operand::Tensor(condition), input, other];
        let meta = elementwise_meta(&all, result_type(&[input, other]));
        let spread = |operand: Operand<Tensor>| match operand {
            Operand::Tensor(tensor) => Operand::Tensor(broadcast(cast(tensor, meta.dtype()), meta.shape())),
            Operand::Scalar(scalar) => Operand::Scalar(operand_number(scalar, meta.dtype())),
        };
        let chosen = match (spread(input), spread(other)) {
            (Operand::Scalar(input), other @ Operand::Scalar(_)) => (constant(input, &meta).into(), other),
            operands => operands,
        };
        parts::select(broadcast(condition, meta.shape()), chosen.0, chosen.1)
    }

    fn reference(
        condition: &ArrayD<bool>,
        input: &Operand<ReferenceTensor>,
        other: &Operand<ReferenceTensor>,
    ) -> ReferenceTensor {
        let [input, other] = [input, other].map(as_array);
        let complex = input.imaginary().or(other.imaginary()).is_some();
        let both = zip(&input.complex(), &other.complex(), |a, b| (a, b));
        let condition = condition.mapv(|holds| (Complex64::from(f64::from(u8::from(holds))), Complex64::default()));
        let chosen = zip(&condition, &both, |c, (a, b)| (if c.0.re != 0.0 { a } else { b }, Complex64::default()));
        match complex {
            true => chosen.mapv(|(value, _)| value).into(),
            false => chosen.mapv(|(value, _)| value.re).into(),
        }
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[7], &[4, 8], &[0, 3]] {
            s.case(with(s.booleans(shape), s.normal(shape), s.normal(shape)));
        }
        s.case(with(s.booleans([3, 1]), s.normal([4]), s.normal([2, 1, 1])));
        s.case(with(s.booleans([3]), s.normal([3]), 2));
        s.case(with(s.booleans([3]), -1.5, s.normal([3])));
        s.case(with(s.booleans([3]), s.normal([3]), s.of(DType::I32, [3])));
        s.case(with(s.booleans([3]), 1.0, 0.0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(
            Broadcast,
            with(e.booleans([2, 3]), e.normal([4]), e.normal([1])),
            "shapes [2, 3] and [4] and [1] do not broadcast",
        );
    }
}
