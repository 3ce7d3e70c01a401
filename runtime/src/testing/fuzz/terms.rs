//! How many terms an element of a result is a sum of.

use fulgurite_kernels::DType;
use ndarray::ArrayD;

use crate::argument::{Arg, map_arguments};
use crate::reference::ReferenceTensor;
use crate::testing::rules::ReferenceRule;

/// For each result of a call, how many terms each of its elements is a sum of: what the reference gives where every
/// floating-point operand is made of ones. (Indices and sizes stay as they are, so that an element that is scattered to
/// has as many terms as are added to it.) An operator that divides its sums gives no element above one; of such a
/// result, each element is taken to have its share of the elements of the largest operand.
pub(super) fn terms_of_each(rule: ReferenceRule, arguments: &[Arg<ReferenceTensor>]) -> Vec<Vec<f64>> {
    let ones = |operand: &ReferenceTensor| match operand.dtype() {
        dtype if dtype.is_floating() => of_floats(dtype, operand.shape(), vec![1.0; length(operand)]),
        _ => operand.clone(),
    };
    // A reference that refuses ones says nothing of its sums.
    let Ok(results) = rule(&map_arguments(arguments, ones)) else { return Vec::new() };
    let largest = arguments.iter().flat_map(Arg::tensors).map(length).max().unwrap_or(1);
    let counted = |result: &ReferenceTensor| {
        if !result.dtype().is_floating() {
            return vec![1.0; length(result)];
        }
        let count = |value: &f64| if value.is_finite() { value.abs().max(1.0) } else { 1.0 };
        let counts: Vec<f64> = result.floats().iter().map(count).collect();
        if counts.iter().any(|count| *count > 1.0) {
            return counts;
        }
        let share = largest as f64 / length(result).max(1) as f64;
        vec![share.max(1.0); counts.len()]
    };
    results.iter().map(counted).collect()
}

/// A tensor of these values in row-major order.
pub(super) fn of_floats(dtype: DType, shape: &[usize], values: Vec<f64>) -> ReferenceTensor {
    let array = ArrayD::from_shape_vec(ndarray::IxDyn(shape), values);
    ReferenceTensor::from_floats(dtype, array.unwrap_or_else(|_| unreachable!("as many values as elements")))
}

fn length(tensor: &ReferenceTensor) -> usize {
    tensor.shape().iter().product()
}

#[cfg(test)]
mod tests {
    use super::super::oracle::{Answer, Oracle};
    use super::*;
    use crate::array::Array;
    use crate::error::Failure;
    use crate::expansion;
    use crate::meta::{Device, TensorMeta};
    use crate::operator::{Class, OperatorDef, OperatorKind, ParamDef};
    use crate::registry::{OPERATORS, find_operator};
    use crate::testing::directives::Tolerance;
    use crate::testing::rules::TestRules;
    use crate::testing::subject::trace_of;
    use crate::tracer::rules::TracingRules;
    use crate::tracer::{Tensor, call, trace_block};

    type Results = Result<Vec<ReferenceTensor>, Failure>;

    const INPUT: ParamDef = expansion::tensor::define::<()>("input", Class::Any);
    const OTHER: ParamDef = expansion::tensor::define::<()>("other", Class::Any);

    const SAME: TracingRules =
        TracingRules { meta: Some(|arguments| Ok(vec![arguments[0].tensors()[0].clone()])), ..TracingRules::EMPTY };
    const PER_ROW: TracingRules = TracingRules {
        meta: Some(|arguments| {
            let input = &arguments[0].tensors()[0];
            Ok(vec![input.with_shape([input.shape()[0]])])
        }),
        ..TracingRules::EMPTY
    };

    macro_rules! operators {
        ($($id:ident: $name:literal, $params:expr, $tracing:expr, $reference:expr;)*) => {$(
            #[linkme::distributed_slice(OPERATORS)]
            static $id: &OperatorDef = &OperatorDef {
                name: $name,
                kind: OperatorKind::Prim,
                params: $params,
                rules: &[&$tracing, &TestRules { reference: Some($reference), ..TestRules::EMPTY }],
                ..expansion::OPERATOR
            };
        )*};
    }

    operators! {
        RUNNING: "terms::running", &[INPUT], SAME, running;
        ONTO_FIRST: "terms::onto_first", &[INPUT, OTHER], SAME, onto_first;
        DOTS: "terms::dots", &[INPUT, OTHER], PER_ROW, dots;
    }

    fn values(argument: &Arg<ReferenceTensor>) -> Vec<f64> {
        argument.tensors()[0].floats().iter().copied().collect()
    }

    fn given(shape: &[usize], values: Vec<f64>) -> Results {
        Ok(vec![of_floats(DType::F64, shape, values)])
    }

    /// The sums of all elements up to each.
    fn running(arguments: &[Arg<ReferenceTensor>]) -> Results {
        let sums = values(&arguments[0]).into_iter().scan(0.0, |sum, value| {
            *sum += value;
            Some(*sum)
        });
        given(arguments[0].tensors()[0].shape(), sums.collect())
    }

    /// All of the second operand added to the first element of the first.
    fn onto_first(arguments: &[Arg<ReferenceTensor>]) -> Results {
        let mut sums = values(&arguments[0]);
        sums[0] += values(&arguments[1]).iter().sum::<f64>();
        given(arguments[0].tensors()[0].shape(), sums)
    }

    /// The products of rows with rows: a product of matrices for each.
    fn dots(arguments: &[Arg<ReferenceTensor>]) -> Results {
        let shape = arguments[0].tensors()[0].shape();
        let (a, b) = (values(&arguments[0]), values(&arguments[1]));
        let products: Vec<f64> = a.iter().zip(b).map(|(a, b)| a * b).collect();
        given(&shape[..1], products.chunks(shape[1]).map(|row| row.iter().sum()).collect())
    }

    fn mean(arguments: &[Arg<ReferenceTensor>]) -> Results {
        let values = values(&arguments[0]);
        given(&[], vec![values.iter().sum::<f64>() / values.len() as f64])
    }

    fn tensor(shape: &[usize]) -> Arg<ReferenceTensor> {
        Arg::Tensor(of_floats(DType::F32, shape, vec![0.25; shape.iter().product()]))
    }

    #[test]
    fn terms_are_counted_in_the_operands() {
        assert_eq!(terms_of_each(running, &[tensor(&[4])]), [[1.0, 2.0, 3.0, 4.0]]);
        assert_eq!(terms_of_each(onto_first, &[tensor(&[3]), tensor(&[8])]), [[9.0, 1.0, 1.0]]);
        // As many as a row has, however many rows there are.
        assert_eq!(terms_of_each(dots, &[tensor(&[3, 5]), tensor(&[3, 5])]), [[5.0, 5.0, 5.0]]);
        // Divided, a sum of ones is one: its share of the operand.
        assert_eq!(terms_of_each(mean, &[tensor(&[6])]), [[6.0]]);
        assert!(terms_of_each(|_| Err(Failure::new("Refused", "ones")), &[tensor(&[6])]).is_empty());
    }

    /// Whether the results of an operator in f32 are accepted, all operands being this number.
    fn accepts(name: &str, shapes: &[&[usize]], number: f32, results: &[f32]) -> bool {
        let parameters: Vec<_> = (shapes.iter().enumerate())
            .map(|(i, shape)| (format!("x{i}").into(), TensorMeta::new(*shape, DType::F32, Device::CPU)))
            .collect();
        let def = find_operator(name).unwrap();
        let block = trace_block(&parameters, |x: &[Tensor]| call(def, x.iter().map(|x| Arg::Tensor(*x)).collect()));
        let arrays: Vec<Array> =
            (shapes.iter()).map(|shape| Array::new(*shape, &vec![number; shape.iter().product()]).unwrap()).collect();
        let Ok(Answer::Gives(oracle)) = Oracle::ask(&trace_of(name, block.unwrap()), &arrays, &[Tolerance::NONE], usize::MAX)
        else {
            panic!("{name} has references");
        };
        oracle.compare(&[Array::new([results.len()], results).unwrap()]).is_ok()
    }

    /// Sums of like terms added one after another in f32, as kernels may: all their roundings go one way.
    #[test]
    fn long_sums_are_allowed_the_roundings_of_their_terms() {
        let sums = |count: usize| -> Vec<f32> {
            let mut sum = 0f32;
            (0..count)
                .map(|_| {
                    sum += 0.1;
                    sum
                })
                .collect()
        };
        let mut running = sums(4096);
        assert!(accepts("terms::running", &[&[4096]], 0.1, &running));
        let mut onto_first = vec![0.1f32; 4096];
        onto_first[0] = sums(4097)[4096];
        assert!(accepts("terms::onto_first", &[&[4096], &[4096]], 0.1, &onto_first));
        // A quarter of the terms is allowed less than all of them would be: 1100 roundings by its own, 1750 otherwise.
        running[1023] *= 1.0 + 1400.0 * f32::EPSILON;
        assert!(!accepts("terms::running", &[&[4096]], 0.1, &running));
    }

    /// Many short products are allowed no more than one.
    #[test]
    fn batches_add_nothing_to_what_their_products_are_allowed() {
        let dot = 4.0 * (0.1f32 * 0.1);
        let shape: &[usize] = &[4096, 4];
        assert!(accepts("terms::dots", &[shape, shape], 0.1, &[dot; 4096]));
        assert!(!accepts("terms::dots", &[shape, shape], 0.1, &[dot * (1.0 + 130.0 * f32::EPSILON); 4096]));
    }
}
