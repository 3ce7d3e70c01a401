//! How many terms an element of a result is a sum of.

use fulgurite_kernels::DType;
use ndarray::ArrayD;

use crate::argument::{Arg, map_arguments};
use crate::reference::ReferenceTensor;
use crate::rules::ReferenceRule;

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
    use crate::directives::Tolerance;
    use crate::error::Failure;
    use crate::operator::{Class, OperatorDef, OperatorKind, ParamDef};
    use crate::rules::TestRules;
    use crate::subject::trace_of;
    use crate::tracer::rules::TracingRules;
    use crate::tracer::{Tensor, call, trace_block};
    use fulgurite_ir::expansion;
    use fulgurite_ir::registry::{OPERATORS, find_operator};

    type Results = Result<Vec<ReferenceTensor>, Failure>;

    const INPUT: ParamDef = expansion::tensor::define("input", Class::Any);
    const OTHER: ParamDef = expansion::tensor::define("other", Class::Any);

    const SAME: TracingRules =
        TracingRules { meta: Some(&|arguments| Ok(vec![arguments[0].tensors()[0].clone()])), ..TracingRules::EMPTY };
    const PER_ROW: TracingRules = TracingRules {
        meta: Some(&|arguments| {
            let input = &arguments[0].tensors()[0];
            Ok(vec![input.with_shape([input.shape()[0]])])
        }),
        ..TracingRules::EMPTY
    };

    const ONE: TracingRules = TracingRules {
        meta: Some(&|arguments| Ok(vec![arguments[0].tensors()[0].with_shape([])])),
        ..TracingRules::EMPTY
    };
    const INDICES: TracingRules = TracingRules {
        meta: Some(&|arguments| Ok(vec![arguments[0].tensors()[0].with_dtype(DType::I64)])),
        ..TracingRules::EMPTY
    };

    macro_rules! operators {
        ($($id:ident: $name:literal, $params:expr, $tracing:expr, $reference:expr;)*) => {$(
            #[linkme::distributed_slice(OPERATORS)]
            static $id: &OperatorDef = &OperatorDef {
                name: $name,
                kind: OperatorKind::Prim,
                params: $params,
                rules: &[&$tracing, &TestRules { reference: Some(&$reference), ..TestRules::EMPTY }],
                ..expansion::OPERATOR
            };
        )*};
    }

    operators! {
        RUNNING: "terms::running", &[INPUT], SAME, running;
        ONTO_FIRST: "terms::onto_first", &[INPUT, OTHER], SAME, onto_first;
        DOTS: "terms::dots", &[INPUT, OTHER], PER_ROW, dots;
        MEAN: "terms::mean", &[INPUT], ONE, mean;
        NEARLY: "terms::rounded", &[INPUT], SAME, |arguments| {
            given(arguments[0].tensors()[0].shape(), values(&arguments[0]))
        };
        ORDER: "terms::order", &[INPUT], INDICES, order;
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

    /// Indices of the elements, the largest first.
    fn order(arguments: &[Arg<ReferenceTensor>]) -> Results {
        let values = values(&arguments[0]);
        let mut indices: Vec<i64> = (0..values.len() as i64).collect();
        indices.sort_by(|a, b| values[*b as usize].total_cmp(&values[*a as usize]));
        let indices = ArrayD::from_shape_vec(ndarray::IxDyn(&[values.len()]), indices);
        Ok(vec![ReferenceTensor::from_integers(DType::I64, indices.unwrap())])
    }

    fn tensor(shape: &[usize]) -> Arg<ReferenceTensor> {
        Arg::Tensor(of_floats(DType::F32, shape, vec![0.25; shape.iter().product()]))
    }

    #[test]
    fn terms_are_counted_in_the_operands() {
        assert_eq!(terms_of_each(&running, &[tensor(&[4])]), [[1.0, 2.0, 3.0, 4.0]]);
        assert_eq!(terms_of_each(&onto_first, &[tensor(&[3]), tensor(&[8])]), [[9.0, 1.0, 1.0]]);
        // As many as a row has, however many rows there are.
        assert_eq!(terms_of_each(&dots, &[tensor(&[3, 5]), tensor(&[3, 5])]), [[5.0, 5.0, 5.0]]);
        // Divided, a sum of ones is one: its share of the operand.
        assert_eq!(terms_of_each(&mean, &[tensor(&[6])]), [[6.0]]);
        assert!(terms_of_each(&|_| Err(Failure::new("Refused", "ones")), &[tensor(&[6])]).is_empty());
    }

    /// Whether the results of an operator in f32 are accepted, all operands being this number.
    fn accepts(name: &str, shapes: &[&[usize]], number: f32, results: &[f32]) -> bool {
        let arrays: Vec<Array> =
            (shapes.iter()).map(|shape| Array::new(*shape, &vec![number; shape.iter().product()]).unwrap()).collect();
        takes(&[name], &arrays, Array::new([results.len()], results).unwrap())
    }

    /// Whether this result of operators, one after another, is accepted.
    fn takes(names: &[&str], arrays: &[Array], result: Array) -> bool {
        let parameters: Vec<_> =
            (arrays.iter().enumerate()).map(|(i, array)| (format!("x{i}").into(), array.meta().clone())).collect();
        let block = trace_block(&parameters, |x: &[Tensor]| {
            names.iter().fold(x.to_vec(), |x, name| {
                call(find_operator(name).unwrap(), x.iter().map(|x| Arg::Tensor(*x)).collect())
            })
        });
        let Ok(Answer::Gives(oracle)) =
            Oracle::ask(&trace_of("terms", block.unwrap()), arrays, &[Tolerance::NONE], usize::MAX)
        else {
            panic!("{names:?} have references");
        };
        oracle.compare(&[result]).is_ok()
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

    /// In f64 the reference itself adds like terms with roundings that all go one way, and other numbers with others.
    #[test]
    fn like_terms_in_f64_may_be_added_more_exactly_than_the_reference_does() {
        let accepted = |count: usize, number: f64, result: f64| {
            let array = Array::from_f64([count], DType::F64, &vec![number; count]).unwrap();
            takes(&["terms::mean"], &[array], Array::from_f64([], DType::F64, &[result]).unwrap())
        };
        for i in 0..64 {
            let number = 0.827_219_877_199_930_2 + f64::from(i) / 97.0;
            for count in [1000, 2049, 3246, 4095] {
                assert!(accepted(count, number, number), "{count} times {number}");
            }
        }
        // No more than a rounding for each of them.
        assert!(!accepted(3246, 0.75, 0.75 * (1.0 + 3246.0 * f64::EPSILON)));
    }

    /// Which of two numbers is the larger one says nothing where their roundings decide about it.
    #[test]
    fn the_order_of_nearly_equal_numbers_is_free_and_no_other() {
        // A hundred pairs that are three roundings apart, and as many numbers by themselves.
        let pairs = (1..=100).map(f64::from).flat_map(|value| [value, value * (1.0 + 3e-7)]);
        let numbers: Vec<f64> = pairs.chain((101..=200).map(f64::from)).collect();
        let array = Array::from_f64([300], DType::F32, &numbers).unwrap();
        let taken = |changed: fn(i64) -> i64| {
            let indices: Vec<i64> = (0..300).rev().map(changed).collect();
            let indices = Array::new([300], &indices).unwrap();
            takes(&["terms::rounded", "terms::order"], std::slice::from_ref(&array), indices)
        };
        assert!(taken(|i| i));
        assert!(taken(|i| if i < 200 { i ^ 1 } else { i }));
        assert!(!taken(|i| if i < 200 { i } else { i ^ 1 }));
    }
}
